"""Tiles cover a slide once, and what they find together is what one tile over everything finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from dsfcnn.data.synthetic.fields import Window
from dsfcnn.data.synthetic.glands import draw_glands
from dsfcnn.data.synthetic.nuclei import draw_nuclei
from dsfcnn.inference.merge import Merger
from dsfcnn.inference.predictor import as_slide, merged, on_image
from dsfcnn.inference.stitch import find_objects, gather, read_box, stored_channels, tile_probabilities
from dsfcnn.inference.tiles import Box, Tile, make_grid
from dsfcnn.tasks.metrics import panoptic_quality

from .stand_in import paint, predictor

sizes = st.integers(1, 150)


@given(width=sizes, height=sizes, tile=st.integers(1, 200), factor=st.sampled_from([1, 2, 3]), scale=st.sampled_from([0.5, 1.0, 1.7, 4.0]))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_tiles_cover_every_pixel_once(width, height, tile, factor, scale):
    grid = make_grid(width, height, 1.0, scale, tile=tile, margin=20, overlap_um=10, decode_mpp=scale / factor, border=16)
    count = np.zeros((grid.height, grid.width), int)
    for place in grid.tiles():
        core = grid.core(place)
        count[core.slices(grid.whole)] += 1
        for side in (*core[:2], *grid.seen(place)):
            assert side % 16 == 0
        assert core.within(grid.window(place)) == core
        assert core.within(grid.seen(place)) == core
        assert all(grid.core(other).within(grid.window(place)).area == 0 for other in grid.tiles() if other not in grid.around(place))
    assert (count == 1).all()
    assert grid.width * scale >= width
    assert (grid.width - 1) * scale < width
    assert grid.factor == factor


def stored_tiles(model, image, mpp, tile, order=None):
    slide = as_slide(image, mpp)
    grid, stored = model.grid(slide, tile=tile), {}
    places = list(grid.tiles())
    for index in order(len(places)) if order else range(len(places)):
        place = places[index]
        picture, _ = read_box(slide, grid, grid.seen(place))
        stored[place] = tile_probabilities(model.network, model.segmentation(), grid, place, picture)
    return grid, stored


@pytest.mark.parametrize("tile", [64, 96, 160])
@pytest.mark.parametrize(("task", "draw", "mpp"), [("nuclei", draw_nuclei, 0.25), ("glands", draw_glands, 0.5)])
def test_tiled_equals_untiled(task, draw, mpp, tile):
    """Glands are larger than these tiles; every object is found once and whole."""
    _, truth = draw(100, Window(0, 0, 437, 411, mpp))
    image = paint(truth, mpp, task, noise=12)
    model = predictor(task)
    whole = model.segment(image)
    tiled = model.segment(image, tile=tile)
    assert whole.max() > 3
    assert panoptic_quality(whole, tiled).pq > 0.995
    assert whole.max() == tiled.max()
    assert abs(int((whole > 0).sum()) - int((tiled > 0).sum())) < 0.002 * (whole > 0).sum()


def test_probabilities_do_not_know_of_tiles():
    _, truth = draw_nuclei(7, Window(0, 0, 200, 170, 0.25))
    image = paint(truth, 0.25, noise=30)
    model = predictor()
    (grid, whole), (tiles, parts) = (stored_tiles(model, image, 0.25, tile) for tile in (400, 48))
    for place, values in parts.items():
        assert np.abs(whole[Tile(0, 0)][(slice(None), *tiles.core(place).slices(grid.whole))].astype(int) - values).max() == 0


@pytest.mark.parametrize(("margin", "border"), [(160, 64), (32, 32)])
def test_beyond_the_border_the_network_sees_the_picture_mirrored(margin, border):
    """As far as the margin reaches, and 64 pixels at most; whatever the tiles."""
    image = np.random.default_rng(0).integers(0, 256, (70, 100, 3), np.uint8)
    model = predictor(margin=margin)
    framed = np.pad(image, ((border, 10 + border), (border, 12 + border), (0, 0)), mode="symmetric")
    slide = as_slide(image, 0.25)
    for tile in (48, 4096):
        grid = model.grid(slide, tile=tile)
        for place in grid.tiles():
            seen = grid.seen(place)
            picture, damaged = read_box(slide, grid, seen)
            assert (picture == framed[seen.slices(Box(-border, -border, 0, 0))]).all()
            assert damaged is None
    assert picture.shape == framed.shape


def test_without_a_margin_the_check_fails():
    _, truth = draw_nuclei(7, Window(0, 0, 200, 170, 0.25))
    image = paint(truth, 0.25, noise=30)
    (grid, whole), (tiles, parts) = (stored_tiles(predictor(margin=0), image, 0.25, tile) for tile in (400, 48))
    worst = max(
        np.abs(whole[Tile(0, 0)][(slice(None), *tiles.core(place).slices(grid.whole))].astype(int) - v).max() for place, v in parts.items()
    )
    assert worst > 2


def test_the_order_of_tiles_does_not_matter():
    _, truth = draw_nuclei(3, Window(0, 0, 300, 300, 0.25))
    image = paint(truth, 0.25, noise=12)
    model = predictor()
    task = model.segmentation()
    shuffled = np.random.default_rng(0).permutation
    results = [
        on_image(merged(task, *stored_tiles(model, image, 0.25, 96, order)), model.grid(as_slide(image, 0.25), tile=96), 300, 300)
        for order in (None, shuffled)
    ]
    assert (results[0] == results[1]).all()


def test_no_object_is_doubled_and_each_is_connected():
    """Squares on every crossing and border of the tiles: as many objects as squares, each as large as one."""
    truth = np.zeros((220, 220), int)
    for number, (row, column) in enumerate(np.ndindex(6, 6), 1):
        truth[row * 32 + 20 : row * 32 + 44, column * 32 + 20 : column * 32 + 44] = number
    image = paint(truth, 0.25)
    model = predictor()
    tiled = model.segment(image, tile=64)
    assert tiled.max() == len(np.unique(truth)) - 1
    for number in range(1, tiled.max() + 1):
        assert ndimage.label(tiled == number)[1] == 1


def test_a_piece_that_the_neighbour_does_not_see_is_kept_where_most_of_it_lies():
    grid = make_grid(64, 32, 0.25, 0.25, tile=32, margin=16, overlap_um=4)
    first, second = Tile(0, 0), Tile(0, 1)

    def objects(tile, columns):
        box = grid.kept(tile)
        labels = np.zeros((box.height, box.width), np.int32)
        labels[Box(columns[0], 4, columns[1], 12).within(box).slices(box)] = 1
        return type(
            "Objects",
            (),
            {
                "box": box,
                "labels": labels,
                "area": np.array([0, 8 * (columns[1] - columns[0])]),
                "probability": labels.astype(np.uint8) * 255,
            },
        )

    merger = Merger(grid)
    found = [*merger.add(first, objects(first, (29, 40))), *merger.add(second, objects(second, (50, 60))), *merger.finish()]
    assert [(item.box.left, item.box.right, item.probability) for item in found] == [(50, 60, 1.0)]
    merger = Merger(grid)
    found = [*merger.add(first, objects(first, (20, 34))), *merger.add(second, objects(second, (50, 60))), *merger.finish()]
    assert sorted((item.box.left, item.box.right) for item in found) == [(20, 32), (50, 60)]
    merger = Merger(grid)
    found = [*merger.add(first, objects(first, (24, 38))), *merger.add(second, objects(second, (24, 39))), *merger.finish()]
    assert [(item.box.left, item.box.right, int(item.mask.sum())) for item in found] == [(24, 39, 8 * 15)]


def test_what_was_not_looked_at_is_background():
    _, truth = draw_nuclei(3, Window(0, 0, 128, 128, 0.25))
    model = predictor()
    grid, stored = stored_tiles(model, paint(truth, 0.25), 0.25, 64)
    del stored[Tile(0, 1)]
    channels = len(stored_channels(model.segmentation()))
    window = gather(stored.get, grid, Tile(0, 0), channels)
    assert window[:, :64, 64:].max() == 0
    assert (window[:, :64, :64] == stored[Tile(0, 0)]).all()
    found = find_objects(model.segmentation(), grid, Tile(0, 1), gather(stored.get, grid, Tile(0, 1), channels))
    assert found.labels[:40, 40:].max() == 0
