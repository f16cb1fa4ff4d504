"""Slides through OpenSlide, the library that QuPath reads with."""

from collections import OrderedDict
from pathlib import Path

import numpy as np

from dsfcnn.errors import DataError, MissingInputError, UnreadableRegion
from dsfcnn.slides.image import over_white
from dsfcnn.slides.slide import Facts, Level, blocks, level_downsample
from dsfcnn.slides.source import open_file, shown

_BLOCK, _KEPT = 512, 64  # side in pixels and number of remembered blocks, together 50 MB
_LARGEST_LEVEL = 1 << 31  # pixels along a side; what is more is a damaged header

# Formats that cover the whole rectangle: a hole in them is a lost tile. Others leave out glass on purpose, which is white.
_WITHOUT_HOLES = {"aperio", "generic-tiff"}
_FROM_TAG = {"generic-tiff"}  # here OpenSlide computes its resolution from the TIFF tag


def detect(path: Path) -> str | None:
    """The vendor's name if OpenSlide knows this file."""
    import openslide

    try:
        return openslide.OpenSlide.detect_format(path)
    except openslide.OpenSlideError:
        return None


def quick_hash(path: Path) -> str | None:
    """What OpenSlide knows a slide by, the same from each of its files; None where it cannot open it."""
    try:
        import openslide
    except ImportError:
        return None
    try:
        open_file(path).close()  # a pipe would be waited for
        with openslide.OpenSlide(path) as slide:
            return slide.properties.get("openslide.quickhash-1")
    except (openslide.OpenSlideError, OSError, MissingInputError):
        return None


class OpenSlideReader:
    """With ``transparent``, what is not opaque is so on purpose, and white; else it is missing, where the format has no holes."""

    name = "openslide"

    def __init__(self, path: Path, transparent: bool = False):
        import openslide

        self._library, self._path, self._transparent = openslide, path, transparent
        self._slide = self._open()
        self.facts = self._facts()
        self._blocks: OrderedDict[tuple[int, int, int], np.ndarray] = OrderedDict()

    def _open(self):  # type: ignore[no-untyped-def]
        open_file(self._path).close()
        try:
            return self._library.OpenSlide(self._path)
        except (self._library.OpenSlideError, OSError, ValueError) as error:
            raise DataError(f"{shown(self._path)}: OpenSlide cannot open this slide; get it again") from error

    def _facts(self) -> Facts:
        sizes = self._slide.level_dimensions
        if not sizes or any(side < 1 or side >= _LARGEST_LEVEL for size in sizes for side in size):
            raise DataError(f"{shown(self._path)}: a slide of impossible size; get it again")
        properties = self._slide.properties
        vendor = properties.get("openslide.vendor", "unknown")
        mpp = _pair(properties, "openslide.mpp-x", "openslide.mpp-y")
        return Facts(
            levels=tuple(Level(width, height, level_downsample(sizes[0], (width, height))) for width, height in sizes),
            vendor=vendor,
            metadata_mpp=None if vendor in _FROM_TAG else mpp,
            tag_mpp=mpp if vendor in _FROM_TAG else None,
            power=_number(properties.get("openslide.objective-power")),
            bounds=tuple(int(_number(properties.get(f"openslide.bounds-{axis}")) or 0) for axis in "xy"),  # type: ignore[arg-type]
        )

    def pixels(self, level: int, x: int, y: int, width: int, height: int) -> np.ndarray:
        """OpenSlide takes a place in level-0 pixels and interpolates where that is between two pixels of the level.

        For a downsample of 2.0005 this would make a pixel depend on where the reading began. There, fixed blocks are read: a pixel
        always comes from the same block, off its place by at most half a level-0 pixel.
        """
        if float(self._slide.level_downsamples[level]).is_integer():
            return self._region(level, x, y, width, height)
        result = np.empty((height, width, 3), np.uint8)
        for left, top in blocks(x, y, width, height, _BLOCK):
            block = self._block(level, left, top)
            x0, y0, x1, y1 = max(left, x), max(top, y), min(left + _BLOCK, x + width), min(top + _BLOCK, y + height)
            result[y0 - y : y1 - y, x0 - x : x1 - x] = block[y0 - top : y1 - top, x0 - left : x1 - left]
        return result

    def _block(self, level: int, left: int, top: int) -> np.ndarray:
        key = (level, left, top)
        if key not in self._blocks:
            size = self.facts.levels[level]
            self._blocks[key] = self._region(level, left, top, min(_BLOCK, size.width - left), min(_BLOCK, size.height - top))
            if len(self._blocks) > _KEPT:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(key)
        return self._blocks[key]

    def _region(self, level: int, x: int, y: int, width: int, height: int) -> np.ndarray:
        downsample = self._slide.level_downsamples[level]
        corner = round(x * downsample), round(y * downsample)
        region = (*corner, round(width * downsample), round(height * downsample))
        try:
            rgba = np.asarray(self._slide.read_region(corner, level, (width, height)))
        except self._library.OpenSlideError as error:
            self._slide.close()  # after an error the object answers nothing but that error
            self._slide = self._open()
            raise UnreadableRegion(f"{shown(self._path)}: the part at {region} is damaged; get the slide again", region) from error
        if self.facts.vendor in _WITHOUT_HOLES and not self._transparent and not rgba[..., 3].all():
            raise UnreadableRegion(f"{shown(self._path)}: the part at {region} is missing in the file; get the slide again", region)
        return over_white(rgba)

    def close(self) -> None:
        self._slide.close()
        self._blocks.clear()


def _pair(properties: dict[str, str], *names: str) -> tuple[float, float] | None:
    x, y = (_number(properties.get(name)) for name in names)
    return (x, y) if x is not None and y is not None else None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
