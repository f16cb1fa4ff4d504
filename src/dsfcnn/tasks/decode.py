"""From probabilities to objects: the authors' post-processing, its constants as settings in microns.

Objects come out as int32 ids 1, 2, ... from the largest to the smallest. All neighbourhoods are the four nearest pixels.
Nothing depends on the direction of the image: turned probabilities give turned objects, unless two values tie.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from skimage.segmentation import watershed

from dsfcnn.tasks.diamonds import diamond_radius, dilate
from dsfcnn.tasks.runs import Runs, connect, fill_holes, find_runs, grow, intersect, paint

_Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class NucleiSettings:
    """How nuclei are read from probabilities; the authors' constants, which are pixels at 0.25 um/px."""

    object_threshold: float = 0.5  # a pixel is nucleus when P(nucleus) is more
    contour_threshold: float = 0.4  # a pixel is contour, and no marker, when P(contour) is this or more
    marker_threshold: float = 0.75  # a nucleus pixel is marker when P(marker) is more
    smallest_region: float = 0.625  # um^2 (10 px); smaller connected regions of nucleus pixels are dropped
    smallest_marker: float = 0.625  # um^2 (10 px); smaller markers are dropped


@dataclass(frozen=True)
class GlandSettings:
    """How glands are read from probabilities; the authors' constants, which are pixels at 0.5 um/px."""

    inner_threshold: float = 0.55  # a pixel is inside a gland when P(inner) is more
    contour_threshold: float = 0.5  # a pixel is contour, and not inside, when P(contour) is more
    opening: float = 1.0  # um (2 px), radius of the diamond that smooths the inner parts and cuts thin bridges
    smallest_gland: float = 375.0  # um^2 (1500 px); smaller inner parts are dropped
    growth: float = 2.0  # um (4 px), by how much inner parts grow to become glands: as much as the targets were eroded


def decode_nuclei(
    nucleus: NDArray[Any], marker: NDArray[Any], contour: NDArray[Any], mpp: float, settings: NucleiSettings
) -> NDArray[np.int32]:
    """Marker-controlled watershed on -P(marker), within the pixels that are nucleus. Probabilities (H, W) -> ids (H, W).

    A connected region without a marker is dropped, as nothing floods it; a region with one marker is that object, whole; only regions
    with several are flooded, each for itself. So the result is that of a watershed over the whole image, and a place does not depend on
    what is far from it. (Where marker pixels of a region tie exactly, the library's order of flooding decides, there as here.)
    """
    shape, pixel = nucleus.shape, mpp**2
    regions, region = _large(find_runs(shape, lambda rows: nucleus[rows] > settings.object_threshold), settings.smallest_region / pixel)
    likely = find_runs(shape, lambda rows: (marker[rows] > settings.marker_threshold) & (contour[rows] < settings.contour_threshold))
    inside, _, _ = intersect(likely, regions)
    filled, number = _large(fill_holes(inside), settings.smallest_marker / pixel)
    markers, one, other = intersect(filled, regions)
    number, home = number[one], region[other]  # of each run of a marker: its marker, and the region that it lies in

    count = int(number.max(initial=0)) + 1
    region_of, marker_of = np.divmod(np.unique(home * count + number), count)
    markers_in = np.bincount(region_of, minlength=int(region.max(initial=0)) + 1)
    only = np.zeros(len(markers_in), np.int64)  # the marker of a region that has one alone
    only[region_of] = marker_of
    single, several = markers_in[region] == 1, markers_in > 1
    area = regions[single].area(only[region[single]], count)
    own, seeded = several[region], several[home]
    flooded = list(_flood(marker, regions[own], region[own], markers[seeded], number[seeded], home[seeded]))
    area += np.bincount(np.concatenate([np.empty(0, np.int64), *(found for _, found in flooded)]), minlength=count)
    rank = _by_size(area)
    objects = paint(regions[single], rank[only[region[single]]])
    for place, found in flooded:
        objects[place] = rank[found]
    return objects


def _flood(
    marker: NDArray[Any], regions: Runs, region: _Numbers, markers: Runs, number: _Numbers, home: _Numbers
) -> Iterator[tuple[tuple[_Numbers, _Numbers], _Numbers]]:
    """Pixels (rows, columns) of each region, and the number of the marker that floods each from among the markers whose home it is."""
    for a, b in zip(_groups(region), _groups(home)):
        region_runs, seed_runs = regions[a], markers[b]
        top, left = region_runs.row[0], region_runs.column.min()
        size = int(region_runs.row[-1] + 1 - top), int((region_runs.column + region_runs.length).max() - left)
        place = region_runs.pixels()
        box = place[0] - top, place[1] - left
        part, surface, seeds = np.zeros(size, bool), np.zeros(size, marker.dtype), np.zeros(size, np.int32)
        part[box], surface[box] = True, -marker[place]
        rows, columns = seed_runs.pixels()
        seeds[rows - top, columns - left] = np.repeat(number[b] + 1, seed_runs.length)
        yield place, watershed(surface, markers=seeds, mask=part)[box] - 1


def _groups(owner: _Numbers) -> list[_Numbers]:
    """Which runs belong to each owner, in its order."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(owner[order])) + 1) if len(owner) else []


def decode_glands(inner: NDArray[Any], contour: NDArray[Any], mpp: float, settings: GlandSettings) -> NDArray[np.int32]:
    """Inner parts without contours, filled, opened and labelled; small ones dropped; grown back. Probabilities (H, W) -> ids (H, W).

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
