"""Instance maps: PNG, TIFF, NumPy and MATLAB files as int32 with the ids 1, 2, ..., checked before they are loaded.

Ids in a file may have gaps or be as large as their type allows; memory never depends on their values. Anything that is not a plane of
whole numbers is refused with its type and shape.
"""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dsfcnn.errors import DataError, DsfcnnError
from dsfcnn.slides.image import MAX_PIXELS, open_picture
from dsfcnn.slides.source import open_file, read_head, shown
from dsfcnn.slides.tiff import read_pages

SUFFIXES = (".png", ".tif", ".tiff", ".npy", ".mat")
_PHOTOMETRIC, _SAMPLE_FORMAT = 262, 339  # tags of a TIFF
_HEADER = 4096  # bytes that the header of a plane's .npy file may have; NumPy writes 128

# What Pillow calls a plane of whole numbers, and the type of its pixels. P: the places in the palette are the ids.
_PLANES = {"L": "uint8", "P": "uint8", "I;16": "uint16", "I;16B": "uint16", "I;16L": "uint16", "I;16N": "uint16", "I": "int32"}
_OTHERS = {**_PLANES, "1": "bool", "F": "float32", "RGB": "uint8", "RGBA": "uint8", "LA": "uint8", "CMYK": "uint8"}


def read_instances(path: str | Path, *, max_pixels: int = MAX_PIXELS, formats: tuple[str, ...] = ("PNG", "TIFF")) -> np.ndarray:
    """The instance map in a file as int32 (H, W): 0 is background, objects are 1, 2, ... in the order of the file's ids.

    Args:
        path: .npy, .mat with a variable ``inst_map``, or a picture whose pixels are ids (PNG or TIFF of 8 to 64 bits).
        max_pixels: larger maps are refused before they are loaded.
        formats: of pictures that are accepted.

    Raises:
        DataError: not a plane of whole numbers from 0 up, damaged or too large.
        MissingInputError: it is not there or cannot be read.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".npy":
        found = _read_npy(path, max_pixels)
    elif suffix == ".mat":
        found = _read_mat(path, max_pixels)
    else:
        found = _read_picture(path, max_pixels, formats)
    return relabel(found, shown(path))


def relabel(ids: np.ndarray, name: str = "instance map") -> np.ndarray:
    """int32 map with the ids 1, 2, ... in the order of the given ones; 0 stays 0.

    >>> relabel(np.array([[0, 9], [2**62, 9]])).tolist()
    [[0, 1], [2, 1]]
    """
    _expect_plane(ids.dtype, ids.shape, name)
    if ids.dtype.kind == "i" and ids.size and ids.min() < 0:
        raise DataError(f"{name}: negative ids in the instance map ({ids.dtype}); use 0 for background and 1, 2, ... for objects")
    values, place = np.unique(ids, return_inverse=True)
    offset = 0 if values.size and values[0] == 0 else 1
    return (place.reshape(ids.shape) + offset).astype(np.int32)


def _expect_plane(dtype: np.dtype, shape: tuple[int, ...], name: str) -> None:
    if dtype.kind not in "iu" or len(shape) != 2:
        kind = "object" if dtype.hasobject else str(dtype)
        raise DataError(f"{name}: an instance map of type {kind} and shape {shape}; give whole numbers of shape (height, width)")


def _expect_size(shape: tuple[int, ...], name: str, max_pixels: int) -> None:
    if 0 in shape:
        raise DataError(f"{name}: an instance map of shape {shape}; get it again")
    if np.prod([int(length) for length in shape], dtype=object) > max_pixels:
        raise DataError(f"{name}: an instance map of shape {shape}, more than {max_pixels:,} pixels; cut it into parts")


def _read_picture(path: str | Path, max_pixels: int, formats: tuple[str, ...]) -> np.ndarray:
    try:
        return _read_by_pillow(path, max_pixels, formats)
    except DataError:
        ids = _read_by_tifffile(path, max_pixels) if "TIFF" in formats else None
        if ids is None:
            raise
        return ids


def _read_by_tifffile(path: str | Path, max_pixels: int) -> np.ndarray | None:
    """A plane of whole numbers that Pillow does not know: of 64 bits, of 32 with the highest first, in JPEG 2000."""
    import tifffile

    try:
        with open_file(path) as stream:
            read_pages(stream)
            stream.seek(0)
            with tifffile.TiffFile(stream) as file:
                page = file.pages.first
                if len(file.pages) > 1 or page.dtype is None or page.dtype.kind not in "iu" or len(page.shape) != 2:
                    return None
                _expect_size(page.shape, shown(path), max_pixels)
                return page.asarray()
    except Exception:  # a damaged file, of which Pillow's error has told
        return None


def _read_by_pillow(path: str | Path, max_pixels: int, formats: tuple[str, ...]) -> np.ndarray:
    with open_picture(path, formats) as (picture, _, _):
        width, height = picture.size
        _expect_size((height, width), shown(path), max_pixels)
        channels, pages = len(picture.getbands()), getattr(picture, "n_frames", 1)
        if picture.mode not in _PLANES or pages > 1:
            shape = (*((pages,) if pages > 1 else ()), height, width, *((channels,) if channels > 1 else ()))
            raise DataError(
                f"{shown(path)}: an instance map of type {_OTHERS.get(picture.mode, picture.mode)} and shape {shape}; "
                "give whole numbers of shape (height, width)"
            )
        return _ids_of(picture)


def _ids_of(picture: Image.Image) -> np.ndarray:
    ids, tags = np.asarray(picture), getattr(picture, "tag_v2", None)
    if tags is None:
        return ids
    signed = tags.get(_SAMPLE_FORMAT, (1,)) == (2,)
    if picture.mode == "L":
        ids = 255 - ids if tags.get(_PHOTOMETRIC) == 0 else ids  # white is zero: Pillow has turned the numbers round
        return ids.view(np.int8) if signed else ids
    return ids.view(np.uint32) if picture.mode == "I" and not signed and ids.dtype == np.int32 else ids


def _read_npy(path: str | Path, max_pixels: int) -> np.ndarray:
    with open_file(path) as stream:
        read_head(stream, path)
        try:
            version = np.lib.format.read_magic(stream)
            read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, fortran, dtype = read_header(stream, max_header_size=_HEADER)
            _expect_plane(dtype, shape, shown(path))
            _expect_size(shape, shown(path), max_pixels)
            count = int(np.prod(shape))
            data = stream.read(count * dtype.itemsize)
            ids = np.frombuffer(data, dtype, count)  # refuses fewer bytes than the header promised
        except DsfcnnError:
            raise
        except Exception as error:  # NumPy evaluates the header as Python literals, which can fail in many ways
            raise DataError(f"{shown(path)}: a damaged NumPy file; write it again with numpy.save") from error
    return ids.reshape(shape, order="F" if fortran else "C")


def _read_mat(path: str | Path, max_pixels: int) -> np.ndarray:
    from scipy.io import loadmat, whosmat

    with open_file(path) as stream:
        read_head(stream, path)
        try:
            found = {name: shape for name, shape, _ in whosmat(stream)}
            if "inst_map" not in found:
                raise DataError(f"{shown(path)}: no variable inst_map, but {sorted(found)[:5]}; save the instance map under that name")
            _expect_size(found["inst_map"], shown(path), max_pixels)
            stream.seek(0)
            ids = loadmat(stream, variable_names=["inst_map"])["inst_map"]
        except DsfcnnError:
            raise
        except NotImplementedError as error:
            raise DataError(f"{shown(path)}: a MATLAB 7.3 file; save it with -v7, or as .npy") from error
        except Exception as error:  # the parser meets whatever the bytes say
            raise DataError(f"{shown(path)}: a damaged MATLAB file; get it again") from error
    return _whole(ids, shown(path))


def _whole(ids: Any, name: str) -> np.ndarray:
    """MATLAB's numbers are doubles unless told otherwise, so there, and only there, doubles that are whole numbers are ids."""
    if not isinstance(ids, np.ndarray):
        raise DataError(f"{name}: inst_map is no array of numbers; give whole numbers of shape (height, width)")
    if ids.dtype != np.float64:
        return ids
    if not (np.isfinite(ids).all() and (ids == np.rint(ids)).all() and (np.abs(ids) < 2**53).all()):
        raise DataError(f"{name}: an instance map of type float64 and shape {ids.shape} with fractions; give whole numbers")
    return ids.astype(np.int64)
