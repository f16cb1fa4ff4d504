"""Measurements as a table: one line for each object, in the order of the label map."""

import csv
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Self

from dsfcnn.files import atomic_write
from dsfcnn.inference.geojson import number
from dsfcnn.inference.measure import NAMES
from dsfcnn.inference.objects import Instance

_COLUMNS = ("object", "id", "class", "x", "y")


class MeasurementsWriter:
    """Writes ``measurements.csv`` as objects come; the file appears under its name when the ``with`` block ends well.

    Args:
        path: the file.
        scale, offset: as for :class:`~dsfcnn.inference.geojson.GeoJsonWriter`; the centres x, y are in the same coordinates.
        names: measurements, one column each.
    """

    def __init__(self, path: str | Path, *, scale: float = 1.0, offset: tuple[float, float] = (0, 0), names: Sequence[str] = NAMES):
        self.scale, self.offset, self.names = scale, offset, tuple(names)
        self.count = 0
        self._file = atomic_write(Path(path))

    def __enter__(self) -> Self:
        stream = self._file.__enter__()
        self._rows = csv.writer(SimpleNamespace(write=lambda text: stream.write(text.encode())), lineterminator="\n")
        self._rows.writerow([*_COLUMNS, *self.names])
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.__exit__(kind, error, trace)

    def write(self, instance: Instance, name: str, class_name: str) -> None:
        """Add one object; ``name`` is its id in the GeoJSON file."""
        self.count += 1
        centre = [number(place * self.scale - shift) for place, shift in zip(instance.centre, self.offset)]
        values = [number(instance.measurements[column]) for column in self.names]
        self._rows.writerow([self.count, name, class_name, *centre, *values])
