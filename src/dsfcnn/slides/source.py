"""The file behind an image or slide: whether it is there, whether it is a file, and what its first bytes say.

A pipe or device is never opened, since that may wait for ever. Names of files may hold anything; they are shown on one line.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from dsfcnn.errors import DataError, MissingInputError

HEAD = 512  # bytes looked at; enough to tell every kind below
_DICOM = slice(128, 132)  # where a DICOM file says so

# First bytes -> what the file is and what to do. Case is ignored.
_NOT_PICTURES = {
    b"version https://git-lfs": ("a Git LFS pointer, not the picture itself", "fetch it with 'git lfs pull'"),
    b"<!doctype html": ("a web page, not a picture", "download it again"),
    b"<html": ("a web page, not a picture", "download it again"),
    b"<svg": ("an SVG drawing", "save it as PNG"),
    b"<?xml": ("an XML file (or SVG drawing)", "save it as PNG"),
    b"gif8": ("a GIF", "save it as PNG"),
    b"%!ps": ("a PostScript file", "save it as PNG"),
    b"\xc5\xd0\xd3\xc6": ("an EPS file", "save it as PNG"),
    b"%pdf": ("a PDF", "save it as PNG"),
}


def shown(path: str | Path) -> str:
    r"""A path for a message: one line, whatever its name holds.

    >>> print(shown("a\nb.png"))
    a\nb.png
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(path))


def open_file(path: str | Path) -> BinaryIO:
    """A regular file for reading; anything else is refused before it is opened."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise MissingInputError(f"{shown(path)}: a folder; give one file")
        if not stat.S_ISREG(mode):
            raise MissingInputError(f"{shown(path)}: a pipe or device; give a regular file")
        return Path(path).open("rb")
    except MissingInputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or "not a file name"
        raise MissingInputError(f"{shown(path)}: cannot be read ({reason}); check the path and its permissions") from error


def read_head(stream: BinaryIO, path: str | Path) -> bytes:
    """The first bytes, with the position put back; an empty file and what is no picture at all are refused by name."""
    head = stream.read(HEAD)
    stream.seek(0)
    if not head:
        raise DataError(f"{shown(path)}: an empty file; get it again")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for magic, (what, fix) in _NOT_PICTURES.items():
        if start.startswith(magic):
            raise DataError(f"{shown(path)}: {what}; {fix}")
    return head


def kind_of(head: bytes) -> str | None:
    """ "PNG", "JPEG", "TIFF", "WebP", "BMP" or "DICOM" by the first bytes, None for anything else."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return "TIFF"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WebP"
    if head.startswith(b"BM"):
        return "BMP"
    return "DICOM" if head[_DICOM] == b"DICM" else None
