"""Whole models commute with quarter turns, and with mirrors where their group has them: exactly, up to the rounding of float64.

Maps turn with the image, and classes do not change.
"""

import pytest
import torch

from dsfcnn.models import create, names
from dsfcnn.models.heads import SpatialMean
from dsfcnn.testing import assert_equivariant, equivariance_error

HISTOLOGY = [(64, 64), (96, 96), (100, 100), (33, 33), (50, 37)]
DIGITS = [(28, 28), (25, 25), (18, 31)]

GROUP_MODELS = [name for name in names() if not name.startswith("cnn")]
# H-Net and VF-CNN know no group of their own between layers, so quarter turns are named by C4.
ASSERTED = {"p4m": "D4", "sfcnn": "C16", "hnet": "C4", "vfcnn": "C4"}


def asserted(name):
    return ASSERTED.get(name.partition("-")[0], "C8")


def every_size():
    return [
        pytest.param(name, size, id=f"{name}-{size[0]}x{size[1]}")
        for name in GROUP_MODELS
        for size in (DIGITS if name.endswith("digits") else HISTOLOGY)
    ]


def expect_content(found):
    """An output that is the same everywhere would pass every check below."""
    for values in found.values():
        assert values.isfinite().all()
        assert values.std() > 1e-3 * values.abs().max()


@pytest.mark.parametrize(("name", "size"), every_size())
def test_evaluation(name, size, small, images, outputs):
    lighter = {"width": 0.05 if name.startswith("hnet") else 0.1} if max(size) >= 64 else {}
    model, x = small(name, **lighter), images(name, *size)
    expect_content(outputs(model, x))
    assert_equivariant(model, x, asserted(name), rtol=1e-9)


@pytest.mark.parametrize("size", [(24, 24), (18, 25)], ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize(
    "name", ["dsf-tumour", "dsf-nuclei", "p4m-tumour", "sfcnn-digits", "gcnn-glands", "steerable-tumour", "vfcnn-nuclei", "hnet-glands"]
)
def test_training(name, size, small, images):
    """Batch statistics, too, are those of the turned batch."""
    options = {"dropout": 0.0} if name in ("dsf-tumour", "sfcnn-digits") else {}
    model = small(name, **options).train()
    assert_equivariant(model, images(name, *size, batch=4), asserted(name), rtol=1e-9)


@pytest.mark.parametrize("size", [(32, 32), (21, 38)], ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("group", ["C4", "C12", "D4"])
@pytest.mark.parametrize("name", ["dsf-nuclei", "dsf-tumour", "steerable-glands", "gcnn-tumour"])
def test_other_groups(name, group, size, small, images):
    """D4: mirrors too."""
    assert_equivariant(small(name, group=group), images(name, *size), group, rtol=1e-9)


@pytest.mark.parametrize("size", [(96, 96), (48, 33), (16, 1)], ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize("name", ["dsf-tumour", "steerable-tumour", "hnet-tumour"])
def test_patches_judged_by_their_middle(name, size, small, images):
    model = small(name, width=0.1, centre=1 / 3)
    assert_equivariant(model, images(name, *size), asserted(name), rtol=1e-9)


def test_the_middle_third_of_a_patch_is_what_is_averaged():
    """96 pixels are 6 after four poolings, and the middle third of them 2."""
    maps = torch.zeros(6, 6)
    maps[2:4, 2:4] = 1
    assert SpatialMean(1 / 3)(maps).item() == 1
    assert SpatialMean(2 / 3)(maps).item() == 0.25
    assert SpatialMean()(maps).item() == pytest.approx(1 / 9)
    assert SpatialMean(0.01)(torch.arange(5.0).expand(4, 5)).item() == 2  # one pixel of an odd axis, two of an even one


@pytest.mark.parametrize("max_frequency", [2, 3])
def test_higher_frequencies(max_frequency, small, images):
    model = small("hnet-tumour", max_frequency=max_frequency)
    assert_equivariant(model, images("hnet-tumour", 50, 37), "C4", rtol=1e-9)


@pytest.mark.parametrize("name", [name for name in names() if name.startswith("cnn")])
def test_an_ordinary_network_is_rejected(name, small, images):
    with pytest.raises(AssertionError, match="turned 90 degrees"):
        assert_equivariant(small(name), images(name, 64, 64), "C4", rtol=1e-3)


def test_rotations_do_not_give_mirrors(small, images):
    """C8 knows turns alone, so the check for D4 finds its mirrors missing."""
    model, x = small("dsf-nuclei"), images("dsf-nuclei", 64, 64)
    error = equivariance_error(model, x, "D4")
    assert max(error[turn] for turn in (90, 180, 270)) < 1e-9
    assert min(error[f"mirror {turn}"] for turn in (0, 90, 180, 270)) > 1e-3


def test_maps_turn_and_classes_stay(small, images):
    """In plain words of rot90 and flip, without the package's own check."""
    x = images("dsf-nuclei", 48, 64)
    model = small("dsf-nuclei", group="D4")
    want, turned, mirrored = model(x), model(x.rot90(1, (-2, -1))), model(x.flip(-1))
    for head in ("object", "marker"):
        torch.testing.assert_close(turned[head], want[head].rot90(1, (-2, -1)), rtol=0, atol=1e-10)
        torch.testing.assert_close(mirrored[head], want[head].flip(-1), rtol=0, atol=1e-10)
        assert (turned[head] - want[head].rot90(-1, (-2, -1))).abs().max() > 1e-3
    model = small("p4m-tumour")
    torch.testing.assert_close(model(x.rot90(1, (-2, -1))), model(x), rtol=0, atol=1e-10)
    torch.testing.assert_close(model(x.flip(-2)), model(x), rtol=0, atol=1e-10)


HEADS = {"nuclei": {"object": 2, "marker": 3}, "glands": {"object": 3}}
CLASSES = {"tumour": 2, "digits": 10}


@pytest.mark.parametrize("name", names())
def test_output_shapes(name, small, images):
    """Every height and width, down to one pixel: heads by name, as large as the image; or one row of classes an image."""
    model, task = small(name), name.rpartition("-")[2]
    for height, width in ((1, 1), (1, 9), (2, 3), (16, 16), (17, 31), (40, 23)):
        found = model(images(name, height, width, batch=2))
        if task in CLASSES:
            assert found.shape == (2, CLASSES[task])
            assert found.isfinite().all()
        else:
            assert {head: tuple(values.shape) for head, values in found.items()} == {
                head: (2, channels, height, width) for head, channels in HEADS[task].items()
            }
            assert all(values.isfinite().all() for values in found.values())


def test_other_heads_and_classes(images):
    heads = {"border": 4, "inside": 1}
    found = create("dsf-glands", width=0.2, heads=heads).eval()(images("dsf-glands", 9, 10, dtype=torch.float32))
    assert {head: values.shape[1] for head, values in found.items()} == heads
    assert create("vfcnn-tumour", width=0.2, classes=7).eval()(images("vfcnn-tumour", 9, 10, dtype=torch.float32)).shape == (1, 7)
