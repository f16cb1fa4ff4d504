"""Two published equivariant networks beside the paper's own: Veeling's p4m-DenseNet and Weiler's SFCNN."""

import torch
from torch import Tensor, nn

from dsfcnn.groups import Group
from dsfcnn.layers import FieldSequential, GBatchNorm, GConv2d, GPool, LiftConv2d, MaxPool, MeanPool
from dsfcnn.models.dsf import scaled
from dsfcnn.models.heads import class_head


class P4MDenseNet(nn.Module):
    """p4m-DenseNet for tumour patches (Veeling et al. 2018): five dense blocks of one 3x3 layer that adds 9 fields.

    (N, 3, H, W) -> (N, classes). Ordinary filters, turned and mirrored without interpolation by D4. Between blocks a 1x1 convolution and
    mean-pooling by 2. The eight fields of the first layer are chosen to meet the 119K parameters that the paper reports.
    """

    def __init__(self, classes: int = 2, *, group: str | Group = "D4", width: float = 1.0):
        super().__init__()
        fields, growth = scaled(8, width), scaled(9, width)
        self.first = LiftConv2d(3, fields, kernel_size=3, group=group, filters="rotated")
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        for block in range(5):
            self.blocks.append(_normed_conv(fields, growth, 3, group))
            fields += growth
            if block < 4:
                self.transitions.append(nn.Sequential(_normed_conv(fields, fields, 1, group), MeanPool(2)))
        self.norm = FieldSequential(GBatchNorm(fields), nn.ReLU())
        self.pool = GPool()
        self.head = class_head(fields, [], classes, dropout=0.0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for number, block in enumerate(self.blocks):
            x = torch.cat((x, block(x)), dim=1)
            if number < len(self.transitions):
                x = self.transitions[number](x)
        return self.head(self.pool(self.norm(x).mean((-2, -1), keepdim=True)))


def _normed_conv(in_fields: int, out_fields: int, kernel_size: int, group: str | Group) -> nn.Sequential:
    return nn.Sequential(
        GBatchNorm(in_fields), nn.ReLU(), GConv2d(in_fields, out_fields, kernel_size=kernel_size, group=group, filters="rotated")
    )


class SFCNN(nn.Module):
    """Steerable filter CNN for rotated MNIST (Weiler et al. 2018). (N, 1, H, W) -> (N, classes).

    9x9 to 24 fields, 7x7 to 32, pool, 7x7 to 36 twice, pool, 7x7 to 64, 5x5 to 96; then 96, 96 and the classes.
    """

    def __init__(self, classes: int = 10, *, group: str | Group = "C16", width: float = 1.0, dropout: float = 0.3):
        super().__init__()
        plan: list[tuple[int, int] | None] = [(9, 24), (7, 32), None, (7, 36), (7, 36), None, (7, 64), (5, 96)]
        layers: list[nn.Module] = []
        fields = 1
        for step in plan:
            if step is None:
                layers.append(MaxPool(2))
                continue
            kernel_size, out = step[0], scaled(step[1], width)
            conv = GConv2d(fields, out, kernel_size, group=group) if layers else LiftConv2d(fields, out, kernel_size, group=group)
            layers += [conv, GBatchNorm(out), nn.ReLU()]
            fields = out
        self.encoder = FieldSequential(*layers, GPool())
        hidden = scaled(96, width)
        self.head = class_head(fields, [hidden, hidden], classes, dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).mean((-2, -1), keepdim=True))
