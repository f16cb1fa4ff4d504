"""Dice of foreground and background, objects ignored."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsfcnn.tasks.metrics.overlap import Overlap, overlap
from dsfcnn.tasks.metrics.sums import Measure, Sums, ratio


def binary_dice(truth: ArrayLike, prediction: ArrayLike) -> float:
    r"""Of one image: :math:`2 |A \cap B| / (|A| + |B|)` of the pixels with any object. Both empty: 1; one empty: 0.

    >>> binary_dice([[1, 2, 0, 0]], [[5, 5, 5, 0]])
    0.8
    """
    return float(_values(_sums(overlap(truth, prediction)))[0])


def _sums(table: Overlap) -> Sums:
    return np.array([2 * table.shared.sum(), table.truth_area.sum() + table.prediction_area.sum()], float)


def _values(sums: Sums) -> tuple[NDArray[Any]]:
    return (ratio(sums[..., 0], sums[..., 1], 1.0),)


BINARY_DICE = Measure(("binary_dice",), _sums, _values)
