"""Contours lie on the rim of their objects, and heat on its cells."""

import numpy as np
import pytest
from found_objects import NUCLEUS, discs, masks, objects_of
from hypothesis import given, settings
from PIL import Image
from scipy import ndimage

from dsfcnn.errors import UnreadableRegion
from dsfcnn.inference.objects import Classification, Instance
from dsfcnn.inference.overlay import contour, mark_unreadable, picture_of, write_heat_overlay, write_overlay
from dsfcnn.slides import open_slide

TUMOUR = Classification("Tumour", "#c80000")


def drawn_pixels(instance, scale, shape):
    drawn = np.zeros(shape, bool)
    drawn[contour(instance, scale)] = True
    return drawn


@settings(deadline=None, derandomize=True, max_examples=60)
@given(masks())
def test_at_full_resolution_the_rim_is_the_object_without_its_core(mask):
    found = drawn_pixels(Instance(3, 5, mask, 1.0), 1.0, (30, 30))
    placed = np.pad(mask, ((5, 25 - mask.shape[0]), (3, 27 - mask.shape[1])))
    np.testing.assert_array_equal(found, placed & ~ndimage.binary_erosion(placed))


@pytest.mark.parametrize("scale", [0.03, 0.3, 0.77, 1.3, 2.0, 4.0])
def test_at_any_resolution_contours_stay_inside_and_close(scale):
    rows, columns = np.mgrid[:200, :200]
    instance = Instance(20, 30, (rows - 100) ** 2 + (columns - 100) ** 2 < 90**2, 1.0)
    side = int(260 * scale) + 2
    found = drawn_pixels(instance, scale, (side, side))
    distance = np.hypot(*((np.mgrid[:side, :side] + 0.5) / scale - np.array([130.5, 120.5])[:, None, None]))
    assert found.any()
    assert (distance[found] < 91).all()
    assert (distance[found] > 89 - 2 / scale).all()
    inside = ndimage.binary_fill_holes(found)
    assert inside.sum() == pytest.approx(np.pi * (90 * scale) ** 2, rel=0.08, abs=12)


def test_an_object_too_small_to_be_seen_is_a_point():
    rows, columns = contour(Instance(100, 50, np.ones((2, 2), bool), 1.0), 0.1)
    assert (rows.tolist(), columns.tolist()) == ([5], [10])


def test_an_overlay_is_the_picture_with_contours(tmp_path):
    labels = discs()
    picture = np.full((*labels.shape, 3), 240, np.uint8)
    write_overlay(tmp_path / "a.png", picture.copy(), objects_of(labels), 1.0, NUCLEUS)
    found = np.asarray(Image.open(tmp_path / "a.png"))
    coloured = (found == NUCLEUS.rgb).all(2)
    np.testing.assert_array_equal(found[~coloured], picture[~coloured])
    rim = np.zeros_like(coloured)
    for number in range(1, labels.max() + 1):
        rim |= (labels == number) & ~ndimage.binary_erosion(labels == number)
    np.testing.assert_array_equal(coloured, rim)


def test_what_lies_outside_the_picture_is_left_away(tmp_path):
    square = Instance(-3, 8, np.ones((6, 6), bool), 1.0)
    write_overlay(tmp_path / "a.png", np.zeros((10, 10, 3), np.uint8), [square], 1.0, NUCLEUS)
    coloured = np.asarray(Image.open(tmp_path / "a.png")).any(2)
    assert sorted(zip(*np.nonzero(coloured))) == [(8, 0), (8, 1), (8, 2), (9, 2)]


def test_an_image_is_shown_at_its_own_resolution(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    with open_slide(tmp_path / "a.png", image_mpp=0.25) as slide:
        picture, scale = picture_of(slide)
    assert scale == 1.0
    np.testing.assert_array_equal(picture, pixels)


class DamagedSlide:
    """A slide of 40,960 x 8,192 pixels whose right part cannot be read."""

    width, height, mpp, is_image = 40_960, 8_192, 0.25, False

    def read(self, x, y, width, height, mpp):
        if x + width * mpp / self.mpp > 30_000:
            raise UnreadableRegion("damaged", (0, 0, 1, 1))
        return np.full((height, width, 3), 200, np.uint8)


def test_a_slide_is_shown_within_4096_pixels_and_damage_is_seen():
    picture, scale = picture_of(DamagedSlide())
    assert scale == 10
    assert picture.shape == (819, 4096, 3)
    assert (picture[:, :2900] == 200).all()
    assert set(np.unique(picture[:, 3010:])) == {110, 170}
    assert np.array_equal(picture[0, 3200:3216, 0], [110] * 8 + [170] * 8)


def test_regions_known_to_be_damaged_are_marked():
    picture = np.full((30, 40, 3), 200, np.uint8)
    mark_unreadable(picture, [(100, 50, 95, 60), (-40, 280, 80, 80), (1000, 1000, 10, 10)], 10.0)
    marked = (picture != 200).all(2)
    want = np.zeros((30, 40), bool)
    want[5:11, 10:20] = want[28:, :4] = True  # every pixel that has some of it
    np.testing.assert_array_equal(marked, want)


def test_heat_tints_its_cells_only(tmp_path):
    picture = np.full((40, 50, 3), 100, np.uint8)
    grid = np.array([[1.0, np.nan], [0.5, 0.0]])
    write_heat_overlay(tmp_path / "a.png", picture, grid, 16.0, TUMOUR)
    found = np.asarray(Image.open(tmp_path / "a.png"))
    assert (found[:16, :16] == [160, 40, 40]).all()
    assert (found[16:32, :16] == [130, 70, 70]).all()
    assert (found[:, 16:] == 100).all()
    assert (found[32:] == 100).all()
