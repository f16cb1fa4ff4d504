"""A probability map lies where its pixels lie."""

import numpy as np
import pytest
from drawn_results import MAP, write_nuclei, write_tumour

from dsfcnn.inference.rasters import array_tiles, write_probability
from dsfcnn.viewer.folder import look
from dsfcnn.viewer.heat import HeatMap
from dsfcnn.viewer.pyramid import Pyramid, Square

SIZE = (4800, 3300)


@pytest.fixture(scope="module")
def noise():
    return np.random.default_rng(0).integers(0, 256, (206, 300), dtype=np.uint8)


@pytest.fixture(scope="module")
def opened(noise, tmp_path_factory):
    folder = tmp_path_factory.mktemp("heat") / "a"
    write_nuclei(folder, None, SIZE, 1)
    write_probability(folder / "probability.tif", array_tiles(noise), noise.shape, MAP)
    heat = HeatMap(folder / "probability.tif", look(folder).results[0].record)
    yield heat
    heat.close()


def test_its_own_pixels(opened, noise):
    assert opened.ratio == 16
    assert np.array_equal(opened.read(Square(1600, 800, 16.0, 40, 30)), noise[50:80, 100:140])


def test_between_its_pixels(opened, noise):
    finer = opened.read(Square(1600, 800, 8.0, 40, 30)).astype(float)
    assert np.abs(finer.reshape(15, 2, 20, 2).mean((1, 3)) - noise[50:65, 100:120]).mean() < 40  # smoothed, not moved
    rows = noise[49:52, 99:102].astype(float)
    corner = np.array([0.25, 0.75, 0]) @ rows @ np.array([0.25, 0.75, 0])
    assert finer[0, 0] == pytest.approx(corner, abs=1)


def test_smaller(opened, noise):
    small = opened.read(Square(0, 0, 64.0, 75, 51)).astype(float)
    means = noise[:204].reshape(51, 4, 75, 4).mean((1, 3))
    assert np.corrcoef(small.ravel(), means.ravel())[0, 1] > 0.8
    assert small.mean() == pytest.approx(means.mean(), abs=2)


def test_no_bright_rim(tmp_path):
    """Beyond the map nothing is mixed in, at any scale."""
    folder = tmp_path / "a"
    write_nuclei(folder, None, SIZE, 1)
    write_probability(folder / "probability.tif", array_tiles(np.full((206, 300), 100, np.uint8)), (206, 300), MAP)
    heat = HeatMap(folder / "probability.tif", look(folder).results[0].record)
    pyramid = Pyramid(*SIZE)
    for level in range(pyramid.first, pyramid.full + 1):
        last = pyramid.square(level, (SIZE[0] - 1) >> (pyramid.full - level) >> 9, (SIZE[1] - 1) >> (pyramid.full - level) >> 9)
        for square in (pyramid.square(level, 0, 0), last):
            assert np.unique(heat.read(square)).tolist() == [100]


def test_cells_stay_squares(tmp_path):
    folder = tmp_path / "a"
    write_tumour(folder, None, (640, 320))
    heat = HeatMap(folder / "probability.tif", look(folder).results[0].record)
    assert heat.ratio == 32
    picture = heat.read(Square(0, 0, 1.0, 512, 320))
    cells = picture.reshape(10, 32, 16, 32).transpose(0, 2, 1, 3).reshape(160, -1)
    assert (cells == cells[:, :1]).all()
    expected = (np.linspace(0, 1, 20)[:16] * 255 + 0.5).astype(int)
    assert cells[:16, 0].tolist() == expected.tolist()
