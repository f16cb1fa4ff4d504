"""The networks that the paper compares at equal parameters: one skeleton per task, five families of layers to build it from."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Protocol

from torch import Tensor, nn

from dsfcnn.groups import Group
from dsfcnn.layers import FieldSequential, GBatchNorm, GConv2d, GPool, LiftConv2d, MaxPool, Upsample
from dsfcnn.layers.harmonic import HarmonicConv2d, HarmonicMagnitude, HarmonicNorm
from dsfcnn.layers.pool import MagnitudePool
from dsfcnn.layers.steered import FilterKind
from dsfcnn.layers.vector import VectorConv2d, VectorLength, VectorNorm
from dsfcnn.models.budget import KERNEL_SIZE
from dsfcnn.models.heads import MapHead, SpatialMean, class_head


class Family(Protocol):
    """The layers that one family brings. Convolutions come with their batch norm and ReLU."""

    mean_first: bool  # whether a spatial mean may come before ``invariant``; where maps have directions it would cancel them

    def first(self, channels: int, fields: int) -> nn.Module: ...
    def hidden(self, in_fields: int, out_fields: int) -> nn.Module: ...
    def pool(self) -> nn.Module: ...
    def invariant(self) -> nn.Module: ...


class PlainFamily:
    """An ordinary CNN."""

    mean_first = True

    def first(self, channels: int, fields: int) -> nn.Module:
        conv = nn.Conv2d(channels, fields, KERNEL_SIZE, padding=KERNEL_SIZE // 2, bias=False)
        if not conv.weight.is_meta:  # nothing to fill, and drawing there loads a compiler, two seconds
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
        return nn.Sequential(conv, nn.BatchNorm2d(fields), nn.ReLU())

    hidden = first

    def pool(self) -> nn.Module:
        return MaxPool(2)

    def invariant(self) -> nn.Module:
        return nn.Identity()


class GroupFamily:
    """G-CNN with ordinary filters turned by interpolation, or with steerable ones."""

    mean_first = True

    def __init__(self, group: Group, filters: FilterKind):
        self.group, self.filters = group, filters

    def first(self, channels: int, fields: int) -> nn.Module:
        conv = LiftConv2d(channels, fields, KERNEL_SIZE, group=self.group, filters=self.filters)
        return FieldSequential(conv, GBatchNorm(fields), nn.ReLU())

    def hidden(self, in_fields: int, out_fields: int) -> nn.Module:
        conv = GConv2d(in_fields, out_fields, KERNEL_SIZE, group=self.group, filters=self.filters)
        return FieldSequential(conv, GBatchNorm(out_fields), nn.ReLU())

    def pool(self) -> nn.Module:
        return MaxPool(2)

    def invariant(self) -> nn.Module:
        return GPool()


class _DirectedFamily:
    """Maps of pairs of numbers, each with a magnitude and a direction: pooling by magnitude, and the magnitude before any mean."""

    mean_first = False

    def block(self, in_fields: int, out_fields: int, lifts: bool) -> nn.Module:
        raise NotImplementedError

    def first(self, channels: int, fields: int) -> nn.Module:
        return self.block(channels, fields, lifts=True)

    def hidden(self, in_fields: int, out_fields: int) -> nn.Module:
        return self.block(in_fields, out_fields, lifts=False)

    def pool(self) -> nn.Module:
        return MagnitudePool()


class HarmonicFamily(_DirectedFamily):
    """H-Net: complex maps; batch norm and ReLU of magnitudes."""

    def __init__(self, max_frequency: int):
        self.max_frequency = max_frequency

    def block(self, in_fields: int, out_fields: int, lifts: bool) -> nn.Module:
        conv = HarmonicConv2d(in_fields, out_fields, KERNEL_SIZE, max_frequency=self.max_frequency, lifts=lifts)
        return nn.Sequential(conv, HarmonicNorm(out_fields, self.max_frequency))

    def invariant(self) -> nn.Module:
        return HarmonicMagnitude()


class VectorFamily(_DirectedFamily):
    """VF-CNN: vector fields; the ReLU is inside the convolution, batch norm scales lengths."""

    def __init__(self, group: Group):
        self.group = group

    def block(self, in_fields: int, out_fields: int, lifts: bool) -> nn.Module:
        return nn.Sequential(VectorConv2d(in_fields, out_fields, KERNEL_SIZE, group=self.group, lifts=lifts), VectorNorm(out_fields))

    def invariant(self) -> nn.Module:
        return VectorLength()


def _encoder(family: Family, fields: list[int]) -> nn.ModuleList:
    """Five levels of two convolutions, pooled in between."""
    levels = nn.ModuleList()
    for level, out in enumerate(fields):
        entry = [family.first(3, out)] if level == 0 else [family.pool(), family.hidden(fields[level - 1], out)]
        levels.append(FieldSequential(*entry, family.hidden(out, out)))
    return levels


class Classifier(nn.Module):
    """Tumour patches: encoder, spatial mean, invariant map, three 1x1 convolutions. (N, 3, H, W) -> (N, classes)."""

    def __init__(self, family: Family, fields: list[int], hidden: int, classes: int, centre: float = 1.0):
        super().__init__()
        self.encoder = FieldSequential(*_encoder(family, fields))
        summary = [SpatialMean(centre), family.invariant()]
        self.summary = nn.Sequential(*(summary if family.mean_first else reversed(summary)))
        self.head = class_head(fields[-1], [hidden, hidden], classes, dropout=0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.summary(self.encoder(x)))


class Segmenter(nn.Module):
    """Glands and nuclei: encoder, then per level up-sampling, convolution, summed skip, convolution.

    (N, 3, H, W) -> {head: (N, channels, H, W)} logits.
    """

    def __init__(self, family: Family, fields: list[int], hidden: int, heads: Mapping[str, int]):
        super().__init__()
        self.encoder = _encoder(family, fields)
        self.upsample = Upsample(2)
        upwards = list(reversed(range(len(fields) - 1)))
        self.before_skip = nn.ModuleList(family.hidden(fields[level + 1], fields[level]) for level in upwards)
        self.after_skip = nn.ModuleList(family.hidden(fields[level], fields[level]) for level in upwards)
        self.invariant = family.invariant()
        self.heads = nn.ModuleDict({name: MapHead(fields[0], hidden, channels) for name, channels in heads.items()})

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        skips = []
        for level in self.encoder:
            x = level(x)
            skips.append(x)
        skips.pop()
        for before, after in zip(self.before_skip, self.after_skip):
            skip = skips.pop()
            x = after(before(self.upsample(x, skip.shape[-2:])) + skip)
        maps = self.invariant(x)
        return {name: head(maps) for name, head in self.heads.items()}


class DigitClassifier(nn.Module):
    """Rotated MNIST: seven convolutions, pooled after the second and the fourth, invariant map, mean, two 1x1 convolutions.

    (N, 1, H, W) -> (N, classes).
    """

    def __init__(self, family: Family, fields: list[int], hidden: int, classes: int):
        super().__init__()
        layers = [family.first(1, fields[0])]
        for number, (before, after) in enumerate(pairwise(fields), start=1):
            if number in (2, 4):
                layers.append(family.pool())
            layers.append(family.hidden(before, after))
        self.encoder = FieldSequential(*layers)
        self.summary = nn.Sequential(family.invariant(), SpatialMean())
        self.head = class_head(fields[-1], [hidden], classes, dropout=0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.summary(self.encoder(x)))
