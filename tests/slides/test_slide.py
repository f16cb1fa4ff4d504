"""Pixels of a slide at any resolution: exact where nothing needs to be computed, and without seams everywhere."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dsfcnn.errors import UsageError
from dsfcnn.slides import open_slide
from dsfcnn.slides.slide import Facts, Level, Slide, level_downsample

from .conftest import smaller

STYLES = {"generic": "openslide", "aperio": "openslide", "ome": "tiffslide"}


class MemoryReader:
    """A picture and its pyramid in memory, in place of a file."""

    name = "memory"

    def __init__(self, picture, ratios=(1,)):
        self.pictures = [picture if ratio == 1 else smaller(picture, ratio) for ratio in ratios]
        self.facts = Facts(tuple(Level(p.shape[1], p.shape[0], float(r)) for p, r in zip(self.pictures, ratios)), "memory")
        self.largest = 0

    def pixels(self, level, x, y, width, height):
        size = self.facts.levels[level]
        assert 0 <= x < x + width <= size.width, "asked for what is outside"
        assert 0 <= y < y + height <= size.height, "asked for what is outside"
        self.largest = max(self.largest, width * height)
        return self.pictures[level][y : y + height, x : x + width]

    def close(self):
        pass


def in_memory(picture, ratios=(1,), mpp=0.5):
    return Slide("memory", mpp, "test", None, MemoryReader(picture, ratios))


@pytest.mark.parametrize("style", STYLES)
def test_a_level_is_read_pixel_by_pixel(style, write_slide, drawn):
    with open_slide(write_slide(drawn, style), mpp=0.5) as slide:
        assert slide.reader == STYLES[style]
        assert (slide.width, slide.height) == (603, 517)
        assert [level.downsample for level in slide.levels] == [1, 2, 4]
        assert (slide.read(0, 0, 603, 517, 0.5) == drawn).all()
        assert (slide.read(37, 59, 200, 100) == drawn[59:159, 37:237]).all()
        for level, ratio in ((1, 2), (2, 4)):
            picture = smaller(drawn, ratio)
            height, width = picture.shape[:2]
            assert (slide.levels[level].width, slide.levels[level].height) == (width, height)
            read = slide.read(0, 0, width, height, 0.5 * ratio).astype(int)
            # OpenSlide's own downsample is 2.0018 here: its pixels beyond the first block are off by up to 1/4 pixel.
            assert (read == picture)[:250, :250].all()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("mpp", [0.5, 0.37, 0.503, 0.8, 1.0, 1.37, 2.0, 3.1, 8.0, 17.3])
def test_tiles_meet_without_a_seam(style, mpp, write_slide, drawn):
    with open_slide(write_slide(drawn, style), mpp=0.5) as slide:
        scale, x, y = mpp / slide.mpp, -20.3, -11.0
        width, height = math.ceil(640 / scale), math.ceil(545 / scale)
        whole = slide.read(x, y, width, height, mpp).astype(int)
        for side in (width // 3 + 1, width // 2 + 1):
            for top in range(0, height, side):
                for left in range(0, width, side):
                    tile = slide.read(x + left * scale, y + top * scale, min(side, width - left), min(side, height - top), mpp)
                    part = whole[top : top + side, left : left + side]
                    assert np.abs(tile - part).max() <= 1, (left, top)


@pytest.mark.parametrize("size", [(60, 50), (7, 90), (1, 1)])
@pytest.mark.parametrize("mpp", [0.5, 1.3, 0.3])
def test_beyond_the_edge_lies_the_mirror_image_if_wanted(mpp, size, drawn):
    """As if the picture had been mirrored before; the mirror is between pixels, however often it is needed."""
    picture = drawn[: size[0], : size[1]]
    framed = np.pad(picture, ((90, 90), (90, 90), (0, 0)), mode="symmetric")
    side = math.floor((min(size) + 120) * 0.5 / mpp)
    wanted = in_memory(framed).read(90 - 61, 90 - 57.5, side, side, mpp).astype(int)
    found = in_memory(picture).read(-61, -57.5, side, side, mpp, mirror=True)
    assert np.abs(found - wanted).max() <= 1
    white = in_memory(picture).read(-61, -57.5, side, side, mpp)
    assert (white[:20] == 255).all()


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.floats(0, 150), st.floats(0, 150), st.floats(0.1, 6), st.sampled_from([(1,), (1, 2, 4), (1, 4)]))
def test_places_are_right_at_every_resolution(x, y, mpp, ratios):
    """On a ramp, the grey level says where a pixel's centre lies."""
    columns, rows = np.meshgrid(np.arange(512), np.arange(512))
    ramp = np.stack([columns / 2.1, rows / 2.1, 0 * rows], 2).round().astype(np.uint8)
    scale = mpp / 0.5
    read = in_memory(ramp, ratios).read(x + 20, y + 20, 12, 10, mpp).astype(float)
    centres = (np.arange(12) + 0.5) * scale - 0.5
    assert np.abs(read[..., 0] - (x + 20 + centres[None]) / 2.1).max() <= 1.6
    assert np.abs(read[..., 1] - (y + 20 + centres[:10, None]) / 2.1).max() <= 1.6


def test_outside_is_white_and_far_outside_too(drawn):
    slide = in_memory(drawn, (1, 2))
    read = slide.read(-50, -40, 100, 90)
    assert (read[:40] == 255).all()
    assert (read[:, :50] == 255).all()
    assert (read[40:, 50:] == drawn[:50, :50]).all()
    assert (slide.read(1e7, -1e7, 8, 8, 1.3) == 255).all()
    assert (slide.read(603, 0, 8, 8) == 255).all()


def test_fine_grain_is_averaged_and_not_picked():
    """A chequerboard of single pixels is grey from afar; nearest neighbours would give black and white."""
    board = np.repeat(((np.indices((600, 600)).sum(0) % 2) * 255).astype(np.uint8)[..., None], 3, 2)
    for mpp in (1.0, 2.0, 3.7, 9.0, 13.1):
        middle = in_memory(board).read(100, 100, 15, 15, mpp)
        assert abs(middle.astype(int) - 127.5).max() <= 8, mpp


def test_the_coarsest_level_that_is_fine_enough_is_read(drawn):
    slide = in_memory(drawn, (1, 2, 4))
    assert [slide._level(scale)[0] for scale in (0.3, 1, 1.9, 1.999, 2, 3.9, 4, 50)] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_without_a_pyramid_memory_stays_bounded():
    picture = np.broadcast_to(np.full((1, 1, 3), 99, np.uint8), (12_000, 12_000, 3))
    slide = in_memory(picture)
    assert (slide.read(0, 0, 375, 375, 16.0)[2:-2, 2:-2] == 99).all()
    assert slide._reader.largest < 2300**2


@pytest.mark.parametrize("style", STYLES)
def test_a_slide_is_pickled_by_its_name(style, write_slide, drawn):
    with open_slide(write_slide(drawn, style), mpp=0.3) as slide:
        content = pickle.dumps(slide)
        assert len(content) < 2000
        with pickle.loads(content) as copy:
            assert (copy.mpp, copy.mpp_source) == (0.3, "--slide-mpp")
            assert (copy.read(11, 7, 90, 80, 0.7) == slide.read(11, 7, 90, 80, 0.7)).all()


def test_an_image_is_a_slide_of_one_level(tmp_path, drawn):
    Image.fromarray(drawn).save(tmp_path / "a.png")
    with open_slide(tmp_path / "a.png", image_mpp=0.25) as slide:
        assert (slide.mpp, slide.mpp_source, slide.reader) == (0.25, "assumed for a plain image", "pillow")
        assert slide.is_image
        assert (slide.read(10, 20, 30, 40) == drawn[20:60, 10:40]).all()
        slide.read(0, 0, 4, 4)[:] = 0
        assert (slide.read(0, 0, 4, 4) == drawn[:4, :4]).all(), "a result shares memory with the slide"
        with pickle.loads(pickle.dumps(slide)) as copy:
            assert (copy.read(10, 20, 30, 40) == drawn[20:60, 10:40]).all()


@pytest.mark.parametrize("ratios", [(1, 2, 4), (1, 3)])
def test_transparent_parts_are_white(ratios, write_slide, drawn):
    rgba = np.concatenate([drawn, np.full((517, 603, 1), 255, np.uint8)], 2)
    rgba[100:200, 100:300, 3] = 0
    rgba[200:300, 100:300, 3] = 128
    with open_slide(write_slide(rgba, "ome", ratios, extrasamples=["unassalpha"])) as slide:
        read = slide.read(0, 0, 603, 517).astype(float)
    assert (read[100:200, 100:300] == 255).all()
    assert np.abs(read[200:300, 100:300] - (255 - (255.0 - drawn[200:300, 100:300]) * 128 / 255)).max() <= 0.5
    assert (read[:100] == drawn[:100]).all()


@pytest.mark.parametrize("arguments", [(0, 0, 0, 5), (0, 0, 5, -1), (math.nan, 0, 5, 5), (0, math.inf, 5, 5)])
def test_an_impossible_rectangle_is_refused(arguments, drawn, refused):
    with refused(UsageError, "give"):
        in_memory(drawn).read(*arguments)


@pytest.mark.parametrize("mpp", [0, -1, math.nan, math.inf, 1e6])
def test_an_impossible_resolution_is_refused(mpp, drawn, refused):
    with refused(UsageError, "give"):
        in_memory(drawn).read(0, 0, 5, 5, mpp)


@settings(deadline=None, derandomize=True)
@given(st.integers(64, 200_000), st.integers(64, 200_000), st.sampled_from([1, 2, 3, 4, 8, 16, 32]), st.booleans())
def test_the_downsample_of_a_truncated_level_is_whole(width, height, ratio, up):
    level = tuple(-(-side // ratio) if up else side // ratio for side in (width, height))
    exact = (width / level[0] + height / level[1]) / 2
    if round(exact) == ratio:  # a level of two or three pixels may be explained by other ratios too
        assert level_downsample((width, height), level) == ratio
