"""Which part of a slide is looked at: a rectangle, or the inside of annotations drawn in QuPath.

The network sees what lies around the part too; an object is kept when its centre lies inside.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from dsfcnn.errors import DataError, UsageError


class Area(Protocol):
    """A part of a slide, in level-0 pixels."""

    def touches(self, x: float, y: float, width: float, height: float) -> bool:
        """Whether a rectangle has some of it."""

    def contain(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Which of these places lie in it."""

    def pixels(self, width: int, height: int) -> float:
        """How many pixels of a slide of this size it has."""


def contains(area: Area, x: float, y: float) -> bool:
    """Whether a place lies in an area."""
    return bool(area.contain(np.array(x), np.array(y)))


@dataclass(frozen=True)
class Rectangle:
    """``--region x,y,w,h``."""

    x: float
    y: float
    width: float
    height: float

    def touches(self, x: float, y: float, width: float, height: float) -> bool:
        return x < self.x + self.width and x + width > self.x and y < self.y + self.height and y + height > self.y

    def contain(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (self.x <= x) & (x < self.x + self.width) & (self.y <= y) & (y < self.y + self.height)

    def pixels(self, width: int, height: int) -> float:
        across = min(self.x + self.width, width) - max(self.x, 0)
        return max(0.0, across) * max(0.0, min(self.y + self.height, height) - max(self.y, 0))


def parse_region(text: str) -> Rectangle:
    """
    >>> parse_region("100,200,512,512")
    Rectangle(x=100.0, y=200.0, width=512.0, height=512.0)
    """
    try:
        x, y, width, height = (float(part) for part in text.split(","))
        if not (width > 0 and height > 0 and abs(x) + abs(y) + width + height < 1e9):
            raise ValueError(text)
    except ValueError:
        raise UsageError(
            f"--region {text!r} is no rectangle; give x,y,width,height in pixels of the slide, such as 0,0,5000,5000"
        ) from None
    return Rectangle(x, y, width, height)


class Annotations:
    """The union of the annotations of a GeoJSON file as QuPath writes it; ``bounds`` is the slide's, which QuPath counts from."""

    def __init__(self, path: Path, bounds: tuple[int, int]):
        try:
            import shapely
        except ImportError as error:
            raise UsageError("--within needs shapely; get it with: pip install 'dsfcnn[wsi]'") from error
        from dsfcnn.data.annotated import read_shapes
        from dsfcnn.slides.source import shown

        self._shapely = shapely
        shapes = [shape for shape in read_shapes(path, bounds) if shape.kind == "annotation"]
        if not shapes:
            raise DataError(f"{shown(path)}: no annotations with an area in it; draw some in QuPath and export them")
        polygons = [shapely.Polygon(rings[0], rings[1:]) for shape in shapes for rings in shape.parts]
        self._union = shapely.unary_union(shapely.make_valid(polygons))
        shapely.prepare(self._union)

    def touches(self, x: float, y: float, width: float, height: float) -> bool:
        return bool(self._shapely.intersects(self._union, self._shapely.box(x, y, x + width, y + height)))

    def contain(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(self._shapely.contains_xy(self._union, x, y))

    def pixels(self, width: int, height: int) -> float:
        return float(self._shapely.intersection(self._union, self._shapely.box(0, 0, width, height)).area)
