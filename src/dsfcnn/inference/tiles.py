"""Where the network looks: the pixels it sees of a slide, and the tiles that they are divided into.

Three grids have the same origin, the slide's upper left corner: level-0 pixels, the network's pixels (``mpp``), and the pixels on which
objects are decoded, ``factor`` times finer than the network's. Tiles begin on multiples of 16 network pixels.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

ALIGNMENT = 16  # pixels; four poolings by 2, as all models for tissue have
SEAM = 8  # decode pixels to each side of a border between tiles in which their objects are compared
_WHOLE = 1e-6  # rounding of sizes that were computed by division


class Box(NamedTuple):
    """A rectangle of pixels: columns left <= x < right, rows top <= y < bottom."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def area(self) -> int:
        return self.width * self.height

    def grown(self, by: int) -> "Box":
        return Box(self.left - by, self.top - by, self.right + by, self.bottom + by)

    def within(self, other: "Box") -> "Box":
        """The part inside another box; of no area where they do not meet."""
        left, top = max(self.left, other.left), max(self.top, other.top)
        return Box(left, top, max(left, min(self.right, other.right)), max(top, min(self.bottom, other.bottom)))

    def times(self, factor: int) -> "Box":
        return Box(*(place * factor for place in self))

    def counted_from(self, origin: "Box") -> "Box":
        """The same pixels, counted from the corner of another box."""
        return Box(self.left - origin.left, self.top - origin.top, self.right - origin.left, self.bottom - origin.top)

    def slices(self, origin: "Box") -> tuple[slice, slice]:
        """Rows and columns of an array that begins at the corner of ``origin``."""
        box = self.counted_from(origin)
        return slice(box.top, box.bottom), slice(box.left, box.right)


class Tile(NamedTuple):
    """A place in the grid of tiles."""

    row: int
    column: int


@dataclass(frozen=True)
class Grid:
    """How a slide is cut up.

    Args:
        width, height: of the slide in network pixels.
        mpp: of the network.
        scale: level-0 pixels per network pixel.
        tile: side of a tile in network pixels, a multiple of 16.
        margin: network pixels around a tile that the network needs to see, a multiple of 16.
        overlap: network pixels around a tile in which its objects are decoded too, so that those at its border are seen whole.
        factor: decode pixels per network pixel.
        border: network pixels of mirrored picture that the network sees beyond the slide's edge, if the margin reaches so far; a
            multiple of 16.
    """

    width: int
    height: int
    mpp: float
    scale: float
    tile: int
    margin: int
    overlap: int
    factor: int
    border: int

    @property
    def whole(self) -> Box:
        return Box(0, 0, self.width, self.height)

    @property
    def rows(self) -> int:
        return -(-self.height // self.tile)

    @property
    def columns(self) -> int:
        return -(-self.width // self.tile)

    @property
    def decode_mpp(self) -> float:
        return self.mpp / self.factor

    def tiles(self) -> Iterator[Tile]:
        """All of them, row by row."""
        for row in range(self.rows):
            for column in range(self.columns):
                yield Tile(row, column)

    def core(self, tile: Tile) -> Box:
        """The pixels that belong to a tile and to no other, in network pixels."""
        left, top = tile.column * self.tile, tile.row * self.tile
        return Box(left, top, left + self.tile, top + self.tile).within(self.whole)

    def seen(self, tile: Tile) -> Box:
        """What the network looks at to fill the tile: its sides are multiples of 16, and beyond the slide's edge the slide is mirrored."""
        core, framed = self.core(tile), Box(0, 0, _aligned(self.width), _aligned(self.height)).grown(self.border)
        return Box(core.left, core.top, _aligned(core.right), _aligned(core.bottom)).grown(self.margin).within(framed)

    def window(self, tile: Tile) -> Box:
        """Where the tile's objects are decoded."""
        return self.core(tile).grown(self.overlap).within(self.whole)

    def kept(self, tile: Tile) -> Box:
        """Decode pixels whose objects are kept of a tile: its own, and a belt to compare with its neighbours' objects."""
        return self.core(tile).times(self.factor).grown(SEAM).within(self.whole.times(self.factor))

    def around(self, tile: Tile) -> list[Tile]:
        """The tile and its neighbours, those that exist."""
        rows = range(max(tile.row - 1, 0), min(tile.row + 2, self.rows))
        columns = range(max(tile.column - 1, 0), min(tile.column + 2, self.columns))
        return [Tile(row, column) for row in rows for column in columns]

    def level0(self, box: Box) -> tuple[float, float, float, float]:
        """x, y, width, height in level-0 pixels of a box of network pixels."""
        return box.left * self.scale, box.top * self.scale, box.width * self.scale, box.height * self.scale


def make_grid(
    width: int,
    height: int,
    slide_mpp: float,
    mpp: float,
    *,
    tile: int,
    margin: int,
    overlap_um: float = 0.0,
    decode_mpp: float | None = None,
    border: int = 0,
) -> Grid:
    """The grid over a slide of ``width`` x ``height`` level-0 pixels of ``slide_mpp`` microns.

    Args:
        tile, margin, border: network pixels; rounded up to multiples of 16.
        overlap_um: microns around a tile in which objects are decoded; never more than the tile itself.
        decode_mpp: the resolution wanted for decoding; taken is the whole fraction of the network's that comes nearest.

    >>> grid = make_grid(1000, 700, 0.25, 0.5, tile=256, margin=64, decode_mpp=0.25)
    >>> grid.width, grid.height, grid.columns, grid.rows, grid.factor, grid.core(Tile(1, 1))
    (500, 350, 2, 2, 2, Box(left=256, top=256, right=500, bottom=350))
    """
    scale = mpp / slide_mpp
    tile = max(ALIGNMENT, _aligned(tile))
    return Grid(
        max(1, math.ceil(width / scale - _WHOLE)),
        max(1, math.ceil(height / scale - _WHOLE)),
        mpp,
        scale,
        tile,
        _aligned(margin),
        min(tile, math.ceil(overlap_um / mpp)),
        1 if decode_mpp is None else max(1, round(mpp / decode_mpp)),
        _aligned(border),
    )


def _aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT
