"""The input layer: from an image to a G-feature map."""

import torch.nn.functional as F
from torch import Tensor

from dsfcnn.filters import lifting_bank
from dsfcnn.groups import Group
from dsfcnn.layers.shapes import expect_channels, expect_positive
from dsfcnn.layers.steered import FilterKind, SteeredConv


class LiftConv2d(SteeredConv):
    """Input-layer G-convolution, paper Eq. (19). (N, in_channels, H, W) -> (N, out_fields, G, H, W).

    One filter per pair of channel and field, in all G orientations; zeros outside the image, stride 1.
    """

    def __init__(
        self,
        in_channels: int,
        out_fields: int,
        kernel_size: int = 7,
        *,
        group: str | Group = "C8",
        filters: FilterKind = "steerable",
        bias: bool = False,
    ):
        expect_positive(in_channels=in_channels, out_fields=out_fields)
        super().__init__((in_channels,), out_fields, kernel_size, group, filters, bias)
        self.in_channels = in_channels

    def kernel(self) -> Tensor:
        return lifting_bank(self.weight, self.moved)

    plain = SteeredConv.plain  # of this forward; a subclass with another has none

    def forward(self, x: Tensor) -> Tensor:
        expect_channels(x, self.in_channels, "LiftConv2d")
        y = F.conv2d(x, self.kernel(), self.plane_bias(), padding=self.kernel_size // 2)
        return y.unflatten(1, (self.out_fields, self.group.size))

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {super().extra_repr()}"
