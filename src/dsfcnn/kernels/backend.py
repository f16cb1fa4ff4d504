"""Which of two ways a layer is computed: densely, by torch's convolution, or in the orientation-Fourier domain."""

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from dsfcnn.errors import UsageError
from dsfcnn.groups import Cyclic, Group
from dsfcnn.kernels import bank, library

BACKENDS = ("auto", "dense", "spectral")
_chosen: str | None = None

# Time of one multiply-add of each part over one of torch's dense convolution. Estimates, from the share of the processor's peak that such a
# bank (about half) and such products (about nine tenths) can reach; what a call costs by itself is not in them, so gains on small maps
# are overestimated.
_BANK_COST, _MIX_COST = 1.9, 1.1


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
    return spectral_cost(maps[0].shape[-1], weight.shape[0], group.size, kernel_size) < 1


def reads_fields(tensors: Sequence[Tensor]) -> bool:
    """Whether batch norm and ReLU of maps are done by the kernel, given all tensors that take part."""
    return get_backend() != "dense" and _readable(tensors)


def possible(maps: Sequence[Tensor], weight: Tensor, kernel_size: int, group: Group) -> bool:
    """What the kernel can read, rotations only, and an even number of them."""
    return (
        isinstance(group, Cyclic)
        and group.size % 2 == 0
        and group.size <= 32
        and kernel_size in bank.KERNEL_SIZES
        and _readable([weight, *maps])
    )


def _readable(tensors: Sequence[Tensor]) -> bool:
    """float32 on the CPU, and no tracer that wants to see ordinary operations."""
    return (
        all(x.dtype == torch.float32 and x.device.type == "cpu" and x.numel() > 0 for x in tensors)
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not torch.is_autocast_enabled("cpu")
        and library.load().functions is not None
    )


def spectral_cost(width: int, out_fields: int, n: int, kernel_size: int) -> float:
    """Estimated time over that of a dense convolution: below 1, spectral is faster.

    Dense needs n^2 K^2 multiply-adds per pixel and pair of fields. Spectral needs those of the bank per plane read, whatever is written,
    and one per product and row to mix; and its tiles are 16 columns wide, filled or not.
    """
    products = 2 + 3 * (n // 2 - 1)
    filtering = _BANK_COST * n * len(bank.coefficient_places(kernel_size))
    mixing = _MIX_COST * products * len(bank.filters(kernel_size)) * out_fields
    dense = n**2 * kernel_size**2 * out_fields
    return (filtering + mixing) / dense * (-(-width // 16) * 16 / width)
