r"""Hausdorff distances of objects, in pixels: :math:`H(A, B) = \max(\max_{a \in A} d(a, B), \max_{b \in B} d(b, A))` over all pixels.

Two distance transforms on the smallest box around a pair give its distance, or two KD-trees where the box is mostly empty. An object
without overlap needs the nearest of all others: their boxes bound the distances from below, so only the few whose bound is below the
best distance so far are looked at.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import KDTree

from dsfcnn.tasks.metrics.overlap import Overlap

_FAR = 5  # pixels of the box for each pixel of its two objects; measured: there trees begin to be faster
_Boxes = NDArray[np.int64]  # (objects, 4): first row, last row, first column, last column


def object_distances(table: Overlap) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each predicted and each true object the distance to its partner; where one map is empty, the image's diagonal."""
    truths, predictions = _boxes(table.truth_labels), _boxes(table.prediction_labels)
    of_predictions, of_truths = np.full(len(predictions), np.inf), np.full(len(truths), np.inf)
    if not len(truths) or not len(predictions):
        diagonal = float(np.hypot(*table.truth_labels.shape))
        return np.full_like(of_predictions, diagonal), np.full_like(of_truths, diagonal)

    def distance(truth: int, prediction: int) -> float:
        return _distance(table, truth, prediction, truths[truth], predictions[prediction])

    partner_of_truth = _most_shared(table.truth, table.shared, len(truths))
    partner_of_prediction = _most_shared(table.prediction, table.shared, len(predictions))
    for pair in np.flatnonzero(partner_of_truth | partner_of_prediction):
        t, p = int(table.truth[pair]), int(table.prediction[pair])
        value = distance(t, p)
        if partner_of_truth[pair]:
            of_truths[t] = min(of_truths[t], value)
        if partner_of_prediction[pair]:
            of_predictions[p] = min(of_predictions[p], value)
    for lonely in np.flatnonzero(np.isinf(of_truths)):
        of_truths[lonely] = _nearest(truths[lonely], predictions, partial(distance, int(lonely)))
    for lonely in np.flatnonzero(np.isinf(of_predictions)):
        of_predictions[lonely] = _nearest(predictions[lonely], truths, partial(distance, prediction=int(lonely)))
    return of_predictions, of_truths


def _boxes(labels: NDArray[np.int32]) -> _Boxes:
    found = ndimage.find_objects(labels)
    return np.array([(y.start, y.stop - 1, x.start, x.stop - 1) for y, x in found], np.int64).reshape(-1, 4)


def _most_shared(owner: NDArray[Any], shared: NDArray[Any], owners: int) -> NDArray[np.bool_]:
    """The pairs in which their owner shares most pixels, ties included."""
    most = np.zeros(owners, shared.dtype)
    np.maximum.at(most, owner, shared)
    return shared == most[owner]


def _nearest(box: NDArray[Any], others: _Boxes, distance: Callable[[int], float]) -> float:
    """Smallest distance to any of the others: the outermost pixels of one object are at least as far away as the boxes differ there."""
    bounds = np.abs(others - box).max(1)
    best = np.inf
    for other in np.argsort(bounds, kind="stable"):
        if bounds[other] >= best:
            break
        best = min(best, distance(int(other)))
    return best


def _distance(table: Overlap, truth: int, prediction: int, box_t: NDArray[Any], box_p: NDArray[Any]) -> float:
    top, left = np.minimum(box_t, box_p)[[0, 2]]
    bottom, right = np.maximum(box_t, box_p)[[1, 3]]
    if (bottom + 1 - top) * (right + 1 - left) > _FAR * (table.truth_area[truth] + table.prediction_area[prediction]):
        one, other = _pixels(table.truth_labels, truth + 1, box_t), _pixels(table.prediction_labels, prediction + 1, box_p)
        return float(max(KDTree(other).query(one)[0].max(), KDTree(one).query(other)[0].max()))
    crop = np.s_[top : bottom + 1, left : right + 1]
    a, b = table.truth_labels[crop] == truth + 1, table.prediction_labels[crop] == prediction + 1
    return max(_directed(a, b), _directed(b, a))


def _pixels(labels: NDArray[np.int32], number: int, box: NDArray[Any]) -> NDArray[Any]:
    return np.argwhere(labels[box[0] : box[1] + 1, box[2] : box[3] + 1] == number) + box[[0, 2]]


def _directed(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> float:
    """Largest distance of a pixel of a to the nearest one of b."""
    outside = a & ~b
    return float(ndimage.distance_transform_edt(~b)[outside].max()) if outside.any() else 0.0
