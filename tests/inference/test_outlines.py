"""Outlines enclose exactly the mask, whatever its shape, in rings that QuPath takes."""

import sys

import numpy as np
import pytest
import shapely
from found_objects import masks
from hypothesis import example, given, settings
from hypothesis import strategies as st
from slow_outputs import traced

from dsfcnn.errors import UsageError
from dsfcnn.inference.objects import polygon
from dsfcnn.inference.outlines import outlines

PINCHED_HOLE = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0]], bool)
TWO_HOLES = np.array([[1, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 1], [0, 1, 1, 1]], bool)
ISLAND = np.pad(np.pad(np.pad(np.ones((1, 1), bool), 1), 1, constant_values=True), 1)
STAIRS = np.eye(6, dtype=bool)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(masks())
@example(PINCHED_HOLE)
@example(TWO_HOLES)
@example(ISLAND)
@example(STAIRS)
def test_the_outline_is_that_of_gdal_and_valid(mask):
    found = shapely.MultiPolygon([(piece[0], piece[1:]) for piece in outlines(mask)])
    assert found.is_valid, shapely.is_valid_reason(found)
    assert found.area == mask.sum()
    assert found.equals(traced(mask))
    for piece in found.geoms:  # the order that GeoJSON asks for
        assert piece.exterior.is_ccw
        assert not any(hole.is_ccw for hole in piece.interiors)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(masks())
def test_every_corner_is_a_turn_and_no_ring_meets_itself(mask):
    for piece in outlines(mask):
        for ring in piece:
            assert len(set(ring)) == len(ring)
            for before, corner, after in zip(ring[-1:] + ring[:-1], ring, ring[1:] + ring[:1]):
                assert (before[0] == corner[0]) == (corner[1] == after[1]) != (before[1] == corner[1])


def test_pieces_and_holes_of_shapes_that_touch_at_corners():
    assert [len(piece) for piece in outlines(PINCHED_HOLE)] == [2]
    assert [len(piece) for piece in outlines(TWO_HOLES)] == [3]
    assert sorted(len(piece) for piece in outlines(ISLAND)) == [1, 2]
    assert [len(piece) for piece in outlines(STAIRS)] == [1] * 6


def test_one_ring_through_a_corner_twice_would_be_refused():
    """Why the vertices that count twice need a choice: the other way through gives what QuPath refuses."""
    wrong = [(0, 0), (3, 0), (3, 2), (2, 2), (2, 1), (1, 1), (1, 2), (2, 2), (2, 3), (0, 3)]
    assert shapely.Polygon(wrong).area == PINCHED_HOLE.sum()
    assert not shapely.Polygon(wrong).is_valid


def test_an_empty_mask_has_no_outline():
    assert outlines(np.zeros((3, 4), bool)) == []


@settings(deadline=None, derandomize=True, max_examples=50)
@given(masks(), st.sampled_from([1.0, 0.5, 0.9901, 3.88]))
def test_polygons_are_in_level_0_pixels(mask, scale):
    found = polygon(mask, 30, 40, scale, offset=(7, 11))
    assert found.is_valid
    assert found.area == pytest.approx(mask.sum() * scale**2, rel=1e-12)
    rows, columns = np.nonzero(mask)
    box = (columns.min() + 30) * scale - 7, (rows.min() + 40) * scale - 11, (columns.max() + 31) * scale - 7, (rows.max() + 41) * scale - 11
    assert found.bounds == pytest.approx(box)


def test_without_the_extra_the_command_to_get_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "shapely", None)
    with pytest.raises(UsageError, match=r"pip install 'dsfcnn\[wsi\]'"):
        polygon(np.ones((2, 2), bool), 0, 0)
