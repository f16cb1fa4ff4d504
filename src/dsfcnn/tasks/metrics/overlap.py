"""The one table behind every measure of objects: which true and predicted objects share pixels, and how many."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dsfcnn.errors import DataError
from dsfcnn.tasks.instances import check_instances
from dsfcnn.tasks.runs import strips


@dataclass(frozen=True)
class Objects:
    """The objects of an instance map, numbered from 0 in the order of their ids."""

    map: NDArray[Any]  # (H, W) ids, 0 background
    ids: NDArray[Any]  # (objects,)
    area: NDArray[np.int64]  # (objects,) in pixels
    boxes: NDArray[np.int64]  # (objects, 4): first row, last row, first column, last column


@dataclass(frozen=True)
class Overlap:
    """Objects of two instance maps, and the pairs that share at least a pixel."""

    truths: Objects
    predictions: Objects
    truth: NDArray[Any]  # (pairs,) number of the true object
    prediction: NDArray[Any]  # (pairs,) number of the predicted object
    shared: NDArray[np.int64]  # (pairs,) pixels

    @property
    def truth_area(self) -> NDArray[np.int64]:
        return self.truths.area

    @property
    def prediction_area(self) -> NDArray[np.int64]:
        return self.predictions.area

    @property
    def union(self) -> NDArray[np.int64]:
        """Pixels of either object of each pair."""
        return self.truth_area[self.truth] + self.prediction_area[self.prediction] - self.shared


def overlap(truth: ArrayLike, prediction: ArrayLike) -> Overlap:
    """Table of two instance maps of the same size, in time proportional to it.

    The maps are looked at once, for the stretches of a row in which neither changes; all else is done on these.

    >>> table = overlap([[1, 1, 0, 4]], [[0, 9, 9, 9]])
    >>> table.truth.tolist(), table.prediction.tolist(), table.shared.tolist(), table.union.tolist()
    ([0, 1], [0, 0], [1, 1], [4, 3])
    """
    true, found = check_instances(truth, "truth"), check_instances(prediction, "prediction")
    if true.shape != found.shape:
        raise DataError(f"truth is {true.shape} but prediction is {found.shape}; give two maps of the same image")
    start = np.concatenate([_changes(true[rows], found[rows]) + rows.start * true.shape[1] for rows in strips(true.shape)])
    length = np.diff(start, append=true.size)
    row, column = np.divmod(start, true.shape[1])
    (truths, one), (predictions, other) = (_objects(labels, row, column, length) for labels in (true, found))
    both = (one != -1) & (other != -1)
    stretches = sparse.coo_array((length[both], (one[both], other[both])), shape=(len(truths.ids), len(predictions.ids)))
    pairs = stretches.tocsr().tocoo()  # to rows and back adds up equal places
    return Overlap(truths, predictions, pairs.row, pairs.col, pairs.data)


def _changes(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.int64]:
    """Places, counted row by row, of pixels that begin a row or differ in either map from the pixel before."""
    change = np.ones(one.shape, bool)
    np.not_equal(one[:, 1:], one[:, :-1], out=change[:, 1:])
    change[:, 1:] |= other[:, 1:] != other[:, :-1]
    return np.flatnonzero(change)


def _objects(labels: NDArray[Any], row: NDArray[Any], column: NDArray[Any], length: NDArray[Any]) -> tuple[Objects, NDArray[np.int64]]:
    """The objects of a map from stretches that hold one id each, and the number of each stretch's object, -1 for background."""
    values = labels[row, column]
    ids = np.unique(values[values != 0])
    number = np.where(values == 0, -1, np.searchsorted(ids, values))
    some = number != -1
    own, top, left, right = number[some], row[some], column[some], (column + length - 1)[some]
    boxes = np.empty((len(ids), 4), np.int64)
    boxes[:, [0, 2]], boxes[:, [1, 3]] = labels.size, -1
    for side, (extreme, places) in enumerate(((np.minimum, top), (np.maximum, top), (np.minimum, left), (np.maximum, right))):
        extreme.at(boxes[:, side], own, places)
    area = np.bincount(own, length[some], len(ids)).astype(np.int64)  # in float64: exact
    return Objects(labels, ids, area, boxes), number


def best_pairs(owner: NDArray[Any], owners: int, *merits: NDArray[Any]) -> NDArray[np.int64]:
    """For each of ``owners`` objects the pair with the greatest first merit, ties to the greatest second, and so on; -1 without a pair."""
    best = np.full(owners, -1)
    order = np.lexsort((*merits[::-1], owner))
    best[owner[order]] = order  # of repeated places the last one stays: the greatest
    return best
