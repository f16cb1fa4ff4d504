"""Images beside instance maps: what Kumar, CRAG, GlaS and users' own folders have in common."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsfcnn.data.masks import SUFFIXES, read_instances
from dsfcnn.data.sample import Sample, checked_mpp, place_in, sample_of
from dsfcnn.errors import DataError, MissingInputError
from dsfcnn.slides import read_image
from dsfcnn.slides.source import shown

IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Pair:
    """An image, and where its truth lies."""

    name: str
    image: Path
    truth: Path


def read_map(path: Path, size: tuple[int, int]) -> np.ndarray:
    """An instance map, which has a size of its own."""
    return read_instances(path)


@dataclass(frozen=True)
class Pairs:
    """Segmented images, each with an instance map of its own. ``read_truth(path, (height, width))`` reads one."""

    name: str
    classes: tuple[str, ...]
    mpp: float
    pairs: tuple[Pair, ...]
    unpaired: tuple[str, ...] = ()
    read_picture: Callable[[Path], np.ndarray] = read_image
    read_truth: Callable[[Path, tuple[int, int]], np.ndarray] = read_map

    def __post_init__(self) -> None:
        checked_mpp(self.mpp)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Sample:
        pair = self.pairs[place_in(len(self), index)]
        image = self.read_picture(pair.image)
        return sample_of(image, self.read_truth(pair.truth, image.shape[:2]), self.mpp, pair.name)

    def source(self, index: int) -> str:
        return self.pairs[index].name

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for pair in self.pairs for path in (pair.image, pair.truth))


def match(
    images: Iterable[Path], truths: Iterable[Path], stem_of_truth: Callable[[Path], str] = lambda path: path.stem
) -> tuple[list[Pair], list[str]]:
    """Pairs by equal stems, in the order of their names, and a sentence for each file that stays alone or is not clear."""
    by_stem: dict[str, tuple[list[Path], list[Path]]] = {}
    for path in images:
        by_stem.setdefault(path.stem, ([], []))[0].append(path)
    for path in truths:
        by_stem.setdefault(stem_of_truth(path), ([], []))[1].append(path)
    pairs, alone = [], []
    for stem, (found, maps) in sorted(by_stem.items()):
        if len(found) == len(maps) == 1:
            pairs.append(Pair(shown(found[0].name), found[0], maps[0]))
        elif not maps:
            alone.append(f"{shown(found[0].name)}: an image without truth; add its instance map or take it away")
        elif not found:
            alone.append(f"{shown(maps[0].name)}: an instance map without its image; add the image or take it away")
        else:
            both = found if len(found) > 1 else maps
            alone.append(f"{shown(both[1].name)}: has the stem {shown(stem)!r} of {shown(both[0].name)} too; keep one of them")
    return pairs, alone


def files_in(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Files of these kinds in the folder, sorted by name; what begins with a dot is not data."""
    return [path for path in entries(folder) if path.suffix.lower() in suffixes and not path.is_dir()]


def entries(folder: Path) -> list[Path]:
    """What is in a folder, sorted by name, without what is hidden."""
    try:
        return sorted(Path(entry.path) for entry in os.scandir(folder) if not entry.name.startswith("."))
    except OSError as error:
        raise MissingInputError(f"{shown(folder)}: cannot be read as a folder ({error.strerror}); check the path") from error


def subfolder(folder: Path, *names: str) -> Path | None:
    """The folder with one of these names, whatever their case."""
    for path in entries(folder):
        if path.name.lower() in names and path.is_dir():
            return path
    return None


def image_and_label_folders(
    folder: Path, images: tuple[str, ...] = ("images",), labels: tuple[str, ...] = ("labels",)
) -> tuple[Path, Path] | None:
    """The two folders of one split, or None if they are not there."""
    found, maps = subfolder(folder, *images), subfolder(folder, *labels)
    return (found, maps) if found and maps else None


def match_folders(folders: tuple[Path, Path]) -> tuple[list[Pair], list[str]]:
    """Pairs of the images in one folder with the instance maps in the other."""
    return match(files_in(folders[0], IMAGES), files_in(folders[1], SUFFIXES))


def expect_some(pairs: list[Pair], unpaired: list[str], folder: Path) -> None:
    if not pairs and not unpaired:
        raise DataError(f"{shown(folder)}: no images with truth in here; see the layouts in docs/data.md")
