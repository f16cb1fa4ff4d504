"""Runs do what scipy and plain loops do with pixels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from dsfcnn import tasks
from dsfcnn.tasks import runs as module
from dsfcnn.tasks.runs import background, connect, fill_holes, find_runs, grow, intersect, paint, strips

laws = settings(max_examples=60, deadline=None, derandomize=True)
MASKS = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 14), st.integers(1, 16), st.sampled_from([0.0, 0.2, 0.5, 0.6, 0.8, 1.0]))


def mask_of(drawn):
    seed, height, width, share = drawn
    return np.random.default_rng(seed).random((height, width)) < share


def runs_of(mask):
    return find_runs(mask.shape, lambda rows: mask[rows])


def mask_from(runs):
    return paint(runs, np.ones(len(runs.start), bool))


@pytest.fixture(autouse=True)
def small_strips(monkeypatch):
    """So that even these small images are made of several."""
    monkeypatch.setattr(module, "_STRIP", 40)


@laws
@given(MASKS)
def test_a_mask_comes_back(drawn):
    mask = mask_of(drawn)
    runs = runs_of(mask)
    np.testing.assert_array_equal(mask_from(runs), mask)
    np.testing.assert_array_equal(np.argwhere(mask), np.stack(runs.pixels(), 1))
    assert len(runs.start) == np.count_nonzero(np.diff(mask.astype(int), axis=1, prepend=0) == 1)
    for rows in strips(mask.shape):
        np.testing.assert_array_equal(paint(runs, np.ones(len(runs.start), bool), rows), mask[rows])


@laws
@given(MASKS)
def test_objects_are_those_of_scipy_with_the_same_numbers(drawn):
    mask = mask_of(drawn)
    runs = runs_of(mask)
    owner, count = connect(runs)
    labels, want = ndimage.label(mask)
    assert count == want
    np.testing.assert_array_equal(paint(runs, owner + 1), labels)
    np.testing.assert_array_equal(runs.area(owner, count), np.bincount(labels.ravel(), minlength=count + 1)[1:])


@laws
@given(MASKS)
def test_holes_are_those_of_scipy(drawn):
    mask = mask_of(drawn)
    np.testing.assert_array_equal(mask_from(fill_holes(runs_of(mask))), ndimage.binary_fill_holes(mask))


@laws
@given(MASKS, st.integers(0, 2**32 - 1))
def test_sets_of_pixels(drawn, seed):
    one = mask_of(drawn)
    other = np.random.default_rng(seed).random(one.shape) < 0.5
    np.testing.assert_array_equal(mask_from(background(runs_of(one))), ~one)
    a, b = runs_of(one), runs_of(other)
    both, from_a, from_b = intersect(a, b)
    np.testing.assert_array_equal(mask_from(both), one & other)
    for which, runs in ((from_a, a), (from_b, b)):
        assert (runs.start[which] <= both.start).all()
        assert (both.end <= runs.end[which]).all()


@laws
@given(MASKS, st.integers(1, 4))
def test_growth_takes_the_nearest_and_then_the_smallest(drawn, steps):
    mask = mask_of(drawn)
    runs = runs_of(mask)
    owner, count = connect(runs)
    owner = np.random.default_rng(drawn[0]).permutation(count)[owner]
    labels = paint(runs, owner + 1)
    want = labels.copy()
    places = np.argwhere(labels)
    for row, column in np.argwhere(labels == 0):
        distance = np.abs(places - (row, column)).sum(1)
        if len(places) and distance.min() <= steps:
            nearest = places[distance == distance.min()]
            want[row, column] = labels[tuple(nearest.T)].min()
    grown, number = grow(runs, owner, steps)
    np.testing.assert_array_equal(paint(grown, number + 1), want)
    assert (np.diff(grown.start) > 0).all()


def test_growth_takes_nothing_from_neighbours():
    labels = np.array([[2, 2, 0, 0, 0, 1, 1, 0, 0, 0, 0]])
    runs = runs_of(labels > 0)
    grown, number = grow(runs, np.array([2, 1]), 2)
    assert paint(grown, number).tolist() == [[2, 2, 2, 1, 1, 1, 1, 1, 1, 0, 0]]


@pytest.mark.parametrize("name", ["nuclei", "glands"])
def test_decoding_does_not_depend_on_the_strips(name, monkeypatch):
    task = tasks.get(name)
    random = np.random.default_rng(3)
    chosen = tasks.GlandSettings(smallest_gland=8.0) if name == "glands" else None
    for _ in range(5):
        logits = {head: ndimage.gaussian_filter(random.standard_normal((len(c), 90, 70)), (0, 3, 3)) for head, c in task.heads.items()}
        maps = {head: np.exp(40 * plane) / np.exp(40 * plane).sum(0) for head, plane in logits.items()}
        found = []
        for size in (1, 500, 1 << 18):
            monkeypatch.setattr(module, "_STRIP", size)
            found.append(task.decode(maps, settings=chosen))
        assert found[0].max() > 3
        np.testing.assert_array_equal(found[0], found[1])
        np.testing.assert_array_equal(found[0], found[2])
