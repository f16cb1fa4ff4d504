"""From probabilities to objects: the authors' post-processing, its constants as settings in microns.

Objects come out as int32 ids 1, 2, ... from the largest to the smallest. All neighbourhoods are the four nearest pixels.
Nothing depends on the direction of the image: turned probabilities give turned objects, unless two values tie.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.measure import label
from skimage.morphology import reconstruction
from skimage.segmentation import watershed

from dsfcnn.errors import UsageError
from dsfcnn.tasks.diamonds import diamond_radius, dilate
from dsfcnn.tasks.runs import Runs, connect, fill_holes, find_runs, grow, intersect, paint

_Numbers = NDArray[np.int64]
NECK_SMOOTHING = 0.5  # um: teeth of an edge make no neck; chosen with smallest_lobe
_NEAREST = np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]])  # a pixel and its four neighbours


@dataclass(frozen=True)
class NucleiSettings:
    """How nuclei are read from probabilities; the authors' constants, which are pixels at 0.25 um/px.

    With a ``marker_height``, markers are peaks of P(marker), however low, and the three settings of the authors' markers have no effect.
    Nuclei too small for a marker that passes a threshold are then found too.
    """

    object_threshold: float = 0.5  # a pixel is nucleus when P(nucleus) is more
    certainty: float = 0.0  # a nucleus counts when P(nucleus) is more somewhere in it; not in the paper
    marker_height: float = 0.0  # two peaks of P(marker) are two nuclei when it falls by this much between them; 0: the authors' markers
    neck: float = 0.0  # with a marker_height: a marker that narrows to less than this part of its lobes is two; 0: width is not looked at
    smallest_lobe: float = 1.25  # um; half the width of the narrowest lobe that is a marker of its own
    contour_threshold: float = 0.4  # a pixel is contour, and no marker, when P(contour) is this or more
    marker_threshold: float = 0.75  # a nucleus pixel is marker when P(marker) is more
    smallest_region: float = 0.625  # um^2 (10 px); smaller connected regions of nucleus pixels, and smaller parts of them, are dropped
    smallest_marker: float = 0.625  # um^2 (10 px); smaller markers are dropped

    def __post_init__(self) -> None:
        if not 0 <= self.neck < 1:
            raise UsageError(f"neck = {self.neck}; use a part of a lobe's width, below 1, or 0 for none")
        _expect_in_range(self, _NUCLEI_SIZES)


@dataclass(frozen=True)
class GlandSettings:
    """How glands are read from probabilities; the authors' constants, which are pixels at 0.5 um/px."""

    inner_threshold: float = 0.55  # a pixel is inside a gland when P(inner) is more
    contour_threshold: float = 0.5  # a pixel is contour, and not inside, when P(contour) is more
    opening: float = 1.0  # um (2 px), radius of the diamond that smooths the inner parts and cuts thin bridges
    smallest_gland: float = 375.0  # um^2 (1500 px); smaller inner parts are dropped
    certainty: float = 0.0  # a gland counts when P(inner) is more somewhere in its inner part; not in the paper
    growth: float = 2.0  # um (4 px), by how much inner parts grow to become glands: as much as the targets were eroded

    def __post_init__(self) -> None:
        _expect_in_range(self, _GLAND_SIZES)


_NUCLEI_SIZES = ("smallest_lobe", "smallest_region", "smallest_marker")
_GLAND_SIZES = ("opening", "smallest_gland", "growth")


def _expect_in_range(settings: Any, sizes: tuple[str, ...]) -> None:
    """Sizes are 0 or more; all others are compared with probabilities."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name in sizes and not value >= 0:
            raise UsageError(f"{field.name} = {value}; use a size of 0 or more")
        if field.name not in sizes and not 0 <= value <= 1:
            raise UsageError(f"{field.name} = {value}; use a number from 0 to 1")


def decode_nuclei(
    nucleus: NDArray[Any], marker: NDArray[Any], contour: NDArray[Any], mpp: float, settings: NucleiSettings
) -> NDArray[np.int32]:
    """Marker-controlled watershed on -P(marker), within the pixels that are nucleus. Probabilities (H, W) -> ids (H, W).

    A connected region with one marker is that object, whole; only regions with several are flooded, each for itself. So the result is that
    of a watershed over the whole image, and a place does not depend on what is far from it. (Where marker pixels of a region tie
    exactly, the library's order of flooding decides, there as here.) Of the authors' markers, a region may have none: nothing floods it,
    and it is dropped. ``certainty`` judges each object, not the region: what a sure neighbour touches is no surer for it.
    """
    shape, pixel = nucleus.shape, mpp**2
    regions, region = _large(find_runs(shape, lambda rows: nucleus[rows] > settings.object_threshold), settings.smallest_region / pixel)
    if settings.certainty:  # first the regions, since none of an unsure one's parts is sure
        sure = _highest(nucleus, regions, region)[region] > settings.certainty
        regions, region = regions[sure], region[sure]
    if settings.marker_height:
        necks = Necks(settings.neck, settings.smallest_lobe / mpp, NECK_SMOOTHING / mpp) if settings.neck else None
        alone, flooded, count = _parted_by_peaks(marker, regions, region, settings.marker_height, necks)
    else:
        likely = find_runs(shape, lambda rows: (marker[rows] > settings.marker_threshold) & (contour[rows] < settings.contour_threshold))
        alone, flooded, count = _parted_by_markers(marker, regions, region, likely, settings.smallest_marker / pixel)
    single = alone[region] >= 0
    area = regions[single].area(alone[region[single]], count)
    area += np.bincount(np.concatenate([np.empty(0, np.int64), *(found for _, found in flooded)]), minlength=count)
    area[area < settings.smallest_region / pixel] = 0
    if settings.certainty:
        highest = np.zeros(count, nucleus.dtype)
        for place, found in flooded:
            np.maximum.at(highest, found, nucleus[place])
        highest[alone[alone >= 0]] = 1
        area[highest <= settings.certainty] = 0
    rank = _by_size(area)
    objects = paint(regions[single], rank[alone[region[single]]])
    for place, found in flooded:
        objects[place] = rank[found]
    return objects


_Flooded = tuple[tuple[_Numbers, _Numbers], _Numbers]  # pixels (rows, columns) of a region, and the number of the object of each


def _parted_by_peaks(
    marker: NDArray[Any], regions: Runs, region: _Numbers, height: float, necks: "Necks | None"
) -> tuple[_Numbers, list[_Flooded], int]:
    """Objects by peaks: of each region that is one object its number, else -1; the parts of other regions; the number of all objects."""
    alone, flooded, count = np.full(region.max(initial=-1) + 1, -1), [], 0
    for own in _groups(region):
        box = _Box(regions[own], marker)
        seeds, found = peaks(box.surface, height)
        parts = box.flood(seeds) if found > 1 else np.zeros(len(box.place[0]), np.int64)
        if necks is not None:
            parts, found = necks.part(box, parts, found)
        if found > 1:
            flooded.append((box.place, parts + count))
        else:
            alone[region[own[0]]] = count
        count += found
    return alone, flooded, count


def peaks(surface: NDArray[Any], height: float) -> tuple[NDArray[np.int32], int]:
    """Ids 1, 2, ... of the peaks of a surface, each with all that lies above ``height`` below its top, and how many there are.

    From a peak, every way to a higher place leads down by ``height`` or more.

    >>> peaks(np.array([[0.2, 0.9, 0.8, 1.0, 0.1, 0.4, 0.3]]), height=0.25)[0].tolist()
    [[0, 1, 1, 1, 0, 2, 2]]
    """
    filled = reconstruction(surface - height, surface, footprint=_NEAREST)
    above = label(surface > filled, connectivity=1)
    tops = np.unique(above[filled == surface - height])
    number = np.zeros(above.max() + 1, np.int32)
    number[tops] = np.arange(1, len(tops) + 1)
    return number[above], len(tops)


@dataclass(frozen=True)
class Necks:
    r"""Parts objects where their markers narrow; not in the paper.

    Where two nuclei touch, P(marker) may stay high between them, and still the marker has a neck there. Its half width :math:`D` is the
    distance to its edge, smoothed; a marker is P(marker) > 0.5 within an object. Two lobes are two markers when :math:`D` falls to
    less than ``ratio`` of the narrower one's on every way between them.
    """

    ratio: float
    lobe: float  # pixels; half width of the narrowest lobe that counts
    smoothing: float  # pixels

    def part(self, box: "_Box", parts: _Numbers, count: int) -> tuple[_Numbers, int]:
        """A region's parts, as a number of each of its pixels, parted further; and how many there are then."""
        marker = box.surface > 0.5
        if not self._has_room(marker):
            return parts, count
        numbers = np.zeros(marker.shape, np.int64)
        numbers[box.inside(box.place)] = parts + 1
        for number, around in enumerate(ndimage.find_objects(numbers), start=1):
            own = numbers[around] == number
            core = own & marker[around]
            if not self._has_room(core):
                continue
            width = self.half_width(core)
            seeds, found = self.lobes(width)
            if found > 1:  # P(marker) decides where there is no width: in the rim around the marker
                flooded = watershed(-(width + box.surface[around]), markers=seeds, mask=own)
                numbers[around][flooded > 1] = flooded[flooded > 1] - 1 + count
                count += found - 1
        return numbers[box.inside(box.place)] - 1, count

    def _has_room(self, marker: NDArray[np.bool_]) -> bool:
        """For one lobe and a bit of another: small markers have not, and are spared the rest."""
        return bool(np.count_nonzero(marker) > np.pi * self.lobe**2)

    def half_width(self, marker: NDArray[np.bool_]) -> NDArray[Any]:
        distance = ndimage.distance_transform_edt(np.pad(marker, 1))[1:-1, 1:-1]
        return ndimage.gaussian_filter(distance, self.smoothing, mode="constant") * marker

    def lobes(self, width: NDArray[Any]) -> tuple[NDArray[np.int32], int]:
        """Ids 1, 2, ... of the lobes, in their widest places, and how many there are."""
        seeds, found = peaks(np.log(np.maximum(width, 1e-3)), -np.log(self.ratio))
        wide = np.flatnonzero(ndimage.maximum(width, seeds, np.arange(1, found + 1)) >= self.lobe) + 1
        number = np.zeros(found + 1, np.int32)
        number[wide] = np.arange(1, len(wide) + 1)
        return number[seeds], len(wide)


def _parted_by_markers(
    marker: NDArray[Any], regions: Runs, region: _Numbers, likely: Runs, smallest: float
) -> tuple[_Numbers, list[_Flooded], int]:
    """Objects by the authors' markers, which are connected, filled and not too small; told as by ``_parted_by_peaks``."""
    inside, _, _ = intersect(likely, regions)
    filled, number = _large(fill_holes(inside), smallest)
    markers, one, other = intersect(filled, regions)
    number, home = number[one], region[other]  # of each run of a marker: its marker, and the region that it lies in

    count = int(number.max(initial=0)) + 1
    region_of, marker_of = np.divmod(np.unique(home * count + number), count)
    markers_in = np.bincount(region_of, minlength=int(region.max(initial=0)) + 1)
    alone = np.full(len(markers_in), -1)
    is_only = markers_in[region_of] == 1
    alone[region_of[is_only]] = marker_of[is_only]
    own, seeded = np.flatnonzero(markers_in[region] > 1), np.flatnonzero(markers_in[home] > 1)
    flooded = []
    for a, b in zip(_groups(region[own]), _groups(home[seeded])):
        box = _Box(regions[own[a]], marker)
        runs, ids = markers[seeded[b]], number[seeded[b]]
        seeds = np.zeros(box.surface.shape, np.int32)
        seeds[box.inside(runs.pixels())] = np.repeat(ids + 1, runs.length)
        flooded.append((box.place, box.flood(seeds)))
    return alone, flooded, count


class _Box:
    """A region by itself: P(marker) of its pixels, and -1 around them."""

    def __init__(self, runs: Runs, marker: NDArray[Any]):
        self.place = runs.pixels()
        rows, columns = self.place
        self.corner = rows[0], columns.min()
        self.surface = np.full((rows[-1] + 1 - self.corner[0], columns.max() + 1 - self.corner[1]), -1, marker.dtype)
        self.surface[self.inside(self.place)] = marker[self.place]

    def inside(self, place: tuple[_Numbers, _Numbers]) -> tuple[_Numbers, _Numbers]:
        return place[0] - self.corner[0], place[1] - self.corner[1]

    def flood(self, seeds: NDArray[np.int32]) -> _Numbers:
        """The number, from 0, of the seed (1, 2, ...) that floods each pixel of the region."""
        return watershed(-self.surface, markers=seeds, mask=self.surface > -0.5)[self.inside(self.place)] - 1


def _highest(values: NDArray[Any], runs: Runs, owner: _Numbers) -> NDArray[Any]:
    """The largest value of each owner's pixels."""
    highest = np.zeros(owner.max(initial=-1) + 1, values.dtype)
    if len(owner):
        np.maximum.at(highest, owner, np.maximum.reduceat(values[runs.pixels()], np.cumsum(runs.length) - runs.length))
    return highest


def _groups(owner: _Numbers) -> list[_Numbers]:
    """Which runs belong to each owner, in its order."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(owner[order])) + 1) if len(owner) else []


def decode_glands(inner: NDArray[Any], contour: NDArray[Any], mpp: float, settings: GlandSettings) -> NDArray[np.int32]:
    """(H, W) -> ids (H, W): inner parts without contours, filled, opened, labelled; without small and unsure ones; grown back.

    Growing takes background only: between two glands a pixel goes to the nearest, at equal distance to the larger one.
    """
    shape, radius = inner.shape, diamond_radius(settings.opening, mpp)
    likely = find_runs(shape, lambda rows: (inner[rows] > settings.inner_threshold) & (contour[rows] <= settings.contour_threshold))
    filled = fill_holes(likely)

    def opened(rows: slice) -> NDArray[np.bool_]:
        around = slice(max(0, rows.start - 2 * radius), min(shape[0], rows.stop + 2 * radius))
        mask = paint(filled, np.ones(len(filled.start), bool), around)
        eroded = ~dilate(~mask, radius)
        return dilate(eroded, radius)[rows.start - around.start : rows.stop - around.start]

    parts, part = _large(find_runs(shape, opened), settings.smallest_gland / mpp**2)
    if settings.certainty:
        sure = _highest(inner, parts, part)[part] > settings.certainty
        parts, part = parts[sure], part[sure]
    count = int(part.max(initial=0)) + 1
    size = _by_size(parts.area(part, count))[part].astype(np.int64)
    glands, gland = grow(parts, size, diamond_radius(settings.growth, mpp))
    return paint(glands, _by_size(glands.area(gland, count + 1))[gland])


def _large(runs: Runs, smallest: float) -> tuple[Runs, _Numbers]:
    """The runs of the connected objects of ``smallest`` pixels and more, and the number of the object of each."""
    owner, count = connect(runs)
    large = (runs.area(owner, count) >= smallest)[owner]
    return runs[large], owner[large]


def _by_size(area: _Numbers) -> NDArray[np.int32]:
    """New ids of objects 0, 1, ...: 1, 2, ... from the largest to the smallest; equal ones keep their order, those without pixels get 0."""
    order = np.argsort(-area, kind="stable")[: np.count_nonzero(area)]
    rank = np.zeros(len(area), np.int32)
    rank[order] = np.arange(1, len(order) + 1)
    return rank
