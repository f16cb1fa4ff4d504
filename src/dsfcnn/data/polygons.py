"""Polygons as instance maps: a pixel belongs to an object when its centre lies inside.

Vertices are (x, y) with pixel edges at whole numbers, as QuPath and ImageScope write them: the first pixel's centre is (0.5, 0.5).
"""

from collections.abc import Iterable

import numpy as np
from skimage.draw import polygon2mask

_HARDLY = 1e-6  # pixels
Rings = list[np.ndarray]  # the outline and then its holes, each float (vertices, 2)


def fill(instances: np.ndarray, parts: Iterable[Rings], value: int) -> None:
    """Write ``value`` on the pixels of an object, in place. What lies outside the map is cut off."""
    height, width = instances.shape
    for rings in parts:
        outline = rings[0]
        left, top = np.maximum(np.floor(outline.min(0)).astype(int), 0)
        right, bottom = np.minimum(np.ceil(outline.max(0)).astype(int), (width, height))
        if right <= left or bottom <= top:
            continue
        inside = _mask(outline, left, top, (bottom - top, right - left))
        for hole in rings[1:]:
            inside &= ~_mask(hole, left, top, inside.shape)
        instances[top:bottom, left:right][inside] = value


def _mask(ring: np.ndarray, left: int, top: int, shape: tuple[int, ...]) -> np.ndarray:
    # (row, column) with pixel centres at whole numbers, moved a little: a centre on a left or upper edge is inside, on a right or lower one
    # outside, so that objects keep their areas where they touch.
    corners = ring[:, ::-1] - (top + 0.5, left + 0.5) - _HARDLY
    return polygon2mask(shape, corners)
