"""GlaS, colon glands at 20x: the owners' folder of BMP files, or the same data as images and labels by split.

Owners' layout: ``train_1.bmp`` beside ``train_1_anno.bmp``, then ``testA_1.bmp`` and ``testB_1.bmp``, all in one folder with ``Grade.csv``.
The other: ``train/images``, ``train/labels``, ``testA/...``, with ``Grade.csv`` above them.
"""

from pathlib import Path

import numpy as np

from dsfcnn.data.masks import read_instances
from dsfcnn.data.pairs import Pairs, entries, expect_some, image_and_label_folders, match, match_folders
from dsfcnn.slides import read_image

MPP = 0.62
SPLITS = ("train", "testA", "testB")
_ANNOTATED = "_anno"


def splits(folder: Path) -> list[str]:
    """Of ``train``, ``testA`` and ``testB`` those that are there."""
    if not (folder / "Grade.csv").exists() and not _bitmaps(folder, "train"):
        return []
    return [name for name in SPLITS if _bitmaps(folder, name) or ((folder / name).is_dir() and image_and_label_folders(folder / name))]


def open_split(folder: Path, split: str, mpp: float | None = None) -> Pairs:
    bitmaps = _bitmaps(folder, split)
    if bitmaps:
        images = [path for path in bitmaps if not path.stem.endswith(_ANNOTATED)]
        truths = [path for path in bitmaps if path.stem.endswith(_ANNOTATED)]
        pairs, unpaired = match(images, truths, lambda path: path.stem.removesuffix(_ANNOTATED))
        return Pairs("glas", ("gland",), mpp or MPP, tuple(pairs), tuple(unpaired), _read_bitmap, _read_bitmap_truth)
    folders = image_and_label_folders(folder / split)
    assert folders  # splits() has named it
    pairs, unpaired = match_folders(folders)
    expect_some(pairs, unpaired, folder / split)
    return Pairs("glas", ("gland",), mpp or MPP, tuple(pairs), tuple(unpaired))


def _bitmaps(folder: Path, split: str) -> list[Path]:
    return [path for path in entries(folder) if path.suffix.lower() == ".bmp" and path.name.startswith(f"{split}_")]


def _read_bitmap(path: Path) -> np.ndarray:
    return read_image(path, formats=("BMP",))


def _read_bitmap_truth(path: Path, size: tuple[int, int]) -> np.ndarray:
    return read_instances(path, formats=("BMP",))
