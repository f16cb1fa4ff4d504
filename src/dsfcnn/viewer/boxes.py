"""Which of many boxes meet a rectangle.

Boxes are sorted by size into layers, each with cells as wide as its largest boxes; a box lies in the cell of its upper left corner. So
those that meet a rectangle begin in its cells or one cell before, however different the boxes are.
"""

import numpy as np
from numpy.typing import NDArray

_SMALLEST = 32.0  # pixels: side of the finest cells, about a nucleus; a guess
_ROW = 1 << 32  # keys of cells are row * _ROW + column
_SHIFT = 1 << 30  # so that places left of and above the slide have positive numbers


class BoxIndex:
    """
    Args:
        boxes: (n, 4): left, top, width, height.
    """

    def __init__(self, boxes: NDArray[np.float32]):
        self.boxes = boxes
        self._layers: list[tuple[float, NDArray[np.int64], NDArray[np.intp]]] = []  # side of cells, sorted keys, boxes in this order
        layers = np.ceil(np.log2(np.maximum(boxes[:, 2:].max(1, initial=0), _SMALLEST) / _SMALLEST)).astype(int)
        for layer in np.unique(layers):
            members = np.flatnonzero(layers == layer)
            side = _SMALLEST * 2.0**layer
            columns, rows = (np.floor(boxes[members, :2] / side).astype(np.int64) + _SHIFT).T
            keys = rows * _ROW + columns
            order = np.argsort(keys, kind="stable")
            self._layers.append((side, keys[order], members[order]))

    def meeting(self, left: float, top: float, right: float, bottom: float) -> NDArray[np.intp]:
        """Numbers of the boxes that meet the rectangle, its sides included, in their order."""
        found = [np.zeros(0, np.intp)]
        for side, keys, members in self._layers:
            rows = np.arange(int(top // side) - 1, int(bottom // side) + 1) + _SHIFT
            begin = np.searchsorted(keys, rows * _ROW + (int(left // side) - 1 + _SHIFT))
            end = np.searchsorted(keys, rows * _ROW + (int(right // side) + _SHIFT), side="right")
            found += [members[first:last] for first, last in zip(begin.tolist(), end.tolist()) if first < last]
        near = np.concatenate(found)
        x, y, width, height = self.boxes[near].T
        return np.sort(near[(x <= right) & (x + width >= left) & (y <= bottom) & (y + height >= top)])
