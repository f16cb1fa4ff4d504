"""From probabilities to objects."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from dsfcnn import metrics, tasks
from dsfcnn.errors import DataError, UsageError
from dsfcnn.tasks import GlandSettings, NucleiSettings

PEAKS = NucleiSettings(certainty=0.8, marker_height=0.2)
NECKS = NucleiSettings(certainty=0.8, marker_height=0.2, neck=0.9, smallest_lobe=0.5)
laws = settings(max_examples=60, deadline=None, derandomize=True)


def perfect(task, instances, mpp=None):
    """The targets as probabilities of 0 and 1."""
    targets = task.targets(instances, mpp)
    return {head: np.stack([targets[head] == i for i in range(len(names))]).astype(np.float32) for head, names in task.heads.items()}


def discs(shape, centres, radius):
    labels = np.zeros(shape, np.int32)
    y, x = np.indices(shape)
    for number, (row, column) in enumerate(centres, start=1):
        labels[np.hypot(y - row, x - column) <= radius] = number
    return labels


def random_probabilities(task, seed, shape=(60, 50)):
    """Smooth, without ties."""
    random = np.random.default_rng(seed)
    maps = {}
    for head, names in task.heads.items():
        logits = np.stack([ndimage.gaussian_filter(random.standard_normal(shape), 3) for _ in names])
        exponentials = np.exp(5 * logits / logits.std())
        maps[head] = exponentials / exponentials.sum(0)
    return maps


def same_objects(a, b):
    return metrics.object_dice(a, b) == 1 and metrics.panoptic_quality(a, b).pq == 1


def expect_ids(objects, count):
    assert objects.dtype == np.int32
    assert sorted(np.unique(objects)) == list(range(count + 1))
    area = np.bincount(objects.ravel())[1:]
    assert (np.diff(area) <= 0).all()


@pytest.mark.parametrize(("name", "radius"), [("nuclei", 12), ("glands", 40)])
def test_touching_and_border_objects_come_back(name, radius):
    task = tasks.get(name)
    centres = [(100, 60), (100, 60 + 2 * radius), (0, 230), (240, 0), (299, 299)]  # two that touch, an edge, another, a corner
    truth = discs((300, 300), centres, radius)
    found = task.decode(perfect(task, truth))
    expect_ids(found, 5 if name == "nuclei" else 4)  # the gland quarter in the corner is below 1500 px
    if name == "glands":
        truth[truth == 5] = 0
    assert metrics.panoptic_quality(truth, found).pq > 0.96


def test_nuclei_with_holes_in_their_markers():
    task = tasks.get("nuclei")
    probabilities = perfect(task, discs((60, 60), [(30, 30)], 15))
    probabilities["marker"][:, 29:32, 29:32] = np.array([0.1, 0.1, 0.8])[:, None, None]
    expect_ids(task.decode(probabilities), 1)


def test_glands_with_holes_are_filled():
    task = tasks.get("glands")
    truth = discs((120, 120), [(60, 60)], 40)
    ring = np.where(discs((120, 120), [(60, 60)], 15) > 0, 0, truth)
    found = task.decode(perfect(task, ring))
    expect_ids(found, 1)
    assert found[60, 60] == 1


def test_glands_that_are_nowhere_certain_vanish():
    task = tasks.get("glands")
    probabilities = perfect(task, discs((100, 200), [(50, 50), (50, 150)], 30))
    probabilities["object"][:, :, 100:] = 0.7 * probabilities["object"][:, :, 100:] + 0.1
    expect_ids(task.decode(probabilities, settings=GlandSettings(certainty=0.75)), 2)
    found = task.decode(probabilities, settings=GlandSettings(certainty=0.85))
    expect_ids(found, 1)
    assert not found[:, 100:].any()


def test_regions_without_marker_vanish():
    task = tasks.get("nuclei")
    probabilities = perfect(task, discs((60, 100), [(30, 30), (30, 70)], 12))
    probabilities["marker"][0, :, 50:] = 0
    found = task.decode(probabilities)
    expect_ids(found, 1)
    assert not found[:, 50:].any()


def test_by_peaks_a_region_needs_no_marker():
    """Nuclei so small that all of them is contour, two of which touch: P(marker) has a low peak in each."""
    truth = discs((60, 100), [(30, 20), (30, 60), (30, 67)], 3)
    low = ndimage.gaussian_filter((discs((60, 100), [(30, 20), (30, 60), (30, 67)], 1) > 0).astype(float), 1)
    nucleus, marker = (truth > 0).astype(float), 0.5 * low / low.max()
    maps = {"object": np.stack([1 - nucleus, nucleus]), "marker": np.stack([marker, nucleus * (1 - marker), (1 - nucleus) * (1 - marker)])}
    task = tasks.get("nuclei")
    assert not task.decode(maps).any()
    assert metrics.panoptic_quality(truth, task.decode(maps, settings=NucleiSettings(marker_height=0.1))).pq == 1
    merged = task.decode(maps, settings=NucleiSettings(marker_height=0.6))
    assert len(np.unique(merged)) == 3  # too high a demand joins the two that touch


def pair(apart, radii=(12, 12)):
    """Two discs that overlap, as one object whose marker is as sure in the middle as anywhere."""
    y, x = np.indices((60, 100))
    nucleus = np.minimum(np.hypot(y - 30, x - 35) - radii[0], np.hypot(y - 30, x - 35 - apart) - radii[1]) <= 0
    return perfect(tasks.get("nuclei"), nucleus.astype(np.int32))


def test_a_neck_parts_two_nuclei_that_no_dip_of_the_marker_parts():
    task, necks = tasks.get("nuclei"), NucleiSettings(marker_height=0.2, neck=0.8)
    expect_ids(task.decode(pair(20), settings=PEAKS), 1)
    found = task.decode(pair(20), settings=necks)
    expect_ids(found, 2)
    assert (found[30, 30], found[30, 60]) in ((1, 2), (2, 1))
    assert found[30, 44] == found[30, 35]  # the border lies in the neck, at 45
    assert found[30, 46] == found[30, 55]


def test_what_is_no_neck_parts_nothing():
    task, necks = tasks.get("nuclei"), NucleiSettings(marker_height=0.2, neck=0.8)
    expect_ids(task.decode(pair(9), settings=necks), 1)  # an ellipse, nearly
    expect_ids(task.decode(pair(16, (12, 6)), settings=necks), 1)  # the second's marker is 3 pixels around its middle: narrower than a lobe


def test_a_neck_is_a_part(refused):
    for neck in (1.0, -0.1, float("nan")):
        with refused(UsageError, "below 1"):
            NucleiSettings(neck=neck)


def test_parts_too_small_vanish_as_regions_do():
    task = tasks.get("nuclei")
    large, small = discs((60, 100), [(30, 40)], 12), discs((60, 100), [(30, 57)], 5)  # they touch; the second has 5 um^2
    probabilities = perfect(task, np.where(small > 0, 2, large))
    for smallest, count in ((4.0, 2), (6.0, 1)):
        found = task.decode(probabilities, settings=NucleiSettings(marker_height=0.2, smallest_region=smallest))
        expect_ids(found, count)
        assert bool(found[30, 57]) == (count == 2)


def test_an_unsure_nucleus_vanishes_beside_a_sure_one_that_it_touches():
    task = tasks.get("nuclei")
    truth = discs((60, 100), [(30, 40), (30, 60)], 12)
    probabilities = perfect(task, truth)
    probabilities["object"][1][truth != truth[30, 40]] *= 0.7
    for height in (0.0, 0.2):
        expect_ids(task.decode(probabilities, settings=NucleiSettings(certainty=0.6, marker_height=height)), 2)
        found = task.decode(probabilities, settings=NucleiSettings(certainty=0.8, marker_height=height))
        expect_ids(found, 1)
        assert found[30, 40] == 1
        assert found[30, 60] == 0


def test_regions_that_are_nowhere_certain_vanish():
    task = tasks.get("nuclei")
    probabilities = perfect(task, discs((60, 100), [(30, 30), (30, 70)], 12))
    probabilities["object"][1, :, 50:] *= 0.7
    for height in (0.0, 0.2):
        expect_ids(task.decode(probabilities, settings=NucleiSettings(certainty=0.6, marker_height=height)), 2)
        found = task.decode(probabilities, settings=NucleiSettings(certainty=0.8, marker_height=height))
        expect_ids(found, 1)
        assert not found[:, 50:].any()


@pytest.mark.parametrize("name", ["nuclei", "glands"])
def test_empty_and_full_maps(name):
    task = tasks.get(name)
    for shape in ((50, 60), (1, 1), (1, 9), (9, 1)):
        empty = perfect(task, np.zeros(shape, int))
        assert not task.decode(empty).any()
        if name == "nuclei":
            assert not task.decode(empty, settings=PEAKS).any()
        full = {head: np.zeros((len(names), *shape)) for head, names in task.heads.items()}
        full["object"][1 if name == "nuclei" else 0] = 1
        if name == "nuclei":
            full["marker"][0] = 1
        found = task.decode(full)
        assert found.dtype == np.int32
        assert found.all() == (shape == (50, 60) or (name == "nuclei" and shape[0] * shape[1] >= 10))
        if name == "nuclei":
            np.testing.assert_array_equal(task.decode(full, settings=PEAKS), found)


@laws
@given(st.sampled_from(["nuclei", "nuclei by peaks", "nuclei by necks", "glands"]), st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_turned_probabilities_give_turned_objects(name, seed, turns):
    task = tasks.get(name.split()[0])
    chosen = {"glands": tasks.GlandSettings(smallest_gland=8.0), "nuclei by peaks": PEAKS, "nuclei by necks": NECKS}.get(name)
    maps = random_probabilities(task, seed)
    turned = {head: np.rot90(array, turns, axes=(1, 2)) for head, array in maps.items()}
    straight = task.decode(maps, settings=chosen)
    area = np.bincount(straight.ravel())[1:]
    if name == "glands" and len(np.unique(area)) < len(area):
        return  # glands of equal size may tie for the pixels between them
    assert same_objects(task.decode(turned, settings=chosen), np.rot90(straight, turns))


@pytest.mark.parametrize("name", ["nuclei", "glands"])
def test_the_same_tissue_at_another_resolution(name):
    """Twice as many pixels per micron: the same objects, twice as large."""
    task = tasks.get(name)
    maps = random_probabilities(task, seed=4, shape=(240, 240))
    maps = {head: ndimage.zoom(array, (1, 2, 2), order=1) for head, array in maps.items()}
    chosen = tasks.GlandSettings(smallest_gland=30.0) if name == "glands" else None
    coarse = {head: array.reshape(len(array), 240, 2, 240, 2).mean((2, 4)) for head, array in maps.items()}
    found = task.decode(maps, task.mpp / 2, chosen)
    expected = task.decode(coarse, task.mpp, chosen).repeat(2, 0).repeat(2, 1)
    assert expected.max() > 5
    assert metrics.object_dice(expected, found) > 0.9


def test_sizes_scale_with_the_square():
    task = tasks.get("nuclei")
    speck = np.zeros((40, 40), int)
    speck[10:21, 10:21] = 1  # erosion by 3 px leaves 25 px
    assert task.decode(perfect(task, speck)).any()
    assert not task.decode(perfect(task, speck), mpp=0.125).any()  # there 10 px are 40


def test_thousands_of_objects():
    centres = [(12 + 20 * i, 12 + 20 * j) for i in range(40) for j in range(50)]
    truth = discs_on_grid((820, 1020), centres, 9)
    task = tasks.get("nuclei")
    found = task.decode(perfect(task, truth))
    expect_ids(found, 2000)
    assert same_objects(truth, found)


def discs_on_grid(shape, centres, radius):
    labels = np.zeros(shape, np.int32)
    stamp = discs((2 * radius + 1,) * 2, [(radius, radius)], radius) > 0
    for number, (row, column) in enumerate(centres, start=1):
        labels[row - radius : row + radius + 1, column - radius : column + radius + 1][stamp] = number
    return labels


def change(task, head, **edit):
    maps = perfect(task, discs((40, 50), [(20, 20)], 12))
    array = maps[head]
    if "value" in edit:
        array[0, 3, 3] = edit["value"]
    return {**maps, head: edit["make"](array) if "make" in edit else array}


@pytest.mark.parametrize("name", ["nuclei", "glands"])
def test_probabilities_that_are_none(name, refused):
    task = tasks.get(name)
    for value in (np.nan, np.inf, -np.inf, -0.1, 1.5):
        with refused(DataError, "softmax of finite logits"):
            task.decode(change(task, "object", value=value))
    for make in (lambda a: a.astype(int), lambda a: a[:, :, 0], lambda a: a[1:], lambda a: a[None], lambda a: a[:, :0], lambda a: a > 0.5):
        with refused(DataError, "softmax of one image"):
            task.decode(change(task, "object", make=make))
    with refused(DataError, f"those of a {name} model"):
        task.decode({"other": np.zeros((2, 4, 4))})


def test_heads_of_different_sizes(refused):
    task = tasks.get("nuclei")
    with refused(DataError, "softmax of one image"):
        task.decode(change(task, "marker", make=lambda a: a[:, :-1]))
