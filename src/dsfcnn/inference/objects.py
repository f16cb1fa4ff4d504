"""Objects that were found: where they lie, their pixels and measurements, their polygon and their identity."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from dsfcnn.errors import UsageError
from dsfcnn.inference.measure import measure
from dsfcnn.inference.outlines import outlines
from dsfcnn.tasks.instances import check_instances, compact

if TYPE_CHECKING:
    from shapely import MultiPolygon, Polygon

_IDS = uuid.UUID("6f1c7a52-8f0b-5b8e-9d5c-3a1f0f6f2c11")  # drawn once; ids of all objects descend from it


@dataclass(frozen=True, eq=False)
class Instance:
    """One object. ``x``, ``y`` is the column and row of the crop's first pixel in the analysed grid, at the model's resolution."""

    x: int
    y: int
    mask: NDArray[np.bool_]  # (h, w), at least one pixel
    probability: float
    measurements: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.mask.any(), "an object has at least one pixel"

    @property
    def place(self) -> tuple[int, int]:
        """(x, y) of its first pixel in reading order, which no other object of the slide has."""
        row, column = divmod(int(self.mask.argmax()), self.mask.shape[1])
        return self.x + column, self.y + row

    @property
    def centre(self) -> tuple[float, float]:
        """Mean (x, y) of its pixels' centres, in analysed pixels."""
        rows, columns = np.nonzero(self.mask)
        return self.x + float(columns.mean()) + 0.5, self.y + float(rows.mean()) + 0.5


@dataclass(frozen=True)
class Classification:
    """What an object is, and the colour it is shown in, as "#rrggbb"."""

    name: str
    color: str

    @property
    def rgb(self) -> tuple[int, int, int]:
        """
        >>> Classification("Nucleus", "#1f77b4").rgb
        (31, 119, 180)
        """
        digits = self.color.removeprefix("#")
        try:
            red, green, blue = bytes.fromhex(digits)
        except ValueError as error:
            raise UsageError(f"the colour of class {self.name!r} is {self.color!r}; write it as #rrggbb") from error
        return red, green, blue


def find_instances(
    labels: NDArray[np.integer], image: NDArray[np.uint8], mpp: float, probability: NDArray[np.floating], x: int = 0, y: int = 0
) -> Iterator[Instance]:
    """The objects of an instance map with their measurements, in the order of their ids.

    Args:
        labels: (H, W), 0 for background.
        image: uint8 (H, W, 3), the same pixels.
        mpp: microns per pixel.
        probability: (H, W), of a pixel to belong to an object; an object's own is the mean over its pixels.
        x, y: where the map's first pixel lies in the analysed grid.
    """
    ids = compact(check_instances(labels))[0]
    for number, where in enumerate(ndimage.find_objects(ids), 1):
        mask = ids[where] == number
        sure = float(probability[where][mask].mean(dtype=np.float64))
        measurements = measure(mask, image[where], mpp, sure)
        yield Instance(x + where[1].start, y + where[0].start, mask, sure, measurements)


def polygon(mask: NDArray[np.bool_], x: int, y: int, scale: float = 1.0, offset: tuple[float, float] = (0, 0)) -> "Polygon | MultiPolygon":
    """The outline of an object along its pixels' edges as a shapely geometry, always valid, with its holes.

    Args:
        mask, x, y: as in :class:`Instance`.
        scale: level-0 pixels to an analysed pixel, model mpp / slide mpp; the area is the number of pixels times scale².
        offset: level-0 place that QuPath counts from (``slide.bounds``); it is subtracted.
    """
    try:
        from shapely import MultiPolygon, Polygon
    except ImportError as error:
        raise UsageError("polygons need shapely; get it with: pip install 'dsfcnn[wsi]'") from error
    corner, shift = np.array([x, y]), np.asarray(offset, float)
    parts = []
    for piece in outlines(mask):
        outer, *holes = ((np.array(ring) + corner) * scale - shift for ring in piece)
        parts.append(Polygon(outer, holes))
    return parts[0] if len(parts) == 1 else MultiPolygon(parts)


def object_id(slide_id: str, kind: str, instance: Instance) -> str:
    """A UUID that depends on the slide's name, the kind of object and its first pixel alone: the same in every run.

    >>> object_id("a", "detection", Instance(3, 4, np.ones((2, 2), bool), 0.9))
    '4f6b6e43-42c1-501b-9fd7-94ae045a54af'
    """
    name = slide_id.encode("utf-8", "backslashreplace").decode()  # a file's name need not be Unicode
    return str(uuid.uuid5(_IDS, "{}/{}/{}/{}".format(name, kind, *instance.place)))
