"""The stains of an image are found, and taken from one image to another."""

import numpy as np
import pytest

from dsfcnn.data.stains import densities, from_densities, restain, stains_of
from dsfcnn.data.synthetic.dataset import Drawn

# Densities in R, G, B of a unit of each, as slides have them: eosin absorbs some red too.
HAEMATOXYLIN, EOSIN = np.array([0.62, 0.70, 0.35]), np.array([0.30, 0.80, 0.52])
BLUER, REDDER = np.array([0.75, 0.60, 0.28]), np.array([0.25, 0.75, 0.61])


def amounts():
    """How much there is of two stains in each of 120 x 120 pixels: much of one, much of the other, some of both."""
    rng = np.random.default_rng(0)
    return (rng.uniform(0, 1, (120, 120, 2)) * rng.choice([[1, 0], [0, 1], [1, 1]], (120, 120))).astype(np.float32)


def stained(first, second):
    """An image with such amounts of two stains, each given by its densities at full strength."""
    return from_densities(amounts().reshape(-1, 2) @ np.stack([first, second]).astype(np.float32), (120, 120, 3))


@pytest.mark.parametrize(("first", "second"), [(2.2 * HAEMATOXYLIN, 1.5 * EOSIN), (1.2 * BLUER, 2.5 * REDDER)])
def test_the_stains_of_an_image_are_found(first, second):
    found = stains_of(stained(first, second))
    # The last percent of pixels is beyond the edge, and faint ones, of which rounding makes any colour, are left out.
    assert np.abs(found[:2] - [first, second]).max() < 0.12
    assert found[2] @ found[0] == pytest.approx(0, abs=1e-12)
    assert found[2] @ found[1] == pytest.approx(0, abs=1e-12)


def test_haematoxylin_comes_first_and_turning_changes_nothing():
    image = stained(1.5 * EOSIN, 2.2 * HAEMATOXYLIN)
    found = stains_of(image)
    assert found[0, 0] > found[1, 0]
    assert np.allclose(stains_of(np.rot90(image)), found, atol=1e-6)


def test_an_image_takes_the_stains_of_another():
    image, other = stained(2.2 * HAEMATOXYLIN, 1.5 * EOSIN), stained(1.8 * BLUER, 2.0 * REDDER)
    changed = restain(image, stains_of(image), stains_of(other)).astype(int)
    assert np.abs(changed - other).mean() < 4 < np.abs(image.astype(int) - other).mean()


def test_its_own_stains_leave_an_image_as_it_is():
    image = Drawn("nuclei", "train", size=200)[0].image
    found = stains_of(image)
    assert np.abs(restain(image, found, found).astype(int) - image).max() <= 1


def test_densities_are_those_of_the_bytes():
    every = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    assert (from_densities(densities(every), every.shape) == every).all()
    assert densities(every).min() == 0


@pytest.mark.parametrize(
    "image",
    [
        np.full((64, 64, 3), 255, np.uint8),  # glass
        np.full((64, 64, 3), (180, 90, 140), np.uint8),  # one colour
        from_densities(np.linspace(0.5, 3, 4096, dtype=np.float32)[:, None] * EOSIN.astype(np.float32), (64, 64, 3)),  # one stain
        np.zeros((4, 4, 3), np.uint8),  # hardly any pixels
    ],
)
def test_where_stains_cannot_be_told_there_are_none(image):
    assert stains_of(image) is None
