"""Label maps, probability maps and masks as pictures, written tile by tile; equal contents are equal bytes.

A map comes as an iterator of tiles: squares of TILE pixels from left to right and from top to bottom, those at the right and lower edge
smaller or filled up, None for one that is empty. Nothing is held but a tile and what it is averaged from.
"""

import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsfcnn.errors import UsageError
from dsfcnn.files import atomic_write
from dsfcnn.inference.objects import Instance

TILE = 512
MOST_IN_PNG = 65_535  # objects, in 16 bits
TISSUE, UNREADABLE = 255, 128  # grey levels in tissue_mask.png

_FACTOR = 4  # between levels of a pyramid, as Aperio writes them
_SMALLEST = 1024  # pixels; levels are added until a side is no longer
_PACKING = 6  # zlib's level, its own choice
_PNG_PACKING = 3  # of tissue no larger than at 6, in two thirds of the time

Tiles = Iterable[NDArray | None]


def label_tiles(instances: Iterable[Instance], shape: tuple[int, int]) -> Iterator[NDArray[np.int32] | None]:
    """Objects, ordered by ``y``, as the tiles of a label map; ids are 1, 2, ... in their order. Holds a row of tiles' objects."""
    numbered = enumerate(instances, 1)
    ahead = next(numbered, None)
    present: list[tuple[int, Instance]] = []
    for top in range(0, shape[0], TILE):
        while ahead is not None and ahead[1].y < top + TILE:
            assert ahead[1].y + ahead[1].mask.shape[0] > top, "objects come ordered by y"
            present.append(ahead)
            ahead = next(numbered, None)
        by_column: dict[int, list[tuple[int, Instance]]] = {}
        for one in present:
            for column in range(one[1].x // TILE, (one[1].x + one[1].mask.shape[1] - 1) // TILE + 1):
                by_column.setdefault(column, []).append(one)
        for column in range(-(-shape[1] // TILE)):
            yield _painted(by_column[column], column * TILE, top) if column in by_column else None
        present = [one for one in present if one[1].y + one[1].mask.shape[0] > top + TILE]


def _painted(objects: list[tuple[int, Instance]], left: int, top: int) -> NDArray[np.int32]:
    tile = np.zeros((TILE, TILE), np.int32)
    for number, one in objects:
        x, y = one.x - left, one.y - top
        rows, columns = slice(max(y, 0), max(y + one.mask.shape[0], 0)), slice(max(x, 0), max(x + one.mask.shape[1], 0))
        part = tile[rows, columns]
        cut = one.mask[max(-y, 0) :, max(-x, 0) :][: part.shape[0], : part.shape[1]]
        part[cut] = number
    return tile


def array_tiles(array: NDArray) -> Iterator[NDArray]:
    """The tiles of an array that is there already."""
    for top, left in _corners(array.shape):
        yield array[top : top + TILE, left : left + TILE]


def label_map_name(objects: int, is_image: bool) -> str:
    """PNG for images, TIFF for slides and for more objects than a PNG can tell apart."""
    return "instances.png" if is_image and objects <= MOST_IN_PNG else "instances.tif"


def write_instances(path: str | Path, tiles: Tiles, shape: tuple[int, int], mpp: float) -> None:
    """A label map: ``.png`` with 16 bits for an image, or else a tiled BigTIFF of int32 without smaller levels."""
    path = Path(path)
    if path.suffix.lower() == ".png":
        write_png(path, _joined(path, tiles, shape))
    else:
        _write_tiff(path, tiles, [shape], mpp, np.dtype("<i4"))


def _joined(path: Path, tiles: Tiles, shape: tuple[int, int]) -> NDArray[np.uint16]:
    labels = np.zeros(shape, np.uint16)
    for (top, left), tile in zip(_corners(shape), tiles, strict=True):
        if tile is not None:
            if tile.max() > MOST_IN_PNG:
                raise UsageError(f"{path}: more than {MOST_IN_PNG:,} objects do not fit into a PNG; write them as .tif")
            part = labels[top : top + TILE, left : left + TILE]
            part[...] = tile[: part.shape[0], : part.shape[1]]
    return labels


def write_probability(path: str | Path, tiles: Tiles, shape: tuple[int, int], mpp: float) -> None:
    """Probabilities as a pyramid of 8-bit grey, 255 for certainty; tiled, packed, with the resolution, for QuPath and OpenSlide.

    Args:
        tiles: uint8, see :func:`in_bytes`.
        shape: (height, width) of the whole.
        mpp: microns per pixel of the map.
    """
    sizes = [shape]
    while max(sizes[-1]) > _SMALLEST:
        sizes.append((max(1, sizes[-1][0] // _FACTOR), max(1, sizes[-1][1] // _FACTOR)))
    _write_tiff(Path(path), tiles, sizes, mpp, np.dtype(np.uint8))


def in_bytes(probability: NDArray[np.floating]) -> NDArray[np.uint8]:
    """0 to 1 as 0 to 255; what was not analysed (NaN) is 0."""
    return (np.nan_to_num(probability) * 255 + 0.5).astype(np.uint8)


def write_mask(path: str | Path, mask: NDArray[np.bool_], unreadable: NDArray[np.bool_] | None = None) -> None:
    """Tissue as an 8-bit PNG: 255 tissue, 128 what could not be read, 0 the rest."""
    grey = np.where(mask, np.uint8(TISSUE), np.uint8(0))
    if unreadable is not None:
        grey[unreadable] = UNREADABLE
    write_png(path, grey)


def write_png(path: str | Path, pixels: NDArray) -> None:
    """Grey of 8 or 16 bits, or RGB. Nothing but pixels is in the file."""
    with atomic_write(Path(path)) as stream:
        Image.fromarray(pixels).save(stream, "PNG", compress_level=_PNG_PACKING)


def _corners(shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    return product(range(0, shape[0], TILE), range(0, shape[1], TILE))


def _write_tiff(path: Path, tiles: Tiles, sizes: list[tuple[int, int]], mpp: float, dtype: np.dtype) -> None:
    """Levels of these sizes, each averaged from the one before."""
    import tifffile

    with ExitStack() as kept, atomic_write(path) as stream, tifffile.TiffWriter(stream, bigtiff=True) as tiff:
        below: _Level | None = None
        for number, size in enumerate(sizes):
            source = tiles if below is None else below.reduced(size)
            level = _Level(size, dtype, kept.enter_context(tempfile.TemporaryFile(dir=path.parent)))
            encoded = level.encoded(source, keep=number + 1 < len(sizes))
            tiff.write(
                islice(encoded, None),  # tifffile would close a generator
                shape=size,
                dtype=dtype,
                tile=(TILE, TILE),
                photometric="minisblack",
                compression="zlib",
                subfiletype=1 if number else 0,
                resolution=(1e4 / mpp / _FACTOR**number,) * 2,
                resolutionunit="CENTIMETER",
                metadata=None,
                software=False,
            )
            assert next(encoded, None) is None  # asks once more, so that tiles too many are noticed
            below = level


@dataclass
class _Level:
    """One level's tiles as they are written; their bytes are kept in a temporary file until the next level is made."""

    size: tuple[int, int]
    dtype: np.dtype
    file: IO[bytes]
    places: list[tuple[int, int] | None] = field(default_factory=list)  # offset and length; None for an empty tile

    def encoded(self, tiles: Tiles, keep: bool) -> Iterator[bytes]:
        empty = zlib.compress(bytes(TILE * TILE * self.dtype.itemsize), _PACKING)
        for (top, left), tile in zip(_corners(self.size), tiles, strict=True):
            if tile is None or not tile.any():
                self.places.append(None)
                yield empty
                continue
            inside = tile[: self.size[0] - top, : self.size[1] - left]
            missing = [(0, TILE - side) for side in inside.shape]
            # Filled up with what is at the edge, so that no level has a dark rim.
            packed = zlib.compress(np.pad(inside, missing, "edge").astype(self.dtype).tobytes(), _PACKING)
            if keep:
                self.places.append((self.file.tell(), len(packed)))
                self.file.write(packed)
            yield packed

    def reduced(self, size: tuple[int, int]) -> Iterator[NDArray | None]:
        """Tiles of the next level: means of squares."""
        part = TILE // _FACTOR
        for top, left in _corners(size):
            tile, row, column = np.zeros((TILE, TILE), self.dtype), top // TILE * _FACTOR, left // TILE * _FACTOR
            for r, c in product(range(_FACTOR), range(_FACTOR)):
                fine = self._decoded(row + r, column + c)
                if fine is not None:
                    mean = fine.reshape(part, _FACTOR, part, _FACTOR).mean((1, 3), np.float32)
                    tile[r * part : (r + 1) * part, c * part : (c + 1) * part] = mean + 0.5
            yield tile

    def _decoded(self, row: int, column: int) -> NDArray | None:
        across = -(-self.size[1] // TILE)
        if row * TILE >= self.size[0] or column >= across or (place := self.places[row * across + column]) is None:
            return None
        self.file.seek(place[0])
        return np.frombuffer(zlib.decompress(self.file.read(place[1])), self.dtype).reshape(TILE, TILE)
