"""From probabilities to objects: the authors' post-processing, its constants as settings in microns.

Objects come out as int32 ids 1, 2, ... from the largest to the smallest. All neighbourhoods are the four nearest pixels.
Nothing depends on the direction of the image: turned probabilities give turned objects, unless two values tie.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from skimage.segmentation import watershed

from dsfcnn.tasks.diamonds import diamond_radius, dilate, erode, grow


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
    pixel = mpp**2
    regions, _ = ndimage.label(nucleus > settings.object_threshold)
    regions = drop_small(regions, settings.smallest_region / pixel)
    inside = (marker > settings.marker_threshold) & (contour < settings.contour_threshold) & (regions != 0)
    markers, count = ndimage.label(fill_holes(inside))
    markers = drop_small(markers, settings.smallest_marker / pixel) * (regions != 0)

    marked = markers != 0
    pairs = regions[marked].astype(np.int64) * (count + 1) + markers[marked]
    runs = pairs[np.diff(pairs, prepend=-1) != 0]  # along a row a pair repeats: few are left to sort
    region_of, marker_of = np.divmod(np.unique(runs), count + 1)
    only = np.zeros(regions.max() + 1, np.int32)
    only[region_of] = marker_of
    several = np.flatnonzero(np.bincount(region_of) > 1)
    only[several] = 0
    objects = only[regions]
    boxes = ndimage.find_objects(regions)
    for region in several:
        box = boxes[region - 1]
        part = regions[box] == region
        flooded = watershed(-marker[box], markers=markers[box], mask=part)
        objects[box][part] = flooded[part]
    return by_size(objects)


def decode_glands(inner: NDArray[Any], contour: NDArray[Any], mpp: float, settings: GlandSettings) -> NDArray[np.int32]:
    """Inner parts without contours, filled, opened and labelled; small ones dropped; grown back. Probabilities (H, W) -> ids (H, W).

    Growing takes background only: between two glands a pixel goes to the nearest, at equal distance to the larger one.
    """
    mask = fill_holes((inner > settings.inner_threshold) & (contour <= settings.contour_threshold))
    radius = diamond_radius(settings.opening, mpp)
    labels, _ = ndimage.label(dilate(erode(mask, radius), radius))
    return by_size(grow(by_size(drop_small(labels, settings.smallest_gland / mpp**2)), diamond_radius(settings.growth, mpp)))


def fill_holes(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The mask and the background that it closes off from the image's border."""
    background, count = ndimage.label(~mask)
    open_ = np.zeros(count + 1, bool)
    for edge in (background[0], background[-1], background[:, 0], background[:, -1]):
        open_[edge] = True
    open_[0] = False  # the mask itself
    return ~open_[background]


def drop_small(labels: NDArray[np.int32], smallest: float) -> NDArray[np.int32]:
    """The map without the objects of fewer than ``smallest`` pixels; ids stay."""
    area = np.bincount(labels.ravel())
    return np.where(area >= smallest, np.arange(len(area), dtype=np.int32), 0).astype(np.int32)[labels]


def by_size(labels: NDArray[np.int32]) -> NDArray[np.int32]:
    """Ids 1, 2, ... from the largest object to the smallest; equal ones keep their order."""
    area = np.bincount(labels.ravel())
    area[0] = 0
    order = np.argsort(-area, kind="stable")[: np.count_nonzero(area)]
    rank = np.zeros(len(area), np.int32)
    rank[order] = np.arange(1, len(order) + 1)
    return rank[labels]
