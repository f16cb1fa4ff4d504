"""DSF-CNN, the paper's model (section IV): dense blocks of steerable G-convolutions, for patches and for maps."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from dsfcnn.groups import Group
from dsfcnn.layers import FieldSequential, GBatchNorm, GConv2d, GDenseBlock, GPool, LiftConv2d, MaxPool, Upsample
from dsfcnn.models.heads import MapHead, SpatialMean, class_head

Part = tuple[tuple[int, int], tuple[int, int]]  # of a map: rows from, to; columns from, to


def scaled(fields: int, width: float) -> int:
    """So many fields at this width, at least one."""
    return max(1, round(fields * width))


class DSFEncoder(nn.Module):
    """Input layer, hidden layer, then four times: max-pooling and a dense block of 3, 4, 5, 6 units.

    (N, 3, H, W) -> five G-feature maps, each half the height and width of the one before. Their fields are in ``fields``.
    """

    def __init__(self, transitions: list[int], group: str | Group, width: float, checkpointing: bool):
        super().__init__()
        stem = scaled(10, width)
        self.stem = FieldSequential(
            LiftConv2d(3, stem, kernel_size=7, group=group), GBatchNorm(stem), nn.ReLU(), GConv2d(stem, stem, kernel_size=7, group=group)
        )
        self.pool = MaxPool(2)
        self.fields = [stem, *(scaled(fields, width) for fields in transitions)]
        self.blocks = nn.ModuleList(
            _dense_block(self.fields[level], units, self.fields[level + 1], group, width, checkpointing)
            for level, units in enumerate([3, 4, 5, 6])
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        levels = [self.stem(x)]
        for block in self.blocks:
            levels.append(block(self.pool(levels[-1])))
        return levels


class DSFClassifier(nn.Module):
    """DSF-CNN for patches: encoder, spatial mean, maximum over orientations, three 1x1 convolutions. (N, 3, H, W) -> (N, classes).

    The paper's figure of 2.2M parameters is met with 16, 24, 28 and 32 fields after the four blocks.
    """

    def __init__(
        self,
        classes: int = 2,
        *,
        group: str | Group = "C8",
        width: float = 1.0,
        dropout: float = 0.3,
        centre: float = 1.0,
        checkpointing: bool = False,
    ):
        super().__init__()
        self.encoder = DSFEncoder([16, 24, 28, 32], group, width, checkpointing)
        last, hidden = self.encoder.fields[-1], scaled(96, width)
        self.norm = FieldSequential(GBatchNorm(last), nn.ReLU())
        self.mean = SpatialMean(centre)
        self.pool = GPool()
        self.head = class_head(last, [hidden, hidden], classes, dropout)

    def forward(self, x: Tensor) -> Tensor:
        features = self.norm(self.encoder(x)[-1])
        return self.head(self.pool(self.mean(features)))


class DSFSegmenter(nn.Module):
    """DSF-CNN for maps: encoder, three times up-sampling with summed skip and a dense block of 4, 3, 2 units, one more G-convolution.

    (N, 3, H, W) -> {head: (N, channels, H, W)} logits, for every height and width. Each head is two 1x1 convolutions on the maximum over
    orientations.
    """

    def __init__(self, heads: Mapping[str, int], *, group: str | Group = "C8", width: float = 1.0, checkpointing: bool = False):
        super().__init__()
        self.encoder = DSFEncoder([16, 32, 32, 32], group, width, checkpointing)
        fields = self.encoder.fields
        self.upsample = Upsample(2)
        # Each block ends in as many fields as the next skip has.
        self.blocks = nn.ModuleList(
            _dense_block(fields[level], units, fields[level - 1], group, width, checkpointing) for level, units in zip([3, 2, 1], [4, 3, 2])
        )
        stem = fields[0]
        self.last = FieldSequential(GConv2d(stem, stem, kernel_size=7, group=group), GBatchNorm(stem), nn.ReLU(), GPool())
        self.heads = nn.ModuleDict({name: MapHead(stem, scaled(96, width), channels) for name, channels in heads.items()})
        self.reach = [_reach(layers) for layers in (self.last, *reversed(self.blocks))]

    def forward(self, x: Tensor, part: Part | None = None) -> dict[str, Tensor]:
        """All logits, or those of a part alone: on the way up, what it does not depend on is left out.

        With a part, height and width are multiples of 16.
        """
        *skips, features = self.encoder(x)
        sizes = [skip.shape[-2:] for skip in skips]
        places = [_whole(size) for size in sizes] if part is None else self._places(part, sizes)
        had = _whole(features.shape[-2:])
        for layers, place in zip([*self.blocks, self.last], reversed(places)):
            features = layers(self._with_skip(features, had, skips.pop(), place))
            had = place
        features = features if part is None else _cut(features, part, had)
        return {name: head(features) for name, head in self.heads.items()}

    def _places(self, part: Part, sizes: list[torch.Size]) -> list[Part]:
        """What is computed on the levels of the skips, from the finest on, so that the part comes out right."""
        places = []
        for reach, size in zip(self.reach, sizes):
            places.append(_grown(part, reach, size))
            part = _grown(_halved(places[-1]), 1, torch.Size(length // 2 for length in size))  # bilinear: a neighbour each
        return places

    def _with_skip(self, features: Tensor, had: Part, skip: Tensor, place: Part) -> Tensor:
        """Up-sampled, with the skip added, of a place on the skip's level; the features are those of ``had`` on their own.

        The whole is added in place: maps of full size decide how large a tile may be.
        """
        if place == _whole(skip.shape[-2:]):
            features = self.upsample(features, skip.shape[-2:])
            features += skip
            return features
        read = _grown(_halved(place), 1, torch.Size(length // 2 for length in skip.shape[-2:]))
        features = self.upsample(_cut(features, read, had))
        return _cut(features, place, _doubled(read)) + _cut(skip, place, _whole(skip.shape[-2:]))


def _reach(layers: nn.Module) -> int:
    """How far a pixel of their result looks, one layer after the other."""
    return sum(layer.kernel_size // 2 for layer in layers.modules() if isinstance(layer, GConv2d))


def _whole(size: torch.Size) -> Part:
    return (0, size[0]), (0, size[1])


def _grown(part: Part, by: int, size: torch.Size) -> Part:
    """By so many pixels on all sides and to even places, within a map of this size."""
    rows, columns = ((max(0, (a - by) // 2 * 2), min(length, (b + by + 1) // 2 * 2)) for (a, b), length in zip(part, size))
    return rows, columns


def _halved(part: Part) -> Part:
    (top, bottom), (left, right) = part
    return (top // 2, bottom // 2), (left // 2, right // 2)


def _doubled(part: Part) -> Part:
    (top, bottom), (left, right) = part
    return (2 * top, 2 * bottom), (2 * left, 2 * right)


def _cut(maps: Tensor, part: Part, had: Part) -> Tensor:
    """A part of maps that are those of another part."""
    (top, bottom), (left, right) = part
    (above, _), (beside, _) = had
    return maps[..., top - above : bottom - above, left - beside : right - beside]


def _dense_block(in_fields: int, units: int, out_fields: int, group: str | Group, width: float, checkpointing: bool) -> GDenseBlock:
    middle, growth = scaled(14, width), scaled(6, width)
    return GDenseBlock(in_fields, units, group=group, out_fields=out_fields, middle=middle, growth=growth, checkpointing=checkpointing)
