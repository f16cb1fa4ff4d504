"""The scores of a data set: every image, means over images, pooled values, and 95 % intervals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsfcnn.errors import DataError
from dsfcnn.tasks.metrics.auc import auc_interval
from dsfcnn.tasks.metrics.bootstrap import Estimate, interval, resampled_counts
from dsfcnn.tasks.metrics.dice import BINARY_DICE
from dsfcnn.tasks.metrics.glas import OBJECT_DICE, OBJECT_F1, OBJECT_HAUSDORFF
from dsfcnn.tasks.metrics.jaccard import JACCARD
from dsfcnn.tasks.metrics.overlap import overlap
from dsfcnn.tasks.metrics.panoptic import PANOPTIC
from dsfcnn.tasks.metrics.sums import Measure

NUCLEI_MEASURES = (PANOPTIC, JACCARD, BINARY_DICE)
GLAND_MEASURES = (OBJECT_F1, OBJECT_DICE, OBJECT_HAUSDORFF)


@dataclass(frozen=True)
class Results:
    """Scores of a data set.

    Attributes:
        images: a name for each image.
        rows: for each measure its value on every image.
        mean: mean over images of the values in ``rows``.
        pooled: the measure of the whole data set as if it were one image.
        resamples, seed: of the bootstrap over images that gave the intervals.
    """

    images: tuple[str, ...]
    rows: dict[str, NDArray[Any]]
    mean: dict[str, Estimate]
    pooled: dict[str, Estimate]
    resamples: int
    seed: int

    def as_dict(self) -> dict[str, Any]:
        """All of it in plain numbers, lists and dictionaries, fit for JSON."""
        columns = {name: values.tolist() for name, values in self.rows.items()}
        return {
            "mean": {name: estimate._asdict() for name, estimate in self.mean.items()},
            "pooled": {name: estimate._asdict() for name, estimate in self.pooled.items()},
            "images": [{"image": image, **{name: columns[name][i] for name in columns}} for i, image in enumerate(self.images)],
            "bootstrap": {"over": "images", "interval": 0.95, "resamples": self.resamples, "seed": self.seed},
        }

    def table(self) -> str:
        """The means and pooled values with their intervals, as Markdown."""
        lines = [f"| measure | mean over {len(self.images)} images (95 %) | pooled (95 %) |", "| --- | --- | --- |"]
        for name in dict.fromkeys([*self.mean, *self.pooled]):
            lines.append(f"| {name} | {_cell(self.mean.get(name))} | {_cell(self.pooled.get(name))} |")
        return "\n".join(lines) + "\n"


def score_instances(
    truths: Iterable[ArrayLike],
    predictions: Iterable[ArrayLike],
    measures: Sequence[Measure] = NUCLEI_MEASURES + GLAND_MEASURES,
    names: Sequence[str] | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Results:
    """Measures of pairs of instance maps, one pair in memory at a time."""
    sums: list[list[NDArray[Any]]] = []
    for number, (truth, prediction) in enumerate(_pairs(truths, predictions)):
        try:
            table = overlap(truth, prediction)
        except DataError as error:
            raise DataError(f"{names[number] if names and number < len(names) else f'image {number}'}: {error}") from error
        sums.append([measure.sums(table) for measure in measures])
    images = _names(names, len(sums))
    rows, mean, pooled = {}, {}, {}
    counts = list(resampled_counts(len(sums), resamples, seed))
    for measure, columns in zip(measures, zip(*sums)):
        per_image = np.stack(columns)  # images, sums
        drawn = [measure.values(block @ per_image) for block in counts]
        for i, name in enumerate(measure.names):
            values = measure.values(per_image)[i]
            rows[name] = values
            mean[name] = interval(values.mean(), np.concatenate([block @ values / len(values) for block in counts]))
            pooled[name] = interval(float(measure.values(per_image.sum(0))[i]), np.concatenate([block[i] for block in drawn]))
    return Results(images, rows, mean, pooled, resamples, seed)


def score_classes(
    labels: Sequence[int],
    probabilities: Sequence[ArrayLike],
    classes: Sequence[str],
    names: Sequence[str] | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Results:
    """Accuracy, and of two classes the AUC of the second, from a label and the probabilities of the classes for each image."""
    if len(labels) != len(probabilities):
        raise DataError(f"{len(labels)} labels but {len(probabilities)} predictions; give one of each for every image")
    images = _names(names, len(labels))
    truth, table = np.asarray(labels), np.asarray(probabilities)
    predicted = table.argmax(1)
    correct = (predicted == truth).astype(float)
    rows = {"label": truth, "predicted": predicted, "correct": correct}
    drawn = np.concatenate([counts @ correct / len(correct) for counts in resampled_counts(len(correct), resamples, seed)])
    pooled = {"accuracy": interval(correct.mean(), drawn)}
    if len(classes) == 2:
        rows[f"p_{classes[1]}"] = table[:, 1]
    if len(classes) == 2 and len(set(labels)) == 2:  # images of one class have no AUC
        pooled = {"auc": auc_interval(truth, table[:, 1], resamples=resamples, seed=seed), **pooled}
    return Results(images, rows, {}, pooled, resamples, seed)


def _pairs(truths: Iterable[Any], predictions: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    for pair in zip_longest(truths, predictions):
        if pair[0] is None or pair[1] is None:
            raise DataError("truths and predictions are not equally many; give one of each for every image")
        yield pair


def _names(names: Sequence[str] | None, images: int) -> tuple[str, ...]:
    if images == 0:
        raise DataError("there are no images to score; give at least one")
    if names is not None and len(names) != images:
        raise DataError(f"{len(names)} names but {images} images; give a name for each image")
    return tuple(names) if names is not None else tuple(str(number) for number in range(images))


def _cell(estimate: Estimate | None) -> str:
    return "" if estimate is None else f"{estimate.value:.4f} ({estimate.low:.4f} to {estimate.high:.4f})"
