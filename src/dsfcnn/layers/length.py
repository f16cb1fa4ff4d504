"""Lengths of arrows and of complex numbers."""

import torch
from torch import Tensor

_TINY = 1e-12  # keeps the gradient finite at 0; nothing in half precision, which is therefore widened


def length(x: Tensor, dim: int) -> Tensor:
    """Of the components along a dimension, at least in single precision."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    return (wide.square().sum(dim) + _TINY).sqrt()
