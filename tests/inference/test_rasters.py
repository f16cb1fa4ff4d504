"""Maps come back as they were given, open in other programs, and are the same bytes each time."""

import itertools
import tracemalloc

import numpy as np
import openslide
import pytest
import tifffile
from found_objects import discs, label_maps, objects_of
from hypothesis import given, settings
from PIL import Image
from scipy import ndimage
from slow_outputs import quarter

from dsfcnn.errors import UsageError
from dsfcnn.inference import rasters
from dsfcnn.inference.objects import Instance
from dsfcnn.inference.rasters import array_tiles, in_bytes, label_map_name, label_tiles, write_instances, write_mask, write_probability


def smooth(height, width):
    """Probabilities with a border that is not zero."""
    noise = ndimage.gaussian_filter(np.random.default_rng(0).normal(size=(height, width)), 9)
    return np.clip(0.5 + 5 * noise, 0, 1)


def joined(tiles, shape):
    """The map that tiles make up, put together one by one."""
    whole = np.zeros([-(-side // rasters.TILE) * rasters.TILE for side in shape], np.int64)
    for number, tile in enumerate(tiles):
        top, left = (rasters.TILE * place for place in divmod(number, whole.shape[1] // rasters.TILE))
        if tile is not None:
            whole[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
    return whole[: shape[0], : shape[1]]


def by_row(objects):
    return sorted(objects, key=lambda one: one.y)


def test_objects_make_up_their_label_map():
    labels = discs(1100, 1300)
    tiles = list(label_tiles(objects_of(labels), labels.shape))  # drawn with ids by their first row
    assert len(tiles) == 9
    np.testing.assert_array_equal(joined(tiles, labels.shape), labels)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(label_maps())
def test_objects_across_tiles_of_any_grid(labels):
    objects, before = by_row(objects_of(labels)), rasters.TILE
    rasters.TILE = 4
    try:
        found = joined(label_tiles(objects, labels.shape), labels.shape)
    finally:
        rasters.TILE = before
    for number, one in enumerate(objects, 1):
        want = np.zeros(labels.shape, bool)
        want[one.y : one.y + one.mask.shape[0], one.x : one.x + one.mask.shape[1]] = one.mask
        np.testing.assert_array_equal(found == number, want)


def test_empty_tiles_are_not_made():
    tiles = list(label_tiles([Instance(600, 10, np.ones((3, 3), bool), 1.0)], (512, 1536)))
    assert [tile is None for tile in tiles] == [True, False, True]


def test_objects_out_of_order_are_a_mistake_of_ours():
    square = np.ones((3, 3), bool)
    with pytest.raises(AssertionError, match="ordered"):
        list(label_tiles([Instance(0, 600, square, 1.0), Instance(0, 0, square, 1.0)], (1000, 10)))


@pytest.mark.parametrize("shape", [(1, 1), (1, 700), (700, 3), (512, 512), (600, 1100)])
def test_label_maps_come_back(tmp_path, shape):
    labels = np.random.default_rng(0).integers(0, 65_536, shape).astype(np.int32)
    for name in ("a.png", "a.tif"):
        write_instances(tmp_path / name, array_tiles(labels), shape, 0.25)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "a.png")), labels)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "a.tif"), labels)


def test_a_label_map_as_tiff(tmp_path):
    labels = discs().astype(np.int32) * 70_000
    write_instances(tmp_path / "a.tif", array_tiles(labels), labels.shape, 0.25)
    with tifffile.TiffFile(tmp_path / "a.tif") as tiff:
        assert tiff.is_bigtiff
        (page,) = tiff.pages
        assert (page.dtype, page.is_tiled, page.tile) == (np.int32, True, (512, 512))
        assert page.get_resolution("micrometer") == pytest.approx((4, 4))
        np.testing.assert_array_equal(page.asarray(), labels)


def test_a_png_holds_65535_objects(tmp_path):
    assert label_map_name(65_535, is_image=True) == "instances.png"
    assert label_map_name(65_536, is_image=True) == label_map_name(3, is_image=False) == "instances.tif"
    with pytest.raises(UsageError, match="65,535"):
        write_instances(tmp_path / "a.png", [np.full((2, 2), 65_536)], (2, 2), 0.25)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tiles", [[], [None] * 3])
@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_a_wrong_number_of_tiles_is_a_mistake_of_ours(tmp_path, name, tiles):
    with pytest.raises(ValueError):
        write_instances(tmp_path / name, iter(tiles), (600, 100), 0.25)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shape", [(1030, 4200), (3, 1500), (900, 800), (4099, 1025)])
def test_levels_are_means_of_the_level_below(tmp_path, shape):
    map_ = in_bytes(smooth(*shape))
    write_probability(tmp_path / "a.tif", array_tiles(map_), shape, 0.25)
    with tifffile.TiffFile(tmp_path / "a.tif") as tiff:
        levels = [page.asarray() for page in tiff.pages]
        resolutions = [page.get_resolution("micrometer")[0] for page in tiff.pages]
    np.testing.assert_array_equal(levels[0], map_)
    assert max(levels[-1].shape) <= 1024
    assert resolutions == pytest.approx([4 / 4**number for number in range(len(levels))])
    for below, level in itertools.pairwise(levels):
        assert level.shape == tuple(max(1, side // 4) for side in below.shape)
        assert np.abs(level - quarter(below)).max() <= 0.501  # rounded once


def test_openslide_opens_a_probability_map(tmp_path):
    map_ = in_bytes(smooth(1300, 2200))
    write_probability(tmp_path / "a.tif", array_tiles(map_), map_.shape, 0.5)
    with openslide.OpenSlide(tmp_path / "a.tif") as slide:
        assert slide.level_dimensions == ((2200, 1300), (550, 325))
        assert float(slide.properties["openslide.mpp-x"]) == pytest.approx(0.5)
        pixels = np.asarray(slide.read_region((0, 0), 0, slide.dimensions))
        np.testing.assert_array_equal(pixels[..., 1], map_)
        assert (pixels[..., 3] == 255).all()


def test_empty_parts_are_written_and_readable(tmp_path):
    """OpenSlide takes tiles that are left out for damage."""
    write_probability(tmp_path / "a.tif", iter([None] * 12), (1500, 2000), 0.5)
    with openslide.OpenSlide(tmp_path / "a.tif") as slide:
        assert not np.asarray(slide.read_region((0, 0), 1, (500, 375)))[..., :3].any()


def test_probabilities_as_bytes():
    assert in_bytes(np.array([0, 1, 0.5, np.nan, 0.001])).tolist() == [0, 255, 128, 0, 0]


def test_the_tissue_mask(tmp_path):
    mask, unreadable = np.zeros((20, 30), bool), np.zeros((20, 30), bool)
    mask[5:15, 5:15] = True
    unreadable[10:, 10:] = True
    write_mask(tmp_path / "a.png", mask, unreadable)
    grey = np.asarray(Image.open(tmp_path / "a.png"))
    np.testing.assert_array_equal(grey == 128, unreadable)
    np.testing.assert_array_equal(grey == 255, mask & ~unreadable)
    write_mask(tmp_path / "a.png", mask)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "a.png")) > 0, mask)


def test_memory_does_not_grow_with_the_map(tmp_path):
    tile = in_bytes(smooth(512, 512))

    def peak(rows):
        tracemalloc.start()
        write_probability(tmp_path / "a.tif", (tile for _ in range(rows * 2)), (512 * rows, 1024), 0.25)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak(4)  # what tifffile keeps once it is loaded
    assert peak(24) < peak(4) + 2**20  # 24 rows are 12 MB


def test_maps_are_the_same_bytes_each_time(tmp_path, monkeypatch):
    labels = discs()
    contents = []
    for name, time in (("a", 1e9), ("b", 2e9)):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setattr("time.time", lambda time=time: time)
        write_instances(folder / "instances.tif", array_tiles(labels), labels.shape, 0.25)
        write_instances(folder / "instances.png", array_tiles(labels), labels.shape, 0.25)
        write_probability(folder / "probability.tif", array_tiles(in_bytes(smooth(600, 1100))), (600, 1100), 0.25)
        write_mask(folder / "mask.png", labels > 0)
        contents.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert contents[0] == contents[1]
    assert len(contents[0]) == 4
