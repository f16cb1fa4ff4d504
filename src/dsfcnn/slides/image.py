"""Plain images: PNG, JPEG, TIFF and WebP through Pillow, whole and unchanged or not at all.

A file is judged by its contents, never by its name. Size, number of bits and colours are looked at before a pixel is decoded. What
cannot become 8-bit RGB without a choice (16 bits, floats, CMYK, LAB) is refused: a silent rescaling would change every result.
"""

import ctypes
import logging
import mmap
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import BmpImagePlugin, Image, JpegImagePlugin, PngImagePlugin, TiffImagePlugin, WebPImagePlugin

from dsfcnn.errors import DataError, DsfcnnError
from dsfcnn.slides.slide import Facts, Level
from dsfcnn.slides.source import kind_of, open_file, read_head, shown

FORMATS = ("PNG", "JPEG", "TIFF", "WebP")
MAX_PIXELS = 150_000_000  # about 1 GB while decoding; design
_JPEG_END = 0xD9  # after ff
_JPEG_WITHOUT_LENGTH = {0x00, 0x01, *range(0xD0, 0xD8), 0xFF}  # a byte of the picture, restarts, padding
_STRIP = 1 << 22  # pixels converted at a time

warnings.filterwarnings("ignore", module=r"PIL\.")  # doubts about tags; what matters is checked here and said once
logging.getLogger("PIL").setLevel(logging.CRITICAL + 1)
for _library in Path(Image.__file__).parent.parent.glob("pillow.libs/libtiff-*.so*"):
    ctypes.CDLL(str(_library)).TIFFSetErrorHandler(None)  # it would print a line of its own on stderr before ours

# Pillow's classes are called by name, past Image.open: that one has a pixel limit of its own, which is global to the process.
_READERS = {
    "PNG": PngImagePlugin.PngImageFile,
    "JPEG": JpegImagePlugin.jpeg_factory,
    "TIFF": TiffImagePlugin.TiffImageFile,
    "WebP": WebPImagePlugin.WebPImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
}
_OPAQUE = {"RGB", "RGBX", "L", "1", "YCbCr", "P"}
_WITH_ALPHA = {"RGBA", "RGBa", "LA", "La", "PA"}
_BITS_PER_SAMPLE, _ORIENTATION, _SAMPLE_FORMAT = 258, 274, 339  # TIFF tags
_SAMPLE_UNSIGNED = 1


def read_image(path: str | Path, *, max_pixels: int = MAX_PIXELS, formats: tuple[str, ...] = FORMATS) -> np.ndarray:
    """The pixels of a plain image as uint8 (H, W, 3); transparent parts over white, grey and palettes as RGB.

    Args:
        path: a PNG, JPEG, TIFF or WebP file, whatever its name ends with.
        max_pixels: larger images are refused before they are decoded.
        formats: what may be opened; data sets whose owners distribute BMP add "BMP".

    Raises:
        DataError: the file is damaged, too large, or not an 8-bit image in one of these formats.
        MissingInputError: it is not there, not readable, or not a regular file.
    """
    with open_picture(path, formats) as (image, kind, head):
        _expect_acceptable(image, kind, head, shown(path), max_pixels)
        return _pixels(image)


@contextmanager
def open_picture(path: str | Path, formats: tuple[str, ...] = FORMATS) -> Iterator[tuple[Image.Image, str, bytes]]:
    """Pillow's image before it is decoded, its format and the file's first bytes; what goes wrong inside is the file's damage."""
    with open_file(path) as stream:
        head = read_head(stream, path)
        kind = kind_of(head)
        if kind is None or kind not in formats:
            raise DataError(f"{shown(path)}: not an image in a known format; give {', '.join(formats[:-1])} or {formats[-1]}")
        try:
            if kind == "PNG":
                _expect_sound_png(stream)
            if kind == "JPEG":
                _expect_ended_jpeg(stream)
            image = _READERS[kind](stream)
            _leave_as_stored(image)
            yield image, kind, head
        except DsfcnnError:
            raise
        except Image.DecompressionBombError as error:  # Pillow's own limit for WebP, whose decoder makes room at once
            raise DataError(f"{shown(path)}: too many pixels; cut it into parts") from error
        except Exception as error:  # over damaged files Pillow raises nearly every built-in class
            raise DataError(f"{shown(path)}: a damaged {kind} file; get it again") from error


def is_transparent(path: str | Path) -> bool:
    """Whether some of a picture is not opaque."""
    with open_picture(path) as (image, _, _):
        if not _has_alpha(image):
            return False
        return bool((np.asarray(image.convert("RGBA").getchannel("A")) < 255).any())


def _has_alpha(image: Image.Image) -> bool:
    return image.mode in _WITH_ALPHA or "transparency" in image.info


def _expect_acceptable(image: Image.Image, kind: str, head: bytes, name: str, max_pixels: int) -> None:
    width, height = image.size
    if width < 1 or height < 1:
        raise DataError(f"{name}: an image of {width} x {height} pixels; get it again")
    if width * height > max_pixels:
        raise DataError(f"{name}: {width} x {height} pixels, more than {max_pixels:,}; cut it up (dsfcnn predict takes --max-pixels)")
    bits = _bits(image, kind, head)
    if bits > 8:
        raise DataError(f"{name}: {bits} bits per channel; convert it to 8-bit RGB yourself, since the range is a choice")
    if image.mode not in _OPAQUE | _WITH_ALPHA:
        raise DataError(f"{name}: colours of kind {image.mode}; convert it to 8-bit RGB")
    if kind != "JPEG" and _is_stack(image):  # a JPEG may carry a preview of itself, which is not a second picture
        raise DataError(f"{name}: holds {getattr(image, 'n_frames', 1)} pictures; give one picture per file")


def _bits(image: Image.Image, kind: str, head: bytes) -> int:
    """Bits per channel as the file states them: Pillow would shorten 16-bit RGB to 8 bits without a word."""
    if kind == "PNG":
        return head[24]  # IHDR comes first; Pillow has checked it
    if kind == "TIFF":
        tags = image.tag_v2  # type: ignore[attr-defined]
        if any(form != _SAMPLE_UNSIGNED for form in tags.get(_SAMPLE_FORMAT, (_SAMPLE_UNSIGNED,))):
            return 32  # signed or floating: no 8-bit image, whatever the count
        return max(tags.get(_BITS_PER_SAMPLE, (1,)))
    return 8


def _is_stack(image: Image.Image) -> bool:
    """Several pictures of equal size, so that it is unclear which one is meant; a smaller preview behind the first is none."""
    if getattr(image, "n_frames", 1) == 1:
        return False
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return True
    size = image.size
    image.seek(1)
    _leave_as_stored(image)
    second = image.size
    image.seek(0)
    _leave_as_stored(image)
    return second == size


def _leave_as_stored(image: Image.Image) -> None:
    """Pillow turns a TIFF by its orientation tag, and no other kind; objects would lie elsewhere than in other programs."""
    if isinstance(image, TiffImagePlugin.TiffImageFile) and image.n_frames and image.getexif().get(_ORIENTATION, 1) != 1:
        image.getexif()[_ORIENTATION] = 1
        image._size = image._tile_size


def _expect_sound_png(stream: BinaryIO) -> None:
    """Every checksum is right, to the end of the file: decoding alone does not look at those of the pixels."""
    stream.seek(8)
    chunk = b""
    while chunk != b"IEND":
        length, chunk = struct.unpack(">I4s", stream.read(8))
        checksum = zlib.crc32(chunk)
        while length:
            part = stream.read(min(length, 1 << 20))
            if not part:
                raise EOFError(chunk)
            checksum, length = zlib.crc32(part, checksum), length - len(part)
        if struct.unpack(">I", stream.read(4))[0] != checksum:
            raise ValueError(chunk)
    stream.seek(0)


def _expect_ended_jpeg(stream: BinaryIO) -> None:
    """Its segments lead to an end mark: a download that stopped within its reserved space decodes to the end, grey or striped.

    What lies behind the mark, such as the film of a phone's picture, is not looked at.
    """
    with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:  # of any size, in no memory of ours
        place = content.find(b"\xff", 2)
        while 0 <= place < len(content) - 1:
            mark = content[place + 1]
            if mark == _JPEG_END:
                return
            if mark in _JPEG_WITHOUT_LENGTH:
                place += 1 if mark == 0xFF else 2
            else:
                place += 2 + int.from_bytes(content[place + 2 : place + 4])
            place = content.find(b"\xff", place)
    raise EOFError("no end mark")


def _pixels(image: Image.Image) -> np.ndarray:
    """Strip by strip, so that at no time two whole copies lie beside the decoded image."""
    image.load()
    width, height = image.size
    alpha = _has_alpha(image)
    pixels = np.empty((height, width, 3), np.uint8)
    rows = max(1, _STRIP // width)
    for top in range(0, height, rows):
        strip = image.crop((0, top, width, min(top + rows, height)))
        pixels[top : top + rows] = over_white(np.asarray(strip.convert("RGBA"))) if alpha else np.asarray(strip.convert("RGB"))
    return pixels


def over_white(rgba: np.ndarray) -> np.ndarray:
    """Colours with (not premultiplied) alpha laid over white: alpha c + (1 - alpha) white, rounded. (..., 4) -> (..., 3).

    >>> over_white(np.array([[0, 100, 255, 0], [0, 100, 255, 128], [0, 100, 255, 255]], np.uint8)).tolist()
    [[255, 255, 255], [127, 177, 255], [0, 100, 255]]
    """
    alpha = rgba[..., 3:]
    if (alpha == 255).all():
        return rgba[..., :3]
    shade = (255 - rgba[..., :3].astype(np.uint16)) * alpha + 127  # at most 255 * 255 + 127, which 16 bits hold
    return (255 - shade // 255).astype(np.uint8)


class ImageReader:
    """A plain image as a slide of one level, held in memory."""

    name = "pillow"

    def __init__(self, path: Path, max_pixels: int = MAX_PIXELS):
        self._pixels = read_image(path, max_pixels=max_pixels)
        height, width = self._pixels.shape[:2]
        self.facts = Facts(levels=(Level(width, height, 1.0),), vendor="image")

    def pixels(self, level: int, x: int, y: int, width: int, height: int) -> np.ndarray:
        return self._pixels[y : y + height, x : x + width].copy()

    def close(self) -> None:
        self._pixels = self._pixels[:0]
