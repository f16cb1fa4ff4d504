"""Measurements agree with other libraries, and with what can be computed by hand."""

import numpy as np
import pytest
import slow_outputs
from found_objects import discs, masks, objects_of
from hypothesis import given, settings
from skimage.measure import perimeter_crofton

from dsfcnn.inference.measure import NAMES, measure, perimeter

WHITE = 255


def measured(mask, mpp=1.0, colour=(WHITE,) * 3):
    return measure(mask, np.broadcast_to(np.array(colour, np.uint8), (*mask.shape, 3)), mpp, 0.5)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(masks())
def test_shapes_agree_with_other_libraries(mask):
    found = measured(mask, mpp=0.5)
    assert found["Area um^2"] == mask.sum() / 4
    assert found["Perimeter um"] == pytest.approx(perimeter_crofton(np.pad(mask, 1), directions=4) / 2)
    assert found["Eccentricity"] == pytest.approx(
        slow_outputs.eccentricity(mask), abs=0.04
    )  # the reference's pixels are small, not nothing
    assert found["Solidity"] == pytest.approx(slow_outputs.solidity(mask))


@settings(deadline=None, derandomize=True, max_examples=50)
@given(masks())
def test_quarter_turns_and_mirrors_change_nothing(mask):
    for other in (np.rot90(mask), mask[::-1], mask.T):
        assert measured(other) == pytest.approx(measured(mask))


def test_a_disc_is_round_convex_and_has_the_perimeter_of_a_circle():
    rows, columns = np.mgrid[:81, :81]
    found = measured((rows - 40) ** 2 + (columns - 40) ** 2 <= 40**2, mpp=0.25)
    assert found["Perimeter um"] == pytest.approx(2 * np.pi * 10, rel=0.02)
    assert found["Eccentricity"] == pytest.approx(0, abs=1e-6)
    assert found["Solidity"] == pytest.approx(1, abs=0.03)


def test_a_pixel_and_a_line():
    assert measured(np.ones((1, 1), bool))["Eccentricity"] == 0
    line = measured(np.ones((1, 10), bool))
    assert line["Eccentricity"] == pytest.approx(np.sqrt(1 - 1 / 100))
    assert line["Solidity"] == 1


@pytest.mark.parametrize("colour", [(120, 80, 160), (230, 180, 210), (255, 255, 255), (0, 0, 0), (10, 250, 20)])
def test_haematoxylin_of_a_colour(colour):
    assert measured(np.ones((3, 2), bool), colour=colour)["Hematoxylin OD mean"] == pytest.approx(slow_outputs.stains(colour)[0], abs=1e-12)


def test_eosin_alone_is_no_haematoxylin():
    eosin = np.rint(255 * 10 ** -(0.5 * np.array([0.2159, 0.8012, 0.5581])))
    assert abs(measured(np.ones((2, 2), bool), colour=eosin)["Hematoxylin OD mean"]) < 0.005


def test_only_pixels_of_the_object_count():
    image = np.full((4, 4, 3), WHITE, np.uint8)
    image[2:] = 30
    mask = np.zeros((4, 4), bool)
    mask[:2] = True
    assert measure(mask, image, 1.0, 0.5)["Hematoxylin OD mean"] == 0


def test_objects_of_a_label_map():
    labels = discs() * 1000  # ids with gaps
    found = objects_of(labels, mpp=0.5, x=100, y=2000)
    ids = np.unique(labels)[1:]
    assert len(found) == len(ids)
    for number, one in zip(ids, found):
        rows, columns = np.nonzero(labels == number)
        assert tuple(one.measurements) == NAMES
        assert one.measurements["Area um^2"] == len(rows) / 4
        assert one.centre == pytest.approx((columns.mean() + 100.5, rows.mean() + 2000.5))
        assert one.place == (columns[0] + 100, rows[0] + 2000)
        assert one.probability == one.measurements["Probability"]


def test_the_perimeter_is_in_pixels():
    assert perimeter(np.ones((1, 1), bool)) == pytest.approx(np.pi / 8 * (4 + 4 / np.sqrt(2)))
