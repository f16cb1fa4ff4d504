"""Pictures of layers, square by square, as RGBA: objects too small to outline, heat maps and tissue masks.

Objects of a few pixels are drawn as their boxes, each as dense as the object fills it; larger ones as polygons. The page outlines them
itself when they are larger still.
"""

import io
import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dsfcnn.inference.rasters import TISSUE, UNREADABLE
from dsfcnn.viewer.objects import Objects
from dsfcnn.viewer.pyramid import Square

_FEW = 4  # pixels a side up to which an object is a box
_AT_ONCE = 200_000  # boxes: arrays of 1.6 MB; more would stay in the process's memory, in every thread that draws
_FILL = 110  # of 255: how much of the tissue a polygon hides inside its outline
_FINER = 2  # polygons are drawn so many times larger and averaged

# From nothing over violet and orange to pale yellow, each step brighter than the one before: (probability, red, green, blue, opacity).
_HEAT = ((0.0, 20, 10, 60, 0), (0.1, 60, 15, 110, 60), (0.35, 160, 30, 120, 170), (0.65, 240, 90, 50, 220), (1.0, 252, 230, 140, 240))
_TISSUE_COLOUR, _UNREADABLE_COLOUR = (60, 160, 255, 110), (255, 60, 60, 170)


def png(rgba: NDArray[np.uint8]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(rgba).save(stream, "PNG", compress_level=1)  # local, and made while somebody waits
    return stream.getvalue()


def jpeg(rgb: NDArray[np.uint8]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(rgb).save(stream, "JPEG", quality=85)
    return stream.getvalue()


def heat_colours(probability: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(H, W) of 0 to 255 -> RGBA."""
    known = np.array(_HEAT)
    table = np.stack([np.interp(np.arange(256) / 255, known[:, 0], column) for column in known[:, 1:].T], axis=1)
    return (table + 0.5).astype(np.uint8)[probability]


def tissue_colours(mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A tissue mask's grey levels -> RGBA."""
    table = np.zeros((256, 4), np.uint8)
    table[UNREADABLE], table[TISSUE] = _UNREADABLE_COLOUR, _TISSUE_COLOUR
    return table[mask]


def draw_objects(objects: Objects, square: Square) -> NDArray[np.uint8]:
    """The objects that meet a square, as RGBA in their classes' colours."""
    numbers = objects.index.meeting(square.left, square.top, square.right, square.bottom)
    small = objects.boxes[numbers, 2:].max(1) <= _FEW * square.scale
    picture = _draw_boxes(objects, numbers[small], square)
    if not small.all():
        large = _draw_polygons(objects, numbers[~small], square)
        picture = np.asarray(Image.alpha_composite(Image.fromarray(picture), large))
    return picture


def _draw_boxes(objects: Objects, numbers: NDArray[np.intp], square: Square) -> NDArray[np.uint8]:
    """How much of every pixel is covered, in the mean colour of what covers it."""
    cover, mixed = np.zeros(square.height * square.width), np.zeros((3, square.height * square.width))
    for start in range(0, len(numbers), _AT_ONCE):
        _add_boxes(objects, numbers[start : start + _AT_ONCE], square, cover, mixed)
    rgb = mixed / np.maximum(cover, 1e-9)
    return np.concatenate([rgb, np.minimum(cover, 1)[None] * 255]).T.reshape(square.height, square.width, 4).round().astype(np.uint8)


def _add_boxes(objects: Objects, numbers: NDArray[np.intp], square: Square, cover: NDArray[np.float64], mixed: NDArray[np.float64]) -> None:
    """Add what each box covers of the pixels that it meets, the first, second, ... one down and across in turn."""
    colours = np.array([colour for _, colour in objects.classes], np.float64).reshape(-1, 3)[objects.kinds[numbers]]
    left, top, width, height = objects.boxes[numbers].astype(np.float64).T
    density = np.minimum(objects.areas[numbers] / np.maximum(width * height, 1e-9), 1.0)
    x0, y0 = (left - square.left) / square.scale, (top - square.top) / square.scale
    x1, y1 = x0 + width / square.scale, y0 + height / square.scale
    column, row = np.floor(x0).astype(int), np.floor(y0).astype(int)
    for down in range(math.ceil((y1 - row).max())):
        tall = np.clip(np.minimum(y1, row + down + 1) - np.maximum(y0, row + down), 0, 1)
        for across in range(math.ceil((x1 - column).max())):
            wide = np.clip(np.minimum(x1, column + across + 1) - np.maximum(x0, column + across), 0, 1)
            share = tall * wide * density
            y, x = row + down, column + across
            inside = (share > 0) & (y >= 0) & (y < square.height) & (x >= 0) & (x < square.width)
            place = (y * square.width + x)[inside]
            cover += np.bincount(place, share[inside], cover.size)
            for channel in range(3):
                mixed[channel] += np.bincount(place, (share * colours[:, channel])[inside], cover.size)


def _draw_polygons(objects: Objects, numbers: NDArray[np.intp], square: Square) -> Image.Image:
    picture = Image.new("RGBA", (square.width * _FINER, square.height * _FINER))
    pen = ImageDraw.Draw(picture)
    scale, corner = square.scale / _FINER, np.array([square.left, square.top])
    for number in numbers.tolist():
        colour = objects.classes[objects.kinds[number]][1]
        outer, *more = (((ring - corner) / scale).ravel().tolist() for ring in objects.outline(number))
        pen.polygon(outer, (*colour, _FILL), (*colour, 255))
        for ring in more:  # holes and further pieces: too small here to tell apart
            pen.polygon(ring, None, (*colour, 255))
    return picture.reduce(_FINER)
