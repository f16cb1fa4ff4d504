"""Measures as functions of sums.

What a measure needs of an image is a few sums (of objects, pixels or overlaps). Its value for the image follows from the image's sums;
its pooled value, for a data set as one large image, from the sums added over all images. The two differ, and neither is the mean of the
values over images: results name which one they give. Adding also makes resampling a matrix product.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsfcnn.tasks.metrics.overlap import Overlap

Sums = NDArray[np.float64]  # (..., k): one row of sums per image, or per resampled data set


class Measure(NamedTuple):
    """One or more named values that come from the same sums."""

    names: tuple[str, ...]
    sums: Callable[[Overlap], Sums]  # (k,) of one image
    values: Callable[[Sums], tuple[NDArray[Any], ...]]  # (..., k) -> one (...) for each name


def ratio(numerator: NDArray[Any], denominator: NDArray[Any], otherwise: float) -> NDArray[np.float64]:
    """The quotient, and ``otherwise`` where the denominator is 0."""
    numerator, denominator = np.asarray(numerator, float), np.asarray(denominator, float)
    return np.divide(
        numerator, denominator, out=np.full(np.broadcast_shapes(numerator.shape, denominator.shape), otherwise), where=denominator != 0
    )


def mean_of_sides(sums: Sums, empty: float) -> tuple[NDArray[np.float64]]:
    """Object measures: mean of the area-weighted means over predicted and true objects.

    Sums are (weighted predicted, area predicted, weighted true, area true). Where one side has no objects it is the other's mean; where
    both have none it is ``empty``.
    """
    weighted_p, area_p, weighted_t, area_t = np.moveaxis(sums, -1, 0)
    sides = (area_p > 0).astype(int) + (area_t > 0)
    return (ratio(ratio(weighted_p, area_p, 0.0) + ratio(weighted_t, area_t, 0.0), sides, empty),)
