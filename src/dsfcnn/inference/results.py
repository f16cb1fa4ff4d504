"""The files of one input, from the objects of its tiles.

Objects are written to a temporary file as tiles are merged, and read back from top to bottom for every output; so a slide of any size needs
the memory of a row of tiles. Outputs of an image are on its own pixels, those of a slide on the pixels on which its objects were decoded.
"""

import math
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import IO, Any

import numpy as np

from dsfcnn.inference.geojson import GeoJsonWriter, Kind
from dsfcnn.inference.measure import NAMES, measure
from dsfcnn.inference.merge import Found, Merger
from dsfcnn.inference.objects import Classification, Instance
from dsfcnn.inference.overlay import mark_unreadable, picture_of, write_overlay
from dsfcnn.inference.rasters import TILE, label_map_name, label_tiles, write_instances, write_probability
from dsfcnn.inference.state import State
from dsfcnn.inference.stitch import stored_channels
from dsfcnn.inference.table import MeasurementsWriter
from dsfcnn.inference.tiles import Box, Grid, Tile
from dsfcnn.slides import Slide, UnreadableRegion
from dsfcnn.tasks.task import Segmentation

_ROUNDING = 1e-6  # pixels
_HEADER = struct.Struct("<iiiid")  # x, y, width, height, probability; then the measurements and the packed mask
_VALUES = struct.Struct(f"<{len(NAMES)}d")
Damaged = list[tuple[float, float, float, float]]  # x, y, width, height on level 0
KINDS: dict[str, Kind] = {"nuclei": "detection", "glands": "annotation"}
_CLASSES = {"nuclei": ("Nucleus", "#2ca02c"), "glands": ("Gland", "#1f77b4")}  # where a model does not say


@dataclass(frozen=True)
class Pixels:
    """The pixels that outputs of an input are on."""

    slide: Slide
    grid: Grid

    @property
    def scale(self) -> float:
        """Level-0 pixels per pixel."""
        return 1.0 if self.slide.is_image else self.grid.scale / self.grid.factor

    @property
    def mpp(self) -> float:
        return self.slide.mpp * self.scale

    @property
    def shape(self) -> tuple[int, int]:
        if self.slide.is_image:
            return self.slide.height, self.slide.width
        height, width = (math.ceil(side / self.scale - _ROUNDING) for side in (self.slide.height, self.slide.width))
        return min(height, self.grid.height * self.grid.factor), min(width, self.grid.width * self.grid.factor)

    def placed(self, found: Found) -> tuple[int, int, np.ndarray] | None:
        """x, y and mask of an object here; None if it has no pixel's centre in it."""
        step = self.grid.factor / self.grid.scale * self.scale  # decode pixels per pixel
        if abs(step - 1) < 1e-9:
            height, width = self.shape  # the last columns and rows of decode pixels may lie beyond the image
            mask = found.mask[: max(0, height - found.box.top), : max(0, width - found.box.left)]
            return (found.box.left, found.box.top, mask) if mask.any() else None
        columns, across = _samples(found.box.left, found.box.right, step, self.shape[1])
        rows, down = _samples(found.box.top, found.box.bottom, step, self.shape[0])
        if not len(rows) or not len(columns):
            return None
        mask = found.mask[np.ix_(down, across)]
        return (int(columns[0]), int(rows[0]), mask) if mask.any() else None

    def read(self, box: Box) -> np.ndarray:
        """RGB."""
        return self.slide.read(box.left * self.scale, box.top * self.scale, box.width, box.height, self.mpp, mirror=True)

    def read_or_white(self, box: Box) -> np.ndarray:
        """RGB; white where the slide is damaged."""
        try:
            return self.read(box)
        except UnreadableRegion:
            return np.full((box.height, box.width, 3), 255, np.uint8)


def _samples(start: int, stop: int, step: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixels whose centres fall into start <= decode pixel < stop, and on which of these each falls."""
    pixels = np.arange(max(0, int(start / step) - 1), min(size, int(stop / step) + 2))
    places = ((pixels + 0.5) * step).astype(int)
    within = (places >= start) & (places < stop)
    return pixels[within], places[within] - start


class Spool:
    """Objects in a temporary file, given back from top to bottom."""

    def __init__(self, stream: IO[bytes]):
        self._stream = stream
        self._index: list[tuple[int, int, int]] = []  # y, x of the first pixel, where it begins

    def __len__(self) -> int:
        return len(self._index)

    def add(self, instance: Instance) -> None:
        height, width = instance.mask.shape
        self._index.append((instance.y, instance.place[0], self._stream.tell()))
        self._stream.write(_HEADER.pack(instance.x, instance.y, width, height, instance.probability))
        self._stream.write(_VALUES.pack(*(instance.measurements[name] for name in NAMES)))
        self._stream.write(np.packbits(instance.mask).tobytes())

    def __iter__(self) -> Iterator[Instance]:
        self._stream.flush()
        for _, _, place in sorted(self._index):
            self._stream.seek(place)
            x, y, width, height, probability = _HEADER.unpack(self._stream.read(_HEADER.size))
            values = _VALUES.unpack(self._stream.read(_VALUES.size))
            packed = np.frombuffer(self._stream.read(-(-width * height // 8)), np.uint8)
            mask = np.unpackbits(packed, count=width * height).reshape(height, width).astype(bool)
            yield Instance(x, y, mask, probability, dict(zip(NAMES, values)))


def measured(
    state: State, tiles: Iterable[Tile], pixels: Pixels, keep: Callable[[float, float], bool], progress: Callable[[], None]
) -> Iterator[Instance]:
    """All objects whose centre (level-0 pixels) is one to ``keep``, with their measurements, merged from the tiles in order."""
    merger = Merger(pixels.grid)
    for tile in tiles:
        objects = state.objects(tile)
        assert objects is not None
        yield from _instances(merger.add(tile, objects), pixels, keep, pixels.grid.core(tile))
        progress()
    yield from _instances(merger.finish(), pixels, keep, None)


def _instances(found: Iterable[Found], pixels: Pixels, keep: Callable[[float, float], bool], core: Box | None) -> Iterator[Instance]:
    """With the tile's picture read once for all objects inside it; others are read one by one, and all if the tile has a damaged part."""
    picture: np.ndarray | None = None
    part = Box(0, 0, 0, 0)
    if core is not None:
        ratio = pixels.grid.scale / pixels.scale
        part = Box(*(round(place * ratio) for place in core)).within(Box(0, 0, pixels.shape[1], pixels.shape[0]))
    for one in found:
        placed = pixels.placed(one)
        if placed is None:
            continue
        x, y, mask = placed
        box = Box(x, y, x + mask.shape[1], y + mask.shape[0])
        if picture is None and box.within(part) == box:
            try:
                picture = pixels.read(part)
            except UnreadableRegion:
                part = Box(0, 0, 0, 0)
        rgb = picture[box.slices(part)] if picture is not None and box.within(part) == box else pixels.read_or_white(box)
        instance = Instance(x, y, mask, one.probability, measure(mask, rgb, pixels.mpp, one.probability))
        if keep(*(place * pixels.scale for place in instance.centre)):
            yield instance


def classification(config: dict[str, Any], task: str) -> Classification:
    """What objects are called and how they are coloured: as the model says."""
    classes = config.get("classes")
    if classes:
        return Classification(str(classes[0]["name"]), str(classes[0]["color"]))
    return Classification(*_CLASSES[task])


def write_results(
    folder: Path, spool: Spool, pixels: Pixels, kind: Classification, task: str, slide_id: str, damaged: Damaged
) -> dict[str, int]:
    """GeoJSON, table, label map and overlay of all objects."""
    slide, gz = pixels.slide, not pixels.slide.is_image
    name = f"{task}.geojson.gz" if gz else f"{task}.geojson"
    with (
        GeoJsonWriter(folder / name, KINDS[task], kind, gz, slide_id=slide_id, scale=pixels.scale, offset=slide.bounds) as features,
        MeasurementsWriter(folder / "measurements.csv", scale=pixels.scale, offset=slide.bounds) as table,
    ):
        for instance in spool:
            table.write(instance, features.write(instance), kind.name)
    label_map = folder / label_map_name(len(spool), slide.is_image)
    write_instances(label_map, label_tiles(iter(spool), pixels.shape), pixels.shape, pixels.mpp)
    picture, scale = picture_of(slide)
    mark_unreadable(picture, damaged, scale)
    write_overlay(folder / "overlay.png", picture, iter(spool), pixels.scale / scale, kind)
    return {"objects": len(spool)}


def write_probabilities(path: Path, state: State, grid: Grid, task: Segmentation) -> None:
    """How probable it is that a pixel is part of an object, on the network's pixels."""
    first = next(iter(task.heads))
    channels = [number for number, (head, _) in enumerate(stored_channels(task)) if head == first]

    @lru_cache(maxsize=16)  # what neighbouring squares share; a row of tiles could be too much
    def foreground(tile: Tile) -> np.ndarray | None:
        found = state.tile(tile)
        return None if found is None else np.minimum(found["stored"][channels].sum(0, dtype=np.uint16), 255).astype(np.uint8)

    def tiles() -> Iterator[np.ndarray | None]:
        for top, left in product(range(0, grid.height, TILE), range(0, grid.width, TILE)):
            box = Box(left, top, left + TILE, top + TILE).within(grid.whole)
            rows = range(box.top // grid.tile, -(-box.bottom // grid.tile))
            columns = range(box.left // grid.tile, -(-box.right // grid.tile))
            parts = [(tile, part) for tile in map(Tile._make, product(rows, columns)) if (part := foreground(tile)) is not None]
            if not parts:
                yield None
                continue
            square = np.zeros((box.height, box.width), np.uint8)
            for tile, part in parts:
                shared = grid.core(tile).within(box)
                square[shared.slices(box)] = part[shared.slices(grid.core(tile))]
            yield square

    write_probability(path, tiles(), (grid.height, grid.width), grid.mpp)
