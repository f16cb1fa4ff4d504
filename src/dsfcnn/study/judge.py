"""A model folder judged on a split of a data set: scores with intervals, pictures of the best and the worst, and how exactly it turns."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from skimage.segmentation import find_boundaries
from torch import Tensor, nn

from dsfcnn.data import Dataset, Sample
from dsfcnn.files import atomic_write
from dsfcnn.inference.network import TorchNetwork, class_probabilities
from dsfcnn.inference.predictor import Predictor
from dsfcnn.models import find_model, load_model, read_config
from dsfcnn.tasks import Task
from dsfcnn.tasks.metrics.results import Results
from dsfcnn.tasks.task import Segmentation
from dsfcnn.testing import equivariance_error
from dsfcnn.training.evaluation import score, to_tensor
from dsfcnn.training.images import expect_fitting, rescale
from dsfcnn.training.report import FOUND, TRUTH

_SHOWN = 3  # of the best, of those in the middle, and of the worst
_CROP = 256  # pixels of the image that is turned, at most
_FIRST = {"nuclei": "pq", "glands": "object_dice"}  # the measure by which images are ranked


class Judged:
    """A model of a folder, judged by what ``dsfcnn predict`` finds with it. ``wrap`` is put around the network."""

    def __init__(self, model: str | Path, wrap: Callable[[nn.Module], nn.Module] | None = None):
        folder = find_model(model)
        self.model = load_model(folder) if wrap is None else wrap(load_model(folder))
        self.predictor = Predictor(TorchNetwork(self.model), read_config(folder))
        self.task, self.mpp = self.predictor.task, self.predictor.mpp
        self.weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()

    def score(self, images: Dataset, seen: Callable[..., None] | None = None) -> Results:
        expect_fitting(images, self.task)
        return score(self.task, images, self.predict, seen=seen)

    def predict(self, samples: list[Sample]) -> list[np.ndarray]:
        """Of each image the instances, in its own pixels, or the probabilities of its classes."""
        if self.task.name == "digits":
            return list(class_probabilities(self.predictor.network, np.stack([sample.image for sample in samples])))
        find = self.predictor.segment if isinstance(self.task, Segmentation) else self.predictor.classify
        return [find(sample.image, sample.mpp) for sample in samples]

    def equivariance(self, images: Dataset) -> dict[str, float]:
        """Relative error of the probabilities when the first image wide enough is turned by 90 degrees and by 45; none without one."""
        for number in range(len(images)):
            first = images[number]
            image = rescale(first.image, first.mpp, self.mpp)
            side = min(*image.shape[:2], _CROP) // 2 * 2
            if side:
                break
        else:
            return {}
        top, left = ((length - side) // 2 for length in image.shape[:2])
        crop = to_tensor(image[None, top : top + side, left : left + side])

        def softmax(x: Tensor) -> Any:
            outputs = self.model(x)
            return [logits.softmax(1) for logits in (outputs.values() if isinstance(outputs, dict) else [outputs])]

        with torch.inference_mode():
            found = equivariance_error(softmax, crop, "C8", angles=(45, 90))
        return {f"{angle} degrees": error for angle, error in found.items()}


def ranked(results: Results, task: Task) -> list[int]:
    """Images from the best to the worst."""
    rows = results.rows
    if "p_tumour" in rows:  # how sure it was of the truth
        values = np.where(np.asarray(rows["label"]) == 1, rows["p_tumour"], 1 - np.asarray(rows["p_tumour"]))
    else:
        values = rows[_FIRST.get(task.name, "correct")]
    return [int(number) for number in np.argsort(-np.asarray(values, dtype=float), kind="stable")]


def write_judgement(folder: Path, judged: Judged, images: Dataset, results: Results, about: dict[str, Any]) -> None:
    """metrics.json, table.md, best.png, middle.png and worst.png."""
    found = {**about, **results.as_dict(), "equivariance error": judged.equivariance(images)}
    with atomic_write(folder / "metrics.json") as stream:
        stream.write(json.dumps(found, indent=2).encode() + b"\n")
    with atomic_write(folder / "table.md") as stream:
        stream.write(results.table().encode())
    order = ranked(results, judged.task)
    middle = max(0, (len(order) - _SHOWN) // 2)
    shown = {"best": order[:_SHOWN], "middle": order[middle : middle + _SHOWN], "worst": order[::-1][:_SHOWN]}
    for name, numbers in shown.items():
        with atomic_write(folder / f"{name}.png") as stream:
            _sheet(judged, images, numbers, results).savefig(stream, format="png", dpi=100, metadata={"Software": None})


def _sheet(judged: Judged, images: Dataset, numbers: list[int], results: Results) -> Figure:
    figure = Figure(figsize=(5 * len(numbers), 5.6), layout="constrained")
    for axes, number in zip(np.atleast_1d(figure.subplots(1, len(numbers))), numbers):
        sample = images[number]
        (found,) = judged.predict([sample])
        picture = np.repeat(sample.image, 3, axis=2) if sample.image.shape[2] == 1 else sample.image.copy()
        title = results.images[number]
        if sample.instances is not None:
            picture[find_boundaries(sample.instances, mode="inner")] = TRUTH
            picture[find_boundaries(found, mode="inner")] = FOUND
            first = _FIRST[judged.task.name]
            title += f"\n{first} {results.rows[first][number]:.3f}; truth yellow, found blue"
        elif sample.label is not None:
            title += f"\nclass {images.classes[sample.label]}, p = {found[sample.label]:.3f}"
        axes.imshow(picture)
        axes.set_title(title, fontsize=9, parse_math=False)
        axes.set_axis_off()
    return figure
