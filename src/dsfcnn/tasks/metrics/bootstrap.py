"""Bootstrap intervals over images: the data set is drawn again many times, with replacement, from its own images."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dsfcnn.errors import UsageError

_BLOCK = 1 << 22  # numbers held at a time: 32 MB


class Estimate(NamedTuple):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def resampled_counts(images: int, resamples: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """How often each image occurs in each resampled data set, (resamples, images) in blocks of rows; the same for the same seed."""
    if resamples < 1:
        raise UsageError(f"resamples: {resamples} give no interval; draw at least 1, better 1000")
    random = np.random.default_rng(seed)
    block = max(1, _BLOCK // images)
    for start in range(0, resamples, block):
        rows = min(block, resamples - start)
        drawn = random.integers(images, size=(rows, images)) + images * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * images).reshape(rows, images).astype(np.float64)


def interval(value: float, drawn: NDArray[Any]) -> Estimate:
    """The value between the 2.5th and 97.5th percentile of what the resamples gave."""
    low, high = np.percentile(drawn[~np.isnan(drawn)], [2.5, 97.5])
    return Estimate(float(value), float(low), float(high))
