"""Tensors that a layer computes with but does not learn."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dsfcnn.basis.context import on_cpu


class FixedTensors(nn.Module):
    """A layer with fixed tensors, such as the pictures that its weights weigh.

    They are buffers that move with the layer and are not saved: the state holds what was learned, in training and evaluation alike.
    Whenever the layer is cast they are taken anew from float64. Casting the buffer would keep what float32 had rounded, and quarter
    turns in float64 would commute to 1e-8 only.
    """

    def fixed(self) -> dict[str, Tensor]:
        """The tensors by name, real ones in float64."""
        raise NotImplementedError

    @on_cpu
    def _fixed(self) -> dict[str, Tensor]:
        return self.fixed()

    def register_fixed(self, like: Tensor) -> None:
        for name, tensor in self._fixed().items():
            self.register_buffer(name, _cast(tensor, like.device, like.dtype), persistent=False)

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        """Parameters that are assigned may bring another device or type; the fixed tensors follow them."""
        super()._load_from_state_dict(*arguments, **options)
        like = next(self.parameters(), None)
        if like is not None and any(_is_unlike(buffer, like) for buffer in self.buffers(recurse=False)):
            for name, tensor in self._fixed().items():
                setattr(self, name, _cast(tensor, like.device, like.dtype))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        for name, tensor in self._fixed().items():
            buffer = getattr(self, name)
            setattr(self, name, _cast(tensor, buffer.device, buffer.dtype))
        return self


def _is_unlike(buffer: Tensor, like: Tensor) -> bool:
    return buffer.device != like.device or (buffer.is_floating_point() and buffer.dtype != like.dtype)


def _cast(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype, copy=True)
