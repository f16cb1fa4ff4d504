"""The images that a run learns from and is judged by."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsfcnn.data import Dataset, Sample, open_dataset
from dsfcnn.data.crops import random_stream
from dsfcnn.errors import DataError, UsageError
from dsfcnn.slides import resample
from dsfcnn.tasks import Task, get
from dsfcnn.tasks.task import Classification, Segmentation
from dsfcnn.training.config import TrainConfig


@dataclass
class Chosen:
    """Some samples of one or several splits of a data set, by their numbers in all of these."""

    splits: tuple[Dataset, ...]
    numbers: list[int]

    @property
    def name(self) -> str:
        return " and ".join(split.name for split in self.splits)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.splits[0].classes

    @property
    def mpp(self) -> float:
        return self.splits[0].mpp

    @property
    def unpaired(self) -> tuple[str, ...]:
        return tuple(name for split in self.splits for name in split.unpaired)

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for split in self.splits for path in split.files)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Sample:
        split, number = self._find(index)
        return split[number]

    def source(self, index: int) -> str:
        split, number = self._find(index)
        return split.source(number)

    def _find(self, index: int) -> tuple[Dataset, int]:
        number = self.numbers[index]
        for split in self.splits[:-1]:
            if number < len(split):
                return split, number
            number -= len(split)
        return self.splits[-1], number


def rescale(image: np.ndarray, image_mpp: float, mpp: float) -> np.ndarray:
    """An image at another resolution, uint8 (H, W, C), by the filter that slides are read with."""
    height, width = size_at(image.shape[:2], image_mpp, mpp)
    return image if (height, width) == image.shape[:2] else resample(image, width, height)


def size_at(size: tuple[int, ...], mpp: float, wanted: float) -> tuple[int, int]:
    """Height and width of an image at another resolution, at least 1."""
    height, width = (max(1, round(length * mpp / wanted)) for length in size)
    return height, width


def open_images(config: TrainConfig) -> tuple[Dataset, Dataset]:
    """Images for training and for validation (none in a final fit), at their own resolution."""
    train: Dataset = _open(config, config.train_split)
    task = get(config.task)
    expect_fitting(train, task)
    splits: tuple[Dataset, ...] = (train,)
    valid: Dataset
    numbers = list(range(len(train)))
    if config.valid_split is not None:
        valid = _open(config, config.valid_split)
        _expect_apart(train, valid, config)
    else:
        held = _held_out(config, train)
        valid, numbers = Chosen(splits, sorted(held)), [number for number in numbers if number not in held]
    if config.final_fit:
        splits = splits if config.valid_split is None else (train, valid)
        valid, numbers = Chosen(splits, []), list(range(sum(map(len, splits))))
    elif not numbers or not len(valid):
        what, size = ("training", "smaller") if not numbers else ("validation", "larger")
        raise UsageError(f"{train.name}: no images left for {what}; set valid_split, or held_out to a {size} number")
    if config.images is not None:
        order = np.argsort(random_stream(config.seed, 3).random(len(numbers)), kind="stable")[: config.images]
        numbers = sorted(numbers[i] for i in order)
    return Chosen(splits, numbers), valid


def expect_fitting(images: Dataset, task: Task) -> None:
    """The images have what the task learns from and is judged by."""
    if isinstance(task, Classification):
        task.expect_classes(images.classes, images.name)
    if isinstance(task, Segmentation) and len(images) and images[0].instances is None:
        raise DataError(f"{images.name}: its images have classes, and {task.name} needs instance maps; give data that has them")
    if task.name == "digits" and len(images) and images[0].image.shape[2] != 1:
        raise DataError(f"{images.name}: its images have colours, and digits are grey; give rotated MNIST")


def expect_two_classes(valid: Dataset, seed: int, advice: str = "give images of both, or select=accuracy") -> None:
    """Images of one class have no AUC. Two are found soon, by looking here and there."""
    seen = set()
    for number in np.argsort(random_stream(seed, 4).random(len(valid))).tolist():
        seen.add(valid[number].label)
        if len(seen) > 1:
            return
    only = ", ".join(valid.classes[label] for label in seen if label is not None)
    raise DataError(f"{valid.name}: all {len(valid)} images to judge by are {only}, for which there is no AUC; {advice}")


def _open(config: TrainConfig, split: str) -> Dataset:
    return open_dataset(config.data, split, config.format, config.data_mpp, split_file=config.split_file, cache=config.cache, aligned=True)


def _expect_apart(train: Dataset, valid: Dataset, config: TrainConfig) -> None:
    """Nothing is learned from that is judged by: no sample of one name comes from a file of both splits, nor is drawn for both."""
    if set(train.files).isdisjoint(valid.files) and train.files:
        return  # equal names in different folders
    known = {train.source(number) for number in range(len(train))}
    shared = next((name for number in range(len(valid)) if (name := valid.source(number)) in known), None)
    if shared is not None:
        raise UsageError(
            f"valid_split: {shared} is in {config.valid_split} and in {config.train_split}; give splits that share no image, or held_out"
        )


def _held_out(config: TrainConfig, train: Dataset) -> set[int]:
    names = [train.source(number) for number in range(len(train))]
    wholes = [name.rpartition("[")[0] for name in names] if train.name == "slides" else names  # a slide stays in one part
    if isinstance(config.held_out, int):
        drawn = list(dict.fromkeys(wholes))
        order = np.argsort(random_stream(config.seed, 2).random(len(drawn)), kind="stable")
        chosen = {drawn[place] for place in order[: config.held_out]}
        return {number for number, whole in enumerate(wholes) if whole in chosen}
    held = set()
    for wanted in config.held_out:
        found = {whole for name, whole in zip(names, wholes) if wanted in (name, whole, whole.rpartition(".")[0])}
        if not found:
            raise UsageError(f"held_out: no image {wanted!r} in {train.name}; it has {', '.join(sorted(set(wholes))[:5])}, ...")
        held |= found
    return {number for number, whole in enumerate(wholes) if whole in held}
