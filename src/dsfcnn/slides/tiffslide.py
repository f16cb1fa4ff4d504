"""TIFF slides that OpenSlide does not know, such as OME-TIFF, through tiffslide.

tiffslide says which pages make the pyramid and what the scanner wrote; single tiles are decoded here by tifffile, on which it stands, so
that a damaged or missing tile is known by its place instead of appearing black.
"""

import logging
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from dsfcnn.errors import DataError, UnreadableRegion
from dsfcnn.slides.image import over_white
from dsfcnn.slides.slide import Facts, Level, level_downsample
from dsfcnn.slides.source import open_file, shown
from dsfcnn.slides.tiff import Page, ome_mpp

_KEPT_PIXELS = 1 << 24  # of decoded tiles, 50 MB
_LARGEST_CHUNK = 1 << 26  # pixels of one strip, which is decoded whole whatever part of it is asked for; 200 MB
_SEPARATE = 2
_GREY, _RGB, _YCBCR, _JPEG = 1, 2, 6, 7  # TIFF's numbers; tifffile turns YCbCr into RGB for JPEG alone


class TiffSlideReader:
    name = "tiffslide"

    def __init__(self, path: Path, first: Page):
        import tiffslide

        logging.getLogger("tifffile").setLevel(logging.CRITICAL + 1)  # it would print tags of a damaged file
        if first.chunk > _LARGEST_CHUNK:
            raise DataError(f"{shown(path)}: strips of {first.chunk:,} pixels, too large to read in parts; save it as a tiled TIFF")
        self._path = path
        self._stream = open_file(path)  # given open: tiffslide takes a name for an address, of another machine too
        try:
            # Other files that an OME header names are not opened.
            self._slide = tiffslide.TiffSlide(self._stream, tifffile_options={"_multifile": False})  # type: ignore[arg-type]
            properties = self._slide.properties
            series = self._slide.ts_tifffile.series[properties["tiffslide.series-index"]]
            levels = [[page for page in level.pages if page is not None] for level in series.levels]
        except Exception as error:  # over damaged files its parsers raise nearly every built-in class
            self._stream.close()
            raise DataError(
                f"{shown(path)}: neither OpenSlide nor tiffslide can open this slide; get it again, or export it as a tiled RGB TIFF"
            ) from error
        self._pages = [self._expect_colour(pages) for pages in levels]
        self.facts = self._facts(properties, first)
        self._tiles: OrderedDict[tuple[int, int, int], np.ndarray] = OrderedDict()

    def _expect_colour(self, pages: list[Any]) -> Any:
        """The one page of a level, which must hold colours that have one meaning."""
        page = pages[0].keyframe if pages else None
        if page is None or len(pages) != 1 or page.imagedepth != 1 or page.planarconfig == _SEPARATE:
            raise DataError(f"{shown(self._path)}: several channels or planes in place of one RGB picture; export it as RGB")
        colours, samples = int(page.photometric), page.samplesperpixel
        known = (colours == _GREY and samples == 1) or (colours == _RGB and samples in (3, 4))
        if page.dtype != np.uint8 or not (known or (colours == _YCBCR and samples == 3 and int(page.compression) == _JPEG)):
            raise DataError(f"{shown(self._path)}: {samples} channels of {page.dtype}, expected 8-bit RGB; export it as RGB")
        return pages[0]

    def _facts(self, properties: dict[str, Any], first: Page) -> Facts:
        sizes = [(page.keyframe.imagewidth, page.keyframe.imagelength) for page in self._pages]
        vendor = properties.get("tiffslide.vendor")
        said = [properties.get("tiffslide.mpp-x"), properties.get("tiffslide.mpp-y")] if vendor else [None, None]
        metadata = (float(said[0]), float(said[1])) if all(isinstance(value, (int, float)) for value in said) else None  # type: ignore[arg-type]
        power = properties.get("tiffslide.objective-power")
        return Facts(
            levels=tuple(Level(width, height, level_downsample(sizes[0], (width, height))) for width, height in sizes),
            vendor=str(vendor or ("ome-tiff" if first.ome else "generic-tiff")),
            metadata_mpp=ome_mpp(first.ome) if first.ome else metadata,
            tag_mpp=first.tag_mpp,
            power=float(power) if isinstance(power, (int, float)) else None,
        )

    def pixels(self, level: int, x: int, y: int, width: int, height: int) -> np.ndarray:
        down, across = self._chunk(level)
        result = np.empty((height, width, 3), np.uint8)
        for row in range(y // down, (y + height - 1) // down + 1):
            for column in range(x // across, (x + width - 1) // across + 1):
                tile, left, top = self._tile(level, row, column), column * across, row * down
                x0, y0, x1, y1 = max(left, x), max(top, y), min(left + across, x + width), min(top + down, y + height)
                result[y0 - y : y1 - y, x0 - x : x1 - x] = tile[y0 - top : y1 - top, x0 - left : x1 - left]
        return result

    def _chunk(self, level: int) -> tuple[int, int]:
        """Height and width of a tile, or of a strip."""
        page = self._pages[level].keyframe
        return (page.tilelength, page.tilewidth) if page.is_tiled else (page.rowsperstrip, page.imagewidth)

    def _tile(self, level: int, row: int, column: int) -> np.ndarray:
        key = (level, row, column)
        if key not in self._tiles:
            self._tiles[key] = self._decoded(level, row, column)
            if len(self._tiles) * self._tiles[key].size > 3 * _KEPT_PIXELS:
                self._tiles.popitem(last=False)
        self._tiles.move_to_end(key)
        return self._tiles[key]

    def _decoded(self, level: int, row: int, column: int) -> np.ndarray:
        """uint8 (h, w, 3) of one tile."""
        size = self.facts.levels[level]
        down, across = self._chunk(level)
        try:
            tile = self._segment(level, row * -(-size.width // across) + column)
            if tile.shape[0] < min(down, size.height - row * down) or tile.shape[1] < min(across, size.width - column * across):
                raise ValueError(tile.shape)
        except Exception as error:  # decoders of damaged tiles raise nearly every built-in class
            x, y, scale = column * across, row * down, size.downsample
            region = (round(x * scale), round(y * scale), round(across * scale), round(down * scale))
            raise UnreadableRegion(f"{shown(self._path)}: the part at {region} cannot be read; get the slide again", region) from error
        if tile.shape[2] == 4:
            return over_white(tile)
        return np.repeat(tile, 3, axis=2) if tile.shape[2] == 1 else tile

    def _segment(self, level: int, index: int) -> np.ndarray:
        page = self._pages[level]
        offset, length = page.dataoffsets[index], page.databytecounts[index]
        if not offset or not length:
            raise ValueError("a tile that was left out")
        self._stream.seek(offset)
        content = self._stream.read(length)
        if len(content) != length:
            raise ValueError("a tile that ends behind the file")
        keyframe = page.keyframe
        decoded, _, _ = keyframe.decode(content, index, jpegtables=keyframe.jpegtables, jpegheader=keyframe.jpegheader)
        return decoded[0]  # depth is 1

    def close(self) -> None:
        self._slide.close()
        self._stream.close()
        self._tiles.clear()
