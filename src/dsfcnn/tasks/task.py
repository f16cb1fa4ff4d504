"""A task: from what is known of an image to training targets and loss, from a network's output to a result and its score.

A task names its heads; networks are only told how many channels each has, so tasks and models do not know each other.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dsfcnn.errors import DataError, UsageError
from dsfcnn.tasks.instances import check_instances
from dsfcnn.tasks.metrics.results import Results, score_classes, score_instances
from dsfcnn.tasks.metrics.sums import Measure
from dsfcnn.tasks.runs import strips

if TYPE_CHECKING:
    from torch import Tensor

    Reduce = Callable[[Tensor], Tensor]

_ROUNDING = 1e-3  # how far probabilities may leave [0, 1]: float16 rounds by half of this


class Task(ABC):
    """What every task has.

    Attributes:
        name: "tumour", "glands", "nuclei" or "digits".
        mpp: the resolution it is meant for, microns per pixel.
        heads: the network's outputs by name, each with the names of its channels in order.
    """

    name: str
    mpp: float
    heads: dict[str, tuple[str, ...]]

    @abstractmethod
    def targets(self, truth: Any, mpp: float | None = None) -> Any:
        """What the network learns for one image; ``mpp`` is the image's resolution, the task's own by default."""

    @abstractmethod
    def loss(self, outputs: Any, targets: Any, reduce: "Reduce | None" = None) -> "Tensor":
        """The number that training minimises, from a batch of logits and of targets.

        Where several processes share a batch, ``reduce`` adds a tensor over them; only sums that are divided afterwards need it (Dice).
        """

    @abstractmethod
    def decode(self, probabilities: Any, mpp: float | None = None, settings: Any = None) -> NDArray[Any]:
        """The result for one image from its probabilities."""

    @abstractmethod
    def score(
        self, truths: Iterable[Any], predictions: Iterable[Any], names: Sequence[str] | None = None, *, resamples: int = 1000, seed: int = 0
    ) -> Results:
        """The task's measures over a data set, with bootstrap intervals over its images."""

    def resolution(self, mpp: float | None) -> float:
        """``mpp``, or the task's own."""
        if mpp is None:
            return self.mpp
        if not (np.isfinite(mpp) and mpp > 0):
            raise UsageError(f"mpp: {mpp!r} is no resolution; give microns per pixel as a positive number")
        return float(mpp)


def with_settings(task: Task, changes: Mapping[str, Any] | None) -> Task:
    """The task with some of its decoding settings changed, as a model folder may ask for."""
    if not changes:
        return task
    try:
        settings = replace(getattr(task, "settings", None), **changes)  # type: ignore[type-var]
    except TypeError:
        raise UsageError(f"decode: {task.name} has no settings {', '.join(changes)}; see docs/tasks.md") from None
    changed = copy(task)
    changed.settings = settings  # type: ignore[attr-defined]
    return changed


class Classification(Task):
    """One class per image: cross-entropy, and probabilities as they are."""

    def __init__(self, name: str, mpp: float, classes: tuple[str, ...]):
        self.name, self.mpp, self.heads = name, mpp, {"class": classes}
        self.classes = classes

    def expect_classes(self, classes: tuple[str, ...], name: str) -> None:
        """Labels of a data set count its own classes; they mean the same here only if these are the task's, in the same order."""
        if tuple(classes) != self.classes:
            own = ", ".join(self.classes)
            raise DataError(f"{name}: its classes are {', '.join(classes)}, those of {self.name} are {own}; name the folders so")

    def targets(self, truth: int, mpp: float | None = None) -> int:
        """The label itself, an index into ``classes``."""
        if isinstance(truth, bool) or not isinstance(truth, (int, np.integer)) or not 0 <= truth < len(self.classes):
            raise DataError(f"label: {truth!r} is no class of {self.name}; give an integer from 0 to {len(self.classes) - 1}")
        return int(truth)

    def loss(self, outputs: "Tensor", targets: "Tensor", reduce: "Reduce | None" = None) -> "Tensor":
        """Mean cross-entropy of logits (N, classes) and labels (N,)."""
        from dsfcnn.tasks.losses import cross_entropy

        return cross_entropy(outputs, targets)

    def decode(self, probabilities: ArrayLike, mpp: float | None = None, settings: None = None) -> NDArray[Any]:
        """The probabilities (classes,), checked."""
        array = np.asarray(probabilities)
        return check_probabilities(array, (len(self.classes),), "class")

    def score(
        self,
        truths: Iterable[int],
        predictions: Iterable[ArrayLike],
        names: Sequence[str] | None = None,
        *,
        resamples: int = 1000,
        seed: int = 0,
    ) -> Results:
        """Accuracy, and the AUC of the second class where there are two, from labels and probabilities (images, classes)."""
        labels = [self.targets(truth) for truth in truths]
        rows = [self.decode(row) for row in predictions]
        return score_classes(labels, rows, self.classes, names, resamples=resamples, seed=seed)


class Segmentation(Task):
    """Objects of an image as an instance map (H, W); the subclasses say how they are drawn and found."""

    settings: Any  # decoding constants when none are given
    measures: tuple[Measure, ...]  # what the paper reports of the task

    def targets(self, truth: ArrayLike, mpp: float | None = None, *, seams: bool = False) -> dict[str, NDArray[Any]]:
        """Per head a map of class indices, uint8 (H, W); nuclei also "weight", float32 (H, W), for the loss of the marker head.

        With ``seams``, glands have weights too, and those of both are high where objects touch, not only between them.
        """
        return self.draw(check_instances(truth), self.resolution(mpp), seams)

    def decode(self, probabilities: dict[str, ArrayLike], mpp: float | None = None, settings: Any = None) -> NDArray[np.int32]:
        """Instance map, int32 (H, W), from the probabilities (C, H, W) of each head."""
        if set(probabilities) != set(self.heads):
            raise DataError(
                f"probabilities: expected heads {list(self.heads)} but got {list(probabilities)}; give those of a {self.name} model"
            )
        arrays = {head: np.asarray(probabilities[head]) for head in self.heads}
        first = next(iter(arrays.values())).shape
        size = first[1:] if len(first) == 3 else ("H", "W")
        for head, channels in self.heads.items():
            check_probabilities(arrays[head], (len(channels), *size), head)
        return self.find(arrays, self.resolution(mpp), self.settings if settings is None else settings)

    def score(
        self,
        truths: Iterable[ArrayLike],
        predictions: Iterable[ArrayLike],
        names: Sequence[str] | None = None,
        *,
        resamples: int = 1000,
        seed: int = 0,
    ) -> Results:
        """The task's measures of pairs of instance maps."""
        return score_instances(truths, predictions, self.measures, names, resamples=resamples, seed=seed)

    @abstractmethod
    def draw(self, instances: NDArray[Any], mpp: float, seams: bool) -> dict[str, NDArray[Any]]:
        """Targets of a checked instance map."""

    @abstractmethod
    def find(self, probabilities: dict[str, NDArray[Any]], mpp: float, settings: Any) -> NDArray[np.int32]:
        """Objects in checked probabilities."""


def check_probabilities(array: NDArray[Any], shape: tuple[Any, ...], head: str) -> NDArray[Any]:
    """The array if its numbers can be probabilities and it has this shape."""
    if array.dtype.kind != "f" or array.shape != shape or array.size == 0:
        wanted = ", ".join(map(str, shape))
        raise DataError(
            f"{head}: expected float probabilities ({wanted}) but got {array.dtype} {array.shape}; give the softmax of one image"
        )
    parts = [array[:, rows] for rows in strips(shape[1:])] if len(shape) == 3 else [array]
    low, high = np.min([part.min() for part in parts]), np.max([part.max() for part in parts])
    if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):  # also where they are NaN
        raise DataError(f"{head}: probabilities from {low} to {high} are not between 0 and 1; give the softmax of finite logits")
    return array
