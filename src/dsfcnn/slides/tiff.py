"""The directories of a TIFF file, read with suspicion and before any library sees them.

Only what decides how to read the file is taken: sizes, bits, colours, tiles, resolution. A chain of directories that runs in a circle
or out of the file, a tag that is larger than the file and a size that does not fit its own list of tiles are found here at no cost;
libraries meet them with endless loops, gigabytes of zeros or a crash.
"""

import html
import re
import struct
from dataclasses import dataclass
from typing import BinaryIO

_LARGEST_PAGES, _LARGEST_TAGS = 4096, 4096  # far above any slide (a stack of focus planes has some hundred pages)
_LARGEST_VALUE = 1 << 16  # bytes of a value that is taken; an OME header says its resolution in the first few thousand
_LARGEST_TILE = 1 << 26  # pixels; scanners write 2^16 to 2^20

_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_INTEGERS = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}
_RATIONAL = 5

_SUBFILE, _WIDTH, _HEIGHT, _BITS, _COLOURS, _DESCRIPTION, _SAMPLES, _ROWS = 254, 256, 257, 258, 262, 270, 277, 278
_X_RESOLUTION, _Y_RESOLUTION, _PLANAR, _UNIT = 282, 283, 284, 296
_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _SUB_DIRECTORIES, _FORMAT = 322, 323, 324, 330, 339
_STRIP_OFFSETS = 273
_HAMAMATSU = 65420  # in every page of an NDPI file, whose places beyond 4 GB are written in a way of its own
_MICRONS = {2: 25_400.0, 3: 10_000.0}  # in the unit of the resolution tag: inch, centimetre
_SEPARATE = 2
_ONE_OF_SEVERAL = 2  # bit of the tag that says what a page is for: in a row with others, as any picture


class DamagedTiff(ValueError):
    """What is wrong with the file, as a clause for a message."""


@dataclass(frozen=True)
class Page:
    """One directory."""

    width: int
    height: int
    bits: int  # per channel; 32 for signed and floating numbers of any length
    channels: int  # 2 and 4 with transparency, since CMYK is refused
    colours: int  # PhotometricInterpretation
    tiled: bool
    ome: str | None  # the OME description, if it has one
    tag_mpp: tuple[float, float] | None  # microns per pixel in x and y from the resolution tags, sane or not
    hamamatsu: bool
    part: bool  # says of itself that it belongs to another: a smaller copy, a mask


def read_pages(stream: BinaryIO) -> list[Page]:
    """Every directory and sub-directory of the file, the main picture first; DamagedTiff says what makes no sense."""
    return _Walk(stream).pages()


def is_slide(pages: list[Page]) -> bool:
    """Tiled, pyramidal or OME; anything else is a plain image.

    A page of 1/1.5 to 1/8.5 of the first one's size is a level of a pyramid; one that is smaller still is a photograph's preview.
    """
    first = pages[0]
    return first.tiled or first.ome is not None or any(_is_level(first, page) for page in pages[1:])


def _is_level(first: Page, page: Page) -> bool:
    ratio = first.width / page.width
    return 1.5 <= ratio <= 8.5 and abs(first.height / page.height / ratio - 1) < 0.02


def ome_mpp(description: str) -> tuple[float, float] | None:
    """PhysicalSizeX and Y of the first image in an OME header, microns.

    >>> ome_mpp('<OME><Pixels PhysicalSizeX="0.5" PhysicalSizeXUnit="µm" PhysicalSizeY="500" PhysicalSizeYUnit="nm"/></OME>')
    (0.5, 0.5)
    """
    units = {"µm": 1.0, "μm": 1.0, "um": 1.0, "nm": 1e-3, "mm": 1e3}
    found = []
    for axis in "XY":
        size = re.search(rf'PhysicalSize{axis}="([\d.eE+-]+)"', description)
        unit = re.search(rf'PhysicalSize{axis}Unit="([^"]+)"', description)
        name = html.unescape(unit[1]) if unit else "µm"
        try:
            found.append(float(size[1]) * units[name] if size else 0.0)
        except (ValueError, KeyError):
            return None
    return (found[0], found[1]) if all(found) else None


class _Walk:
    """One pass over a file's directories."""

    def __init__(self, stream: BinaryIO):
        self.stream = stream
        self.length = stream.seek(0, 2)
        head = self._read(0, 16) if self.length >= 16 else self._read(0, 8)
        self.order = "<" if head[:2] == b"II" else ">"
        self.big = struct.unpack(self.order + "H", head[2:4])[0] == 43
        if self.big and len(head) < 16:
            raise DamagedTiff("ends in its header")
        self.first = self._unpack("Q", head[8:16]) if self.big else self._unpack("I", head[4:8])

    def pages(self) -> list[Page]:
        main: list[Page] = []
        below: list[Page] = []
        seen: set[int] = set()
        place = self.first
        while place:
            self._expect_new(place, seen)
            tags, following = self._directory(place)
            main.append(self._page(tags))
            if main[0].hamamatsu:
                break
            for sub in self._integers(tags, _SUB_DIRECTORIES):  # listed in full, so their own chain is not followed
                self._expect_new(sub, seen)
                below.append(self._page(self._directory(sub)[0]))
            place = following
        if not main:
            raise DamagedTiff("has no directory")
        return main + below

    def _expect_new(self, place: int, seen: set[int]) -> None:
        if place in seen:
            raise DamagedTiff("has directories that run in a circle")
        if len(seen) >= _LARGEST_PAGES:
            raise DamagedTiff(f"has more than {_LARGEST_PAGES} pages")
        seen.add(place)

    def _directory(self, place: int) -> tuple[dict[int, tuple[int, int, int]], int]:
        """{tag: (type, count, place of the value)} and where the next directory is."""
        counter, entry, pointer = (8, 20, "Q") if self.big else (2, 12, "I")
        count = self._unpack("Q" if self.big else "H", self._read(place, counter))
        if not 0 < count <= _LARGEST_TAGS:
            raise DamagedTiff(f"has a directory of {count} tags")
        table = self._read(place + counter, count * entry + struct.calcsize(pointer))
        tags = {}
        for number in range(count):
            row = table[number * entry : (number + 1) * entry]
            tag, kind = struct.unpack(self.order + "HH", row[:4])
            items = self._unpack(pointer, row[4 : 4 + struct.calcsize(pointer)])
            size = _SIZES.get(kind, 0) * items
            value = entry - 4 - struct.calcsize(pointer)
            inside = place + counter + (number + 1) * entry - value
            tags[tag] = (kind, items, inside if size <= value else self._unpack(pointer, row[-value:]))
        return tags, self._unpack(pointer, table[count * entry :])

    def _page(self, tags: dict[int, tuple[int, int, int]]) -> Page:
        width, height = self._integer(tags, _WIDTH, 0), self._integer(tags, _HEIGHT, 0)
        if width < 1 or height < 1:
            raise DamagedTiff(f"has a page of {width} x {height} pixels")
        hamamatsu, tiled = _HAMAMATSU in tags, _TILE_WIDTH in tags
        if not hamamatsu:
            planes = self._integer(tags, _SAMPLES, 1) if self._integer(tags, _PLANAR, 1) == _SEPARATE else 1
            self._expect_chunks(tags, width, height, planes)
        signed = any(form != 1 for form in self._integers(tags, _FORMAT))
        description = "" if hamamatsu else self._text(tags, _DESCRIPTION)
        return Page(
            width=width,
            height=height,
            bits=32 if signed else max(self._integers(tags, _BITS) or [1]),
            channels=self._integer(tags, _SAMPLES, 1),
            colours=self._integer(tags, _COLOURS, 1),
            tiled=tiled,
            ome=description if re.search(r"<(?:\w+:)?OME[ >]", description) else None,
            tag_mpp=self._resolution(tags),
            hamamatsu=hamamatsu,
            part=bool(self._integer(tags, _SUBFILE, 0) & ~_ONE_OF_SEVERAL),
        )

    def _expect_chunks(self, tags: dict[int, tuple[int, int, int]], width: int, height: int, planes: int) -> None:
        """The list of tiles or strips is as long as the picture's size asks for."""
        if _TILE_WIDTH in tags:
            across, down = self._integer(tags, _TILE_WIDTH, 0), self._integer(tags, _TILE_HEIGHT, 0)
            place = _TILE_OFFSETS if _TILE_OFFSETS in tags else _STRIP_OFFSETS  # old writers list tiles as strips
        else:
            across, down, place = width, min(self._integer(tags, _ROWS, height), height), _STRIP_OFFSETS
        if across < 1 or down < 1 or (_TILE_WIDTH in tags and across * down > _LARGEST_TILE):
            raise DamagedTiff(f"has tiles or strips of {across} x {down} pixels")
        needed = -(-width // across) * -(-height // down) * planes
        kind, found, start = tags.get(place, (0, 0, 0))
        if found != needed or start + found * _SIZES.get(kind, 0) > self.length:
            raise DamagedTiff(f"says {width} x {height} pixels, but lists {found} tiles or strips where that takes {needed}")

    def _resolution(self, tags: dict[int, tuple[int, int, int]]) -> tuple[float, float] | None:
        microns = _MICRONS.get(self._integer(tags, _UNIT, 2))
        pixels = [self._rational(tags, tag) for tag in (_X_RESOLUTION, _Y_RESOLUTION)]
        return (microns / pixels[0], microns / pixels[1]) if microns and all(pixels) else None

    def _integer(self, tags: dict[int, tuple[int, int, int]], tag: int, default: int) -> int:
        return (self._integers(tags, tag) or [default])[0]

    def _integers(self, tags: dict[int, tuple[int, int, int]], tag: int) -> list[int]:
        kind, count, place = tags.get(tag, (0, 0, 0))
        if kind not in _INTEGERS or not count:
            return []
        count = min(count, _LARGEST_TAGS)
        return list(struct.unpack(f"{self.order}{count}{_INTEGERS[kind]}", self._read(place, count * _SIZES[kind])))

    def _rational(self, tags: dict[int, tuple[int, int, int]], tag: int) -> float:
        kind, count, place = tags.get(tag, (0, 0, 0))
        if kind != _RATIONAL or not count:
            return 0.0
        above, below = struct.unpack(self.order + "II", self._read(place, 8))
        return above / below if below else 0.0

    def _text(self, tags: dict[int, tuple[int, int, int]], tag: int) -> str:
        _, count, place = tags.get(tag, (0, 0, 0))
        return self._read(place, min(count, _LARGEST_VALUE)).decode("utf-8", "replace") if count else ""

    def _unpack(self, form: str, content: bytes) -> int:
        return struct.unpack(self.order + form, content)[0]

    def _read(self, place: int, length: int) -> bytes:
        if place + length > self.length:
            raise DamagedTiff("points outside itself")
        self.stream.seek(place)
        return self.stream.read(length)
