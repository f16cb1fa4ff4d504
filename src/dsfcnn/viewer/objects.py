"""All objects of a result in arrays: outlines, classes, measurements, ids. A million take about 300 MB.

Corners are kept as two 16-bit numbers, their place within the object's box: a step is 1/65,535 of the box's side, for a nucleus less than
1/1,000 pixel.
"""

import struct
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsfcnn.errors import DataError
from dsfcnn.inference.geojson import read_geojson
from dsfcnn.slides.source import shown
from dsfcnn.viewer.boxes import BoxIndex

_STEPS = 65_535
_BATCH = 2_000  # objects that are Python's lists at a time
_FARTHEST = 1e8  # pixels; no slide is a thousandth of it
_MOST_CLASSES = 255
_PLAIN = ("no class", (128, 128, 128))


@dataclass(frozen=True, eq=False)
class Objects:
    """n objects of r rings and p corners, in level-0 pixels; the object's number is its place plus 1, as in the label map."""

    boxes: NDArray[np.float32]  # (n, 4): left, top, width, height
    areas: NDArray[np.float32]  # (n,): pixels
    rings: NDArray[np.uint32]  # (n + 1,): where an object's rings begin
    corners: NDArray[np.uint32]  # (r + 1,): where a ring's corners begin
    places: NDArray[np.uint16]  # (p, 2): x, y within the box
    kinds: NDArray[np.uint8]  # (n,): class
    ids: NDArray[np.uint8]  # (n, 16)
    values: NDArray[np.float32]  # (n, m): NaN where an object lacks a measurement
    names: tuple[str, ...]  # of the m measurements
    classes: tuple[tuple[str, tuple[int, int, int]], ...]  # name and colour

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in vars(self).values() if isinstance(part, np.ndarray))

    @cached_property
    def index(self) -> BoxIndex:
        return BoxIndex(self.boxes)

    @cached_property
    def side(self) -> float:
        """The typical side of a box in pixels, which decides from where on outlines are worth drawing."""
        return float(np.median(self.boxes[:, 2:].max(1))) if len(self) else 0.0

    def outline(self, number: int) -> list[NDArray[np.float64]]:
        """The rings of an object (counted from 0), each (corners, 2)."""
        left, top, width, height = self.boxes[number].tolist()
        found = []
        for ring in range(int(self.rings[number]), int(self.rings[number + 1])):
            part = self.places[int(self.corners[ring]) : int(self.corners[ring + 1])]
            found.append(part * (width / _STEPS, height / _STEPS) + (left, top))
        return found

    def at(self, x: float, y: float) -> int | None:
        """The object at a place, the smallest where there are several."""
        near = self.index.meeting(x, y, x, y)
        inside = [number for number in near.tolist() if _encloses(self.outline(number), x, y)]
        return min(inside, key=lambda number: float(self.areas[number]), default=None)

    def packed(self, numbers: NDArray[np.intp], left: float, top: float) -> bytes:
        """Outlines for the page; ``left``, ``top`` is where it counts from. In this order, little-endian:

        counts of objects, rings, corners (3 uint32); numbers (uint32); boxes (4 float32 each); first rings and first corners, with their
        ends (uint32); corners (2 uint16 each); classes (uint8).
        """
        rings, first_rings = _joined(self.rings, numbers)
        corners, first_corners = _joined(self.corners, rings)
        boxes = self.boxes[numbers] - np.array([left, top, 0, 0], np.float32)
        parts = (
            struct.pack("<3I", len(numbers), len(rings), len(corners)),
            (numbers + 1).astype("<u4"),
            boxes.astype("<f4"),
            first_rings.astype("<u4"),
            first_corners.astype("<u4"),
            self.places[corners].astype("<u2"),
            self.kinds[numbers],
        )
        return b"".join(part if isinstance(part, bytes) else part.tobytes() for part in parts)

    def corners_of(self, numbers: NDArray[np.intp]) -> int:
        """How many corners these objects have together."""
        ends = self.corners[self.rings[numbers + 1]].astype(np.int64)
        return int((ends - self.corners[self.rings[numbers]]).sum())


def _joined(starts: NDArray[np.uint32], chosen: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Members of the chosen groups one after the other, and where each group begins among them (with the end)."""
    first = starts[chosen].astype(np.int64)
    counts = starts[chosen + 1] - first
    begins = np.concatenate([[0], np.cumsum(counts)])
    return np.arange(begins[-1]) + np.repeat(first - begins[:-1], counts), begins


def _encloses(rings: list[NDArray[np.float64]], x: float, y: float) -> bool:
    """Whether a ray to the right of the place crosses the rings an odd number of times."""
    crossings = 0
    for ring in rings:
        x0, y0 = ring.T
        x1, y1 = np.roll(ring, -1, axis=0).T
        cross = (y0 <= y) != (y1 <= y)
        where = x0[cross] + (y - y0[cross]) / (y1[cross] - y0[cross]) * (x1[cross] - x0[cross])
        crossings += int(np.count_nonzero(where > x))
    return crossings % 2 == 1


def read_objects(path: Path, offset: tuple[float, float] = (0, 0), tick: Callable[[int], None] = lambda done: None) -> Objects:
    """The objects of a GeoJSON file, as they come.

    Args:
        offset: what the file's coordinates lack to level-0 pixels (the slide's bounds).
        tick: told how many have been read; may raise to stop.
    """
    batch, columns = _Batch(offset), _Columns()
    values: list[NDArray[np.float32]] = []
    done = 0
    try:
        for feature in read_geojson(path):
            batch.add(feature)
            if batch.count == _BATCH:
                values.append(columns.add(*batch.take()))
                done += _BATCH
                tick(done)
        values.append(columns.add(*batch.take()))
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, OverflowError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{shown(path)}: a feature that is no polygon in pixels; write or export it again") from error
    boxes, areas, rings, corners, places, kinds, ids = columns.arrays()
    measured = np.concatenate([_widened(part, len(batch.names)) for part in values])
    return Objects(boxes, areas, _starts(rings), _starts(corners), places, kinds, ids, measured, tuple(batch.names), tuple(batch.classes))


def _starts(counts: NDArray[np.int64]) -> NDArray[np.uint32]:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)


def _widened(values: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Measurements that came up later are NaN before."""
    return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=np.nan)


class _Columns:
    """Batches one after the other, every column in one growing piece of memory: many small arrays would leave gaps when they are freed."""

    def __init__(self) -> None:
        self._kinds: list[tuple[np.dtype[Any], tuple[int, ...]]] = []
        self._bytes: list[bytearray] = []

    def add(self, *arrays: NDArray[Any]) -> NDArray[Any]:
        """The last of the arrays, which may become wider from batch to batch, is given back."""
        if not self._kinds:
            self._kinds = [(array.dtype, array.shape[1:]) for array in arrays[:-1]]
            self._bytes = [bytearray() for _ in self._kinds]
        for whole, part in zip(self._bytes, arrays):
            whole += part.tobytes()
        return arrays[-1]

    def arrays(self) -> list[NDArray[Any]]:
        return [np.frombuffer(whole, kind).reshape(-1, *shape) for whole, (kind, shape) in zip(self._bytes, self._kinds)]


class _Batch:
    """Features, until they are enough to become arrays; names and classes stay."""

    def __init__(self, offset: tuple[float, float]):
        self.offset = offset
        self.names: dict[str, int] = {}
        self.classes: dict[tuple[str, tuple[int, int, int]], int] = {}
        self._known_kinds: dict[str, int] = {}  # by their text, as they come again and again
        self._clear()

    def _clear(self) -> None:
        self.flat = array("d")  # x, y, x, y, ...: lists would be looked through by the garbage collector again and again
        self.ring_sizes: list[int] = []
        self.ring_counts: list[int] = []
        self.kinds: list[int] = []
        self.ids: list[bytes] = []
        self.values: dict[tuple[str, ...], tuple[list[int], list[list[float]]]] = {}  # by names: objects and their values

    @property
    def count(self) -> int:
        return len(self.ids)

    def add(self, feature: dict[str, Any]) -> None:
        geometry = feature["geometry"]
        if geometry["type"] not in ("Polygon", "MultiPolygon"):
            raise ValueError(geometry["type"])
        polygons = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
        rings = 0
        for polygon in polygons:
            for ring in polygon:
                self.flat.extend(chain.from_iterable(ring[:-1]))  # the last corner is the first
                self.ring_sizes.append(len(ring) - 1)
                rings += 1
        self.ring_counts.append(rings)
        properties = feature.get("properties") or {}
        self.kinds.append(self._kind(properties.get("classification")))
        measurements = properties.get("measurements")
        if measurements:
            numbers, rows = self.values.setdefault(tuple(measurements), ([], []))
            numbers.append(self.count)
            rows.append(list(measurements.values()))
        self.ids.append(_id_bytes(feature.get("id")))

    def _kind(self, stated: dict[str, Any] | None) -> int:
        text = str(stated)
        if text not in self._known_kinds:
            name, colour = (stated or {}).get("name", _PLAIN[0]), (stated or {}).get("color", _PLAIN[1])
            red, green, blue = (int(part) & 255 for part in colour)
            kind = (str(name), (red, green, blue))
            if len(self.classes) >= _MOST_CLASSES and kind not in self.classes:
                kind = _PLAIN
            self._known_kinds[text] = self.classes.setdefault(kind, len(self.classes))
        return self._known_kinds[text]

    def take(self) -> tuple[NDArray[Any], ...]:
        """boxes, areas, rings and corners of each, corners' places, kinds, ids, values; ready for the next."""
        points = np.frombuffer(self.flat, np.float64).reshape(sum(self.ring_sizes), 2) + self.offset
        sizes, counts = np.array(self.ring_sizes, np.int64), np.array(self.ring_counts, np.int64)
        if (self.count and (counts.min() < 1 or sizes.min() < 3)) or not (np.abs(points) < _FARTHEST).all():
            raise ValueError("a ring of too few or impossible corners")
        boxes, places = _boxed(points, sizes, counts)
        for names in self.values:
            for name in names:
                self.names.setdefault(name, len(self.names))
        values = np.full((self.count, len(self.names)), np.nan, np.float32)
        for names, (numbers, rows) in self.values.items():
            values[np.ix_(numbers, [self.names[name] for name in names])] = np.array(rows, np.float32)
        ids = np.frombuffer(b"".join(self.ids), np.uint8).reshape(-1, 16)
        kinds = np.array(self.kinds, np.uint8)
        areas = _areas(points, sizes, counts)
        self._clear()
        return boxes, areas, counts, sizes, places, kinds, ids, values


def _boxed(
    points: NDArray[np.float64], sizes: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.uint16]]:
    if not len(counts):
        return np.zeros((0, 4), np.float32), np.zeros((0, 2), np.uint16)
    corners = np.add.reduceat(sizes, np.cumsum(counts) - counts)  # of each object
    first = np.cumsum(corners) - corners
    boxes = np.empty((len(counts), 4), np.float32)
    boxes[:, :2] = np.minimum.reduceat(points, first, axis=0)
    boxes[:, 2:] = np.maximum(np.maximum.reduceat(points, first, axis=0) - boxes[:, :2], 1e-6)
    own = np.repeat(boxes.astype(np.float64), corners, axis=0)
    return boxes, np.clip((points - own[:, :2]) / own[:, 2:] * _STEPS + 0.5, 0, _STEPS).astype(np.uint16)


def _areas(points: NDArray[np.float64], sizes: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Shoelace; holes turn the other way and count negative."""
    if not len(counts):
        return np.zeros(0, np.float32)
    first = np.cumsum(sizes) - sizes
    following = np.arange(1, len(points) + 1)
    following[first + sizes - 1] = first
    local = points - np.repeat(points[first], sizes, axis=0)  # far from the origin digits would be lost
    twice = local[:, 0] * local[following, 1] - local[following, 0] * local[:, 1]
    of_rings = np.add.reduceat(twice, first)
    return np.abs(np.add.reduceat(of_rings, np.cumsum(counts) - counts) / 2).astype(np.float32)


def _id_bytes(stated: Any) -> bytes:
    """A UUID's bytes; zeros for any other name."""
    try:
        return bytes.fromhex(stated.replace("-", "")).ljust(16, b"\0")[:16]
    except (AttributeError, ValueError):
        return bytes(16)
