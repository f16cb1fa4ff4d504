"""Squares cover a picture once, at every level."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dsfcnn.viewer.pyramid import TILE, Pyramid

sides = st.integers(1, 6000)


@settings(deadline=None, derandomize=True)
@given(sides, sides)
def test_squares_cover_the_picture_once(width, height):
    pyramid = Pyramid(width, height)
    for level in range(pyramid.first, pyramid.full + 1):
        columns = [square for x in range(20) if (square := pyramid.square(level, x, 0)) is not None]
        rows = [square for y in range(20) if (square := pyramid.square(level, 0, y)) is not None]
        for places, ends, side in (
            ([one.left for one in columns], [one.right for one in columns], width),
            ([one.top for one in rows], [one.bottom for one in rows], height),
        ):
            assert places[0] == 0
            assert places[1:] == ends[:-1]
            assert side <= ends[-1] < side + columns[0].scale
        assert all(one.width <= TILE and one.height <= TILE for one in (*columns, *rows))
        assert {one.scale for one in (*columns, *rows)} == {2.0 ** (pyramid.full - level)}
    assert pyramid.square(pyramid.first, 1, 0) is None
    assert pyramid.square(pyramid.first, 0, 1) is None


def test_outside_there_is_nothing():
    pyramid = Pyramid(3000, 1000)
    for place in (
        (12, -1, 0),
        (12, 0, -1),
        (12, 6, 0),
        (12, 0, 2),
        (13, 0, 0),
        (8, 0, 0),
        (12, 10**30, 0),
        (12, 0, 10**400),
        (-5, 0, 0),
        (10**9, 0, 0),
    ):
        assert pyramid.square(*place) is None
    finer = pyramid.square(14, 23, 0, finer=3)
    assert (finer.scale, finer.width) == (0.25, 12000 - 23 * TILE)
    assert np.isclose(finer.right, 3000)
