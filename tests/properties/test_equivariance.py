"""Every layer commutes with the turns and mirrors that map pixels onto pixels: exactly, up to the rounding of float64."""

import pytest
import torch
from torch import nn

from dsfcnn.errors import UsageError
from dsfcnn.groups import parse_group
from dsfcnn.layers import (
    AntialiasedPool,
    GBatchNorm,
    GConv2d,
    GDenseBlock,
    GDenseUnit,
    GPool,
    LiftConv2d,
    MaxPool,
    MeanPool,
    Upsample,
)
from dsfcnn.testing import assert_equivariant

GROUPS = ["C2", "C4", "C8", "C12", "C16", "D4", "D8"]
FEW_GROUPS = ["C4", "C8", "C12", "D4"]
SIZES = [(12, 12), (13, 13), (12, 17)]
KINDS = ["steerable", "rotated"]

sizes = pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
groups = pytest.mark.parametrize("group", GROUPS)
few_groups = pytest.mark.parametrize("group", FEW_GROUPS)
kinds = pytest.mark.parametrize("filters", KINDS)
modes = pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])


def images(size, channels=2):
    return torch.randn(2, channels, *size, dtype=torch.float64)


def maps(group, size, fields=2):
    return torch.randn(2, fields, parse_group(group).size, *size, dtype=torch.float64)


@groups
@kinds
@sizes
@pytest.mark.parametrize("bias", [False, True])
def test_lift(group, filters, size, bias, as_trained):
    layer = as_trained(LiftConv2d(2, 2, 5, group=group, filters=filters, bias=bias)).double()
    assert_equivariant(layer, images(size), group)


@groups
@kinds
@sizes
@pytest.mark.parametrize("bias", [False, True])
def test_gconv(group, filters, size, bias, as_trained):
    layer = as_trained(GConv2d(2, 2, 5, group=group, filters=filters, bias=bias)).double()
    assert_equivariant(layer, maps(group, size), group)


@few_groups
@kinds
@pytest.mark.parametrize("kernel_size", [1, 3, 7, 9])
def test_kernel_sizes(group, filters, kernel_size):
    lift = LiftConv2d(2, 2, kernel_size, group=group, filters=filters)
    hidden = GConv2d(2, 2, kernel_size, group=group, filters=filters)
    assert_equivariant(nn.Sequential(lift, hidden).double(), images((12, 12)), group)


@groups
@sizes
@modes
def test_batch_norm(group, size, training, as_trained):
    layer = as_trained(GBatchNorm(2)).double().train(training)
    assert_equivariant(layer, maps(group, size), group)


@groups
@sizes
@pytest.mark.parametrize("kind", ["max", "mean"])
def test_pooling_over_orientations(group, size, kind):
    assert_equivariant(GPool(kind), maps(group, size), group)


@few_groups
@sizes
@pytest.mark.parametrize("pool", [MaxPool, MeanPool, AntialiasedPool])
def test_pooling_over_space(group, size, pool):
    """Images, maps and maps pooled twice, whose odd and even lengths are not those of the input."""
    assert_equivariant(pool(), images(size), group)
    assert_equivariant(pool(), maps(group, size), group)
    assert_equivariant(nn.Sequential(pool(), pool()), maps(group, size), group)


@few_groups
@sizes
def test_upsampling_doubles(group, size):
    assert_equivariant(Upsample(), images(size), group)
    assert_equivariant(Upsample(), maps(group, size), group)


@few_groups
@pytest.mark.parametrize("target", [23, 24])
def test_upsampling_to_a_size(group, target):
    upsample = Upsample()
    assert_equivariant(lambda x: upsample(x, size=(target, target)), maps(group, (12, 12)), group)


@few_groups
@pytest.mark.parametrize("size", [*SIZES, (7, 10), (1, 2), (3, 3)], ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("pool", [MaxPool, MeanPool, AntialiasedPool])
def test_pooled_and_upsampled_to_the_size_before(group, size, pool):
    """The way of a skip connection: down, and back to the size of the map that the skip carries."""
    down, up = pool(), Upsample()

    def around(x):
        back = up(down(x), size=x.shape[-2:])
        assert back.shape == x.shape
        return x - back

    assert_equivariant(around, maps(group, size), group)


@few_groups
@modes
def test_dense_unit(group, training, as_trained):
    layer = as_trained(GDenseUnit(2, group=group, middle=3, growth=2)).double().train(training)
    for size in SIZES:
        assert_equivariant(layer, maps(group, size), group)


@pytest.mark.parametrize("group", ["C8", "D4"])
@modes
def test_dense_block(group, training, as_trained):
    layer = as_trained(GDenseBlock(2, units=2, group=group, out_fields=3, middle=2, growth=2)).double().train(training)
    for size in SIZES:
        assert_equivariant(layer, maps(group, size), group)


class EncoderDecoder(nn.Module):
    """Two levels with a skip that is concatenated, a second one that is added, and two heads: maps and a vector."""

    def __init__(self, group, filters, pool):
        super().__init__()

        def stage(in_fields):
            return nn.Sequential(GConv2d(in_fields, 2, 3, group=group, filters=filters), GBatchNorm(2), nn.ReLU())

        self.lift = nn.Sequential(LiftConv2d(3, 2, 5, group=group, filters=filters, bias=True), nn.ReLU())
        self.pool, self.upsample, self.across = pool(), Upsample(), GPool()
        self.down, self.bottom, self.up = stage(2), stage(2), stage(4)
        self.head = nn.Conv2d(2, 2, 1)

    def forward(self, x):
        skip = self.lift(x)
        middle = self.down(self.pool(skip))
        deep = self.bottom(self.pool(middle))
        middle = middle + self.upsample(deep, size=middle.shape[-2:])
        joined = torch.cat((skip, self.upsample(middle, size=skip.shape[-2:])), dim=1)
        return {"map": self.head(self.across(self.up(joined))), "vector": self.across(deep).mean((-2, -1))}


@pytest.mark.parametrize("group", ["C4", "C8", "C12", "D4", "D8"])
@kinds
@pytest.mark.parametrize("pool", [MaxPool, AntialiasedPool])
@modes
def test_encoder_decoder(group, filters, pool, training, as_trained):
    model = as_trained(EncoderDecoder(group, filters, pool)).double().train(training)
    for size in SIZES:
        assert_equivariant(model, images(size, 3), group)


@pytest.mark.parametrize("group", ["D1", "D3"])
def test_a_mirror_alone_commutes(group):
    """No quarter turns in these groups: only the mirror in the horizontal axis maps pixels onto pixels."""
    hidden = nn.Sequential(LiftConv2d(2, 2, 5, group=group), GConv2d(2, 2, 5, group=group), GPool()).double()
    assert_equivariant(hidden, images((12, 17)), group)


@pytest.mark.parametrize("group", ["C1", "C3"])
def test_groups_without_exact_turns_have_nothing_to_assert(group, refused):
    with refused(UsageError, fix="use equivariance_error"):
        assert_equivariant(LiftConv2d(2, 2, group=group).double(), images((12, 12)), group)
