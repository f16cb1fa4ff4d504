"""Steerable G-convolution in the orientation-Fourier domain: the same function as the dense one, for a fraction of the arithmetic.

With X(m) the Fourier transform of a field over its n orientations, and W_jk(m) that of the weights over their offsets, paper Eq. (18)
is exactly

    Y(m) = 1/2 sum_jk [ W_jk(m) (X(m + k) * psi_jk) + conj(W_jk(-m)) (X(m - k) * conj psi_jk) ]

so every plane is filtered by the fixed atoms alone, and fields are mixed frequency by frequency. gconv.c does that; this file makes its
tables, turns weights into the matrices that mix, and gives the gradient.
"""

import ctypes
import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dsfcnn.basis import sample_atoms
from dsfcnn.basis.context import on_cpu
from dsfcnn.kernels import bank, library

_CHUNK = 4  # CHUNK of gconv.c
_TILE = 16
_STRIP = 8  # MAX_ROWS of gconv.c
_MAX_OUT = 6
_PARTS = 8  # sums of the weights' gradient that are kept apart: the same for every number of threads


class _Route(ctypes.Structure):
    _fields_ = (
        ("offset", ctypes.c_long),
        ("step", ctypes.c_long),
        ("imaginary", ctypes.c_long),
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


class Source(NamedTuple):
    """Where a row of a product comes from: a response X(m) * psi, or X(m) * conj psi, and whether its conjugate is meant."""

    frequency: int  # 0 .. n / 2
    conjugate_atom: bool
    conjugate: bool


class Plan(NamedTuple):
    """All tables of one number of orientations and kernel size."""

    struct: _Plan
    mixing: Tensor  # (n L, products rows): live weights of a pair of fields to the matrices that mix it
    adjoint: Tensor  # the same for the adjoint layer, which computes the gradient to the input
    products: int
    rows: int
    kept: tuple  # what the struct points to


def source(output: int, frequency: int, plus: bool, n: int) -> Source:
    """The response that output frequency m needs of an atom: X(m + k) * psi (plus) or X(m - k) * conj psi.

    Fields are real, so X(-m) = conj X(m), and conj X * psi = conj(X * conj psi).
    """
    wanted = (output + frequency if plus else output - frequency) % n
    if wanted <= n // 2:
        return Source(wanted, conjugate_atom=not plus, conjugate=False)
    return Source(n - wanted, conjugate_atom=plus, conjugate=True)


@cache
@on_cpu
def plan(n: int, kernel_size: int) -> Plan:
    """For even n and the kernel sizes of bank.py."""
    frequencies = sample_atoms(kernel_size).frequency.tolist()
    oscillating = [atom for atom, k in enumerate(frequencies) if k > 0]
    flat = [atom for atom, k in enumerate(frequencies) if k == 0]
    rows, products = len(flat) + 2 * len(oscillating), 2 + 3 * (n // 2 - 1)
    first_row = {atom: row for row, atom in enumerate(flat)}
    first_row |= {atom: len(flat) + 2 * i for i, atom in enumerate(oscillating)}
    step = _CHUNK * rows * _TILE  # floats from product to product
    routes = (_Route * (n // 2 * len(frequencies) * 2))()
    mixing = np.zeros((products, rows, n, 2, len(frequencies)))  # last three: offset, part, atom
    offsets = np.arange(n)

    def product(output: int) -> int:
        return {0: 0, n // 2: 1}.get(output, 3 * output - 1)

    def route_to(place: Source, atom: int, output: int, row: int, kind: int) -> None:
        # Planes 0 and n / 2 are the first pair; of the others, pair m holds both parts of frequency m.
        if place.frequency in (0, n // 2):
            pair, second = 0, place.frequency != 0
        else:
            pair, second = place.frequency, place.conjugate_atom
        imaginary = len(frequencies) + oscillating.index(atom) if frequencies[atom] else -1
        sign = -1.0 if _conjugated(place, n) else 1.0
        routes[(pair * len(frequencies) + atom) * 2 + second] = _Route(product(output) * step + row * _TILE, step, imaginary, kind, sign)

    for output in range(n // 2 + 1):
        real_output = output in (0, n // 2)
        turn = np.exp(-2j * np.pi * output * offsets / n)  # W(m) = sum over offsets of w turn
        scale = (1 if real_output else 2) / n
        for atom, k in enumerate(frequencies):
            row = first_row[atom]
            # W(m) of a real weight 1 and of an imaginary one, at each offset: (n, 2)
            transformed = np.stack((turn, 1j * turn), axis=1)
            mirrored = np.conj(np.stack((np.conj(turn), 1j * np.conj(turn)), axis=1))  # conj W(-m)
            if k == 0:
                place = Source(output, False, False)
                if real_output:
                    route_to(place, atom, output, row, _SINGLE)
                    mixing[product(output), row, :, 0, atom] = scale * transformed[:, 0].real
                else:
                    route_to(place, atom, output, row, _COMPLEX)
                    _three_products(mixing, product(output), row, atom, scale * (transformed + mirrored) / 2, 1.0)
                continue
            for plus in (True,) if real_output else (True, False):
                place = source(output, k, plus, n)
                sign = -1.0 if _conjugated(place, n) else 1.0
                if real_output:  # Re(W Z): the other term is the conjugate
                    route_to(place, atom, output, row, _REAL)
                    mixing[product(output), row, :, :, atom] = scale * transformed.real
                    mixing[product(output), row + 1, :, :, atom] = -sign * scale * transformed.imag
                else:
                    slot = row if plus else row + 1
                    route_to(place, atom, output, slot, _COMPLEX)
                    _three_products(mixing, product(output), slot, atom, scale * (transformed if plus else mirrored) / 2, sign)
    live = [(0, atom) for atom in range(len(frequencies))] + [(1, atom) for atom in oscillating]
    matrix = np.stack([mixing[:, :, :, part, atom] for part, atom in live], axis=-1)  # products rows n L
    matrix = matrix.reshape(products * rows, -1).T
    atoms = sample_atoms(kernel_size).values.numpy()
    coefficient = np.array(
        [atoms[atom, r, c].imag if imaginary else atoms[atom, r, c].real for atom, imaginary, r, c in bank.coefficient_places(kernel_size)],
        dtype=np.float32,
    )
    angles = 2 * np.pi * np.outer(np.arange(n // 2), np.arange(n // 2)) / n
    cosine, sine = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    struct = _Plan(n, kernel_size, rows, coefficient.ctypes.data, routes, len(frequencies), cosine.ctypes.data, sine.ctypes.data)
    adjoint = _adjoint_matrix(n, frequencies, live) @ matrix
    kept = (routes, coefficient, cosine, sine)
    matrix, adjoint = matrix.astype(np.float32), adjoint.astype(np.float32)
    return Plan(struct, torch.from_numpy(matrix), torch.from_numpy(adjoint), products, rows, kept)


def _conjugated(place: Source, n: int) -> bool:
    """Whether a row holds the conjugate of what is meant. A real plane gives X * psi only, whose conjugate is X * conj psi."""
    if place.frequency in (0, n // 2):
        return place.conjugate != place.conjugate_atom
    return place.conjugate


def _three_products(mixing: np.ndarray, first: int, row: int, atom: int, weight: np.ndarray, sign: float) -> None:
    """Weight w = u + iv of a row Z = R + i sign I: matrices for R + sign I, for R and for I."""
    mixing[first, row, :, :, atom] = weight.real
    mixing[first + 1, row, :, :, atom] = weight.imag - weight.real
    mixing[first + 2, row, :, :, atom] = sign * (weight.real + weight.imag)


def _adjoint_matrix(n: int, frequencies: list[int], live: list[tuple[int, int]]) -> np.ndarray:
    """Weights of a layer to those of its adjoint: the gradient to the input is a G-convolution too, with fields exchanged and weights
    w'[l] = (-1)^k exp(-i k l 2 pi / n) w[-l].
    """
    matrix = np.zeros((n, len(live), n, len(live)))  # of w, of w'
    number = {key: i for i, key in enumerate(live)}
    for part, atom in live:
        k = frequencies[atom]
        for offset in range(n):
            value = (1j if part else 1) * (-1) ** k * np.exp(-2j * math.pi * k * offset / n)
            for to, component in ((0, value.real), (1, value.imag)):
                if (to, atom) in number:
                    matrix[-offset % n, number[part, atom], offset, number[to, atom]] = component
    return matrix.reshape(n * len(live), -1)


def _packed_outputs(out: int) -> list[int]:
    """Output fields of each step of a product, as gconv.c goes through them."""
    steps = -(-out // _MAX_OUT)
    return [out // steps + (step < out % steps) for step in range(steps)]


def pack(weight: Tensor, tables: Plan, adjoint: bool = False) -> Tensor:
    """Weights (out, in, n, L) to the matrices that mix, in the order in which gconv.c reads them; plain torch, so it has a gradient.

    chunk of 4 input fields, product, step of output fields, [input field, row], output field.
    """
    if adjoint:
        weight = weight.transpose(0, 1)
    mixed = weight.flatten(2) @ (tables.adjoint if adjoint else tables.mixing)
    mixed = mixed.unflatten(2, (tables.products, tables.rows)).permute(2, 1, 3, 0)  # product in row out
    pieces = []
    for chunk in mixed.split(_CHUNK, dim=1):
        by_depth = chunk.flatten(1, 2)  # product depth out
        steps = by_depth.split(_packed_outputs(mixed.shape[3]), dim=2)
        pieces.append(torch.cat([step.flatten(1) for step in steps], dim=1).flatten())
    return torch.cat(pieces)


def unpack_gradient(gradient: Tensor, inputs: int, outputs: int, tables: Plan) -> Tensor:
    """Sums of the parts of a gradient, in the order of ``pack``."""
    lanes = -(-outputs // 8) * 8
    total = gradient[0]
    for part in gradient[1:]:
        total = total + part
    pieces, start = [], 0
    for first in range(0, inputs, _CHUNK):
        depth = min(_CHUNK, inputs - first) * tables.rows
        size = tables.products * depth * lanes
        chunk = total[start : start + size].view(tables.products, depth, lanes)[..., :outputs]
        steps = chunk.split(_packed_outputs(outputs), dim=2)
        pieces.append(torch.cat([step.flatten(1) for step in steps], dim=1).flatten())
        start += size
    return torch.cat(pieces)


def run(
    x: Tensor, packed: Tensor, outputs: int, tables: Plan, bias: Tensor | None = None, other: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """One call of gconv.c: the output, and with ``other`` the parts of the gradient of ``packed`` when the loss is sum(other * output)."""
    images, inputs, n, height, width = x.shape
    y = torch.empty(images, outputs, n, height, width)
    gradient, parts = None, 0
    if other is not None:
        other = other.contiguous()
        parts = min(_PARTS, images * -(-height // _STRIP))
        gradient = torch.zeros(parts, tables.products * inputs * tables.rows * (-(-outputs // 8) * 8))
    tensors = [x.contiguous(), y, packed.contiguous(), None if bias is None else bias.contiguous(), other, gradient]
    pointers = [ctypes.c_void_p(None if tensor is None else tensor.data_ptr()) for tensor in tensors]
    sizes = [ctypes.c_long(size) for size in (images, inputs, outputs, height, width, parts, torch.get_num_threads())]
    functions = library.load().functions
    assert functions is not None
    if functions.dsfcnn_gconv(ctypes.byref(tables.struct), *pointers, *sizes):
        raise MemoryError("no memory for the scratch space of a G-convolution; use a smaller batch or image")
    return y, gradient


class _SpectralGConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, kernel_size: int) -> Tensor:
        tables = plan(x.shape[2], kernel_size)
        ctx.save_for_backward(x, weight)
        ctx.kernel_size = kernel_size
        return run(x, pack(weight, tables), weight.shape[0], tables, bias)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        tables = plan(x.shape[2], ctx.kernel_size)
        to_x = to_weight = None
        if needs_x or needs_weight:
            with torch.enable_grad():
                leaf = weight.detach().requires_grad_()
                packed = pack(leaf, tables, adjoint=True)
            to_x, parts = run(gradient, packed.detach(), x.shape[1], tables, other=x if needs_weight else None)
            if parts is not None:
                (to_weight,) = torch.autograd.grad(packed, leaf, unpack_gradient(parts, weight.shape[0], x.shape[1], tables))
        to_bias = gradient.sum((0, 2, 3, 4)) if needs_bias else None
        return to_x, to_weight, to_bias, None


def spectral_gconv(x: Tensor, weight: Tensor, bias: Tensor | None, kernel_size: int) -> Tensor:
    """Hidden-layer G-convolution of steerable filters, Eq. (18): (N, in, n, H, W), (out, in, n, L) -> (N, out, n, H, W)."""
    return _SpectralGConv.apply(x, weight, bias, kernel_size)
