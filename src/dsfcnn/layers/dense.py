"""G-dense-blocks: each unit reads everything before it and adds a few fields."""

import torch
from torch import Tensor, nn

from dsfcnn.groups import Group
from dsfcnn.layers.gconv import GConv2d
from dsfcnn.layers.norm import GBatchNorm
from dsfcnn.layers.shapes import expect_positive


class GDenseUnit(nn.Module):
    """One unit of a G-dense-block: 7x7 to 14 fields, 5x5 to 6, joined to its input.

    (N, in_fields, G, H, W) -> (N, in_fields + growth, G, H, W). Batch norm and ReLU come before each convolution; what a unit adds
    is linear.
    """

    def __init__(self, in_fields: int, *, group: str | Group = "C8", middle: int = 14, growth: int = 6):
        super().__init__()
        self.body = nn.Sequential(
            GBatchNorm(in_fields),
            nn.ReLU(),
            GConv2d(in_fields, middle, kernel_size=7, group=group),
            GBatchNorm(middle),
            nn.ReLU(),
            GConv2d(middle, growth, kernel_size=5, group=group),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, self.body(x)), dim=1)


class GDenseBlock(nn.Module):
    """G-dense-block of the paper: dense units, then batch norm, ReLU and a closing 5x5 G-convolution.

    (N, in_fields, G, H, W) -> (N, out_fields, G, H, W).

    Args:
        in_fields: fields read.
        units: number of dense units; each adds ``growth`` fields.
        group: name such as "C8".
        out_fields: fields of the closing convolution; by default all that the units made, in_fields + units * growth.
        middle, growth: fields after the 7x7 and the 5x5 convolution of a unit (paper: 14 and 6).
    """

    def __init__(
        self,
        in_fields: int,
        units: int,
        *,
        group: str | Group = "C8",
        out_fields: int | None = None,
        middle: int = 14,
        growth: int = 6,
    ):
        super().__init__()
        expect_positive(in_fields=in_fields, units=units, middle=middle, growth=growth)
        made = in_fields + units * growth
        self.units = nn.Sequential(
            *[GDenseUnit(in_fields + unit * growth, group=group, middle=middle, growth=growth) for unit in range(units)]
        )
        self.closing = nn.Sequential(
            GBatchNorm(made), nn.ReLU(), GConv2d(made, made if out_fields is None else out_fields, kernel_size=5, group=group)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.closing(self.units(x))
