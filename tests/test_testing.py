"""The check of equivariance finds what is not equivariant, and measures the rest as its description says."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import ndimage
from torch import nn

from dsfcnn.errors import ShapeError, UsageError
from dsfcnn.groups import parse_group
from dsfcnn.layers import GConv2d, GPool, LiftConv2d, MaxPool
from dsfcnn.testing import assert_equivariant, equivariance_error


def images(side=16, channels=3):
    return torch.randn(2, channels, side, side, dtype=torch.float64)


def smooth_images(side=33, channels=3):
    """White noise blurred by a Gaussian of 2 pixels."""
    noise = np.random.default_rng(0).standard_normal((2, channels, side, side))
    return torch.from_numpy(ndimage.gaussian_filter(noise, (0, 0, 2, 2)))


class ReversedOrientations(nn.Module):
    """Counts its orientations clockwise: the wrong sign of rotation."""

    def __init__(self, group):
        super().__init__()
        self.layer = LiftConv2d(3, 2, 5, group=group)

    def forward(self, x):
        return self.layer(x).flip(2).roll(1, 2)


class NormOfPlanes(nn.Module):
    """Batch norm that treats each orientation as a channel of its own."""

    def __init__(self, fields, size):
        super().__init__()
        self.norm = nn.BatchNorm2d(fields * size)

    def forward(self, x):
        return self.norm(x.flatten(1, 2)).view_as(x)


def test_an_ordinary_convolution_is_rejected():
    plain = nn.Conv2d(3, 2, 7, padding=3).double()
    with pytest.raises(AssertionError, match=r"Conv2d turned 90 degrees: error \d\.\de[+-]\d\d, allowed 1e-09"):
        assert_equivariant(plain, images(), "C4")


def test_a_mirrored_convolution_is_named():
    """C4's filters turn and do not mirror: D4 fails at the first mirror."""
    turning = nn.Sequential(LiftConv2d(3, 2, 5, group="C4"), GPool()).double()
    assert_equivariant(turning, images(), "C4")
    with pytest.raises(AssertionError, match="Sequential moved by mirror 0 degrees"):
        assert_equivariant(turning, images(), "D4")


@pytest.mark.parametrize("training", [False, True])
def test_an_ordinary_batch_norm_over_planes_is_rejected(training, as_trained):
    norm = as_trained(NormOfPlanes(2, 8)).double().train(training)
    with pytest.raises(AssertionError, match="turned 90 degrees"):
        assert_equivariant(norm, torch.randn(2, 2, 8, 12, 12, dtype=torch.float64), "C8")


@pytest.mark.parametrize("group", ["C4", "C8", "C12"])
def test_the_wrong_sign_of_rotation_is_rejected(group):
    model = ReversedOrientations(group).double()
    assert_equivariant(model.layer, images(), group)
    with pytest.raises(AssertionError, match="turned 90 degrees"):
        assert_equivariant(model, images(), group)


def test_a_pool_that_drops_the_last_pixel_is_rejected():
    drops_last = nn.MaxPool2d(2)
    assert_equivariant(drops_last, images(16), "C4")
    assert_equivariant(MaxPool(), images(17), "C4")
    with pytest.raises(AssertionError, match="turned 90 degrees"):
        assert_equivariant(drops_last, images(17), "C4")


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_outputs_that_are_no_numbers_are_rejected(bad):
    with pytest.raises(AssertionError):
        assert_equivariant(lambda x: torch.full_like(x, bad), images(), "C4")
    with pytest.raises(AssertionError):
        assert_equivariant(lambda x: torch.where(x > 2, bad, x), images(), "C4")


@pytest.mark.parametrize("place", ["first", "second"])
def test_a_nan_in_one_of_several_outputs_is_rejected(place):
    def function(x):
        good, bad = x, x * math.nan
        return (bad, good) if place == "first" else (good, bad)

    with pytest.raises(AssertionError):
        assert_equivariant(function, images(), "C4")
    assert not max(equivariance_error(function, images(), "C4").values()) < 1


def test_an_answer_where_zero_is_expected_is_rejected():
    first = images()
    with pytest.raises(AssertionError, match="error inf"):
        assert_equivariant(lambda x: torch.zeros_like(x) if torch.equal(x, first) else x, first, "C4")


def test_outputs_of_another_shape_are_rejected():
    layer = LiftConv2d(3, 2, 5, group="C8").double()
    with pytest.raises(ShapeError, match="give the group of the layer"):
        assert_equivariant(lambda x: layer(x)[:, :, :4], images(), "C8")
    with pytest.raises(AssertionError, match="turned 90 degrees"):  # orientations taken for channels do not change places
        assert_equivariant(lambda x: layer(x).flatten(1, 2), images(), "C8")
    wide = torch.randn(1, 3, 12, 16, dtype=torch.float64)
    with pytest.raises(ShapeError, match="treat height and width alike"):
        assert_equivariant(lambda x: x[..., 1:], wide, "C4")


def test_several_outputs_are_all_compared():
    lift = LiftConv2d(3, 2, 5, group="C4").double()
    hidden = GConv2d(2, 2, 3, group="C4").double()

    def good(x):
        y = lift(x)
        return {"lifted": y, "parts": (hidden(y), [y.amax(2)]), "vector": y.mean((2, 3, 4))}

    assert_equivariant(good, images(), "C4")
    assert max(equivariance_error(good, images(), "C4").values()) < 1e-12
    for bad in ({"map": lambda x: x.cumsum(-1)}, {"vector": lambda x: x[..., 0, 0]}):
        name, function = bad.popitem()
        with pytest.raises(AssertionError, match="turned 90 degrees"):
            assert_equivariant(lambda x, name=name, function=function: {**good(x), name: function(x)}, images(), "C4")
        with pytest.raises(AssertionError, match="turned 90 degrees"):
            assert_equivariant(lambda x, function=function: (*good(x).values(), function(x)), images(), "C4")


def test_errors_are_named_by_degrees():
    def keys(group):
        return list(equivariance_error(nn.Identity(), images(8, 1), group))

    assert keys("C1") == []
    assert keys("C4") == [90, 180, 270]
    assert keys("C8") == [45, 90, 135, 180, 225, 270, 315]
    assert keys("C16")[:2] == [22.5, 45]
    assert keys("D2") == [180, "mirror 0", "mirror 180"]
    assert keys("D4") == [90, 180, 270, "mirror 0", "mirror 90", "mirror 180", "mirror 270"]
    assert all(isinstance(key, int) for key in keys("C8"))


def test_turns_between_pixels_tell_steerable_from_ordinary():
    """At 45 degrees a steerable layer is nearly equivariant on smooth images, at 90 exactly; an ordinary one is neither."""
    steerable = equivariance_error(LiftConv2d(3, 4, group="C8").double(), smooth_images(), "C8")
    ordinary = equivariance_error(nn.Conv2d(3, 4, 7, padding=3).double(), smooth_images(), "C8")
    between, exact = (45, 135, 225, 315), (90, 180, 270)
    assert all(steerable[angle] < 0.05 for angle in between)
    assert all(steerable[angle] < 1e-12 for angle in exact)
    assert all(ordinary[angle] > 0.3 for angle in (*between, *exact))


def numpy_disc(side, radius, edge=None):
    """1 inside ``radius`` (in halves of the side), with a raised-cosine fall over ``edge`` that ends there."""
    disc = np.zeros((side, side))
    for row in range(side):
        for column in range(side):
            distance = math.hypot(row - (side - 1) / 2, column - (side - 1) / 2) / (side / 2)
            if edge is None:
                disc[row, column] = distance <= radius
            else:
                disc[row, column] = 0.5 - 0.5 * math.cos(math.pi * min(1, max(0, (radius - distance) / edge)))
    return disc


def numpy_turn(maps, degrees):
    """Counter-clockwise about the centre, by quintic splines with zeros outside: each pixel reads the place that is turned onto it."""
    side = maps.shape[-1]
    middle, angle = (side - 1) / 2, math.radians(degrees)
    rows, columns = np.mgrid[:side, :side]
    x, y = columns - middle, middle - rows
    from_x, from_y = math.cos(angle) * x + math.sin(angle) * y, -math.sin(angle) * x + math.cos(angle) * y
    turned = np.empty_like(maps)
    for index in np.ndindex(maps.shape[:-2]):
        turned[index] = ndimage.map_coordinates(maps[index], [middle - from_y, middle + from_x], order=5, mode="constant")
    return turned


def numpy_error(function, images, step, degrees):
    """The protocol of equivariance_error between pixels; ``step`` orientations change places, None for maps without them."""
    side = images.shape[-1]
    images = images * numpy_disc(side, 0.95, 0.15)
    expected = numpy_turn(function(images), degrees)
    if step is not None:
        expected = np.roll(expected, step, axis=2)
    computed = function(numpy_turn(images, degrees))
    compared = numpy_disc(side, 0.6)
    errors = [np.linalg.norm((c - e) * compared) / np.linalg.norm(e * compared) for c, e in zip(computed, expected)]
    return np.mean(errors)


@pytest.mark.parametrize("side", [24, 25])
@pytest.mark.parametrize("lifted", [True, False], ids=["fields", "channels"])
def test_the_error_between_pixels_is_as_described(side, lifted):
    images = smooth_images(side)
    layer = (LiftConv2d(3, 2, group="C8") if lifted else nn.Conv2d(3, 2, 5, padding=2)).double()

    def in_numpy(x):
        with torch.no_grad():
            return layer(torch.from_numpy(x)).numpy()

    errors = equivariance_error(layer, images, "C8")
    for step in (1, 3, 5):
        wanted = numpy_error(in_numpy, images.numpy(), step if lifted else None, 45 * step)
        assert errors[45 * step] == pytest.approx(wanted, rel=1e-6)


def test_exact_turns_compare_the_whole_map():
    """Nothing is faded or cut where pixels map onto pixels: what goes wrong in a corner counts."""

    def corner(x):
        return F.pad(x[..., 1:, 1:], (1, 0, 1, 0)) if x.shape[-1] == 16 else x

    x = images()
    with pytest.raises(AssertionError, match="turned 90 degrees"):
        assert_equivariant(corner, x, "C4")
    expected = torch.rot90(corner(x), dims=(-2, -1))
    wanted = ((corner(torch.rot90(x, dims=(-2, -1))) - expected).flatten(1).norm(dim=1) / expected.flatten(1).norm(dim=1)).mean()
    assert equivariance_error(corner, x, "C4")[90] == pytest.approx(wanted.item())


def test_groups_are_given_by_name_or_as_they_are():
    layer = LiftConv2d(3, 2, 5, group="C8").double()
    assert equivariance_error(layer, smooth_images(17), parse_group("C8")) == equivariance_error(layer, smooth_images(17), "C8")


def test_images_without_a_batch_are_refused(refused):
    for check in (assert_equivariant, equivariance_error):
        with refused(ShapeError, fix="a batch even of one"):
            check(nn.Identity(), images()[0], "C4")


def test_angles_are_found_by_what_people_write_and_others_refused(refused):
    assert list(equivariance_error(nn.Identity(), images(), "C7", angles=[51.43])) == [360 / 7]
    with refused(UsageError, fix="use some of 90, 180, 270"):
        equivariance_error(nn.Identity(), images(), "C4", angles=[45])
