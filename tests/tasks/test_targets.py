"""From instance maps to training targets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instance_maps import PAIRS

from dsfcnn import tasks
from dsfcnn.errors import DataError, UsageError
from dsfcnn.tasks.diamonds import diamond_radius
from dsfcnn.tasks.instances import compact
from dsfcnn.tasks.targets import CONTOUR, MARKER

laws = settings(max_examples=100, deadline=None, derandomize=True)


def squares():
    """Two touching squares, one at the border, one alone."""
    labels = np.zeros((60, 70), np.int32)
    labels[10:30, 10:30] = 3
    labels[10:30, 30:50] = 70_000
    labels[40:60, 0:20] = 8
    return labels


def test_nuclei_targets():
    target = tasks.get("nuclei").targets(squares())
    assert {name: (array.dtype, array.shape) for name, array in target.items()} == {
        "object": (np.uint8, (60, 70)),
        "marker": (np.uint8, (60, 70)),
        "weight": (np.float32, (60, 70)),
    }
    np.testing.assert_array_equal(target["object"], squares() != 0)
    marker = target["marker"]
    assert (marker[13:27, 13:27] == MARKER).all()
    assert (marker[13:27, 27:33] == CONTOUR).all()  # 3 px of each of the touching squares
    assert (marker[7:13, 15:45] == CONTOUR).all()
    assert marker[6, 20] == 2
    assert marker[59, 0] == MARKER  # the image's border is no contour
    assert target["weight"][squares() != 0].max() == 1


def test_gland_targets_scale_with_resolution():
    glands = tasks.get("glands")
    for mpp, radius in ((None, 4), (0.5, 4), (0.62, 3), (0.25, 8), (1.0, 2), (10, 1)):
        band = glands.targets(squares(), mpp)["object"][50] == CONTOUR  # across the border square
        assert band.sum() == 2 * radius, mpp


def test_penalties_are_high_between_neighbours():
    labels = np.zeros((40, 60), np.uint16)
    labels[10:30, 10:28] = 1
    labels[10:30, 30:50] = 2
    weight = tasks.get("nuclei").targets(labels)["weight"]
    # Two background columns between them, 1 and 2 pixels from the two: 1 + 10 exp(-(3/4)^2 / 2).
    assert weight[20, 28] == weight[20, 29] == pytest.approx(1 + 10 * np.exp(-(0.75**2) / 2), abs=1e-5)
    assert weight[20, 0] < 1.001
    assert (tasks.get("nuclei").targets((labels == 1).astype(int))["weight"] == 1).all()
    assert (tasks.get("nuclei").targets(np.zeros((5, 4), int))["weight"] == 1).all()
    coarse = tasks.get("nuclei").targets(labels, mpp=0.5)["weight"]
    assert coarse[20, 28] == pytest.approx(1 + 10 * np.exp(-(1.5**2) / 2), abs=1e-5)


@pytest.mark.parametrize(("name", "mpp", "strength"), [("nuclei", 0.25, 10), ("glands", 1.0, 5)])
def test_seams_are_weighed_where_objects_touch(name, mpp, strength):
    task = tasks.get(name)
    weight = task.targets(squares(), mpp, seams=True)["weight"]
    sigma = {"nuclei": 4, "glands": 6}[name]  # pixels
    assert weight[20, 29] == weight[20, 30] == pytest.approx(1 + strength * np.exp(-(sigma**-2) / 2), abs=1e-5)  # a pixel from the other
    assert weight[20, 20] == 1  # inside, though the other square is not far
    assert (task.targets((squares() == 8).astype(int), mpp, seams=True)["weight"] == 1).all()
    assert task.targets(squares(), mpp).get("weight", np.ones((60, 70)))[20, 29] == 1


def test_pieces_of_an_object_count_as_two():
    labels = np.zeros((20, 40), int)
    labels[5:15, 5:15] = labels[5:15, 17:30] = 4
    assert tasks.get("nuclei").targets(labels)["weight"][10, 15] > 8


@laws
@given(PAIRS, st.integers(0, 3), st.sampled_from(["nuclei", "glands"]))
def test_targets_turn_with_the_map(pair, turns, name):
    task = tasks.get(name)
    straight, turned = (task.targets(instances, 0.5, seams=True) for instances in (pair[0], np.rot90(pair[0], turns)))
    for head in straight:
        np.testing.assert_allclose(turned[head], np.rot90(straight[head], turns), rtol=1e-6)


@laws
@given(PAIRS)
def test_pieces(pair):
    labels = pair[0]
    pieces = tasks.split_pieces(labels)
    np.testing.assert_array_equal(pieces != 0, labels != 0)
    assert set(np.unique(pieces)) - {0} == set(range(1, pieces.max() + 1))
    of_piece = {number: np.unique(labels[pieces == number]) for number in range(1, pieces.max() + 1)}
    assert all(len(ids) == 1 for ids in of_piece.values())
    np.testing.assert_array_equal(tasks.split_pieces(pieces), pieces)
    down, right = labels[1:] == labels[:-1], labels[:, 1:] == labels[:, :-1]
    np.testing.assert_array_equal(pieces[1:][down], pieces[:-1][down])
    np.testing.assert_array_equal(pieces[:, 1:][right], pieces[:, :-1][right])


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_ids_of_every_type(dtype):
    largest = np.iinfo(dtype).max
    labels = np.array([[0, largest], [3, largest]], dtype)
    compacted, ids = compact(labels)
    assert compacted.dtype == np.int32
    assert compacted.tolist() == [[0, 2], [1, 2]]
    assert [int(number) for number in ids] == [3, largest]
    compacted, ids = compact(np.array([[largest, 7]], dtype))  # no background
    assert compacted.tolist() == [[2, 1]]
    assert [int(number) for number in ids] == [7, largest]


def test_radii():
    assert [diamond_radius(0.75, mpp) for mpp in (0.25, 0.5, 0.3, 0.1, 5)] == [3, 1, 2, 7, 1]


@pytest.mark.parametrize(
    ("bad", "fix"),
    [
        (np.zeros((4, 4)), "one object id per pixel"),
        (np.full((4, 4), np.nan), "one object id per pixel"),
        (np.zeros((4, 4), bool), "one object id per pixel"),
        (np.zeros((4, 4), complex), "one object id per pixel"),
        (np.zeros((4, 4), "U3"), "one object id per pixel"),
        (np.zeros((4, 4), object), "one object id per pixel"),
        (np.zeros((4, 4, 3), int), "one object id per pixel"),
        (np.zeros(4, int), "one object id per pixel"),
        (np.zeros((0, 4), int), "one object id per pixel"),
        (np.full((4, 4), -1), "positive ids"),
    ],
)
def test_maps_that_are_none(bad, fix, refused):
    for name in ("nuclei", "glands"):
        with refused(DataError, fix):
            tasks.get(name).targets(bad)
    with refused(DataError, fix):
        tasks.split_pieces(bad)


@pytest.mark.parametrize("mpp", [0, -1, float("nan"), float("inf")])
def test_resolutions_that_are_none(mpp, refused):
    with refused(UsageError, "microns per pixel"):
        tasks.get("glands").targets(squares(), mpp)
