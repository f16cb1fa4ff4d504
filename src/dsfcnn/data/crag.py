"""CRAG, colon glands at 20x, as its owners distribute it: ``train`` and ``valid``, each with ``Images`` and ``Annotation``."""

from pathlib import Path

from dsfcnn.data.pairs import Pairs, entries, expect_some, image_and_label_folders, match_folders

MPP = 0.5


def _folders(folder: Path) -> tuple[Path, Path] | None:
    return image_and_label_folders(folder, ("images",), ("annotation", "annotations"))


def is_known_by_name(folder: Path) -> bool:
    """Whether the folders are called as the owners do; ``images`` and ``annotations`` may be anybody's, at any resolution."""
    parts = [folder / name for name in ("train", "valid", "test")]
    return any({"Images", "Annotation"} <= {path.name for path in entries(part)} for part in parts if part.is_dir())


def splits(folder: Path) -> list[str]:
    """Of ``train``, ``valid`` and ``test`` those that are there."""
    return [name for name in ("train", "valid", "test") if (folder / name).is_dir() and _folders(folder / name)]


def open_split(folder: Path, split: str, mpp: float | None = None) -> Pairs:
    folders = _folders(folder / split)
    assert folders  # splits() has named it
    pairs, unpaired = match_folders(folders)
    expect_some(pairs, unpaired, folder / split)
    return Pairs("crag", ("gland",), mpp or MPP, tuple(pairs), tuple(unpaired))
