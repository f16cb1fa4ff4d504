"""Any data set by its folder: which format it has, which splits, and one of them opened."""

from pathlib import Path

from dsfcnn.data import annotated, crag, glas, kumar, pcam, rotmnist
from dsfcnn.data import folder as own
from dsfcnn.data.pairs import entries
from dsfcnn.data.sample import Dataset, checked_mpp
from dsfcnn.data.synthetic.dataset import KINDS, Drawn
from dsfcnn.errors import DataError, UsageError
from dsfcnn.slides.source import shown

# Asked in this order: the first whose files are there is the format.
_READERS = {"pcam": pcam, "rotmnist": rotmnist, "glas": glas, "crag": crag, "kumar": kumar, "slides": annotated, "folder": own}
# Other files like theirs may be anybody's.
_KNOWN_BY = {"pcam": pcam.is_known_by_table, "crag": crag.is_known_by_name, "kumar": kumar.is_known_by_name}
_DIVIDED = ("folder", "slides")  # a split file may divide them
_SYNTHETIC = {f"synthetic-{kind}": kind for kind in KINDS}
FORMATS = (*_READERS, *_SYNTHETIC)


def open_dataset(
    folder: str | Path | None,
    split: str,
    format: str = "auto",
    mpp: float | None = None,
    *,
    split_file: str | Path | None = None,
    cache: str | Path | None = None,
    complete: bool = True,
    aligned: bool = False,
) -> Dataset:
    """A split of the data set in a folder.

    Args:
        folder: as its owners distribute it, or as docs/data.md lays it out; nothing is ever written there. None for drawn data.
        split: "train", "valid", "test" or what the data set calls them.
        format: one of FORMATS; "auto" looks at the files.
        mpp: microns per pixel of the images; None is what the data set is known for. Slides are read at this resolution.
        split_file: divides a folder that has no splits (``dsfcnn data split``).
        cache: folder for what takes long to make (rotated MNIST); None makes it again each time.
        complete: refuse a split with an image without truth or the like (a :class:`DataError`); False leaves ``unpaired`` to the caller.
        aligned: move images to where their outlines lie, if the data set is known to have displaced ones (Kumar's; docs/data.md).
    """
    if format in _SYNTHETIC:
        return Drawn(_SYNTHETIC[format], split)
    there = splits(folder, format, split_file)
    folder, format = _given(folder, format)
    if split not in there:
        raise UsageError(f"{shown(folder)}: no split {split!r} in the format {format}; it has {', '.join(there) or 'none'}")
    if split_file is not None and (folder / split).is_dir():
        raise UsageError(f"{shown(folder)}: has folders for its splits; leave the split file away")
    if format == "rotmnist":
        return rotmnist.open_split(folder, split, None if cache is None else Path(cache))
    if mpp is not None:
        checked_mpp(mpp)  # 0 must not mean what the data set is known for
    division = {"split_file": None if split_file is None else Path(split_file)} if format in _DIVIDED else {}
    alignment = {"aligned": aligned} if format == "kumar" else {}
    found: Dataset = _READERS[format].open_split(folder, split, mpp, **division, **alignment)
    if found.unpaired and complete:
        more = f" (and {len(found.unpaired) - 1} more)" if len(found.unpaired) > 1 else ""
        said, _, advice = found.unpaired[0].rpartition("; ")
        raise DataError(f"{said}{more}; {advice}, dsfcnn data check lists all")
    return found


def splits(folder: str | Path | None, format: str = "auto", split_file: str | Path | None = None) -> list[str]:
    """The splits of a data set."""
    if format in _SYNTHETIC:
        return list(Drawn.COUNTS)
    folder, format = _given(folder, format)
    if format in _DIVIDED:
        return _READERS[format].splits(folder, None if split_file is None else Path(split_file))
    if split_file is not None:
        raise UsageError(f"{shown(folder)}: {format} comes with its own splits; leave the split file away")
    return _READERS[format].splits(folder)


def _given(folder: str | Path | None, format: str) -> tuple[Path, str]:
    """The folder and the format of the files in it."""
    if folder is None:
        raise UsageError(f"only drawn data needs no folder; give one, or a format of {', '.join(_SYNTHETIC)}")
    if format != "auto" and format not in _READERS:
        raise UsageError(f"no data format {format!r}; use auto or one of {', '.join(FORMATS)}")
    folder = Path(folder)
    entries(folder)  # says so if there is none, or none that may be read
    return folder, recognise(folder) if format == "auto" else format


def recognise(folder: Path) -> str:
    """The format of the files in a folder."""
    for name, reader in _READERS.items():
        if (name not in _KNOWN_BY or _KNOWN_BY[name](folder)) and reader.splits(folder):
            return name
    raise DataError(f"{shown(folder)}: no data set in a known layout; see docs/data.md, or give the format")
