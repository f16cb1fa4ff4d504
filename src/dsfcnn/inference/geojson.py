"""Objects as GeoJSON that QuPath opens: written one by one, read one by one, and back to an instance map.

A file is a FeatureCollection with one feature to a line. QuPath from 0.6 on refuses a whole file for one ring that meets itself; those of
``outlines`` never do, and they stay so when coordinates are scaled and rounded, since distinct grid lines stay distinct.
"""

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from dsfcnn.data.polygons import fill
from dsfcnn.errors import DataError
from dsfcnn.files import atomic_write
from dsfcnn.inference.objects import Classification, Instance, object_id
from dsfcnn.inference.outlines import Ring, outlines
from dsfcnn.slides.source import open_file, shown

Kind = Literal["detection", "annotation", "tile"]  # QuPath's: nuclei, glands, patches

_DECIMALS = 4  # of every number: 1/10,000 pixel is 0.03 nm at 40x, and changes a nucleus's area by less than 1e-5
_PACKING = 5  # gzip's level; 9 takes 2.5 times as long and saves nothing, 1 a third and gives a fifth more (benchmarks/geojson.py)
_CHUNK = 1 << 16  # characters read at a time
_LARGEST = 1 << 28  # characters of one feature; a gland of 10,000 corners has 200,000


class GeoJsonWriter:
    """Writes objects as they come; the file appears under its name when the ``with`` block ends well.

    Args:
        path: the file, by habit ``.geojson`` or ``.geojson.gz``.
        kind: QuPath's type of object.
        classification: name and colour, unless ``write`` is given another.
        gz: packed with gzip, without time and name, so that equal contents are equal bytes.
        slide_id: what the ids are derived from; it is not written.
        scale: level-0 pixels to an analysed pixel, model mpp / slide mpp.
        offset: level-0 place that QuPath counts from (``slide.bounds``); it is subtracted.
    """

    def __init__(
        self,
        path: str | Path,
        kind: Kind,
        classification: Classification,
        gz: bool = False,
        *,
        slide_id: str,
        scale: float = 1.0,
        offset: tuple[float, float] = (0, 0),
    ):
        self.kind, self.classification, self.slide_id = kind, classification, slide_id
        self.scale, self.offset = scale, offset
        self.count = 0
        self._file = _collection(Path(path), gz)
        self._stream: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self._stream = self._file.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stream = None
        self._file.__exit__(kind, error, trace)

    def write(self, instance: Instance, classification: Classification | None = None) -> str:
        """Add one object; returns its id."""
        assert self._stream is not None, "write within the with block"
        name = object_id(self.slide_id, self.kind, instance)
        shape = _geometry(instance, self.scale, self.offset)
        properties = _properties(self.kind, classification or self.classification, instance.measurements)
        line = f'{{"type":"Feature","id":"{name}","geometry":{shape},"properties":{properties}}}'
        self._stream.write(((",\n" if self.count else "\n") + line).encode())
        self.count += 1
        return name


@contextmanager
def _collection(path: Path, gz: bool) -> Iterator[IO[bytes]]:
    with atomic_write(path) as stream, _packed(stream) if gz else nullcontext(stream) as out:
        out.write(b'{"type":"FeatureCollection","features":[')
        yield out
        out.write(b"\n]}\n")


def _packed(stream: IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    return cast(AbstractContextManager[IO[bytes]], gzip.GzipFile("", "wb", _PACKING, stream, mtime=0))


def number(value: float) -> str:
    """A number as short as it can be said in four decimals.

    >>> number(3.0), number(0.123456), number(-0.00001)
    ('3', '0.1235', '0')
    """
    rounded = round(float(value), _DECIMALS)
    return str(int(rounded)) if rounded.is_integer() else repr(rounded)


def _geometry(instance: Instance, scale: float, offset: tuple[float, float]) -> str:
    across: dict[int, str] = {}  # a rectilinear ring has every number at least twice
    down: dict[int, str] = {}

    def text(ring: Ring) -> str:
        for column, row in ring[::2]:  # edges go by turns along and down, so every second corner has all columns and all rows
            if row not in down:
                down[row] = number((instance.y + row) * scale - offset[1])
            if column not in across:
                across[column] = number((instance.x + column) * scale - offset[0])
        return "[" + ",".join([f"[{across[column]},{down[row]}]" for column, row in (*ring, ring[0])]) + "]"

    pieces = ["[" + ",".join(map(text, piece)) + "]" for piece in outlines(instance.mask)]
    if len(pieces) == 1:
        return f'{{"type":"Polygon","coordinates":{pieces[0]}}}'
    return f'{{"type":"MultiPolygon","coordinates":[{",".join(pieces)}]}}'


def _properties(kind: str, classification: Classification, measurements: dict[str, float]) -> str:
    assert np.isfinite(list(measurements.values())).all(), f"QuPath takes finite numbers only, not {measurements}"
    values = ",".join([f"{_quoted(name)}:{number(value)}" for name, value in measurements.items()])
    return f'{{"objectType":"{kind}","classification":{_class(classification)},"measurements":{{{values}}}}}'


@lru_cache
def _class(classification: Classification) -> str:
    return f'{{"name":{json.dumps(classification.name)},"color":[{",".join(map(str, classification.rgb))}]}}'


@lru_cache
def _quoted(name: str) -> str:
    return json.dumps(name)


def read_geojson(path: str | Path) -> Iterator[dict[str, Any]]:
    """The features of a collection or list, plain or gzipped, one at a time; a file of any size takes the memory of one feature."""
    try:
        with open_file(path) as stream:
            packed = stream.read(2) == b"\x1f\x8b"
            stream.seek(0)
            unpacked = cast(IO[bytes], gzip.GzipFile(fileobj=stream)) if packed else stream
            yield from _features(io.TextIOWrapper(unpacked, "utf-8-sig"))
    except (EOFError, gzip.BadGzipFile, zlib.error, ValueError, RecursionError) as error:
        raise DataError(f"{shown(path)}: not GeoJSON with a list of features; write or export it again") from error


def _features(stream: IO[str]) -> Iterator[dict[str, Any]]:
    text = stream.read(_CHUNK)
    start = re.match(r'\s*(?:\{.*?"features"\s*:\s*)?\[', text, re.DOTALL)
    if start is None:
        raise ValueError("no list of features")
    text, decoder, size = text[start.end() :], json.JSONDecoder(), _CHUNK
    while True:
        text = text.lstrip(" \t\r\n,")
        if text.startswith("]"):
            return
        try:
            feature, end = decoder.raw_decode(text)
        except json.JSONDecodeError:
            more = stream.read(size)
            if not more or len(text) > _LARGEST:
                raise
            text, size = text + more, 2 * size  # so that a long feature is not tried again for every chunk
            continue
        if not isinstance(feature, dict):
            raise ValueError("a feature that is no object")
        yield feature
        text, size = text[end:], _CHUNK


def rasterise(
    features: Iterable[dict[str, Any]], shape: tuple[int, int], scale: float = 1.0, offset: tuple[float, float] = (0, 0)
) -> NDArray[np.int32]:
    """Polygons as an instance map with ids 1, 2, ... in their order; the reverse of writing, with the same ``scale`` and ``offset``."""
    instances = np.zeros(shape, np.int32)
    for name, feature in enumerate(features, 1):
        geometry = feature["geometry"]
        parts = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
        fill(instances, [[(np.array(ring, float) + offset) / scale for ring in rings] for rings in parts], name)
    return instances
