"""A model judged on whole images, by the measures of its task."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dsfcnn.data import Dataset, Sample
from dsfcnn.errors import DataError
from dsfcnn.tasks import Task
from dsfcnn.tasks.metrics.results import Results
from dsfcnn.training.images import rescale

_SMALLEST = 16  # pixels along each side that four poolings leave something of
_DIGITS = 64  # that the network sees at once, as in training


def to_tensor(images: np.ndarray) -> Tensor:
    """uint8 (N, H, W, C) to float (N, C, H, W) in [0, 1]."""
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).float() / 255


def probabilities(model: Callable[[Tensor], Any], image: np.ndarray) -> dict[str, np.ndarray]:
    """Softmax of every head for one image: (C, H, W), or (C,) under "class"."""
    height, width = image.shape[:2]
    low, high = max(0, _SMALLEST - height), max(0, _SMALLEST - width)
    padded = np.pad(image, ((0, low), (0, high), (0, 0)), mode="edge") if low or high else image
    with torch.inference_mode():
        outputs = model(to_tensor(padded[None]).to(_number_type(model)))
        _expect_finite(outputs)
        if not isinstance(outputs, dict):
            return {"class": outputs[0].double().softmax(0).float().numpy()}
        return {head: logits[0, :, :height, :width].softmax(0).float().numpy() for head, logits in outputs.items()}


def _expect_finite(outputs: Any) -> None:
    """Weights that a step has driven too far are finite, and what comes of them is not."""
    if not all(torch.isfinite(logits).all() for logits in (outputs.values() if isinstance(outputs, dict) else [outputs])):
        raise DataError("what the network gives is not finite; lower learning_rate or set clip, and start again")


def _number_type(model: Any) -> torch.dtype:
    return next((weight.dtype for weight in model.parameters()), torch.float32) if isinstance(model, nn.Module) else torch.float32


def predict(model: nn.Module, task: Task, image: np.ndarray, image_mpp: float, mpp: float) -> np.ndarray:
    """Instances in the image's own pixels, or the probabilities of its classes.

    The network sees the image at ``mpp``; its maps are brought back to the image's resolution before objects are found, so that
    small ones and narrow gaps keep their pixels.
    """
    found = probabilities(model, rescale(image, image_mpp, mpp))
    if "class" in found:
        return task.decode(found["class"])
    return task.decode({head: enlarge(maps, image.shape[:2]) for head, maps in found.items()}, image_mpp)


def predict_digits(model: nn.Module, samples: list[Sample]) -> list[np.ndarray]:
    """Probabilities of the classes of images that are all of one size."""
    with torch.inference_mode():
        logits = model(to_tensor(np.stack([sample.image for sample in samples])).to(_number_type(model)))
        _expect_finite(logits)
        return list(logits.double().softmax(1).float().numpy())


def enlarge(maps: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """(C, h, w) to (C, H, W), bilinear."""
    if maps.shape[1:] == size:
        return maps
    return nn.functional.interpolate(torch.from_numpy(maps)[None], size=size, mode="bilinear", antialias=True)[0].numpy()


def evaluate(
    model: nn.Module,
    task: Task,
    images: Dataset,
    mpp: float,
    *,
    resamples: int = 1000,
    seen: Callable[[int, Sample, np.ndarray], None] | None = None,
) -> Results:
    """The task's measures of a model over a data set, each image seen whole."""

    def find(samples: list[Sample]) -> list[np.ndarray]:
        if task.name == "digits":
            return predict_digits(model, samples)
        return [predict(model, task, sample.image, sample.mpp, mpp) for sample in samples]

    was_training = model.training
    model.eval()
    try:
        return score(task, images, find, resamples=resamples, seen=seen)
    finally:
        model.train(was_training)


def score(
    task: Task,
    images: Dataset,
    find: Callable[[list[Sample]], list[np.ndarray]],
    *,
    resamples: int = 1000,
    seen: Callable[[int, Sample, np.ndarray], None] | None = None,
) -> Results:
    """The task's measures of what ``find`` finds in the images of a data set; ``seen`` is shown every image with what was found.

    ``find`` is given one image at a time, and digits by the dozen.
    """
    names = [images.source(number) for number in range(len(images))]
    waiting: deque[np.ndarray] = deque()

    def truths() -> Iterator[Any]:
        """What was found in an image waits until it is asked for."""
        at_once = _DIGITS if task.name == "digits" else 1
        for start in range(0, len(images), at_once):
            samples = [images[number] for number in range(start, min(start + at_once, len(images)))]
            for number, (sample, found) in enumerate(zip(samples, find(samples)), start):
                waiting.append(found)
                if seen:
                    seen(number, sample, found)
                yield sample.label if sample.instances is None else sample.instances

    def predictions() -> Iterator[np.ndarray]:
        while waiting:
            yield waiting.popleft()

    return task.score(truths(), predictions(), names, resamples=resamples)
