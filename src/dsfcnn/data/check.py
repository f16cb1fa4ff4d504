"""Reads a data set once, from its first to its last file, and says what is in it and what is wrong with it."""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dsfcnn.data.annotated import AnnotatedRegions
from dsfcnn.data.open import open_dataset
from dsfcnn.data.open import splits as splits_of
from dsfcnn.data.sample import Dataset, Sample
from dsfcnn.errors import DataError, DsfcnnError

_SHOWN = 12  # pictures of a split in the montage
_TILE = 256  # pixels of a picture in the montage


@dataclass
class SplitReport:
    """What one split holds. Objects and classes are counted for the samples that could be read."""

    name: str
    samples: int
    read: int = 0
    mpp: float = 0.0
    sizes: dict[str, int] = field(default_factory=dict)  # "1000 x 1000" -> images
    objects: int | None = None  # None for classified images
    objects_per_image: tuple[int, float, int] | None = None  # fewest, median, most
    classes: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what was taken for granted
    problems: list[str] = field(default_factory=list)


@dataclass
class Report:
    """What a data set holds, split by split."""

    format: str
    splits: list[SplitReport]
    duplicates: list[str]  # a sentence for each image that is in two splits, or twice in one

    @property
    def problems(self) -> list[str]:
        return [problem for split in self.splits for problem in split.problems]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def check_dataset(
    folder: str | Path | None,
    format: str = "auto",
    split: str | None = None,
    mpp: float | None = None,
    *,
    split_file: str | Path | None = None,
    progress: Callable[[str, int, int], None] = lambda split, done, total: None,
) -> tuple[Report, np.ndarray]:
    """Read everything once. The second result is a montage, uint8 (H, W, 3), with contours around objects.

    A file that cannot be read is a problem in the report and does not stop the rest. ``progress`` is called after every sample.
    """
    reports, rows, seen = [], [], dict[bytes, tuple[str, str]]()
    duplicates: list[str] = []
    format_name = format
    names = [split] if split else splits_of(folder, format, split_file)
    if not names:
        raise DataError(f"{folder}: nothing in the layout of the format {format}; see docs/data.md")
    for name in names:
        data = open_dataset(folder, name, format, mpp, split_file=split_file, complete=False)
        format_name = data.name
        report, pictures = _check_split(data, name, seen, duplicates, progress)
        reports.append(report)
        rows.append(pictures)
    return Report(format_name, reports, duplicates), _montage(rows)


def _check_split(
    data: Dataset, name: str, seen: dict[bytes, tuple[str, str]], duplicates: list[str], progress: Callable[[str, int, int], None]
) -> tuple[SplitReport, list[np.ndarray]]:
    notes = list(data.notes) if isinstance(data, AnnotatedRegions) else []
    report = SplitReport(name, len(data), mpp=data.mpp, notes=notes, problems=list(data.unpaired))
    sizes, labels, objects, pictures = Counter[str](), Counter[str](), list[int](), list[np.ndarray]()
    shown = set(np.linspace(0, len(data) - 1, min(_SHOWN, len(data))).astype(int).tolist())
    for index in range(len(data)):
        try:
            sample = data[index]
        except DsfcnnError as error:
            report.problems.append(str(error))
        else:
            height, width = sample.image.shape[:2]
            sizes[f"{width} x {height}"] += 1
            if sample.instances is not None:
                objects.append(int(sample.instances.max(initial=0)))
            if sample.label is not None:
                labels[data.classes[sample.label]] += 1
            _note_duplicate(sample, name, seen, duplicates)
            if index in shown:
                pictures.append(outlined(sample))
        progress(name, index + 1, len(data))
    report.read = sum(sizes.values())
    report.sizes, report.classes = dict(sizes.most_common()), {key: labels[key] for key in data.classes if labels[key]}
    if objects:
        report.objects, report.objects_per_image = sum(objects), (min(objects), float(np.median(objects)), max(objects))
    return report, pictures


def _note_duplicate(sample: Sample, split: str, seen: dict[bytes, tuple[str, str]], duplicates: list[str]) -> None:
    """Images with the same pixels: between splits they make a test worthless, within one they count twice."""
    key = hashlib.sha256(repr(sample.image.shape).encode() + sample.image.tobytes()).digest()
    if key in seen:
        other_split, other = seen[key]
        duplicates.append(f"{sample.source} of {split} has the same pixels as {other} of {other_split}")
    else:
        seen[key] = (split, sample.source)


def outlined(sample: Sample) -> np.ndarray:
    """The middle of the image, at most _TILE pixels a side; a green line inside each object's edge, or a frame in the class's colour."""
    # Half a micron a pixel means glands, larger than the tile: every second or third pixel, from a larger part.
    coarse = sample.instances is not None and sample.mpp > 0.4
    step = max(1, min(sample.image.shape[:2]) // _TILE) if coarse else 1
    top, left = (max(0, (length // step - _TILE) // 2) for length in sample.image.shape[:2])
    here = (slice(top * step, (top + _TILE) * step, step), slice(left * step, (left + _TILE) * step, step))
    image = np.repeat(sample.image[here], 3 // sample.image.shape[2], 2)
    if sample.instances is not None:
        image[_edges(sample.instances[here])] = (0, 255, 0)
    elif sample.label is not None:
        image[:2] = image[-2:] = _colour(sample.label)
        image[:, :2] = image[:, -2:] = _colour(sample.label)
    return image


def _edges(instances: np.ndarray) -> np.ndarray:
    """Pixels of an object beside another value."""
    edge = np.zeros(instances.shape, bool)
    down, right = instances[1:] != instances[:-1], instances[:, 1:] != instances[:, :-1]
    edge[1:] |= down
    edge[:-1] |= down
    edge[:, 1:] |= right
    edge[:, :-1] |= right
    return edge & (instances > 0)


def _colour(label: int) -> tuple[int, int, int]:
    """0 green, 1 red, then others, the same for a class everywhere."""
    fixed = [
        (0, 160, 0),
        (220, 0, 0),
        (0, 90, 220),
        (230, 150, 0),
        (150, 0, 180),
        (0, 170, 170),
        (120, 120, 120),
        (255, 105, 180),
        (110, 80, 20),
        (0, 0, 0),
    ]
    return fixed[label % len(fixed)]


def _montage(rows: list[list[np.ndarray]]) -> np.ndarray:
    """A row of pictures for each split, six at most side by side, on white."""
    lines = [row[start : start + 6] for row in rows for start in range(0, len(row), 6)]
    if not lines:
        return np.full((_TILE, _TILE, 3), 255, np.uint8)
    side = max(max(picture.shape[:2]) for line in lines for picture in line) + 4
    canvas = np.full((side * len(lines), side * max(map(len, lines)), 3), 255, np.uint8)
    for row, line in enumerate(lines):
        for column, picture in enumerate(line):
            height, width = picture.shape[:2]
            canvas[row * side : row * side + height, column * side : column * side + width] = picture
    return canvas
