"""The last layers of every model: ordinary 1x1 convolutions on invariant maps."""

from torch import nn


class Pointwise(nn.Sequential):
    """1x1 convolution, batch norm, ReLU.

    The batch norm takes any bias of the convolution away again, so none is stored; the paper's figures count it.
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__(nn.Conv2d(in_channels, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels), nn.ReLU())
        self.unstored_bias = out_channels

    def paper_count(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters()) + self.unstored_bias


def map_head(in_channels: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two 1x1 convolutions: maps of ``outputs`` logits."""
    return nn.Sequential(Pointwise(in_channels, hidden), nn.Conv2d(hidden, outputs, 1))


def class_head(in_channels: int, hidden: list[int], classes: int, dropout: float) -> nn.Sequential:
    """1x1 convolutions on a map of one pixel, then (N, classes) logits."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [Pointwise(in_channels, width), nn.Dropout(dropout)] if dropout else [Pointwise(in_channels, width)]
        in_channels = width
    return nn.Sequential(*layers, nn.Conv2d(in_channels, classes, 1), nn.Flatten(1))
