"""A drawn whole slide: a pyramidal, tiled TIFF of any size, written tile by tile.

Nothing is held but one tile and what it is averaged from: encoded tiles of a level wait in a temporary file for the next, coarser one.
Empty glass is one tile, encoded once. OpenSlide takes the resolution from the file's pixels per centimetre.
"""

import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image

from dsfcnn.data.sample import checked_mpp
from dsfcnn.data.synthetic.fields import Window, noise, noise_at
from dsfcnn.data.synthetic.glands import draw_glands
from dsfcnn.data.synthetic.nuclei import draw_nuclei
from dsfcnn.errors import UsageError
from dsfcnn.files import atomic_write

TILE = 512
_FACTOR = 4  # between levels, as Aperio writes them
_SMALLEST = 1024  # pixels; levels are added until a side is no longer
_GLASS = 243
_QUALITY = 85
_REMEMBERED = 512  # encoded tiles, about 30 MB
_DRAW: dict[str, Callable[[int, Window], tuple[np.ndarray, np.ndarray]]] = {"nuclei": draw_nuclei, "glands": draw_glands}


@dataclass(frozen=True)
class SlideScene:
    """Tissue on glass, as a function of the place.

    Args:
        tissue: about this part of the slide is tissue, the rest glass; 0 to 1.
        period: tissue repeats after so many pixels (a multiple of 512), with a seam; gigapixels are then quick to write. None: never.
    """

    width: int
    height: int
    mpp: float = 0.25
    kind: str = "nuclei"
    seed: int = 0
    tissue: float = 0.5
    period: int | None = None

    def __post_init__(self) -> None:
        checked_mpp(self.mpp)
        if self.width < 1 or self.height < 1 or self.kind not in _DRAW or not 0 <= self.tissue <= 1:
            raise UsageError(f"no slide of {self.kind} with {self.width} x {self.height} pixels; use nuclei or glands, and sizes above 0")
        if self.period is not None and (self.period < TILE or self.period % TILE):
            raise UsageError(f"tissue that repeats after {self.period} pixels; use a multiple of {TILE}")

    def coverage(self, window: Window) -> np.ndarray:
        """How much of each pixel is tissue, 0 to 1: islands as large as a third of the slide, with bays and a ragged edge."""
        return self._islands(lambda seed, scale: noise(seed, window.x(), window.y(), scale), (window.height, window.width))

    def kind_of(self, window: Window) -> str:
        """ "glass", "tissue" or "edge", from a few places of the window."""
        left, top, right, bottom = window.microns()
        x, y = (grid.ravel() for grid in np.meshgrid(np.linspace(left, right, 9), np.linspace(top, bottom, 9)))
        level = self._islands(lambda seed, scale: noise_at(seed, x, y, scale), x.shape)
        return "glass" if level.max() == 0 else "tissue" if level.min() == 1 else "edge"

    def _islands(self, noise_of: Callable[[int, float], np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        if self.tissue in (0, 1):
            return np.full(shape, float(self.tissue))
        island = max(100.0, min(self.width, self.height) * self.mpp / 3)  # microns
        parts = ((900, 0.83, island), (901, 0.13, island / 4), (902, 0.04, max(60.0, island / 20)))
        level = sum(weight * noise_of(number + self.seed, scale) for number, weight, scale in parts)
        return np.clip((level - (1 - self.tissue) * 0.7 - 0.15) * island / 8 + 0.5, 0, 1)  # from glass to tissue in about 10 microns

    def draw(self, left: int, top: int, width: int = TILE, height: int = TILE) -> tuple[np.ndarray, np.ndarray]:
        """Image and instances of any part, in level-0 pixels; on glass there are no objects."""
        image, instances = self.draw_tissue(left, top, width, height)
        cover = self.coverage(Window(left, top, width, height, self.mpp))
        return on_glass(image, cover), np.where(cover > 0.5, instances, 0)

    def draw_tissue(self, left: int, top: int, width: int = TILE, height: int = TILE) -> tuple[np.ndarray, np.ndarray]:
        """As if there were no glass."""
        image, instances = np.empty((height, width, 3), np.uint8), np.zeros((height, width), np.int32)
        for y, rows in _periods(top, height, self.period):
            for x, columns in _periods(left, width, self.period):
                size = columns.stop - columns.start, rows.stop - rows.start
                part, ids = _DRAW[self.kind](self.seed, Window(x, y, *size, self.mpp))
                image[rows, columns], instances[rows, columns] = part, np.where(ids > 0, ids + instances.max(), 0)
        return image, instances


def _periods(start: int, length: int, period: int | None) -> Iterator[tuple[int, slice]]:
    """The pieces of an axis that lie within one period: where each begins in it, and its pixels."""
    if period is None:
        yield start, slice(0, length)
        return
    done = 0
    while done < length:
        place = (start + done) % period
        size = min(period - place, length - done)
        yield place, slice(done, done + size)
        done += size


def on_glass(image: np.ndarray, cover: np.ndarray) -> np.ndarray:
    """Tissue where ``cover`` is 1, glass where it is 0."""
    share = cover[..., None].astype(np.float32)
    return (image * share + np.float32(_GLASS) * (1 - share) + np.float32(0.5)).astype(np.uint8)


def write_slide(path: str | Path, scene: SlideScene) -> None:
    """Write the scene as TIFF with JPEG tiles of 512 and levels of a quarter each; BigTIFF where it may pass 4 GB."""
    import tifffile

    path = Path(path)
    sizes = [(scene.height, scene.width)]
    while max(sizes[-1]) > _SMALLEST:
        sizes.append((max(1, sizes[-1][0] // _FACTOR), max(1, sizes[-1][1] // _FACTOR)))
    big = scene.width * scene.height > 4e9  # about 1 byte a pixel at most
    with ExitStack() as kept, atomic_write(path) as stream, tifffile.TiffWriter(stream, bigtiff=big) as tiff:
        below: _Tiles | None = None
        for level, size in enumerate(sizes):
            tiles = _Tiles(size, kept.enter_context(tempfile.TemporaryFile(dir=path.parent)))
            source = _drawn_tiles(scene) if below is None else _reduced_tiles(below, size)
            tiff.write(
                tiles.recording(source),
                shape=(*size, 3),
                dtype=np.uint8,
                tile=(TILE, TILE),
                photometric="ycbcr",
                subsampling=(2, 2),
                compression="jpeg",
                subfiletype=1 if level else 0,
                resolution=(1e4 / scene.mpp / _FACTOR**level,) * 2,
                resolutionunit="CENTIMETER",
                metadata=None,
                software=False,
            )
            below = tiles


@dataclass
class _Tiles:
    """Encoded tiles of a level, kept in a temporary file until the next level is made."""

    size: tuple[int, int]
    file: BinaryIO
    places: list[tuple[int, int]] = field(default_factory=list)
    known: dict[bytes, tuple[int, int]] = field(default_factory=dict)

    def recording(self, tiles: Iterator[bytes]) -> Iterator[bytes]:
        for tile in tiles:
            place = self.known.get(tile)
            if place is None:
                place = (self.file.tell(), len(tile))
                self.file.write(tile)
                if len(self.known) < _REMEMBERED:  # glass and tissue that repeats
                    self.known[tile] = place
            self.places.append(place)
            yield tile

    def place(self, row: int, column: int) -> tuple[int, int] | None:
        """Where a tile lies in the file; None outside the level."""
        across = -(-self.size[1] // TILE)
        return self.places[row * across + column] if row * TILE < self.size[0] and column < across else None

    def decoded(self, place: tuple[int, int] | None) -> np.ndarray:
        """A tile's pixels; glass outside the level."""
        if place is None:
            return np.full((TILE, TILE, 3), _GLASS, np.uint8)
        self.file.seek(place[0])
        return np.asarray(Image.open(io.BytesIO(self.file.read(place[1]))))


def _tile_corners(size: tuple[int, int]) -> Iterator[tuple[int, int]]:
    for top in range(0, size[0], TILE):
        for left in range(0, size[1], TILE):
            yield top, left


def _drawn_tiles(scene: SlideScene) -> Iterator[bytes]:
    glass = _encoded(np.full((TILE, TILE, 3), _GLASS, np.uint8))
    drawn: dict[tuple[int, int], tuple[np.ndarray, bytes]] = {}  # of tissue that repeats
    for top, left in _tile_corners((scene.height, scene.width)):
        window = Window(left, top, TILE, TILE, scene.mpp)
        kind = scene.kind_of(window)
        if kind == "glass":
            yield glass
        elif scene.period is None:
            yield _encoded(on_glass(scene.draw_tissue(left, top)[0], scene.coverage(window)))
        else:
            place = (top % scene.period, left % scene.period)
            if place not in drawn:
                image = scene.draw_tissue(left, top)[0]
                drawn[place] = image, _encoded(image)
            image, encoded = drawn[place]
            yield encoded if kind == "tissue" else _encoded(on_glass(image, scene.coverage(window)))


def _reduced_tiles(below: _Tiles, size: tuple[int, int]) -> Iterator[bytes]:
    part = TILE // _FACTOR
    made: dict[tuple[tuple[int, int] | None, ...], bytes] = {}  # of glass and of tissue that repeats
    for top, left in _tile_corners(size):
        row, column = top // TILE * _FACTOR, left // TILE * _FACTOR
        places = tuple(below.place(row + r, column + c) for r in range(_FACTOR) for c in range(_FACTOR))
        if places not in made:
            tile = np.empty((TILE, TILE, 3), np.uint8)
            for number, place in enumerate(places):
                fine = below.decoded(place).reshape(part, _FACTOR, part, _FACTOR, 3)
                y, x = number // _FACTOR * part, number % _FACTOR * part
                tile[y : y + part, x : x + part] = (fine.mean((1, 3), np.float32) + 0.5).astype(np.uint8)
            if len(made) >= _REMEMBERED:
                made.clear()
            made[places] = _encoded(tile)
        yield made[places]


def _encoded(tile: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(tile).save(stream, "JPEG", quality=_QUALITY, subsampling="4:2:0")
    return stream.getvalue()
