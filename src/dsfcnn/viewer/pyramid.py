"""The squares that a picture is shown in: level by level, each twice as fine as the one before."""

from dataclasses import dataclass
from typing import NamedTuple

TILE = 512  # pixels a side; a screen is about eight, and a JPEG of one about 60 kB

_MOST = 1 << 31  # squares a side; what is more is no number to calculate with


class Square(NamedTuple):
    """One tile: where it begins in level-0 pixels, how many of those make one of its pixels, and its size in its own pixels."""

    left: float
    top: float
    scale: float
    width: int
    height: int

    @property
    def right(self) -> float:
        return self.left + self.width * self.scale

    @property
    def bottom(self) -> float:
        return self.top + self.height * self.scale


@dataclass(frozen=True)
class Pyramid:
    """Levels of a picture of ``width`` x ``height``: at ``first`` it is one tile, at ``full`` every pixel is shown.

    >>> pyramid = Pyramid(3000, 1000)
    >>> pyramid.first, pyramid.full
    (9, 12)
    >>> pyramid.square(12, 5, 1)
    Square(left=2560.0, top=512.0, scale=1.0, width=440, height=488)
    >>> pyramid.square(12, 6, 0) is None
    True
    """

    width: int
    height: int

    @property
    def full(self) -> int:
        return (max(self.width, self.height) - 1).bit_length()

    @property
    def first(self) -> int:
        return min(self.full, TILE.bit_length() - 1)

    def square(self, level: int, x: int, y: int, finer: int = 0) -> Square | None:
        """A tile, None where there is none; ``finer`` levels beyond the full one are allowed."""
        if not self.first <= level <= self.full + finer or min(x, y) < 0 or max(x, y) >= _MOST:
            return None
        scale = 2.0 ** (self.full - level)
        left, top = x * TILE * scale, y * TILE * scale
        if left >= self.width or top >= self.height:
            return None
        width, height = (min(TILE, -int(-(side - start) // scale)) for side, start in ((self.width, left), (self.height, top)))
        return Square(left, top, scale, width, height)
