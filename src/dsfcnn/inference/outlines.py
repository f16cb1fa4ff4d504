"""Outlines of a mask along pixel edges, exactly: what they enclose is the mask, no more and no less.

A corner of the outline is a vertex of the pixel grid with one or three of its four pixels in the mask. Going along a grid line, corners
begin and end an edge in turns, so sorting them by rows pairs them into all horizontal edges and sorting by columns into all vertical ones;
rings follow by taking the two kinds in turns. Where two pixels of the mask touch at a corner only, the vertex counts twice, once for
each of two ways through it.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Ring = list[tuple[int, int]]  # corners (column, row), the first one not repeated at the end


def outlines(mask: NDArray[np.bool_]) -> list[list[Ring]]:
    """The pieces of a mask that hang together by pixel sides, each as its outer ring and then its holes, from top to bottom.

    No ring meets itself. Rings begin at their upper left corner; outer ones first go right, holes first go down, which is GeoJSON's order.

    >>> outlines(np.array([[1, 1, 0], [0, 0, 1]], bool))
    [[[(0, 0), (2, 0), (2, 1), (0, 1)]], [[(2, 1), (3, 1), (3, 2), (2, 2)]]]
    """
    padded = np.zeros((mask.shape[0] + 2, mask.shape[1] + 2), bool)
    padded[1:-1, 1:-1] = mask
    ahead, below = padded[:-1, 1:], padded[1:, :-1]  # of the four pixels around a vertex: upper right, lower left
    before, after = padded[:-1, :-1], padded[1:, 1:]  # upper left, lower right
    single = before ^ ahead ^ below ^ after
    double = (before == after) & (ahead == below) & (before != ahead)
    width = mask.shape[1] + 1
    if double.any():
        pieces: NDArray[np.int32] | None = ndimage.label(padded)[0]
        corners = np.repeat(np.arange(single.size), (single + 2 * double).ravel())
    else:
        pieces = None
        corners = np.flatnonzero(single)
    rows, columns = np.divmod(corners, width)
    by_column = np.argsort(columns * single.shape[0] + rows, kind="stable")
    if pieces is not None:
        _choose_ways(by_column, corners, double, pieces)
    vertical = np.empty_like(by_column)  # the other end of each corner's vertical edge
    vertical[by_column[0::2]], vertical[by_column[1::2]] = by_column[1::2], by_column[0::2]
    rings = _rings(columns.tolist(), rows.tolist(), vertical.tolist())
    if len(rings) < 2:
        return [rings] if rings else []
    return _sorted_out(rings, ndimage.label(padded)[0] if pieces is None else pieces)


def _choose_ways(by_column: NDArray[np.intp], corners: NDArray[np.intp], double: NDArray[np.bool_], pieces: NDArray[np.int32]) -> None:
    """Decide which way rings go through the vertices that count twice.

    Two pieces are kept apart, each ring staying with its own pixel. Within one piece the two empty pixels are kept apart, since one of
    them lies in a hole that would otherwise join the outer ring. The first entry of a pair has the edge to the left; in column order the
    first gets the edge upwards. So the natural order joins left with up, around the upper left pixel.
    """
    width = double.shape[1]
    order = corners[by_column]
    first = np.flatnonzero(order[:-1] == order[1:])  # places of pairs in the column order
    row, column = np.divmod(order[first], width)
    filled_before = pieces[row, column] != 0
    one_piece = np.where(
        filled_before,
        pieces[row, column] == pieces[row + 1, column + 1],
        pieces[row, column + 1] == pieces[row + 1, column],
    )
    swapped = first[filled_before == one_piece]
    by_column[swapped], by_column[swapped + 1] = by_column[swapped + 1], by_column[swapped]


def _rings(columns: list[int], rows: list[int], vertical: list[int]) -> list[Ring]:
    """All rings, by their first corner from top to bottom; each goes right at first. Corners 2i and 2i + 1 share a horizontal edge."""
    rings, seen = [], bytearray(len(columns))
    for start in range(0, len(columns), 2):
        if seen[start]:
            continue
        ring, corner = [], start
        while not seen[corner]:
            other = corner ^ 1
            seen[corner] = seen[other] = 1
            ring += [(columns[corner], rows[corner]), (columns[other], rows[other])]
            corner = vertical[other]
        rings.append(ring)
    return rings


def _sorted_out(rings: list[Ring], pieces: NDArray[np.int32]) -> list[list[Ring]]:
    """Holes put to their piece: the mask lies below the first edge of an outer ring, and above that of a hole."""
    found: dict[int, list[Ring]] = {}
    for ring in rings:
        column, row = ring[0]
        piece = int(pieces[row + 1, column + 1])
        if piece:
            found[piece] = [ring]
        else:
            found[int(pieces[row, column + 1])].append([ring[0], *ring[:0:-1]])
    return list(found.values())
