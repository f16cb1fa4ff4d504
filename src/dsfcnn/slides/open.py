"""What a file is, and which reader opens it.

A slide is what OpenSlide knows, or a TIFF that is tiled, pyramidal or OME; anything else is a plain image. Contents decide, not names.
"""

from functools import partial
from importlib.util import find_spec
from pathlib import Path

from dsfcnn.errors import DataError, UsageError
from dsfcnn.slides import openslide
from dsfcnn.slides.image import MAX_PIXELS, ImageReader
from dsfcnn.slides.openslide import OpenSlideReader
from dsfcnn.slides.resolution import UnknownResolution, check_mpp, find_mpp
from dsfcnn.slides.slide import Reader, Slide
from dsfcnn.slides.source import kind_of, open_file, read_head, shown
from dsfcnn.slides.tiff import DamagedTiff, Page, is_slide, read_pages
from dsfcnn.slides.tiffslide import TiffSlideReader

_IMAGES = {"PNG", "JPEG", "TIFF", "WebP"}
_COLOURS = {0, 1, 2, 3, 6}  # TIFF's numbers for grey, RGB, palette and YCbCr; CMYK is 5, LAB 8 to 10
_INDEX_IS_JPEG = ".mrxs"  # MIRAX: the file that is opened is a small JPEG; the slide lies in the folder beside it


class MissingLibraries(UsageError):
    """A slide that nothing installed here can read; images can be."""


def open_slide(path: str | Path, *, mpp: float | None = None, image_mpp: float | None = None, max_pixels: int = MAX_PIXELS) -> Slide:
    """Open a slide or plain image; use it in a ``with`` statement, or close it.

    Args:
        path: a file of any format that OpenSlide or tiffslide reads, or a PNG, JPEG, TIFF or WebP image.
        mpp: microns per level-0 pixel as the user states it; goes before all that the file says.
        image_mpp: resolution at which a plain image is taken, usually the model's, when ``mpp`` is not given.
        max_pixels: larger plain images are refused; slides are read in parts and may have any size.

    Raises:
        MissingLibraries: a slide, where OpenSlide and tiffslide are not installed.
        UnknownResolution: a slide that does not say how large its pixels are, or an image without ``mpp`` and ``image_mpp``.
        DataError: a damaged file, or none that holds 8-bit RGB.
        MissingInputError: no such file, or one that cannot be read.
    """
    path = Path(path)
    if mpp is not None:
        check_mpp(mpp, "--slide-mpp")
    opener = partial(open_reader, path, max_pixels)
    reader = opener()
    try:
        if isinstance(reader, ImageReader) and mpp is None:
            if image_mpp is None:
                raise UnknownResolution(f"{shown(path)}: a plain image does not say how large a pixel is; give --slide-mpp")
            resolution = check_mpp(image_mpp, "image_mpp"), "assumed for a plain image"
        else:
            resolution = find_mpp(reader.facts, mpp, shown(path))
    except BaseException:
        reader.close()
        raise
    return Slide(path, *resolution, opener, reader)


def open_reader(path: Path, max_pixels: int = MAX_PIXELS) -> Reader:
    """The reader for a file, with the file open."""
    with open_file(path) as stream:
        kind = kind_of(read_head(stream, path))
        pages: list[Page] = []
        if kind == "TIFF":
            try:
                pages = read_pages(stream)
            except DamagedTiff as error:
                raise DataError(f"{shown(path)}: a damaged TIFF file that {error}; get it again") from error
    if not _has_libraries():
        return _without_libraries(path, kind, pages, max_pixels)
    _expect_plain_colours(pages, path)
    vendor = openslide.detect(path)
    if vendor in (None, "generic-tiff") and pages and is_slide(pages):
        _expect_one_picture(pages, path)
    # To OpenSlide an OME-TIFF is a TIFF like others: it would miss its pyramid and its resolution.
    if vendor is not None and not (pages and pages[0].ome and vendor == "generic-tiff"):
        try:
            return OpenSlideReader(path, transparent=bool(pages) and pages[0].channels in (2, 4))
        except DataError:
            if not pages:
                raise
    if vendor is not None or (pages and is_slide(pages)):
        return TiffSlideReader(path, pages[0])
    if path.suffix.lower() == _INDEX_IS_JPEG:
        raise DataError(f"{shown(path)}: a MIRAX slide without the folder of its data; put {shown(path.stem)} beside it")
    if kind not in _IMAGES:
        raise DataError(f"{shown(path)}: neither a slide nor an image in a known format; give a slide, PNG, JPEG, TIFF or WebP")
    return ImageReader(path, max_pixels)


def _has_libraries() -> bool:
    return all(find_spec(name) is not None for name in ("openslide", "tiffslide"))


def _without_libraries(path: Path, kind: str | None, pages: list[Page], max_pixels: int) -> Reader:
    if kind not in _IMAGES or path.suffix.lower() == _INDEX_IS_JPEG or (pages and is_slide(pages)):
        raise MissingLibraries(f"{shown(path)}: slides need OpenSlide and tiffslide; get them with: pip install 'dsfcnn[wsi]'")
    return ImageReader(path, max_pixels)


def _expect_one_picture(pages: list[Page], path: Path) -> None:
    """Libraries would take the first of a stack for all. Planes of an OME-TIFF are its own affair, but not where its slide lies."""
    first = pages[0]
    largest = max((page for page in pages if not page.part), key=lambda page: page.width * page.height, default=first)
    if first.ome is not None and largest.width * largest.height > first.width * first.height:
        size = f"{first.width} x {first.height}"
        raise DataError(
            f"{shown(path)}: its first picture has {size} pixels, a later one {largest.width} x {largest.height}; save the slide alone"
        )
    alike = sum((page.width, page.height) == (first.width, first.height) and not page.part for page in pages)
    if alike > 1 and first.ome is None:
        raise DataError(f"{shown(path)}: holds {alike} pictures; give one picture per file")


def _expect_plain_colours(pages: list[Page], path: Path) -> None:
    """OpenSlide would shorten 16 bits to 8 and turn CMYK into RGB without a word."""
    if pages and pages[0].bits > 8:
        raise DataError(f"{shown(path)}: {pages[0].bits} bits per channel; convert it to 8-bit RGB yourself, since the range is a choice")
    if pages and pages[0].colours not in _COLOURS:
        raise DataError(f"{shown(path)}: colours of TIFF kind {pages[0].colours}; convert it to 8-bit RGB")
