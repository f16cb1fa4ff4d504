"""The hidden layer: from G-feature maps to G-feature maps."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from dsfcnn.filters import hidden_bank
from dsfcnn.groups import Group, parse_group
from dsfcnn.kernels import runs_spectral, spectral_gconv
from dsfcnn.layers.shapes import expect_fields, expect_positive
from dsfcnn.layers.steered import FilterKind, SteeredConv

_MAKE_FILTERS = ("basis", "fixed", "kernel", "plane_bias")


class GConv2d(SteeredConv):
    """Hidden-layer G-convolution, paper Eq. (18). (N, in_fields, G, H, W) -> (N, out_fields, G, H, W).

    One G-filter per pair of fields, moved by all G elements: each of its planar filters turns and changes place. Zeros outside
    the map, stride 1.
    """

    offsets: Tensor  # G G

    def __init__(
        self,
        in_fields: int,
        out_fields: int,
        kernel_size: int = 7,
        *,
        group: str | Group = "C8",
        filters: FilterKind = "steerable",
        bias: bool = False,
    ):
        expect_positive(in_fields=in_fields, out_fields=out_fields)
        group = parse_group(group)
        super().__init__((in_fields, group.size), out_fields, kernel_size, group, filters, bias)
        self.in_fields = in_fields

    def fixed(self) -> dict[str, Tensor]:
        return {**super().fixed(), "offsets": self.group.offsets()}

    def kernel(self) -> Tensor:
        return hidden_bank(self.weight, self.moved, self.offsets)

    plain = SteeredConv.plain  # of this forward; a subclass with another has none

    def forward(self, x: Tensor) -> Tensor:
        expect_fields(x, self.in_fields, self.group.size, "GConv2d")
        if self.runs_spectral([x]):
            return spectral_gconv([x], self.weight, self.bias, self.kernel_size, self.group)
        y = F.conv2d(x.flatten(1, 2), self.kernel(), self.plane_bias(), padding=self.kernel_size // 2)
        return y.unflatten(1, (self.out_fields, self.group.size))

    def runs_spectral(self, maps: Sequence[Tensor]) -> bool:
        """Whether the spectral kernel computes this layer for maps that fit; not where a subclass makes its filters in another way."""
        own = any(getattr(type(self), name) is not getattr(GConv2d, name) or name in vars(self) for name in _MAKE_FILTERS)
        if own or self.filters != "steerable":
            return False
        if self.bias is not None and (self.bias.dtype != self.weight.dtype or self.bias.shape != self.weight.shape[:1]):
            return False
        return runs_spectral(maps, self.weight, self.kernel_size, self.group)

    def extra_repr(self) -> str:
        return f"{self.in_fields}, {super().extra_repr()}"
