"""A slide: sizes, resolution, and its pixels at any resolution.

A reader (one file each) knows one library and gives exact pixels of a level. Here is what all slides share: which level to read, and
the resampling. Every output pixel is a function of its place on the slide alone, so that tiles read one by one meet without a seam.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from PIL import Image

from dsfcnn.errors import UsageError

_NEAR = 1.01  # a level that is coarser than asked for by up to 1 % still serves; the next finer one would cost four times the reading
_SOURCE_SIDE = 2048  # pixels of a level that are held at a time, each way; a block and its copies take about 50 MB
_LARGEST_SCALE = 1024.0  # pixels of a level per pixel of the result; beyond that one pixel would not fit in the block
_STEPS_LEFT = 4.0  # how far the filter itself reduces when squares are averaged first; at 4 no aliasing is seen in the tests
_ALIGNED = 1e-6  # pixels; rounding of places that were computed by multiplication


@dataclass(frozen=True)
class Level:
    """One resolution of the pyramid; ``downsample`` level-0 pixels make one of its pixels."""

    width: int
    height: int
    downsample: float


@dataclass(frozen=True)
class Facts:
    """All that is ever taken from a file's metadata. Texts of the scanner, names and dates are not among it."""

    levels: tuple[Level, ...]
    vendor: str
    metadata_mpp: tuple[float, float] | None = None
    tag_mpp: tuple[float, float] | None = None
    power: float | None = None
    bounds: tuple[int, int] = (0, 0)


class Reader(Protocol):
    """What a file of this folder does for one kind of slide. To add a kind, write one and name it in open.py."""

    name: str
    facts: Facts

    def pixels(self, level: int, x: int, y: int, width: int, height: int) -> np.ndarray:
        """uint8 (height, width, 3) of a level, in its own pixels and wholly inside it; UnreadableRegion where the file is damaged."""

    def close(self) -> None: ...


def resample(image: np.ndarray, width: int, height: int, box: tuple[float, float, float, float] | None = None) -> np.ndarray:
    """uint8 (H, W, C), or a box of it (left, top, right, bottom), as height x width pixels.

    Down-sampling with a windowed sinc (Hamming) as wide as two result pixels, up-sampling bilinear.
    """
    left, _, right, _ = box or (0, 0, image.shape[1], 0)
    kind = Image.Resampling.HAMMING if right - left >= width else Image.Resampling.BILINEAR
    result = np.empty((height, width, image.shape[2]), np.uint8)
    for channel in range(image.shape[2]):  # in floats, rounded once: bytes would be rounded twice, and neighbours differ by two levels
        plane = Image.fromarray(image[..., channel].astype(np.float32)).resize((width, height), kind, box=box)
        result[..., channel] = np.clip(np.asarray(plane), 0, 255) + 0.5
    return result


class Slide:
    """An open slide or image. Made by ``open_slide``.

    One thread at a time may use it. It can be pickled, and opens the file anew where it is unpickled: give each worker its own.
    """

    def __init__(self, path: Path, mpp: float, mpp_source: str, opener: Callable[[], Reader], reader: Reader | None = None):
        self.path, self.mpp, self.mpp_source = path, mpp, mpp_source
        self._opener = opener
        self._reader = reader if reader is not None else opener()

    @property
    def levels(self) -> tuple[Level, ...]:
        return self._reader.facts.levels

    @property
    def width(self) -> int:
        return self.levels[0].width

    @property
    def height(self) -> int:
        return self.levels[0].height

    @property
    def bounds(self) -> tuple[int, int]:
        """Level-0 place (x, y) that QuPath counts from."""
        return self._reader.facts.bounds

    @property
    def vendor(self) -> str:
        return self._reader.facts.vendor

    @property
    def facts(self) -> Facts:
        return self._reader.facts

    @property
    def power(self) -> float | None:
        """Magnification of the objective, if the slide says."""
        return self._reader.facts.power

    @property
    def reader(self) -> str:
        return self._reader.name

    @property
    def is_image(self) -> bool:
        """A plain image, which knows no resolution of its own."""
        return self._reader.name == "pillow"

    def read(self, x: float, y: float, width: int, height: int, mpp: float | None = None, *, mirror: bool = False) -> np.ndarray:
        """Pixels at any resolution: uint8 (height, width, 3), white outside the slide.

        Args:
            x, y: top-left corner in level-0 pixels, with fractions; a tile's neighbour begins exactly width * mpp / slide.mpp further.
            width, height: size of the result in pixels.
            mpp: resolution of the result, microns per pixel; the slide's own by default.
            mirror: outside the slide lies its mirror image; what a filter at the border blends with is then tissue, not white.

        Raises:
            UnreadableRegion: part of it is damaged or missing in the file.
        """
        scale = 1.0 if mpp is None else mpp / self.mpp
        if width < 1 or height < 1 or not (math.isfinite(x) and math.isfinite(y)):
            raise UsageError(f"cannot read {width} x {height} pixels at ({x}, {y}); give a size of at least 1 x 1 at a finite place")
        if not (math.isfinite(scale) and 0 < scale / self._level(scale)[1].downsample <= _LARGEST_SCALE):
            raise UsageError(f"cannot read at {mpp} um per pixel a slide of {self.mpp:.4g}; give a resolution nearer to the slide's")
        number, level = self._level(scale)
        step = scale / level.downsample  # level pixels per result pixel
        result = np.empty((height, width, 3), np.uint8)
        side = max(1, int(_SOURCE_SIDE / max(step, 1)))
        for top in range(0, height, side):
            for left in range(0, width, side):
                rows, columns = min(side, height - top), min(side, width - left)
                start = (x + left * scale) / level.downsample, (y + top * scale) / level.downsample
                result[top : top + rows, left : left + columns] = self._resampled(number, start, step, columns, rows, mirror)
        return result

    def _level(self, scale: float) -> tuple[int, Level]:
        """The coarsest level that is still as fine as asked for."""
        fitting = [(number, level) for number, level in enumerate(self.levels) if level.downsample <= scale * _NEAR]
        return max(fitting, key=lambda pair: pair[1].downsample) if fitting else (0, self.levels[0])

    def _resampled(self, level: int, start: tuple[float, float], step: float, width: int, height: int, mirror: bool) -> np.ndarray:
        """A part of a level at another resolution; aligned pixels are kept."""
        if step == 1 and all(abs(place - round(place)) < _ALIGNED for place in start):
            return self._window(level, round(start[0]), round(start[1]), width, height, mirror)
        # Far down, squares on a grid fixed to the level are averaged first, which is four times as fast and hardly another filter.
        square = max(1, int(step / _STEPS_LEFT))
        reach = math.ceil(max(step, 1)) + 1  # beyond the filter's support, so that the border of the window never shows
        left, top = (math.floor((place - reach) / square) * square for place in start)
        right = math.ceil((start[0] + width * step + reach) / square) * square
        bottom = math.ceil((start[1] + height * step + reach) / square) * square
        window = self._window(level, left, top, right - left, bottom - top, mirror)
        if square > 1:
            window = np.asarray(Image.fromarray(window).reduce(square))
        x, y = (start[0] - left) / square, (start[1] - top) / square
        box = (x, y, x + width * step / square, y + height * step / square)
        return resample(window, width, height, box)

    def _window(self, level: int, x: int, y: int, width: int, height: int, mirror: bool) -> np.ndarray:
        """Pixels of a level; outside it white, or its mirror image."""
        size = self.levels[level]
        left, top, right, bottom = max(x, 0), max(y, 0), min(x + width, size.width), min(y + height, size.height)
        if (left, top, right, bottom) == (x, y, x + width, y + height):
            return self._reader.pixels(level, x, y, width, height)
        if mirror:
            columns, rows = _mirrored(np.arange(x, x + width), size.width), _mirrored(np.arange(y, y + height), size.height)
            left, top = int(columns.min()), int(rows.min())
            inside = self._reader.pixels(level, left, top, int(columns.max()) + 1 - left, int(rows.max()) + 1 - top)
            return inside[(rows - top)[:, None], columns - left]
        window = np.full((height, width, 3), 255, np.uint8)
        if left < right and top < bottom:
            window[top - y : bottom - y, left - x : right - x] = self._reader.pixels(level, left, top, right - left, bottom - top)
        return window

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple:
        return Slide, (self.path, self.mpp, self.mpp_source, self._opener)


def _mirrored(places: np.ndarray, length: int) -> np.ndarray:
    """Places on a line mirrored at its two ends, which lie between pixels and so at the same place at every resolution.

    >>> _mirrored(np.arange(-3, 5), 2)
    array([1, 1, 0, 0, 1, 1, 0, 0])
    """
    places = places % (2 * length)
    return np.minimum(places, 2 * length - 1 - places)


def level_downsample(full: tuple[int, int], level: tuple[int, int]) -> float:
    """Level-0 pixels per pixel of a level: a whole number where rounding of the level's size explains the rest.

    >>> level_downsample((4443, 3567), (2221, 1783)), level_downsample((1000, 1000), (400, 400))
    (2.0, 2.5)
    """
    exact = (full[0] / level[0] + full[1] / level[1]) / 2
    whole = round(exact)
    if whole and all(small in (large // whole, -(-large // whole)) for large, small in zip(full, level)):
        return float(whole)
    return exact


def blocks(x: int, y: int, width: int, height: int, side: int) -> Iterator[tuple[int, int]]:
    """Top-left corners of the squares of a fixed grid that a rectangle touches."""
    for top in range(y // side * side, y + height, side):
        for left in range(x // side * side, x + width, side):
            yield left, top
