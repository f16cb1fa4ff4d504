"""A user's own data in a folder.

Segmentation: ``images`` and ``labels`` with files of equal stems. Classification: a folder for each class. Either lies in ``train``,
``valid`` and ``test``, or directly in the data folder; then a split file divides it, and without one there is only the split ``all``.
"""

from dataclasses import dataclass
from pathlib import Path

from dsfcnn.data.pairs import IMAGES, Pairs, entries, expect_some, files_in, image_and_label_folders, match_folders, subfolder
from dsfcnn.data.sample import Dataset, Sample, checked_mpp, place_in
from dsfcnn.data.split import SPLITS, expect_there, make_split, read_split
from dsfcnn.errors import DataError, UsageError
from dsfcnn.slides import read_image
from dsfcnn.slides.source import shown

_UNREAD = (".bmp", ".gif", ".heic", ".jp2", ".pgm", ".ppm")  # images of kinds that read_image refuses


@dataclass(frozen=True)
class ClassFolders:
    """Classified images; the class is the folder."""

    classes: tuple[str, ...]
    mpp: float
    labelled: tuple[tuple[Path, int], ...]  # with the class of each
    name: str = "folder"
    unpaired: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labelled)

    def __getitem__(self, index: int) -> Sample:
        path, label = self.labelled[place_in(len(self), index)]
        return Sample(read_image(path), None, label, self.mpp, self.source(index))

    def source(self, index: int) -> str:
        path = self.labelled[index][0]
        return shown(f"{path.parent.name}/{path.name}")

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for path, _ in self.labelled)


def splits(folder: Path, split_file: Path | None = None) -> list[str]:
    """The splits that are there; ``all`` where images lie in the folder itself and nothing divides them."""
    named = [name for name in SPLITS if (folder / name).is_dir() and _kind(folder / name)]
    if named:
        return named
    if not _kind(folder):
        return []
    return [name for name in SPLITS if name in read_split(split_file).values()] if split_file else ["all"]


def open_split(folder: Path, split: str, mpp: float | None = None, split_file: Path | None = None) -> Dataset:
    if mpp is None:
        raise UsageError(
            f"{shown(folder)}: nothing says how large its pixels are; give microns per pixel (--data-mpp, data_mpp= in training)"
        )
    mpp = checked_mpp(mpp)
    inside = folder / split
    if (folder / split).is_dir() and _kind(folder / split):
        chosen = None
    else:
        inside = folder
        chosen = {name for name, part in read_split(split_file).items() if part == split} if split_file else None
    if _kind(inside) == "pairs":
        return _open_pairs(inside, mpp, chosen)
    return _open_classes(inside, mpp, chosen, folder)


def names_by_group(folder: Path) -> dict[str, list[str]]:
    """Names of a folder without splits, in the groups that a split keeps in proportion."""
    if _kind(folder) == "pairs":
        data: Dataset = _open_pairs(folder, 1.0, None)
    elif _kind(folder) == "classes":
        data = _open_classes(folder, 1.0, None, folder)
    else:
        raise DataError(f"{shown(folder)}: neither images and labels nor folders of classes; see docs/data.md")
    groups: dict[str, list[str]] = {}
    for index in range(len(data)):
        name = data.source(index)
        groups.setdefault(name.rpartition("/")[0], []).append(name)
    return groups


def split_folder(folder: Path, seed: int = 0, valid: float = 0.15, test: float = 0.15) -> dict[str, str]:
    """A split of a folder that has none."""
    return make_split(names_by_group(folder), seed, valid, test)


def _kind(folder: Path) -> str | None:
    if image_and_label_folders(folder):
        return "pairs"
    places = [path for name in SPLITS if (path := folder.parent / name).is_dir()] if folder.name in SPLITS else [folder]
    if any(subfolder(place, "images") for place in places):  # whose labels are missing, or called otherwise
        return None
    classes = {path.name for place in places for path in _class_folders(place)}
    return "classes" if _class_folders(folder) and len(classes) > 1 else None  # a split may have images of one class


def _class_folders(folder: Path) -> list[Path]:
    return [path for path in entries(folder) if path.is_dir() and path.name not in SPLITS and files_in(path, IMAGES)]


def _open_pairs(folder: Path, mpp: float, chosen: set[str] | None) -> Pairs:
    folders = image_and_label_folders(folder)
    assert folders  # _kind has found them
    pairs, unpaired = match_folders(folders)
    expect_some(pairs, unpaired, folder)
    expect_there(chosen, {pair.name for pair in pairs}, folder)
    kept = tuple(pair for pair in pairs if chosen is None or pair.name in chosen)
    return Pairs("folder", ("object",), mpp, kept, tuple(unpaired))


def _open_classes(folder: Path, mpp: float, chosen: set[str] | None, above: Path) -> ClassFolders:
    # The classes of all splits together, so that a label means the same in each of them.
    places = [folder] if folder == above else [above / name for name in SPLITS if (above / name).is_dir()]
    classes = sorted({path.name for place in places for path in _class_folders(place)})
    files = [(path, classes.index(part.name)) for part in _class_folders(folder) for path in files_in(part, IMAGES)]
    unread = [path for part in _class_folders(folder) for path in files_in(part, _UNREAD)]
    refused = (f"{shown(f'{path.parent.name}/{path.name}')}: not PNG, JPEG, TIFF or WebP; convert it or take it away" for path in unread)
    found = ClassFolders(tuple(map(shown, classes)), mpp, tuple(files), unpaired=tuple(refused))
    if chosen is None:
        return found
    names = [found.source(index) for index in range(len(found))]
    expect_there(chosen, set(names), folder)
    kept = tuple(file for file, name in zip(files, names) if name in chosen)
    return ClassFolders(found.classes, mpp, kept, unpaired=found.unpaired)
