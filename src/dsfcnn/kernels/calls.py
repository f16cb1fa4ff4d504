"""Calls of the compiled kernel: tensors in, tensors out, no gradients.

What it writes is made like what it reads (``new_empty``), not by the default type and device of whoever calls.
"""

import ctypes
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dsfcnn.kernels import library
from dsfcnn.kernels.tables import Packing, Plan


class Activation(NamedTuple):
    """How maps are read: relu(scale (x - centre) + beta), one number of each per field."""

    centre: Tensor
    scale: Tensor
    beta: Tensor

    def shift(self) -> Tensor:
        return self.beta - self.centre * self.scale


class _Maps:
    """struct maps of gconv.c, as numbers; keeps what they point to."""

    def __init__(self, tensors: Sequence[Tensor] = (), activation: Activation | None = None):
        listed = array("l", [number for tensor in tensors for number in (tensor.data_ptr(), tensor.shape[1])])
        read_by = () if activation is None else (activation.centre.contiguous(), activation.scale.contiguous(), activation.shift())
        self.kept = listed, tensors, read_by
        self.numbers = (listed.buffer_info()[0], len(tensors), *([tensor.data_ptr() for tensor in read_by] or (0, 0, 0)))


_NO_MAPS = _Maps()


def _pointer(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _functions() -> ctypes.CDLL:
    functions = library.load().functions
    assert functions is not None
    return functions


def _gconv(
    tables: Plan,
    packing: Packing,
    x: _Maps,
    y: _Maps,
    read: _Maps,
    weight: Tensor,
    size: torch.Size,
    *,
    to_weight: Tensor | None = None,
    bias: Tensor | None = None,
    sums: Tensor | None = None,
) -> None:
    """One call of gconv.c, for weights (y fields, x fields, n, L) and maps of this size; what it reads is struct call, as numbers."""
    assert weight.stride()[2:] == (weight.shape[3], 1)
    images, _, _, height, width = size
    weights = weight.data_ptr(), _pointer(to_weight), weight.stride(0), weight.stride(1)
    plans, maps = (ctypes.addressof(tables.struct), ctypes.addressof(packing)), (*x.numbers, *y.numbers, *read.numbers)
    call = array("l", (*plans, *maps, *weights, _pointer(bias), _pointer(sums), images, height, width, torch.get_num_threads()))
    if _functions().dsfcnn_gconv(call.buffer_info()[0]):
        raise MemoryError("no memory for the scratch space of a G-convolution; use a smaller batch or image")


def convolve(
    maps: Sequence[Tensor], weight: Tensor, tables: Plan, activation: Activation | None = None, bias: Tensor | None = None
) -> Tensor:
    """One layer: maps (N, C, n, H, W) that stand side by side, through the activation, by weights (out, in, n, L) to (N, out, n, H, W)."""
    maps, weight, bias = [m.contiguous() for m in maps], weight.contiguous(), None if bias is None else bias.contiguous()
    images, _, *size = maps[0].shape
    y = maps[0].new_empty(images, weight.shape[0], *size)
    _gconv(tables, tables.mixing, _Maps(maps, activation), _Maps([y]), _NO_MAPS, weight, y.shape, bias=bias)
    return y


class Gradients(NamedTuple):
    """What ``convolve_back`` finds; those of the weights and the sums are None where they were not wanted."""

    maps: list[Tensor]
    weight: Tensor | None
    passed: Tensor | None  # per field, in double: sum of the gradient that passes the ReLU
    passed_times: Tensor | None  # and of that times x - centre


def convolve_back(
    gradient: Tensor, maps: Sequence[Tensor], weight: Tensor, tables: Plan, activation: Activation | None, weight_too: bool
) -> Gradients:
    """The gradient of ``convolve``, by the adjoint layer."""
    gradient, maps, weight = gradient.contiguous(), [m.contiguous() for m in maps], weight.contiguous()
    found = [m.new_empty(m.shape) for m in maps]
    to_weight = weight.new_empty(weight.shape) if weight_too else None
    sums = None if activation is None else weight.new_empty(weight.shape[1], 2, dtype=torch.float64)
    across, size = weight.transpose(0, 1), gradient.shape
    numbers = _Maps([gradient]), _Maps(found), _Maps(maps, activation)
    _gconv(tables, tables.adjoint, *numbers, across, size, to_weight=to_weight, sums=sums)
    passed, passed_times = (None, None) if sums is None else sums.unbind(1)
    return Gradients(found, to_weight, passed, passed_times)


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance (of all numbers, not corrected) of every field of (N, C, n, H, W), in double."""
    x = x.contiguous()
    images, fields = x.shape[:2]
    sums = x.new_empty(images, fields, 2, dtype=torch.float64)
    size = x[0, 0].numel()
    _functions().dsfcnn_moments(*_pointers(x, sums), *_longs(images, fields, size, torch.get_num_threads()))
    first, second = (sums.sum(0) / (images * size)).unbind(1)
    return x[0, :, 0, 0, 0].double() + first, (second - first.square()).clamp_(min=0)


def affine(x: Tensor, scale: Tensor, shift: Tensor, linear: bool = False, in_place: bool = False) -> Tensor:
    """relu(scale x + shift) per field, or without the ReLU; ``in_place`` if x may be written over."""
    x = x.contiguous()
    y, images, fields = x if in_place else x.new_empty(x.shape), *x.shape[:2]
    scale, shift = scale.contiguous(), shift.contiguous()
    sizes = _longs(images, fields, x[0, 0].numel(), torch.get_num_threads())
    _functions().dsfcnn_affine(*_pointers(x, y, scale, shift), ctypes.c_int(linear), *sizes)
    return y


def activate_back(x: Tensor, gradient: Tensor, activation: Activation) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of the activation to x, and per field the sums of what passes the ReLU, and of that times x - centre."""
    x, gradient = x.contiguous(), gradient.contiguous()
    y, images, fields = x.new_empty(x.shape), *x.shape[:2]
    sums = x.new_empty(images, fields, 2, dtype=torch.float64)
    numbers = activation.centre.contiguous(), activation.scale.contiguous(), activation.shift()
    sizes = _longs(images, fields, x[0, 0].numel(), torch.get_num_threads())
    _functions().dsfcnn_activate_back(*_pointers(x, gradient, y, *numbers, sums), *sizes)
    passed, passed_times = sums.sum(0).unbind(1)
    return y, passed, passed_times


def max_pool(x: Tensor, gradient: Tensor | None = None) -> Tensor:
    """The largest number of every 2 x 2 pixels of (..., H, W), both even; or, with the gradient of that, the gradient to x."""
    x = x.contiguous()
    gradient = None if gradient is None else gradient.contiguous()
    *outer, height, width = x.shape
    y = x.new_empty(*outer, height // 2, width // 2) if gradient is None else x.new_empty(x.shape)
    pointers = [ctypes.c_void_p(_pointer(tensor)) for tensor in (x, gradient, y)]
    _functions().dsfcnn_max_pool(*pointers, *_longs(x.numel() // (height * width), height, width, torch.get_num_threads()))
    return y


def _pointers(*tensors: Tensor) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]


def _longs(*numbers: int) -> list[ctypes.c_long]:
    return [ctypes.c_long(number) for number in numbers]
