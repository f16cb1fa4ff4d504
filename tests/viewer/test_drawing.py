"""Pictures of objects cover what the objects cover, in their colours."""

import io

import numpy as np
import pytest
from drawn_results import ellipses, write_features
from PIL import Image

from dsfcnn.inference.geojson import rasterise, read_geojson
from dsfcnn.viewer.drawing import draw_objects, heat_colours, jpeg, png, tissue_colours
from dsfcnn.viewer.objects import read_objects
from dsfcnn.viewer.pyramid import Square


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    path = tmp_path_factory.mktemp("drawing") / "nuclei.geojson"
    write_features(path, ellipses(400, 20))
    return read_objects(path), rasterise(read_geojson(path), (832, 832)) > 0


@pytest.mark.parametrize("scale", [8.0, 16.0, 64.0])
def test_small_objects_cover_their_area(drawn, scale):
    objects, mask = drawn
    side = round(832 / scale)
    picture = draw_objects(objects, Square(0, 0, scale, side, side))
    assert (picture[picture[..., 3] > 0][:, :3] == (44, 160, 44)).all()
    cover = picture[..., 3] / 255
    truth = mask[: int(side * scale), : int(side * scale)].reshape(side, int(scale), side, int(scale)).mean((1, 3))
    assert cover.mean() == pytest.approx(truth.mean(), rel=0.02)
    assert np.abs(cover - truth).mean() < 0.1
    assert np.corrcoef(cover.ravel(), truth.ravel())[0, 1] > (0.9 if scale == 8 else 0.6)


def test_larger_ones_are_filled_and_outlined(drawn):
    objects, mask = drawn
    picture = draw_objects(objects, Square(104, 208, 2.0, 200, 200))
    part = mask[208:608, 104:504].reshape(200, 2, 200, 2).mean((1, 3))
    assert (picture[part == 1][:, 3] >= 110).all()
    assert (picture[part == 0][:, 3] == 0).mean() > 0.95  # the outline reaches half a pixel out


def test_squares_meet(drawn):
    objects, _ = drawn
    whole = draw_objects(objects, Square(0, 0, 16.0, 52, 52))
    parts = [[draw_objects(objects, Square(x * 416.0, y * 416.0, 16.0, 26, 26)) for x in (0, 1)] for y in (0, 1)]
    joined = np.concatenate([np.concatenate(row, axis=1) for row in parts])
    assert np.abs(joined.astype(int) - whole).max() <= 1


def test_an_empty_square(drawn):
    assert draw_objects(drawn[0], Square(5000, 5000, 4.0, 30, 20)).shape == (20, 30, 4)
    assert draw_objects(drawn[0], Square(5000, 5000, 4.0, 30, 20)).max() == 0


def test_colours_of_maps():
    heat = heat_colours(np.arange(256, dtype=np.uint8)[None])
    assert heat[0, 0, 3] == 0
    assert (np.diff(heat[0, :, 3].astype(int)) >= 0).all()
    brightness = heat[0, :, :3].astype(int).sum(1)
    assert (np.diff(brightness) >= 0).all()
    assert tissue_colours(np.array([[0, 128, 255]], np.uint8))[0, :, 3].tolist() == [0, 170, 110]


def test_pictures_can_be_read():
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 4), dtype=np.uint8)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png(pixels)))), pixels)
    assert Image.open(io.BytesIO(jpeg(pixels[..., :3]))).size == (30, 20)
