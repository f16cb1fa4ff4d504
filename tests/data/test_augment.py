"""Turning and changing colours: exact where it can be, close to a slow version where not."""

import numpy as np
import pytest
import slow_images as slow
from hypothesis import given, settings
from hypothesis import strategies as st

from dsfcnn.data.augment import Augment, apply_affine, gaussian_blur, hue_matrix, jitter_stain, median_blur
from dsfcnn.data.synthetic.dataset import Drawn
from dsfcnn.data.warp import View, leaves, warp_image, warp_labels
from dsfcnn.errors import UsageError

rng = np.random.default_rng(0)
PICTURE = rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def tissue():
    return Drawn("nuclei", "train", size=700)[0]


@pytest.mark.parametrize("quarter", [-1, 0, 1, 2, 3])
@pytest.mark.parametrize("size", [31, 32])
def test_quarter_turns_are_exact(quarter, size):
    picture, labels = PICTURE[:size, :size], PICTURE[:size, :size, 0].astype(np.int32)
    view = View.turned(size, ((size - 1) / 2,) * 2, 90 * quarter)
    assert (warp_image(picture, view) == np.rot90(picture, quarter)).all()
    assert (warp_labels(labels, view) == np.rot90(labels, quarter)).all()


def test_flips_are_exact():
    square = PICTURE[:40, :40]
    for flip, expected in (((True, False), square[::-1]), ((False, True), square[:, ::-1]), ((True, True), square[::-1, ::-1])):
        assert (warp_image(square, View.turned(40, (19.5, 19.5), flip=flip)) == expected).all()


@settings(deadline=None, derandomize=True, max_examples=25)
@given(
    st.floats(-360, 360),
    st.floats(0.4, 1.9),
    st.tuples(st.booleans(), st.booleans()),
    st.floats(0, 39),
    st.floats(0, 47),
    st.sampled_from([1, 3]),
)
def test_any_turn_is_bilinear(degrees, scale, flip, row, column, channels):
    picture = PICTURE[..., :channels]
    found = warp_image(picture, View.turned(9, (row, column), degrees, scale, flip))
    expected = slow.turned(picture, 9, (row, column), degrees, scale, flip)
    # A place is rounded to 2^-13 pixel and a weight down to 2^-13: far less than one step of 255 together, and rounding is half of one.
    assert np.abs(found - expected).max() < 0.75


def test_labels_take_the_nearest_pixel():
    labels = np.arange(40 * 48).reshape(40, 48)
    view = View.turned(12, (20.2, 21.7), 33.0)
    coordinates = np.stack(
        [np.broadcast_to(np.arange(40)[:, None, None], (40, 48, 1)), np.broadcast_to(np.arange(48)[None, :, None], (40, 48, 1))]
    )
    places = [slow.turned(plane, 12, (20.2, 21.7), 33.0)[..., 0] for plane in coordinates]
    assert (warp_labels(labels, view) == np.rint(places[0]) * 48 + np.rint(places[1])).all()


def test_labels_are_what_three_places_of_a_pixel_agree_on():
    """Pixel by pixel, on noise; the middle decides the rest."""
    labels = np.random.default_rng(2).integers(0, 3, (42, 48))
    degrees, scale, centre = 33.0, 1.2, (20.2, 21.7)
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    found, votes = warp_labels(labels, View.turned(15, centre, degrees, scale)), 0

    def read(row, column):
        y, x = row - 7, column - 7
        return labels[round(centre[0] + scale * (cos * y + sin * x)), round(centre[1] + scale * (cos * x - sin * y))]

    for row, column in np.ndindex(15, 15):
        seen = [read(row + dy, column + dx) for dy, dx in ((0, 0), (0.35, 0), (-0.35, 0), (0, 0.35), (0, -0.35))]
        expected = next((label for label in seen if seen.count(label) >= 3), seen[0])
        votes += expected != read(row, column)
        assert found[row, column] == expected
    assert votes > 3, "the vote never mattered"


def test_a_fine_source_is_averaged():
    """At four source pixels per result pixel a checkerboard is grey, not whatever pixel was hit."""
    board = np.kron(np.indices((32, 32)).sum(0) % 2, np.ones((2, 2)))[..., None].repeat(3, 2).astype(np.uint8) * 200
    found = warp_image(board, View.turned(12, (31.5, 31.5), 0, 4))
    assert (found == 100).all()


@settings(deadline=None, derandomize=True, max_examples=15)
@given(st.floats(2, 4.5), st.floats(0, 360))
def test_averaging_does_not_depend_on_the_part_that_is_cut_out(scale, degrees):
    """A smooth picture is itself at any resolution, so a shift by the block size would show."""
    y, x = np.mgrid[:120, :130]
    ramp = np.stack([y, x, (x + y) // 2], -1).astype(np.uint8)
    view = View.turned(8, (63.0, 58.0), degrees, scale)
    assert not leaves(ramp.shape, view)
    assert np.abs(warp_image(ramp, view) - slow.turned(ramp, 8, (63.0, 58.0), degrees, scale)).max() <= 1.5


def test_turning_there_and_back_keeps_objects(tissue):
    """IoU above 0.95 for every object of 250 pixels and more, and a median of 0.97 over all of them."""
    size, centre = 701, (350.0, 350.0)
    instances = np.pad(tissue.instances, ((0, 1), (0, 1)))
    scores, large = [], []
    for degrees in (7.0, 33.0, 45.0, 61.3):
        there = warp_labels(instances, View.turned(size, centre, degrees), "black")
        back = warp_labels(there, View.turned(size, centre, -degrees), "black")
        y, x = np.mgrid[:size, :size] - 350
        seen = np.unique(instances[np.hypot(y, x) >= 349])  # what the corners cut off
        for number in np.setdiff1d(np.unique(instances), [0, *seen]):
            one, other = instances == number, back == number
            score = (one & other).sum() / (one | other).sum()
            scores.append(score)
            if one.sum() >= 250:
                large.append(score)
    assert len(large) > 200
    assert min(large) > 0.95
    assert np.median(scores) > 0.97


def test_the_wrong_way_back_would_be_noticed(tissue):
    view = View.turned(301, (350.0, 350.0), 20)
    there = warp_labels(tissue.instances, view)
    again = warp_labels(there, View.turned(301, (150.0, 150.0), 20))
    one = tissue.instances[200:501, 200:501]
    assert ((one > 0) & (again > 0)).sum() / ((one > 0) | (again > 0)).sum() < 0.8


def test_black_border_and_mirror_border():
    white = np.full((28, 28, 1), 255, np.uint8)
    view = View.turned(28, (13.5, 13.5), 45)
    assert warp_image(white, view, "black")[0, 0, 0] == 0
    assert (warp_image(white, view, "mirror") == 255).all()
    assert leaves((28, 28), view)


@pytest.mark.parametrize("size", [3, 5])
def test_median_is_the_median(size):
    picture = PICTURE[:12, :9]
    assert (median_blur(picture, size) == slow.median(picture, size)).all()


@pytest.mark.parametrize(("size", "taps"), [(3, [1, 2, 1]), (5, [1, 4, 6, 4, 1])])
def test_gaussian_blur_weighs_binomially(size, taps):
    point = np.zeros((11, 9, 3), np.uint8)
    point[5, 4] = 160
    for axis, line in ((0, np.s_[5 - size // 2 : 6 + size // 2, 4, 0]), (1, np.s_[5, 4 - size // 2 : 5 + size // 2, 0])):
        assert gaussian_blur(point, size, axis)[line].tolist() == [160 * tap // sum(taps) for tap in taps]
    flat = np.full((7, 7, 3), 201, np.uint8)
    assert (gaussian_blur(flat, size, 0) == 201).all()


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 7, 3), (2, 3, 3)])
def test_tiny_images_are_filtered_too(shape):
    picture = rng.integers(0, 256, shape, dtype=np.uint8)
    assert (median_blur(picture, 5) == slow.median(picture, 5)).all() if min(shape[:2]) > 1 else median_blur(picture, 5).shape == shape
    assert gaussian_blur(picture, 5, 0).shape == shape


def test_hue_turns_the_colour_circle():
    red, green, blue = np.eye(3) * 200
    assert np.allclose(hue_matrix(120) @ red, green)
    assert np.allclose(hue_matrix(-120) @ red, blue)
    assert np.allclose(hue_matrix(33) @ np.full(3, 77), 77)


def test_steps_of_colour_compose_as_if_done_one_by_one():
    """The composed matrix equals doing hue, saturation, brightness and contrast in turn with a mean taken each time."""
    picture = rng.integers(90, 160, (30, 30, 3), dtype=np.uint8)  # far from 0 and 255, so nothing is cut off
    for seed in range(20):
        one, other = np.random.default_rng(seed), np.random.default_rng(seed)
        found = Augment(filter=0).change_colour(picture, one)
        other.random()
        strength = other.uniform(-1, 1, 4)
        values = picture.reshape(-1, 3).astype(float)
        for step in other.permutation(4):
            grey = (values @ (0.299, 0.587, 0.114))[:, None]
            if step == 0:
                values = values @ hue_matrix(16 * strength[0]).T
            elif step == 1:
                values = grey + (1 + 0.2 * strength[1]) * (values - grey)
            elif step == 2:
                values = values + 26 * strength[2]
            else:
                values = values.mean(0) + (1 + 0.25 * strength[3]) * (values - values.mean(0))
        assert np.abs(found.reshape(-1, 3) - np.clip(values, 0, 255)).max() < 0.51


def test_colours_are_cut_at_black_and_white():
    picture = np.array([[[0, 128, 255]]], np.uint8)
    assert apply_affine(picture, np.eye(3) * 2, np.array([-50.0, 0, 0])).tolist() == [[[0, 255, 255]]]
    assert apply_affine(picture, np.eye(3), np.zeros(3)).tolist() == picture.tolist()


def test_stain_jitter_keeps_glass_and_deepens_stain(tissue):
    same = jitter_stain(tissue.image, np.ones(2))
    assert np.abs(same.astype(int) - tissue.image).max() <= 1
    deeper = jitter_stain(tissue.image, np.array([1.2, 1.2])).astype(int)
    assert deeper.mean() < tissue.image.mean() - 3
    assert (jitter_stain(np.full((2, 2, 3), 255, np.uint8), np.array([1.3, 0.7])) == 255).all()


def test_digits_are_only_turned():
    digit = Drawn("digits", "train")[3].image
    assert (Augment.digits().change_colour(digit, np.random.default_rng(0)) == digit).all()
    # Colour strengths do nothing to an image without colour.
    assert (Augment(filter=0).change_colour(digit, np.random.default_rng(0)) == digit).all()


def test_each_filter_comes_up():
    picture, seen = PICTURE[:16, :16], set()
    colourless = Augment(filter=1, hue=0, saturation=0, brightness=0, contrast=0)
    for seed in range(40):
        changed = colourless.change_colour(picture, np.random.default_rng(seed)).astype(int)
        difference = np.abs(changed - picture).max()
        seen.add(
            "noise"
            if difference < 8
            else "median"
            if np.isin(changed, picture).all() and (changed == slow.median(picture, 3)).all()
            else "blur"
        )
    assert seen == {"noise", "median", "blur"}


@pytest.mark.parametrize("bad", [{"hue": -1}, {"noise": float("nan")}, {"filter": 1.5}, {"contrast": 1.0}, {"stain": 2.0}, {"scale": 1.5}])
def test_strengths_without_meaning_are_refused(bad, refused):
    with refused(UsageError, "use"):
        Augment(**bad)
