"""Which of two ways a layer is computed: densely, by torch's convolution, or in the orientation-Fourier domain."""

import os
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from dsfcnn.errors import UsageError
from dsfcnn.groups import Cyclic, Dihedral, Group
from dsfcnn.kernels import bank, library

BACKENDS = ("auto", "dense", "spectral")
_PLAIN = (Tensor, nn.Parameter)  # what is a subclass may mean something else by its numbers
_chosen: str | None = None

# Nanoseconds of each item of `work`, forward and with the backward pass (True), fitted by benchmarks/cost_model.py on one thread of an AMD
# EPYC. Only ratios matter.
NANOSECONDS: dict[tuple[str, bool], tuple[float, ...]] = {
    ("dense", False): (126000.0, 2.61, 0.0195),
    ("dense", True): (500000.0, 5.19, 0.0616),
    ("spectral", False): (44600.0, 2.98, 1.05, 0.0294, 0.0194),
    ("spectral", True): (207000.0, 8.24, 5.04, 0.0279, 0.0821),
}
_CLEARLY = 1.6  # times faster must dense be estimated to be chosen; of 1,200 random layers it was the better way for 3


def set_backend(name: str) -> None:
    """Compute G-convolutions by "dense", by "spectral" where that is possible, or by the faster one for each shape ("auto", the default).

    The environment variable DSFCNN_BACKEND does the same; a call has the last word.
    """
    global _chosen
    _chosen = _check(name, "set_backend")


def get_backend() -> str:
    return _chosen or _check(os.environ.get("DSFCNN_BACKEND", "auto"), "DSFCNN_BACKEND")


def _check(name: str, where: str) -> str:
    if name not in BACKENDS:
        raise UsageError(f"{where}: no backend {name!r}; use one of {', '.join(BACKENDS)}")
    return name


def runs_spectral(maps: Sequence[Tensor], weight: Tensor, kernel_size: int, group: Group) -> bool:
    """Whether a steerable layer reads maps (N, C, G, H, W) by the spectral kernel, with weights (out, in, G, L)."""
    backend = get_backend()
    if backend == "dense" or not possible(maps, weight, kernel_size, group):
        return False
    if backend == "spectral":
        return True
    images, _, _, height, width = maps[0].shape
    training = torch.is_grad_enabled() and any(x.requires_grad for x in (weight, *maps))
    parts = group.size // group.orientations  # a field of D_n is two of C_n
    shape = (images, parts * weight.shape[1], parts * weight.shape[0], kernel_size, group.orientations, height, width)
    return faster(shape, training) == "spectral"


def reads_fields(tensors: Sequence[Tensor]) -> bool:
    """Whether batch norm and ReLU of maps are done by the kernel, given all tensors that take part."""
    return get_backend() != "dense" and _readable(tensors)


def possible(maps: Sequence[Tensor], weight: Tensor, kernel_size: int, group: Group) -> bool:
    """What the kernel can read: rotations, an even number of them, with mirrors or without."""
    return (
        isinstance(group, Cyclic | Dihedral)
        and group.orientations % 2 == 0
        and group.orientations <= 32
        and kernel_size in bank.KERNEL_SIZES
        and _readable([weight, *maps])
        and weight.shape[1:] == (sum(x.shape[1] for x in maps), group.size, len(bank.filters(kernel_size)))  # C would read past their end
    )


def _readable(tensors: Sequence[Tensor]) -> bool:
    """float32 on the CPU, and nobody who wants to see ordinary operations: no tracer, no other derivative than the backward pass."""
    for x in tensors:  # small maps notice what a generator costs
        if x.dtype != torch.float32 or not x.is_cpu or not x.numel() or type(x) not in _PLAIN:
            return False
    return (
        not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._len_torch_dispatch_stack()  # make_fx, fake tensors, counters of operations
        and torch._C._functorch.peek_interpreter_stack() is None  # torch.func
        and forward_ad._current_level < 0
        and library.load().functions is not None
    )


Shape = tuple[int, int, int, int, int, int, int]  # images, fields read, written, kernel size, orientations, height, width


@cache
def faster(shape: Shape, training: bool) -> str:
    """The way that a layer is estimated to be faster in; spectral where that is not clear."""
    return "dense" if _CLEARLY * estimate("dense", shape, training) < estimate("spectral", shape, training) else "spectral"


def estimate(way: str, shape: Shape, training: bool) -> float:
    """Nanoseconds, by the cost model."""
    return sum(cost * items for cost, items in zip(NANOSECONDS[way, training], work(way, shape)))


def work(way: str, shape: Shape) -> tuple[float, ...]:
    """What a layer does, in items that each cost a time of their own: one call; entries of the filters or matrices that it writes; then,
    dense, multiply-adds; spectral, pixels of planes read and written, multiply-adds of the bank and of the products.

    Dense needs n^2 K^2 multiply-adds per pixel and pair of fields. Spectral needs those of the bank per plane read, whatever is written,
    and one per product and row to mix.
    """
    images, fields, out, kernel_size, n, height, width = shape
    pairs, pixels = fields * out, images * height * width
    if way == "dense":
        planes = fields * n * 16 * -(-out * n // 16)  # torch computes 16 at a time
        return 1, pairs * (n * kernel_size) ** 2, pixels * planes * kernel_size**2
    filled = images * height * _columns(images, width, kernel_size // 2)
    rows = len(bank.filters(kernel_size)) * (2 + 3 * (n // 2 - 1))
    return (
        1,
        pairs * rows,
        pixels * n * (fields + out),
        filled * n * fields * bank.multiply_adds(kernel_size),
        filled * pairs * rows,
    )


def _columns(images: int, width: int, gap: int) -> float:
    """Columns that the kernel computes for the width of an image: vectors of 8, filled or not, of images side by side or of one image in
    each lane (gconv.c).
    """
    most = max(1, min(images, (64 + gap) // (width + gap)))
    beside = min(8 * -(-(count * (width + gap) - gap) // 8) / count for count in range(1, most + 1))
    in_lanes = 8 * -(-images // 8) * width / images
    return in_lanes if width <= 16 and in_lanes <= 0.9 * beside else beside
