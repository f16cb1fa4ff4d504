"""Tissue is found where it was drawn, however pale; glass, dust, pen and black are not tissue."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import ndimage

from dsfcnn.slides import find_tissue, open_slide
from dsfcnn.slides.tissue import tissue_of

from .test_open import damage

DARK, PINK, PALE = (120, 60, 130), (225, 160, 200), (251, 240, 248)  # as on perfectly white glass
GLASS = (243, 242, 244)


def tinted(colour, glass):
    """What tissue of a colour lets through of the glass's light."""
    return np.multiply(colour, glass) / 255


def slide_of(colour, glass=GLASS, noise=1.5, size=(300, 400), seed=0):
    """A coarse picture with a round piece of one colour on noisy glass, and where the piece is."""
    rng = np.random.default_rng(seed)
    rows, columns = np.indices(size)
    piece = (rows - 150) ** 2 + (columns - 180) ** 2 < 80**2
    picture = np.where(piece[..., None], tinted(colour, glass), glass) + rng.normal(size=(*size, 1)) * noise
    return np.clip(picture, 0, 255).round().astype(np.uint8), piece


def assert_found(mask, piece):
    """The piece but for two pixels at its edge, which are 16 um, and nothing else but for those."""
    assert mask[ndimage.binary_erosion(piece, iterations=2)].all()
    assert not (mask & ~ndimage.binary_dilation(piece, iterations=2)).any()


@pytest.mark.parametrize("colour", [DARK, PINK, PALE, (248, 238, 252), (150, 110, 80), (205, 215, 235), (190, 190, 190)])
@pytest.mark.parametrize("glass", [(255, 255, 255), (243, 242, 244), (232, 230, 222), (244, 236, 242)])
def test_tissue_of_every_stain_is_found_on_every_glass(colour, glass):
    picture, piece = slide_of(colour, glass)
    assert_found(tissue_of(picture, 8.0), piece)


def test_pale_tissue_beside_dark_tissue_is_found():
    """Where a threshold between light and dark would call it glass."""
    picture, piece = slide_of(DARK)
    picture[40:110, 280:380] = tinted(PALE, picture[40:110, 280:380])
    mask = tissue_of(picture, 8.0)
    assert mask[piece].all()
    assert mask[42:108, 282:378].all()


@pytest.mark.parametrize("colour", [(255, 255, 255), (0, 0, 0), (240, 240, 240), (200, 200, 200), (20, 22, 30)])
def test_a_slide_of_nothing_has_no_tissue(colour):
    picture, _ = slide_of((255, 255, 255), colour, noise=0)
    assert not tissue_of(picture, 8.0).any()


def test_a_picture_full_of_tissue_is_all_tissue():
    for colour in (DARK, PINK, (225, 200, 215)):
        picture, _ = slide_of((255, 255, 255), colour, noise=10)
        assert tissue_of(picture, 8.0).mean() > 0.99


def test_white_that_a_scanner_painted_does_not_make_glass_tissue():
    picture, piece = slide_of(PINK, (241, 236, 239))
    picture[:, 300:] = 255
    picture[:40] = 255
    mask = tissue_of(picture, 8.0)
    assert_found(mask, piece)


def test_black_pen_and_border_are_not_tissue_but_dark_grains_within_tissue_are():
    picture, piece = slide_of(PINK)
    picture[:, 330:345] = 10  # a line of pen
    picture[:12] = 0  # what the scanner did not look at
    blurred = np.stack([ndimage.uniform_filter(picture[..., c], 2) for c in range(3)], 2)  # a grey rim, as down-sampling leaves
    blurred[150, 180] = 5  # pigment
    mask = tissue_of(blurred, 8.0)
    assert_found(mask, piece)


def test_small_holes_are_filled_large_ones_stay_and_dust_goes():
    picture, _ = slide_of(PINK)
    picture[150:156, 180:186] = GLASS  # 48 um: a lumen
    picture[100:130, 160:200] = GLASS  # 240 x 320 um
    picture[20, 20] = 150  # 8 um: dust
    mask = tissue_of(picture, 8.0)
    assert mask[150:156, 180:186].all()
    assert not mask[106:124, 166:194].any()
    assert not mask[:40, :40].any()


@pytest.mark.parametrize("style", ["generic", "ome"])
def test_the_mask_lies_on_the_slide(style, write_slide):
    picture = np.full((1000, 1500, 3), 244, np.uint8)
    picture[300:700, 800:1200] = PINK
    with open_slide(write_slide(picture, style, mpp=2.0), mpp=2.0) as slide:
        tissue = find_tissue(slide, mpp=8.0)
        assert tissue.mask.shape == (250, 375)
        assert tissue.mask[75:175, 200:300].all()
        assert tissue.mask.sum() < 110 * 110
        assert tissue.area == pytest.approx(tissue.mask.sum() * 64e-6)
        assert tissue.touches(1190, 690, 50, 50)
        assert tissue.touches(0, 0, 1500, 1000)
        assert not tissue.touches(0, 0, 700, 1000)
        assert not tissue.touches(1300, 0, 1000, 1000)
        assert not tissue.touches(-500, -500, 100, 100)
        assert not tissue.touches(5000, 5000, 100, 100)
        assert not tissue.unreadable.any()


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.floats(-300, 1500), st.floats(-300, 1500), st.floats(1, 900), st.floats(1, 900))
def test_touches_is_true_for_every_rectangle_over_tissue(x, y, width, height):
    from dsfcnn.slides.tissue import Tissue

    mask = np.zeros((100, 120), bool)
    mask[40:50, 60:90] = True
    tissue = Tissue(mask, mask & False, 8.0, 10.7)
    rows, columns = np.nonzero(mask)
    left, top, right, bottom = x - 21.4, y - 21.4, x + width + 21.4, y + height + 21.4  # 16 um are two mask pixels
    over = (columns * 10.7 < right) & ((columns + 1) * 10.7 > left) & (rows * 10.7 < bottom) & ((rows + 1) * 10.7 > top)
    assert tissue.touches(x, y, width, height) == over.any()


def test_what_cannot_be_read_counts_as_tissue_and_is_said(write_slide):
    picture = np.full((1000, 1500, 3), 244, np.uint8)
    path = write_slide(picture, "generic", (1,))
    damage(path, 14, "nonsense")  # twelve tiles in a row: the tile at (256, 128)
    with open_slide(path) as slide:
        tissue = find_tissue(slide, mpp=4.0)
        assert tissue.unreadable.any()
        assert tissue.touches(300, 150, 50, 50)
        assert not tissue.touches(900, 600, 500, 300)
        assert (tissue.mask == tissue.unreadable).all()


def test_the_resolution_of_the_mask_follows_the_size(tmp_path):
    Image.new("RGB", (1000, 600), "white").save(tmp_path / "a.png")
    for mpp, expected in ((0.25, 0.25 * 1000 / 512), (4.0, 4.0 * 1000 / 512), (6.0, 8.0), (20.0, 20.0)):
        with open_slide(tmp_path / "a.png", mpp=mpp) as slide:
            assert find_tissue(slide).mpp == pytest.approx(expected)
