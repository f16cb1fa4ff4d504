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


class Packing(ctypes.Structure):
    """How live weights of a pair of fields become the matrices that mix them; struct packing of weights.h."""

    _fields_ = (
        ("table", ctypes.c_void_p),
        ("columns", ctypes.c_void_p),
        ("alike", ctypes.c_void_p),
        ("combine", ctypes.c_void_p),
        ("combine_back", ctypes.c_void_p),
        ("most_alike", ctypes.c_long),
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
    rows: int
    kept: tuple  # what the structs point to


class _Atoms(NamedTuple):
    """The atoms of a kernel size by frequency, and the row of a product that each one's first response fills."""

    frequencies: list[int]
    oscillating: list[int]  # numbers of the atoms with k > 0: two rows each; the others one
    first_row: dict[int, int]
    rows: int

    def live(self) -> list[tuple[int, int]]:
        """(part, atom) of every live weight of an offset, in the weights' order."""
        return [(0, atom) for atom in range(len(self.frequencies))] + [(1, atom) for atom in self.oscillating]


@cache
@on_cpu
def plan(n: int, kernel_size: int) -> Plan:
    """For even n and the kernel sizes of bank.py."""
    atoms = _atoms(kernel_size)
    places = [_Route(*route) for pair in bank.routes(n, kernel_size) for route in pair]
    routes, matrix = (_Route * len(places))(*places), _mixing(atoms, kernel_size, n)
    combine, values = combinations(kernel_size)
    half = kernel_size // 2
    complex_ones = [(values[atom, half + dy, half + dx], imaginary) for atom, imaginary, dy, dx in bank.coefficients(kernel_size)]
    coefficient = np.array([z.imag if imaginary else z.real for z, imaginary in complex_ones], dtype=np.float32)
    angles = 2 * np.pi * np.outer(np.arange(n // 2), np.arange(n // 2)) / n
    cosine, sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    count, data = len(atoms.frequencies), [table.ctypes.data for table in (coefficient, cosine, sine)]
    struct = _Plan(n, kernel_size, atoms.rows, data[0], routes, count, data[1], data[2])
    mixing, adjoint = (_packing(atoms, m, combine, n) for m in (matrix, matrix @ _adjoint_matrix(n, atoms).T))
    kept = (routes, coefficient, cosine, sine, mixing, adjoint)
    return Plan(struct, mixing[0], adjoint[0], atoms.rows, kept)


def combinations(kernel_size: int) -> tuple[np.ndarray, np.ndarray]:
    """How the atoms of the paper combine from those of bank.py, (atoms, atoms), and these, (atoms, K, K)."""
    atoms, half = sample_atoms(kernel_size), kernel_size // 2
    values, frequency = atoms.values.numpy(), atoms.frequency.numpy()
    at_rings = values[:, half, [half + ring for ring in bank.rings(kernel_size)]].real
    combine = np.where(frequency[:, None] == frequency, at_rings, 0.0)
    return combine, np.einsum("ij,jyx->iyx", np.linalg.inv(combine), values)


def _packing(atoms: _Atoms, matrix: np.ndarray, combine: np.ndarray, n: int) -> tuple[Packing, tuple]:
    """The numbers of (products rows, n L) that are not zero: a row takes from the weights of one atom only. Before that, weights of the
    paper's atoms become those of the bank's, from atoms of the same frequency.
    """
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
    groups = [[other for other, k in enumerate(atoms.frequencies) if k == atoms.frequencies[atom]] for _, atom in place]
    alike = np.zeros((len(place), max(map(len, groups))), dtype=np.int64)
    there, back = np.zeros(alike.shape, dtype=np.float32), np.zeros(alike.shape, dtype=np.float32)
    for column, ((part, atom), group) in enumerate(zip(place, groups)):
        alike[column, : len(group)] = [place[part, other] for other in group]
        there[column, : len(group)], back[column, : len(group)] = combine[group, atom], combine[atom, group]
    tables = table, columns, alike, there, back
    packing = Packing(*(each.ctypes.data for each in tables), alike.shape[1], _products(n), atoms.rows, n, len(place))
    return packing, tables


def _products(n: int) -> int:
    """Real products: one each for the frequencies 0 and n / 2, three for every other."""
    return 2 + 3 * (n // 2 - 1)


def _atoms(kernel_size: int) -> _Atoms:
    frequencies = sample_atoms(kernel_size).frequency.tolist()
    oscillating = [atom for atom, k in enumerate(frequencies) if k > 0]
    return _Atoms(frequencies, oscillating, bank.rows(kernel_size), len(bank.filters(kernel_size)))


def _mixing(atoms: _Atoms, kernel_size: int, n: int) -> np.ndarray:
    """(products rows, n L): what each live weight adds to each entry of the matrices that mix."""
    mixing = np.zeros((_products(n), atoms.rows, n, 2, len(atoms.frequencies)))  # last three: offset, part, atom
    for atom, output, row, kind, plus, _, sign in bank.destinations(n, kernel_size):
        first, weight = bank.product(output, n), _factor(output, plus, kind, atoms.frequencies[atom], n)
        if kind == bank.SINGLE:
            mixing[first, row, :, 0, atom] = weight[:, 0].real
        elif kind == bank.REAL:
            mixing[first, row, :, :, atom] = weight.real
            mixing[first, row + 1, :, :, atom] = -sign * weight.imag
        else:  # weight w = u + iv of a row Z = R + iI: matrices for R + I, for R and for I
            mixing[first, row, :, :, atom] = weight.real
            mixing[first + 1, row, :, :, atom] = weight.imag - weight.real
            mixing[first + 2, row, :, :, atom] = weight.real + weight.imag
    return np.stack([mixing[:, :, :, part, atom] for part, atom in atoms.live()], axis=-1).reshape(_products(n) * atoms.rows, -1)


def _factor(output: int, plus: bool, kind: int, frequency: int, n: int) -> np.ndarray:
    """(n, 2): what multiplies a response, by a real weight 1 and an imaginary one at each offset; the transform back divides by n."""
    turn = np.exp(-2j * np.pi * output * np.arange(n) / n)  # W(m) = sum over offsets of w turn
    forward = np.stack((turn, 1j * turn), axis=1)
    mirrored = np.conj(np.stack((np.conj(turn), 1j * np.conj(turn)), axis=1))  # conj W(-m)
    if kind != bank.COMPLEX:  # Re(W Z): the other term is the conjugate
        return forward / n
    if frequency == 0:
        return (forward + mirrored) / n
    return (forward if plus else mirrored) / n


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
