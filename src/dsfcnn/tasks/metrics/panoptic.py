"""Panoptic quality (Kirillov et al. 2019) of one class of objects."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsfcnn.tasks.metrics.overlap import Overlap, overlap
from dsfcnn.tasks.metrics.sums import Measure, Sums, ratio


class PanopticQuality(NamedTuple):
    """Panoptic, detection and segmentation quality."""

    pq: float
    dq: float
    sq: float


def panoptic_quality(truth: ArrayLike, prediction: ArrayLike) -> PanopticQuality:
    r"""Of one image: :math:`DQ = TP / (TP + FP/2 + FN/2)`, :math:`SQ` the mean IoU of the pairs found, :math:`PQ = DQ \cdot SQ`.

    A pair is found (TP) when its IoU is more than 0.5, which makes it the only one of both its objects. Nothing true and nothing
    predicted: all three are 1; no pair found otherwise: all three are 0.

    >>> panoptic_quality([[1, 1, 1, 1, 0, 2]], [[3, 3, 3, 0, 0, 0]])
    PanopticQuality(pq=0.5, dq=0.666..., sq=0.75)
    """
    return PanopticQuality(*map(float, _values(_sums(overlap(truth, prediction)))))


def _sums(table: Overlap) -> Sums:
    """True positives, objects on both sides, summed IoU."""
    union = table.union
    found = 2 * table.shared > union
    iou = table.shared[found] / union[found]
    return np.array([np.count_nonzero(found), len(table.truth_area) + len(table.prediction_area), iou.sum()], float)


def _values(sums: Sums) -> tuple[NDArray[Any], ...]:
    found, objects, iou = np.moveaxis(sums, -1, 0)
    dq = ratio(2 * found, objects, 1.0)
    sq = np.where(objects == 0, 1.0, ratio(iou, found, 0.0))
    return dq * sq, dq, sq


PANOPTIC = Measure(("pq", "dq", "sq"), _sums, _values)
