"""The picture with what was found drawn over it, for a first look without any viewer.

An image is shown at its own resolution, a slide at most 4,096 pixels wide or high. Contours lie within their objects; an object too small
to be seen is one point. What could not be read is drawn as a chequered grey field, so that nobody takes it for tissue without objects.
"""

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dsfcnn.inference.objects import Classification, Instance
from dsfcnn.inference.rasters import write_png
from dsfcnn.slides import Slide
from dsfcnn.slides.tissue import overview

LARGEST = 4096  # pixels a side of a slide's picture
_CHEQUER, _GREYS = 8, (np.uint8(110), np.uint8(170))  # pixels, grey levels: no tissue looks like this
_OPACITY = 0.6  # of certainty on a heat map; a guess that leaves the tissue visible


def picture_of(slide: Slide) -> tuple[NDArray[np.uint8], float]:
    """The picture to draw on, and its level-0 pixels per pixel; what cannot be read at this resolution is chequered."""
    scale = 1.0 if slide.is_image else max(1.0, max(slide.width, slide.height) / LARGEST)
    picture, unreadable = overview(slide, slide.mpp * scale)
    _chequer(picture, *np.nonzero(unreadable))
    return picture, scale


def mark_unreadable(picture: NDArray[np.uint8], regions: Iterable[tuple[float, float, float, float]], scale: float) -> None:
    """Chequer regions (x, y, width, height) in level-0 pixels, which may be damaged there and whole in a coarser level of the slide."""
    for x, y, width, height in regions:
        rows = np.arange(max(int(y / scale), 0), min(math.ceil((y + height) / scale), picture.shape[0]))
        columns = np.arange(max(int(x / scale), 0), min(math.ceil((x + width) / scale), picture.shape[1]))
        _chequer(picture, *(grid.ravel() for grid in np.meshgrid(rows, columns, indexing="ij")))


def _chequer(picture: NDArray[np.uint8], rows: NDArray[np.intp], columns: NDArray[np.intp]) -> None:
    picture[rows, columns] = np.choose((rows // _CHEQUER + columns // _CHEQUER) % 2, _GREYS)[:, None]


def write_overlay(
    path: str | Path, picture: NDArray[np.uint8], instances: Iterable[Instance], scale: float, classification: Classification
) -> None:
    """A PNG of the picture with the objects' contours.

    Args:
        picture: uint8 (H, W, 3); it is drawn on, since a copy of a large image would take as much memory again.
        instances: in the analysed grid.
        scale: picture pixels to an analysed pixel: model mpp / picture mpp.
        classification: whose colour is used.
    """
    for instance in instances:
        rows, columns = contour(instance, scale)
        seen = (rows >= 0) & (rows < picture.shape[0]) & (columns >= 0) & (columns < picture.shape[1])
        picture[rows[seen], columns[seen]] = classification.rgb
    write_png(path, picture)


def contour(instance: Instance, scale: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the picture's pixels on the rim of an object: those inside with one of four neighbours outside."""
    rows, inside_rows = _samples(instance.y, instance.mask.shape[0], scale)
    columns, inside_columns = _samples(instance.x, instance.mask.shape[1], scale)
    padded = np.zeros((len(rows) + 2, len(columns) + 2), bool)
    padded[1:-1, 1:-1] = instance.mask[np.ix_(inside_rows, inside_columns)]
    core = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    rim_rows, rim_columns = np.nonzero(padded[1:-1, 1:-1] & ~core)
    if len(rim_rows) == 0:  # no pixel centre of the picture lies within
        x, y = instance.place
        return np.array([int((y + 0.5) * scale)]), np.array([int((x + 0.5) * scale)])
    return rows[rim_rows], columns[rim_columns]


def _samples(start: int, length: int, scale: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Picture pixels whose centres fall on an object's rows (or columns), and on which of them each falls."""
    pixels = np.arange(int(np.floor(start * scale)), int(np.ceil((start + length) * scale)) + 1)
    places = np.floor((pixels + 0.5) / scale).astype(np.intp) - start
    within = (places >= 0) & (places < length)
    return pixels[within], places[within]


def write_heat_overlay(
    path: str | Path, picture: NDArray[np.uint8], grid: NDArray[np.floating], cell: float, classification: Classification
) -> None:
    """A PNG of the picture tinted by probability.

    Args:
        picture: uint8 (H, W, 3); it is drawn on, since a copy of a large image would take as much memory again.
        grid: probabilities of the cells, NaN where nothing was analysed.
        cell: picture pixels to a cell's side.
        classification: whose colour is used.
    """
    rows, columns = (((np.arange(side) + 0.5) / cell).astype(np.intp) for side in picture.shape[:2])
    heat = np.pad(np.nan_to_num(grid), ((0, 1), (0, 1)))  # beyond the last cell there is none
    across = np.minimum(columns, heat.shape[1] - 1)
    colour = np.array(classification.rgb, np.float32)
    for row, down in enumerate(np.minimum(rows, heat.shape[0] - 1)):
        share = (_OPACITY * heat[down, across]).astype(np.float32)[:, None]
        picture[row] = picture[row] * (1 - share) + colour * share + np.float32(0.5)
    write_png(path, picture)
