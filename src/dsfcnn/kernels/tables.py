"""The tables of the spectral G-convolution: where the responses of each atom go, and the matrices that turn weights into products.

With X(m) the Fourier transform of a field over its n orientations, and W_jk(m) that of the weights over their offsets, paper Eq. (18)
is exactly

    Y(m) = 1/2 sum_jk [ W_jk(m) (X(m + k) * psi_jk) + conj(W_jk(-m)) (X(m - k) * conj psi_jk) ]

so every plane is filtered by the fixed atoms alone, and fields are mixed frequency by frequency. gconv.c does that.
"""

import ctypes
import math
from functools import cache
from typing import NamedTuple

import numpy as np

from dsfcnn.basis import sample_atoms
from dsfcnn.basis.context import on_cpu
from dsfcnn.kernels import bank

_CHUNK = 4  # CHUNK of gconv.c
_TILE = 16


class _Route(ctypes.Structure):
    _fields_ = (
        ("offset", ctypes.c_long),
        ("step", ctypes.c_long),
        ("kind", ctypes.c_long),
        ("sign", ctypes.c_float),
    )


class _Plan(ctypes.Structure):
    _fields_ = (
        ("n", ctypes.c_long),
        ("kernel_size", ctypes.c_long),
        ("rows", ctypes.c_long),
        ("coefficient", ctypes.c_void_p),
        ("routes", ctypes.POINTER(_Route)),
        ("atoms", ctypes.c_long),
        ("cosine", ctypes.c_void_p),
        ("sine", ctypes.c_void_p),
    )


_NOWHERE, _COMPLEX, _REAL, _SINGLE = range(4)


class Packing(ctypes.Structure):
    """How live weights of a pair of fields become the matrices that mix them; struct packing of weights.c."""

    _fields_ = (
        ("table", ctypes.c_void_p),
        ("columns", ctypes.c_void_p),
        ("products", ctypes.c_long),
        ("rows", ctypes.c_long),
        ("n", ctypes.c_long),
        ("live", ctypes.c_long),
    )


class Plan(NamedTuple):
    """All tables of one number of orientations and kernel size."""

    struct: _Plan
    mixing: Packing
    adjoint: Packing  # for the adjoint layer, which computes the gradient to the input
    products: int
    rows: int
    kept: tuple  # what the structs point to


class Source(NamedTuple):
    """Where a row of a product comes from: a response X(m) * psi, or X(m) * conj psi, and whether its conjugate is meant."""

    frequency: int  # 0 .. n / 2
    conjugate_atom: bool
    conjugate: bool


class _Atoms(NamedTuple):
    """The atoms of a kernel size by frequency, and the row of a product that each one's first response fills."""

    frequencies: list[int]
    oscillating: list[int]  # numbers of the atoms with k > 0: two rows each; the others one
    first_row: dict[int, int]
    rows: int

    def live(self) -> list[tuple[int, int]]:
        """(part, atom) of every live weight of an offset, in the weights' order."""
        return [(0, atom) for atom in range(len(self.frequencies))] + [(1, atom) for atom in self.oscillating]


class _Term(NamedTuple):
    """One row (or two) of one product: what it multiplies, and with which function of the weights."""

    atom: int
    output: int  # frequency of the product
    row: int
    kind: int
    source: Source
    sign: float  # -1 where the row holds the conjugate of what is meant
    weight: np.ndarray  # (n, 2): by a real weight 1 and an imaginary one at each offset


@cache
@on_cpu
def plan(n: int, kernel_size: int) -> Plan:
    """For even n and the kernel sizes of bank.py."""
    atoms = _atoms(kernel_size)
    terms = [term for output in range(n // 2 + 1) for atom in range(len(atoms.frequencies)) for term in _terms(atoms, atom, output, n)]
    routes, matrix = _routes(atoms, terms, n), _mixing(atoms, terms, n)
    values = sample_atoms(kernel_size).values.numpy()
    places = bank.coefficient_places(kernel_size)
    coefficient = np.array([(values[a, r, c].imag if im else values[a, r, c].real) for a, im, r, c in places], dtype=np.float32)
    angles = 2 * np.pi * np.outer(np.arange(n // 2), np.arange(n // 2)) / n
    cosine, sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    count, data = len(atoms.frequencies), [table.ctypes.data for table in (coefficient, cosine, sine)]
    struct = _Plan(n, kernel_size, atoms.rows, data[0], routes, count, data[1], data[2])
    mixing, adjoint = _packing(atoms, matrix, n), _packing(atoms, matrix @ _adjoint_matrix(n, atoms).T, n)
    kept = (routes, coefficient, cosine, sine, mixing, adjoint)
    return Plan(struct, mixing[0], adjoint[0], _products(n), atoms.rows, kept)


def _packing(atoms: _Atoms, matrix: np.ndarray, n: int) -> tuple[Packing, tuple]:
    """The numbers of (products rows, n L) that are not zero: a row takes from the weights of one atom only."""
    place = {key: i for i, key in enumerate(atoms.live())}
    first = {row: atom for atom, row in atoms.first_row.items()}
    atom_of = [first[row] if row in first else first[row - 1] for row in range(atoms.rows)]
    columns = np.array([[place[0, atom], place.get((1, atom), -1)] for atom in atom_of], dtype=np.int64)
    by_row = matrix.reshape(_products(n), atoms.rows, n, -1)
    table = np.zeros((_products(n), atoms.rows, n, 2), dtype=np.float32)
    for row, parts in enumerate(columns):
        for part, column in enumerate(parts):
            if column >= 0:
                table[:, row, :, part] = by_row[:, row, :, column]
    packing = Packing(table.ctypes.data, columns.ctypes.data, _products(n), atoms.rows, n, len(place))
    return packing, (table, columns)


def _products(n: int) -> int:
    """Real products: one each for the frequencies 0 and n / 2, three for every other."""
    return 2 + 3 * (n // 2 - 1)


def _product(output: int, n: int) -> int:
    """The number of the (first) product of an output frequency."""
    return {0: 0, n // 2: 1}.get(output, 3 * output - 1)


def _atoms(kernel_size: int) -> _Atoms:
    frequencies = sample_atoms(kernel_size).frequency.tolist()
    flat = [atom for atom, k in enumerate(frequencies) if k == 0]
    oscillating = [atom for atom, k in enumerate(frequencies) if k > 0]
    first_row = {atom: row for row, atom in enumerate(flat)} | {atom: len(flat) + 2 * i for i, atom in enumerate(oscillating)}
    return _Atoms(frequencies, oscillating, first_row, len(flat) + 2 * len(oscillating))


def source(output: int, frequency: int, plus: bool, n: int) -> Source:
    """The response that output frequency m needs of an atom: X(m + k) * psi (plus) or X(m - k) * conj psi.

    Fields are real, so X(-m) = conj X(m), and conj X * psi = conj(X * conj psi).
    """
    wanted = (output + frequency if plus else output - frequency) % n
    if wanted <= n // 2:
        return Source(wanted, conjugate_atom=not plus, conjugate=False)
    return Source(n - wanted, conjugate_atom=plus, conjugate=True)


def _terms(atoms: _Atoms, atom: int, output: int, n: int) -> list[_Term]:
    """What an atom adds to an output frequency: its two terms of the sum above, or one where the other is its conjugate."""
    k, row, real_output = atoms.frequencies[atom], atoms.first_row[atom], output in (0, n // 2)
    turn = np.exp(-2j * np.pi * output * np.arange(n) / n)  # W(m) = sum over offsets of w turn
    forward = np.stack((turn, 1j * turn), axis=1)
    mirrored = np.conj(np.stack((np.conj(turn), 1j * np.conj(turn)), axis=1))  # conj W(-m)
    scale = (1 if real_output else 2) / n
    if k == 0:
        kind, weight = (_SINGLE, forward) if real_output else (_COMPLEX, (forward + mirrored) / 2)
        return [_Term(atom, output, row, kind, Source(output, False, False), 1.0, scale * weight)]
    found = []
    for plus in (True,) if real_output else (True, False):
        place = source(output, k, plus, n)
        sign = -1.0 if _conjugated(place, n) else 1.0
        if real_output:  # Re(W Z): the other term is the conjugate
            found.append(_Term(atom, output, row, _REAL, place, sign, scale * forward))
        else:
            weight = scale * (forward if plus else mirrored) / 2
            found.append(_Term(atom, output, row if plus else row + 1, _COMPLEX, place, sign, weight))
    return found


def _routes(atoms: _Atoms, terms: list[_Term], n: int) -> ctypes.Array:
    """Where gconv.c puts each response."""
    count, step = len(atoms.frequencies), _CHUNK * atoms.rows * _TILE  # floats from product to product
    routes = (_Route * (n // 2 * count * 2))()
    for atom, output, row, kind, place, sign, _ in terms:
        # Planes 0 and n / 2 are the first pair; of the others, pair m holds both parts of frequency m.
        if place.frequency in (0, n // 2):
            pair, second = 0, place.frequency != 0
        else:
            pair, second = place.frequency, place.conjugate_atom
        routes[(pair * count + atom) * 2 + second] = _Route(_product(output, n) * step + row * _TILE, step, kind, sign)
    return routes


def _mixing(atoms: _Atoms, terms: list[_Term], n: int) -> np.ndarray:
    """(products rows, n L): what each live weight adds to each entry of the matrices that mix."""
    mixing = np.zeros((_products(n), atoms.rows, n, 2, len(atoms.frequencies)))  # last three: offset, part, atom
    for atom, output, row, kind, _, sign, weight in terms:
        first = _product(output, n)
        if kind == _SINGLE:
            mixing[first, row, :, 0, atom] = weight[:, 0].real
        elif kind == _REAL:
            mixing[first, row, :, :, atom] = weight.real
            mixing[first, row + 1, :, :, atom] = -sign * weight.imag
        else:  # weight w = u + iv of a row Z = R + i sign I: matrices for R + sign I, for R and for I
            mixing[first, row, :, :, atom] = weight.real
            mixing[first + 1, row, :, :, atom] = weight.imag - weight.real
            mixing[first + 2, row, :, :, atom] = sign * (weight.real + weight.imag)
    return np.stack([mixing[:, :, :, part, atom] for part, atom in atoms.live()], axis=-1).reshape(_products(n) * atoms.rows, -1)


def _conjugated(place: Source, n: int) -> bool:
    """Whether a row holds the conjugate of what is meant. A real plane gives X * psi only, whose conjugate is X * conj psi."""
    if place.frequency in (0, n // 2):
        return place.conjugate != place.conjugate_atom
    return place.conjugate


def _adjoint_matrix(n: int, atoms: _Atoms) -> np.ndarray:
    """Weights of a layer to those of its adjoint: the gradient to the input is a G-convolution too, with fields exchanged and weights
    w'[l] = (-1)^k exp(-i k l 2 pi / n) w[-l].
    """
    live = atoms.live()
    matrix = np.zeros((n, len(live), n, len(live)))  # of w, of w'
    number = {key: i for i, key in enumerate(live)}
    for part, atom in live:
        k = atoms.frequencies[atom]
        for offset in range(n):
            value = (1j if part else 1) * (-1) ** k * np.exp(-2j * math.pi * k * offset / n)
            for to, component in ((0, value.real), (1, value.imag)):
                if (to, atom) in number:
                    matrix[-offset % n, number[part, atom], offset, number[to, atom]] = component
    return matrix.reshape(n * len(live), -1)
