"""The area under the receiver operating characteristic, its bootstrap intervals, and those of the difference of two models."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsfcnn.errors import DataError
from dsfcnn.tasks.metrics.bootstrap import Estimate, interval, resampled_counts


def auc(labels: ArrayLike, scores: ArrayLike) -> float:
    r"""Chance that a random positive scores higher than a random negative, ties counted half: :math:`P(s_+ > s_-) + P(s_+ = s_-) / 2`.

    Args:
        labels: 0 or 1 for each image.
        scores: such as the probability of tumour; any finite numbers.

    >>> auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    positive, values = _check(labels, scores)
    return float(_weighted(positive, values, np.ones((1, len(values))))[0])


def auc_interval(labels: ArrayLike, scores: ArrayLike, *, resamples: int = 1000, seed: int = 0) -> Estimate:
    """AUC with its bootstrap 95 % interval over images. Resamples that drew only one class have no AUC and are left out."""
    positive, values = _check(labels, scores)
    drawn = [_weighted(positive, values, counts) for counts in resampled_counts(len(values), resamples, seed)]
    return interval(auc(labels, scores), np.concatenate(drawn))


def auc_difference(labels: ArrayLike, scores: ArrayLike, other_scores: ArrayLike, *, resamples: int = 1000, seed: int = 0) -> Estimate:
    """AUC of ``scores`` minus AUC of ``other_scores`` on the same images, with the 95 % interval of a paired bootstrap.

    Paired: every resample draws the same images for both, so what makes images hard for both cancels. Either may have several rows, such as
    those of networks trained with several seeds, whose AUCs are averaged; the interval is over images alone.

    >>> auc_difference([0, 1, 0, 1], [0.1, 0.9, 0.2, 0.8], [[0.1, 0.9, 0.2, 0.8], [0.9, 0.1, 0.8, 0.2]], resamples=20)
    Estimate(value=0.5, low=0.5, high=0.5)
    """
    positive = _check(labels, np.atleast_2d(scores)[0])[0]
    first, second = ([_check(labels, row)[1] for row in np.atleast_2d(rows)] for rows in (scores, other_scores))

    def lead(counts: NDArray[Any]) -> NDArray[np.float64]:
        mean, other = (np.mean([_weighted(positive, row, counts) for row in rows], axis=0) for rows in (first, second))
        return np.asarray(mean - other)

    drawn = [lead(counts) for counts in resampled_counts(len(positive), resamples, seed)]
    return interval(float(lead(np.ones((1, len(positive))))[0]), np.concatenate(drawn))


def _weighted(positive: NDArray[np.bool_], scores: NDArray[Any], counts: NDArray[Any]) -> NDArray[np.float64]:
    """AUC of data sets (sets, n) given by how often each holds each image; NaN for one without both classes."""
    order = np.argsort(scores, kind="stable")
    scores, positive, counts = scores[order], positive[order], counts[:, order]
    first = np.searchsorted(scores, scores, side="left")  # first and last place of the scores equal to each
    last = np.searchsorted(scores, scores, side="right")
    negatives = np.zeros((len(counts), len(scores) + 1))  # negatives[:, i]: how many stand before place i
    np.cumsum(counts * ~positive, axis=1, out=negatives[:, 1:])
    lower_or_half_equal = (negatives[:, first[positive]] + negatives[:, last[positive]]) / 2
    drawn = counts[:, positive]
    pairs = drawn.sum(1) * negatives[:, -1]
    wins = (drawn * lower_or_half_equal).sum(1)
    return np.divide(wins, pairs, out=np.full(len(counts), np.nan), where=pairs != 0)


def _check(labels: ArrayLike, scores: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    truth, values = np.asarray(labels), np.asarray(scores)
    if truth.dtype.kind not in "biu" or truth.ndim != 1 or not np.isin(truth, (0, 1)).all():
        raise DataError(f"labels: expected 0 or 1 for each image but got {truth.dtype} {truth.shape}; give one integer per image")
    if values.dtype.kind not in "fiu" or values.shape != truth.shape:
        raise DataError(f"scores: expected {len(truth)} numbers but got {values.dtype} {values.shape}; give one score per label")
    if not np.isfinite(values).all():
        raise DataError("scores: some are not finite; leave those images out or score them again")
    if not 0 < np.count_nonzero(truth) < len(truth):
        raise DataError("labels: all are of one class, for which there is no AUC; give images of both classes")
    return truth.astype(bool), values.astype(np.float64)
