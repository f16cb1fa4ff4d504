"""Calls of the compiled kernel: tensors in, tensors out, no gradients."""

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dsfcnn.kernels import library
from dsfcnn.kernels.tables import Packing, Plan

_LANES = 8  # floats of a vector
_PARTS = 8  # sums of the weights' gradient that are kept apart: the same for every number of threads


class Activation(NamedTuple):
    """How maps are read: relu(scale (x - centre) + beta), one number of each per field."""

    centre: Tensor
    scale: Tensor
    beta: Tensor

    def shift(self) -> Tensor:
        return self.beta - self.centre * self.scale


class _Map(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("fields", ctypes.c_long))


class _Maps(ctypes.Structure):
    _fields_ = (
        ("list", ctypes.POINTER(_Map)),
        ("count", ctypes.c_long),
        ("centre", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("shift", ctypes.c_void_p),
    )


class _Call(ctypes.Structure):
    _fields_ = (
        ("plan", ctypes.c_void_p),
        ("x", _Maps),
        ("y", _Maps),
        ("read", _Maps),
        ("weights", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("gradient", ctypes.c_void_p),
        ("sums", ctypes.c_void_p),
        ("images", ctypes.c_long),
        ("height", ctypes.c_long),
        ("width", ctypes.c_long),
        ("parts", ctypes.c_long),
        ("threads", ctypes.c_long),
    )


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _functions() -> ctypes.CDLL:
    functions = library.load().functions
    assert functions is not None
    return functions


class _Frame:
    """The arguments of one call of gconv.c; keeps what its pointers point to."""

    def __init__(self, tables: Plan, size: tuple[int, int, int]):
        self.kept: list[object] = [tables]
        self.call = _Call(plan=ctypes.addressof(tables.struct), threads=torch.get_num_threads())
        self.call.images, self.call.height, self.call.width = size

    def maps(self, tensors: Sequence[Tensor], activation: Activation | None = None) -> _Maps:
        listed = (_Map * len(tensors))(*[_Map(tensor.data_ptr(), tensor.shape[1]) for tensor in tensors])
        numbers = (None,) * 3 if activation is None else (activation.centre.contiguous(), activation.scale.contiguous(), activation.shift())
        self.kept += [listed, *tensors, *numbers]
        return _Maps(listed, len(tensors), *(_pointer(n) for n in numbers))

    def run(self) -> None:
        if _functions().dsfcnn_gconv(ctypes.addressof(self.call)):
            raise MemoryError("no memory for the scratch space of a G-convolution; use a smaller batch or image")


def _padded(fields: int) -> int:
    return -(-fields // _LANES) * _LANES


def pack(weight: Tensor, packing: Packing) -> Tensor:
    """Weights (out, in, n, L) to the matrices that mix, as gconv.c reads them: (products, in, rows, out padded to 8)."""
    out, inputs = weight.shape[:2]
    packed = torch.empty(packing.products, inputs, packing.rows, _padded(out))
    _weights(weight, packing, _pointer(packed), None, 0)
    return packed


def unpack(parts: Tensor, packing: Packing, like: Tensor) -> Tensor:
    """The gradient of ``pack``, summed over parts (parts, in, products, rows, out padded to 8), with shape and strides of the weights."""
    found = torch.empty_strided(like.shape, like.stride())
    _weights(found, packing, None, _pointer(parts), parts.shape[0])
    return found


def _weights(weight: Tensor, packing: Packing, packed: int | None, gradient: int | None, parts: int) -> None:
    assert weight.stride()[2:] == (weight.shape[3], 1)
    out, inputs = weight.shape[:2]
    arguments = (weight.data_ptr(), weight.stride(0), weight.stride(1), inputs, out, packed, gradient, parts, torch.get_num_threads())
    if _functions().dsfcnn_weights(ctypes.addressof(packing), *arguments):
        raise MemoryError("no memory for the weights of a G-convolution")


def convolve(
    maps: Sequence[Tensor], packed: Tensor, out_fields: int, tables: Plan, activation: Activation | None = None, bias: Tensor | None = None
) -> Tensor:
    """One layer: maps (N, C, n, H, W) that stand side by side, through the activation, to (N, out_fields, n, H, W)."""
    images, _, n, height, width = maps[0].shape
    y = torch.empty(images, out_fields, n, height, width)
    frame = _Frame(tables, (images, height, width))
    frame.call.x, frame.call.y = frame.maps([m.contiguous() for m in maps], activation), frame.maps([y])
    bias = None if bias is None else bias.contiguous()
    frame.call.weights, frame.call.bias = packed.data_ptr(), _pointer(bias)
    frame.run()
    return y


class Gradients(NamedTuple):
    """What ``convolve_back`` finds; ``parts`` and the sums are None where they were not wanted."""

    maps: list[Tensor]
    parts: Tensor | None  # of the adjoint's packed weights, to be summed by ``unpack``
    passed: Tensor | None  # per field, in double: sum of the gradient that passes the ReLU
    passed_times: Tensor | None  # and of that times x - centre


def convolve_back(
    gradient: Tensor, maps: Sequence[Tensor], packed: Tensor, tables: Plan, activation: Activation | None, weights_too: bool
) -> Gradients:
    """The gradient of ``convolve``, by the adjoint layer, whose packed weights are given."""
    images, in_fields, _, height, width = gradient.shape
    found = [torch.empty(m.shape) for m in maps]
    out_fields = sum(m.shape[1] for m in maps)
    frame = _Frame(tables, (images, height, width))
    call = frame.call
    call.x, call.y = frame.maps([gradient.contiguous()]), frame.maps(found)
    call.read = frame.maps([m.contiguous() for m in maps], activation)
    call.weights = packed.data_ptr()
    blocks = _functions().dsfcnn_blocks(ctypes.addressof(call))
    parts = sums = None
    if weights_too:
        call.parts = min(_PARTS, blocks)
        parts = torch.zeros(call.parts, in_fields, tables.products, tables.rows, _padded(out_fields))
        call.gradient = parts.data_ptr()
    if activation is not None:
        sums = torch.empty(blocks, out_fields, 2, dtype=torch.float64)
        call.sums = sums.data_ptr()
    frame.run()
    passed, passed_times = (None, None) if sums is None else sums.sum(0).unbind(1)
    return Gradients(found, parts, passed, passed_times)


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance (of all numbers, not corrected) of every field of (N, C, n, H, W), in double."""
    x = x.contiguous()
    images, fields = x.shape[:2]
    sums = torch.empty(images, fields, 2, dtype=torch.float64)
    size = x[0, 0].numel()
    _functions().dsfcnn_moments(*_pointers(x, sums), *_longs(images, fields, size, torch.get_num_threads()))
    first, second = (sums.sum(0) / (images * size)).unbind(1)
    return x[0, :, 0, 0, 0].double() + first, (second - first.square()).clamp_(min=0)


def affine(x: Tensor, scale: Tensor, shift: Tensor, linear: bool = False, in_place: bool = False) -> Tensor:
    """relu(scale x + shift) per field, or without the ReLU; ``in_place`` if x may be written over."""
    x = x.contiguous()
    y, images, fields = x if in_place else torch.empty(x.shape), *x.shape[:2]
    scale, shift = scale.contiguous(), shift.contiguous()
    sizes = _longs(images, fields, x[0, 0].numel(), torch.get_num_threads())
    _functions().dsfcnn_affine(*_pointers(x, y, scale, shift), ctypes.c_int(linear), *sizes)
    return y


def activate_back(x: Tensor, gradient: Tensor, activation: Activation) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of the activation to x, and per field the sums of what passes the ReLU, and of that times x - centre."""
    x, gradient = x.contiguous(), gradient.contiguous()
    y, images, fields = torch.empty(x.shape), *x.shape[:2]
    sums = torch.empty(images, fields, 2, dtype=torch.float64)
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
    y = torch.empty(*outer, height // 2, width // 2) if gradient is None else torch.empty(x.shape)
    pointers = [ctypes.c_void_p(_pointer(tensor)) for tensor in (x, gradient, y)]
    _functions().dsfcnn_max_pool(*pointers, *_longs(x.numel() // (height * width), height, width, torch.get_num_threads()))
    return y


def _pointers(*tensors: Tensor) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]


def _longs(*numbers: int) -> list[ctypes.c_long]:
    return [ctypes.c_long(number) for number in numbers]
