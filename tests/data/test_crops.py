"""A cut depends on (seed, epoch, index) alone: not on workers, order or what was drawn before."""

import hashlib
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dsfcnn.data import Augment, Crops, Sample, load_batches
from dsfcnn.data.crops import one_piece_each
from dsfcnn.data.synthetic.dataset import Drawn
from dsfcnn.errors import DataError, UsageError


class Given:
    """A data set of given samples."""

    name, classes, mpp, unpaired = "given", ("object",), 0.5, ()

    def __init__(self, *samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]

    def source(self, index):
        return self.samples[index].source


def plain(height, width, mpp=0.5):
    """An image whose colours are its places, with one object everywhere."""
    y, x = np.mgrid[:height, :width]
    return Sample(np.stack([y, x, 0 * y], -1).astype(np.uint8), np.ones((height, width), np.int32), None, mpp, "plain")


PLAIN = Augment(filter=0, hue=0, saturation=0, brightness=0, contrast=0)  # turns and flips, no colours


def fitted_plane(image, channel):
    """Least squares: (constant, step down, step right) of a channel and how far its pixels are from that."""
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    design = np.stack([np.ones(y.size), y.ravel(), x.ravel()], 1)
    values = image[..., channel].ravel().astype(float)
    found = np.linalg.lstsq(design, values, rcond=None)[0]
    return found, np.abs(values - design @ found).max()


def small_crops():
    return Crops(Drawn("nuclei", "train", count=3, size=96), size=32, mpp=0.25, per_epoch=5, augment=Augment(stain=0.1), seed=7)


def digest(samples):
    total = hashlib.sha256()
    for sample in samples:
        total.update(sample.image.tobytes() + sample.instances.tobytes() + sample.source.encode())
    return total.hexdigest()


def ten_epochs(workers):
    """50 cuts in batches of 4 (the last with two of an eleventh epoch)."""
    batches = load_batches(small_crops(), 4, range(13), workers=workers)
    return digest([sample for batch in batches for sample in batch][:50])


@pytest.fixture(scope="module")
def one_by_one():
    crops = small_crops()
    return digest([crops.draw(epoch, index) for epoch in range(10) for index in range(5)])


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores, on purpose
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_ten_epochs_are_the_same_with_any_number_of_workers(workers, one_by_one):
    assert ten_epochs(workers) == one_by_one


def test_ten_epochs_are_the_same_after_a_restart(one_by_one):
    code = "from test_crops import ten_epochs; print(ten_epochs(0))"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == one_by_one, done.stderr


def test_order_and_copies_do_not_matter(one_by_one):
    crops = small_crops()
    backwards = {(epoch, index): crops.draw(epoch, index) for epoch in reversed(range(10)) for index in reversed(range(5))}
    assert digest([backwards[epoch, index] for epoch in range(10) for index in range(5)]) == one_by_one
    copy = pickle.loads(pickle.dumps(crops))
    assert digest([copy.draw(3, 2)]) == digest([crops.draw(3, 2)])


def test_training_goes_on_in_the_middle():
    whole = [digest(batch) for batch in load_batches(small_crops(), 4, range(6))]
    assert [digest(batch) for batch in load_batches(small_crops(), 4, range(4, 6))] == whole[4:]
    assert len(set(whole)) == 6


def test_the_training_s_random_numbers_are_left_alone():
    state = torch.get_rng_state()
    next(load_batches(small_crops(), 1, range(1)))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_small_memory_changes_nothing():
    crops = small_crops()
    forgetful = Crops(crops.dataset, 32, 0.25, per_epoch=5, augment=crops.augment, seed=7, cache_bytes=0)
    assert digest([forgetful.draw(1, i) for i in range(5)]) == digest([crops.draw(1, i) for i in range(5)])


def test_an_epoch_takes_every_image_and_the_next_another_order():
    data = Given(*(Sample(np.full((8, 8, 3), i, np.uint8), None, i, 0.5, str(i)) for i in range(20)))
    crops = Crops(data, 8, 0.5, augment=None)
    orders = [[crops.draw(epoch, i).label for i in range(20)] for epoch in range(3)]
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert orders[0] != orders[1] != orders[2]
    more = Crops(data, 8, 0.5, per_epoch=50, augment=None)
    counts = np.bincount([more.draw(0, i).label for i in range(50)])
    assert set(counts) == {2, 3}


def test_seeds_and_epochs_differ():
    crops = small_crops()
    other = Crops(crops.dataset, 32, 0.25, per_epoch=5, augment=crops.augment, seed=8)
    found = {digest([c.draw(epoch, 0)]) for c in (crops, other) for epoch in range(4)}
    assert len(found) == 8


def test_turned_cuts_stay_inside_the_image():
    """Colours are places, so a mirrored corner would show as a place that is out of line with its neighbours."""
    crops = Crops(Given(plain(120, 100)), 64, 0.5, per_epoch=40, augment=PLAIN)
    for index in range(40):
        image = crops.draw(0, index).image
        for channel in (0, 1):
            assert fitted_plane(image, channel)[1] < 1.1, "not a plane: something was mirrored"


@pytest.mark.parametrize(("side", "widest"), [(220, 1.25), (101, 1.1)])  # the smaller image has room for a factor of 1.1 at 45 degrees
def test_scaled_cuts_cover_more_or_less_tissue_and_stay_inside(side, widest):
    crops = Crops(Given(plain(side, side)), 65, 0.5, per_epoch=200, augment=replace(PLAIN, scale=0.25))
    scales = []
    for index in range(200):
        sample = crops.draw(0, index)
        (_, down, right), far = fitted_plane(sample.image, 0)
        assert far < 1.1, "not a plane: something was mirrored"
        scales.append(np.hypot(down, right))
        assert sample.mpp == 0.5
    assert 0.79 < min(scales) < 0.82
    assert widest - 0.02 < max(scales) < 1.26
    if side > 200:  # nothing is in the way: as often out as in
        assert abs(np.log(scales).mean()) < 0.03


def test_scaled_images_and_instances_still_match():
    y, x = np.mgrid[:200, :200]
    disc = np.hypot(y - 90, x - 110) < 40
    given = Sample(np.where(disc, 255, 0)[..., None].repeat(3, 2).astype(np.uint8), disc.astype(np.int32), None, 0.5, "disc")
    areas = []
    for index in range(20):
        sample = Crops(Given(given), 120, 0.5, per_epoch=20, augment=replace(PLAIN, scale=0.3)).draw(0, index)
        light, inside = sample.image[..., 0] > 127, sample.instances > 0
        assert (light & inside).sum() > 0.98 * (light | inside).sum()
        areas.append(inside.sum())
    assert max(areas) > 1.5 * min(areas)


def test_cuts_without_scaling_keep_their_bytes():
    """Made before scaling existed: turning it off must not take a random number."""
    crops = Crops(Given(plain(120, 100)), 64, 0.5, per_epoch=8, augment=PLAIN)
    assert digest([crops.draw(0, index) for index in range(8)])[:16] == "6b249c4d40fb97a3"


def test_cuts_reach_every_corner_of_an_image():
    crops = Crops(Given(plain(60, 50)), 20, 0.5, per_epoch=300, augment=PLAIN)
    images = np.stack([crops.draw(0, index).image for index in range(300)])
    assert images[..., 0].min() <= 1
    assert images[..., 0].max() >= 58
    assert images[..., 1].min() <= 1
    assert images[..., 1].max() >= 48


def test_without_augmentation_pixels_are_the_images_own():
    crops = Crops(Given(plain(40, 50)), 16, 0.5, per_epoch=10, augment=None)
    for index in range(10):
        image = crops.draw(0, index).image
        top, left = image[0, 0, :2]
        assert (image == plain(40, 50).image[top : top + 16, left : left + 16]).all()


def test_a_cut_at_another_resolution_covers_that_much_tissue():
    half = Crops(Given(plain(100, 100, mpp=0.25)), 20, 0.5, augment=None).draw(0, 0).image.astype(int)
    assert half[-1, 0, 0] - half[0, 0, 0] in (37, 38, 39)  # 19 steps of two pixels
    assert Crops(Given(plain(100, 100, mpp=0.25)), 20, 0.5, augment=None).draw(0, 0).mpp == 0.5


@pytest.mark.parametrize("finer", [1, 2, 3, 8])
@pytest.mark.parametrize("augment", [None, PLAIN], ids=["as it is", "turned"])
def test_objects_lie_where_the_image_shows_them_at_every_resolution(finer, augment):
    """Half a fine pixel between the two would be a quarter of a coarse one."""
    y, x = np.mgrid[: 28 * finer, : 28 * finer] + 0.5 - 14 * finer
    disc = np.hypot(y, x) < 6 * finer
    whole = Sample(np.repeat(disc[..., None] * np.uint8(200), 3, -1), disc.astype(np.int32), None, 0.5 / finer, "disc")
    crops = Crops(Given(whole), 24, 0.5, per_epoch=60, augment=augment)
    apart = []
    y, x = np.mgrid[:24, :24]
    for index in range(60):
        cut = crops.draw(0, index)
        shown = cut.image[..., 0] / cut.image[..., 0].sum(dtype=float)
        rows, columns = np.nonzero(cut.instances)
        apart.append([(shown * y).sum() - rows.mean(), (shown * x).sum() - columns.mean()])
        assert len(rows) == pytest.approx(np.pi * 36, rel=0.06)
    assert np.abs(np.mean(apart, 0)).max() < 0.04


@pytest.mark.parametrize("shape", [(1, 1), (1, 30), (7, 5)])
def test_images_smaller_than_the_cut_are_mirrored(shape):
    sample = Crops(Given(plain(*shape)), 16, 0.5).draw(0, 0)
    assert sample.image.shape == (16, 16, 3)
    assert sample.instances.max() == 1


def test_pieces_get_ids_of_their_own():
    pieces = np.array([[5, 0, 5], [0, 0, 0], [9, 9, 5]], np.int32)
    assert sorted(np.unique(one_piece_each(pieces))) == [0, 1, 2, 3, 4]
    assert one_piece_each(np.zeros((3, 3), np.int32)).max() == 0
    # Neighbours with different ids stay apart.
    assert one_piece_each(np.array([[3, 4]], np.int32)).tolist() == [[1, 2]]


class Broken(Given):
    def __getitem__(self, index):
        raise DataError("a.png: a damaged PNG file; get it again")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_file_is_named_by_the_loader_in_one_line(workers, refused):
    crops = Crops(Broken(plain(9, 9)), 8, 0.5)
    with refused(DataError, "get it again"):
        next(load_batches(crops, 2, range(3), workers=workers))


@pytest.mark.parametrize("ending", ["", "raise SystemExit", "1 / 0", "list(feed)"])
def test_a_program_that_ends_early_does_not_wait_for_its_workers(ending):
    """They ignore SIGTERM, with which Python asks them to end."""
    code = f"from test_crops import *; feed = load_batches(small_crops(), 4, range(3), workers=1); next(feed); {ending}"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == (1 if ending == "1 / 0" else 0), done.stderr


def test_batches_are_prepared():
    crops = Crops(Given(plain(40, 40)), 8, 0.5)
    (batch,) = load_batches(crops, 3, range(1), prepare=lambda samples: np.stack([sample.image for sample in samples]))
    assert batch.shape == (3, 8, 8, 3)


@pytest.mark.parametrize("bad", [{"size": 0}, {"per_epoch": 0}, {"mpp": 0.0}, {"mpp": float("nan")}, {"seed": -1}])
def test_cuts_that_make_no_sense(bad, refused):
    with refused(UsageError, ""):
        Crops(Given(plain(9, 9)), **{"size": 8, "mpp": 0.5, **bad})
    with refused(UsageError, "split"):
        Crops(Given(), 8, 0.5)
