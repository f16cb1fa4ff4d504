"""Drawn tissue: a function of seed and place, with truth that fits, and slides that OpenSlide opens."""

import numpy as np
import openslide
import pytest
from scipy.ndimage import label

from dsfcnn.data import open_dataset
from dsfcnn.data.synthetic.dataset import KINDS, Drawn
from dsfcnn.data.synthetic.fields import Window, grain, noise, noise_at, stain, uniform
from dsfcnn.data.synthetic.glands import draw_glands
from dsfcnn.data.synthetic.nuclei import SPINDLE, TUMOUR, draw_nuclei, place_nuclei
from dsfcnn.data.synthetic.slide import SlideScene, write_slide
from dsfcnn.errors import UsageError
from dsfcnn.slides import open_slide


@pytest.mark.parametrize(("draw", "mpp"), [(draw_nuclei, 0.25), (draw_glands, 0.5)])
def test_windows_join_without_a_seam(draw, mpp):
    whole, truth = draw(5, Window(-60, 900, 200, 170, mpp))
    for left, top, width, height in ((-60, 900, 100, 170), (40, 900, 100, 170), (-20, 950, 90, 60)):
        part, ids = draw(5, Window(left, top, width, height, mpp))
        y, x = top - 900, left + 60
        assert (part == whole[y : y + height, x : x + width]).all()
        there = truth[y : y + height, x : x + width]
        assert ((ids > 0) == (there > 0)).all()
        pairs = {(int(a), int(b)) for a, b in zip(ids.ravel(), there.ravel())}
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})  # the same objects under other numbers


def test_nuclei_are_dark_and_touch():
    dark, objects, touching = [], 0, 0
    for seed in range(4):
        image, ids = draw_nuclei(100 * seed, Window(0, 0, 400, 400, 0.25), tumour=0.3)
        assert image.dtype == np.uint8
        assert ids.dtype == np.int32
        assert sorted(np.unique(ids)) == list(range(ids.max() + 1))
        dark.append(image[ids > 0].mean() - image[ids == 0].mean())
        beside = (ids[:, 1:] != ids[:, :-1]) & (ids[:, 1:] > 0) & (ids[:, :-1] > 0)
        touching += len({tuple(sorted(pair)) for pair in zip(ids[:, 1:][beside].tolist(), ids[:, :-1][beside].tolist())})
        objects += ids.max()
    assert max(dark) < -40
    assert objects > 200
    assert touching > 20


def test_nuclei_have_several_shapes():
    nuclei = place_nuclei(3, Window(0, 0, 2000, 2000, 0.25), tumour=0.4)
    assert set(nuclei.kind.tolist()) == {0, 1, 2, 3}
    slim = nuclei.length / nuclei.width
    assert slim[nuclei.kind == SPINDLE].mean() > 2.5 > slim[nuclei.kind == TUMOUR].mean()


def test_most_of_a_nucleus_is_one_piece():
    _, ids = draw_nuclei(100, Window(0, 0, 300, 300, 0.25))
    pieces = [label(ids == number, np.ones((3, 3)))[1] for number in range(1, ids.max() + 1)]
    assert np.mean(np.array(pieces) == 1) > 0.97


def test_glands_have_a_bright_lumen_and_epithelium():
    image, ids = draw_glands(200, Window(0, 0, 600, 600, 0.5))
    bright = image.min(-1) > 205
    assert ids.max() >= 4
    assert 0.1 < bright[ids > 0].mean() < 0.5
    assert (image[ids > 0].min(-1) < 110).mean() > 0.1  # nuclei


def test_classes_cannot_be_told_by_mean_colour_alone():
    samples = [Drawn("tumour", "train")[i] for i in range(40)]
    colours = np.array([sample.image.mean((0, 1)) for sample in samples])
    labels = np.array([sample.label for sample in samples])
    gap = np.abs(colours[labels == 0].mean(0) - colours[labels == 1].mean(0))
    assert (gap < colours.std(0) * 1.5).all()


@pytest.mark.parametrize("kind", list(KINDS))
def test_drawn_data_sets(kind):
    train, valid = (open_dataset(None, split, format=f"synthetic-{kind}") for split in ("train", "valid"))
    assert len(train) > len(valid) > 0
    sample = train[3]
    assert sample.image.tobytes() == Drawn(kind, "train")[3].image.tobytes()
    assert sample.image.tobytes() != valid[3].image.tobytes()
    assert sample.image.tobytes() != Drawn(kind, "train", seed=1)[3].image.tobytes()
    assert (sample.instances is None) == (sample.label is not None)
    assert sample.image.shape[2] == (1 if kind == "digits" else 3)
    with pytest.raises(UsageError, match="no split"):
        open_dataset(None, "dev", format=f"synthetic-{kind}")


def test_noise_at_places_is_the_noise_of_the_grid():
    x, y = np.linspace(-30, 50, 17), np.linspace(3, 90, 11)
    grid = noise(4, x, y, 7.0)
    scattered = noise_at(4, np.tile(x, 11), np.repeat(y, 17), 7.0).reshape(11, 17)
    assert np.abs(grid - scattered).max() < 1e-6
    assert 0 <= grid.min() < grid.max() < 1


def test_hashed_numbers_are_uniform_and_unrelated():
    numbers = uniform(1, np.arange(-500, 500)[:, None], np.arange(40)[None, :])
    assert np.abs(np.histogram(numbers, 10, (0, 1))[0] / numbers.size - 0.1).max() < 0.01
    assert abs(np.corrcoef(numbers[:, 0], numbers[:, 1])[0, 1]) < 0.1
    speckle = grain(3, Window(0, 0, 200, 200, 1.0))
    assert abs(speckle.mean()) < 0.02
    assert 0.8 < speckle.std() < 1.2


def test_more_stain_is_less_light():
    none, some = np.zeros((1, 1)), np.ones((1, 1))
    assert stain(none, none).max() == stain(none, none).min() == 243
    assert (stain(some, none) < stain(none, none)).all()
    # Ten to the minus density: twice the stain squares the share of light.
    assert np.allclose((stain(some, none) / 243) ** 2, stain(2 * some, none) / 243, rtol=1e-4)


@pytest.fixture(scope="module")
def slide(tmp_path_factory):
    path = tmp_path_factory.mktemp("slides") / "drawn.tif"
    scene = SlideScene(2200, 1700, mpp=0.3, tissue=0.5, seed=2, period=512)
    write_slide(path, scene)
    return path, scene


def test_a_slide_opens_with_its_resolution_and_levels(slide):
    path, _ = slide
    with openslide.OpenSlide(path) as opened:
        assert opened.dimensions == (2200, 1700)
        assert opened.level_dimensions == ((2200, 1700), (550, 425))
        assert float(opened.properties["openslide.mpp-x"]) == pytest.approx(0.3, rel=1e-4)
    with open_slide(path) as ours:
        assert ours.mpp == pytest.approx(0.3, rel=1e-4)
        assert len(ours.levels) == 2


def test_a_slides_pixels_are_the_scenes(slide):
    path, scene = slide
    with open_slide(path) as opened:
        for left, top in ((0, 0), (900, 700), (1800, 1300)):
            drawn, _ = scene.draw(left, top, 300, 300)
            assert np.abs(opened.read(left, top, 300, 300).astype(int) - drawn).mean() < 6
        whole = opened.read(0, 0, 550, 425, 1.2)
        fine = opened.read(0, 0, 2200, 1700).reshape(425, 4, 550, 4, 3).mean((1, 3))
        assert np.abs(whole - fine).mean() < 3  # the coarse level is the fine one, averaged
    tissue = np.abs(whole.astype(int) - 243).max(-1) > 12
    assert 0.2 < tissue.mean() < 0.8


def test_a_slide_is_made_of_glass_where_there_is_no_tissue(tmp_path):
    write_slide(tmp_path / "empty.tif", SlideScene(1500, 20_000, tissue=0.0))
    with open_slide(tmp_path / "empty.tif") as opened:
        assert (opened.width, opened.height, len(opened.levels)) == (1500, 20_000, 4)
        assert np.ptp(opened.read(500, 15_000, 600, 600)) == 0
    assert (tmp_path / "empty.tif").stat().st_size < 3_000_000
    assert [path.name for path in tmp_path.iterdir()] == ["empty.tif"]


@pytest.mark.parametrize("bad", [{"width": 0}, {"kind": "bone"}, {"tissue": 2}, {"period": 100}, {"mpp": 0}])
def test_slides_that_make_no_sense(bad, refused):
    with refused(UsageError, ""):
        SlideScene(**{"width": 600, "height": 600, **bad})
