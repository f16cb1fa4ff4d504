"""The measures of the GlaS challenge (Sirinukunwattana et al. 2017): object F1, object Dice and object Hausdorff distance.

The partner of an object is the object of the other map that it shares most pixels with. Background is nobody's partner. Pooled over a data
set, F1 counts the objects of all images, and Dice and Hausdorff weigh each object by its share of all objects' pixels.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsfcnn.tasks.metrics.hausdorff import object_distances
from dsfcnn.tasks.metrics.overlap import Overlap, best_pairs, overlap
from dsfcnn.tasks.metrics.sums import Measure, Sums, mean_of_sides, ratio


def object_f1(truth: ArrayLike, prediction: ArrayLike) -> float:
    r"""Of one image: :math:`2 TP / (2 TP + FP + FN)`.

    A predicted object is a true positive when it covers more than half of the pixels of its partner (of partners that tie, the one
    with the higher Dice). The other predictions are false positives; true objects without a true positive are false negatives.
    Nothing true and nothing predicted: 1; one of them empty: 0.

    >>> object_f1([[1, 1, 1, 0, 2]], [[4, 4, 4, 4, 0]])
    0.666...
    """
    return float(_f1_values(_f1_sums(overlap(truth, prediction)))[0])


def object_dice(truth: ArrayLike, prediction: ArrayLike) -> float:
    r"""Of one image: :math:`\frac12 [\sum_i w_i D(S_i, G_{(i)}) + \sum_j v_j D(G_j, S_{(j)})]`.

    :math:`D(A, B) = 2 |A \cap B| / (|A| + |B|)`; weights :math:`w_i = |S_i| / \sum |S|`, :math:`v_j = |G_j| / \sum |G|`.
    :math:`G_{(i)}` is the partner of the predicted :math:`S_i`, of ties the one with the higher Dice; without a partner :math:`D = 0`.
    Nothing true and nothing predicted: 1; one of them empty: 0.

    >>> object_dice([[1, 1, 0, 2]], [[3, 3, 0, 0]])
    0.833...
    """
    return float(_dice_values(_dice_sums(overlap(truth, prediction)))[0])


def object_hausdorff(truth: ArrayLike, prediction: ArrayLike) -> float:
    r"""Of one image, in pixels: :math:`\frac12 [\sum_i w_i H(S_i, G_{(i)}) + \sum_j v_j H(G_j, S_{(j)})]`.

    :math:`H` is the symmetric Hausdorff distance over all pixels of both objects, weights are as in :func:`object_dice`. Of partners that
    tie the nearest counts, and an object without a partner takes the nearest object of the other map, both by :math:`H`. Nothing true
    and nothing predicted: 0; one of them empty: the diagonal of the image, :math:`\sqrt{height^2 + width^2}`, which is more than any
    distance in it.

    >>> object_hausdorff([[1, 1, 1, 0, 0]], [[0, 3, 3, 3, 3]])
    2.0
    """
    return float(_hausdorff_values(_hausdorff_sums(overlap(truth, prediction)))[0])


def _f1_sums(table: Overlap) -> Sums:
    """True positives, objects on both sides."""
    best = best_pairs(table.prediction, len(table.prediction_area), table.shared, -table.truth_area[table.truth])
    best = best[best != -1]
    hit = 2 * table.shared[best] > table.truth_area[table.truth[best]]
    return np.array([np.count_nonzero(hit), len(table.truth_area) + len(table.prediction_area)], float)


def _f1_values(sums: Sums) -> tuple[NDArray[Any]]:
    return (ratio(2 * sums[..., 0], sums[..., 1], 1.0),)


def _dice_sums(table: Overlap) -> Sums:
    dice = 2 * table.shared / (table.truth_area[table.truth] + table.prediction_area[table.prediction])
    sums = []
    for owner, area in ((table.prediction, table.prediction_area), (table.truth, table.truth_area)):
        best = best_pairs(owner, len(area), table.shared, dice)
        best = best[best != -1]
        sums += [(area[owner[best]] * dice[best]).sum(), area.sum()]
    return np.array(sums, float)


def _dice_values(sums: Sums) -> tuple[NDArray[Any]]:
    return mean_of_sides(sums, empty=1.0)


def _hausdorff_sums(table: Overlap) -> Sums:
    of_predictions, of_truths = object_distances(table)
    p, t = table.prediction_area, table.truth_area
    return np.array([(p * of_predictions).sum(), p.sum(), (t * of_truths).sum(), t.sum()], float)


def _hausdorff_values(sums: Sums) -> tuple[NDArray[Any]]:
    return mean_of_sides(sums, empty=0.0)


OBJECT_F1 = Measure(("object_f1",), _f1_sums, _f1_values)
OBJECT_DICE = Measure(("object_dice",), _dice_sums, _dice_values)
OBJECT_HAUSDORFF = Measure(("object_hausdorff",), _hausdorff_sums, _hausdorff_values)
