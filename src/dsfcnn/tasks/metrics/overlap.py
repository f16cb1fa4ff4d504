"""The one table behind every measure of objects: which true and predicted objects share pixels, and how many."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dsfcnn.errors import DataError
from dsfcnn.tasks.instances import check_instances, compact


@dataclass(frozen=True)
class Overlap:
    """Areas and overlaps of two instance maps. Objects are numbered from 0, pairs are those that share at least a pixel."""

    truth_labels: NDArray[np.int32]  # (H, W): 0 background, else number + 1
    prediction_labels: NDArray[np.int32]
    truth_area: NDArray[np.int64]  # (true objects,) in pixels
    prediction_area: NDArray[np.int64]
    truth: NDArray[Any]  # (pairs,) number of the true object
    prediction: NDArray[Any]  # (pairs,) number of the predicted object
    shared: NDArray[np.int64]  # (pairs,) pixels

    @property
    def union(self) -> NDArray[np.int64]:
        """Pixels of either object of each pair."""
        return self.truth_area[self.truth] + self.prediction_area[self.prediction] - self.shared


def overlap(truth: ArrayLike, prediction: ArrayLike) -> Overlap:
    """Table of two instance maps of the same size, in time proportional to it.

    >>> table = overlap([[1, 1, 0, 4]], [[0, 9, 9, 9]])
    >>> table.truth.tolist(), table.prediction.tolist(), table.shared.tolist(), table.union.tolist()
    ([0, 1], [0, 0], [1, 1], [4, 3])
    """
    true, found = check_instances(truth, "truth"), check_instances(prediction, "prediction")
    if true.shape != found.shape:
        raise DataError(f"truth is {true.shape} but prediction is {found.shape}; give two maps of the same image")
    rows, columns = compact(true)[0], compact(found)[0]
    truth_area, prediction_area = np.bincount(rows.ravel())[1:], np.bincount(columns.ravel())[1:]
    both = (rows != 0) & (columns != 0)
    pixels = sparse.coo_array(
        (np.ones(np.count_nonzero(both), np.int64), (rows[both] - 1, columns[both] - 1)), shape=(len(truth_area), len(prediction_area))
    )
    pairs = pixels.tocsr().tocoo()  # to rows and back adds up equal places
    return Overlap(rows, columns, truth_area, prediction_area, pairs.row, pairs.col, pairs.data)


def best_pairs(owner: NDArray[Any], owners: int, *merits: NDArray[Any]) -> NDArray[np.int64]:
    """For each of ``owners`` objects the pair with the greatest first merit, ties to the greatest second, and so on; -1 without a pair."""
    best = np.full(owners, -1)
    order = np.lexsort((*merits[::-1], owner))
    best[owner[order]] = order  # of repeated places the last one stays: the greatest
    return best
