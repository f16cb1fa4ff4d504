"""The last layers of every model: ordinary 1x1 convolutions on invariant maps."""

import torch
from torch import Tensor, nn

from dsfcnn.layers.sequential import has_hooks

_STRIP_BYTES = (
    4 << 20
)  # of the widest map between the layers of a head; larger ones leave the cache, and from 32 MB on are cleared at every use


class Pointwise(nn.Sequential):
    """1x1 convolution, batch norm, ReLU.

    The batch norm takes any bias of the convolution away again, so none is stored; the paper's figures count it.
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__(nn.Conv2d(in_channels, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels), nn.ReLU())
        self.unstored_bias = out_channels

    def paper_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters()) + self.unstored_bias


class SpatialMean(nn.Module):
    """Mean of the middle part of a map, ``centre`` of its height and width: (..., H, W) -> (..., 1, 1).

    What is left out is as wide on either side, so that turning the map changes nothing.
    """

    def __init__(self, centre: float = 1.0):
        super().__init__()
        self.centre = centre
        self.outside = min(round(1000 * (1 - centre)), 999)  # thousandths: exporters follow sizes through whole numbers only

    def forward(self, x: Tensor) -> Tensor:
        if not self.outside:
            return x.mean((-2, -1), keepdim=True)
        inside = self._inside(x.shape[-2], x)[:, None] * self._inside(x.shape[-1], x)
        return (x * inside).sum((-2, -1), keepdim=True) / inside.sum()

    def _inside(self, side: int, like: Tensor) -> Tensor:
        """1 in the middle of an axis and 0 at its ends; a cut of changing size would bind an exported model to the sizes it was shown."""
        place, margin = torch.arange(side, device=like.device), (self.outside * (side - 1) + 1000) // 2000
        return ((place >= margin) & (place < side - margin)).to(like.dtype)

    def plain(self) -> nn.Module:
        return self

    def extra_repr(self) -> str:
        return f"centre={self.centre}"


class MapHead(nn.Sequential):
    """Two 1x1 convolutions: (N, in_channels, H, W) -> (N, outputs, H, W) logits.

    Every pixel is on its own, so in prediction a few rows are done at a time: the map between the layers has many channels. Not where a
    layer inside looks at the whole map: a batch norm that takes statistics, or a hook.
    """

    def __init__(self, in_channels: int, hidden: int, outputs: int):
        super().__init__(Pointwise(in_channels, hidden), nn.Conv2d(hidden, outputs, 1))
        self.hidden = hidden

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor) or torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.jit.is_tracing():
            return super().forward(x)
        if any(layer.training or has_hooks(layer) for layer in self.modules()):
            return super().forward(x)
        row = x.shape[0] * self.hidden * x.shape[3] * x.element_size()
        strips = x.split(max(1, _STRIP_BYTES // max(1, row)), dim=2)
        return torch.cat([super(MapHead, self).forward(strip) for strip in strips], dim=2)


def class_head(in_channels: int, hidden: list[int], classes: int, dropout: float) -> nn.Sequential:
    """1x1 convolutions on a map of one pixel, then (N, classes) logits."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [Pointwise(in_channels, width), nn.Dropout(dropout)] if dropout else [Pointwise(in_channels, width)]
        in_channels = width
    return nn.Sequential(*layers, nn.Conv2d(in_channels, classes, 1), nn.Flatten(1))
