"""The aggregated Jaccard index (Kumar et al. 2017)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsfcnn.tasks.metrics.overlap import Overlap, best_pairs, overlap
from dsfcnn.tasks.metrics.sums import Measure, Sums, ratio


def aggregated_jaccard(truth: ArrayLike, prediction: ArrayLike) -> float:
    r"""Of one image: :math:`\sum_i |G_i \cap S_{j(i)}| \,/\, (\sum_i |G_i \cup S_{j(i)}| + \sum_{j \in U} |S_j|)`.

    :math:`S_{j(i)}` is the prediction of the greatest IoU with the true object :math:`G_i`, of ties the one that shares most; a true
    object that meets no prediction adds its area to the denominator. :math:`U` are the predictions that are no true object's best one
    (of predictions that tie in everything none is left over). Nothing true and nothing predicted: 1; one of them empty: 0.

    >>> aggregated_jaccard([[1, 1, 1, 1, 0, 0]], [[3, 3, 3, 0, 0, 4]])
    0.6
    """
    return float(_values(_sums(overlap(truth, prediction)))[0])


def _sums(table: Overlap) -> Sums:
    """Pixels shared and pixels of all unions."""
    union = table.union
    iou = table.shared / union
    best = best_pairs(table.truth, len(table.truth_area), iou, table.shared)
    lonely, best = best == -1, best[best != -1]
    of_owner = np.zeros((2, len(table.truth_area)))
    of_owner[:, table.truth[best]] = iou[best], table.shared[best]
    partner = (iou == of_owner[0, table.truth]) & (table.shared == of_owner[1, table.truth])
    surplus = np.ones(len(table.prediction_area), bool)
    surplus[table.prediction[partner]] = False
    whole = union[best].sum() + table.truth_area[lonely].sum() + table.prediction_area[surplus].sum()
    return np.array([table.shared[best].sum(), whole], float)


def _values(sums: Sums) -> tuple[NDArray[Any]]:
    return (ratio(sums[..., 0], sums[..., 1], 1.0),)


JACCARD = Measure(("aji",), _sums, _values)
