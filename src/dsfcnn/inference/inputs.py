"""Which files a user means, and what each result is called."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dsfcnn.errors import MissingInputError, UsageError
from dsfcnn.slides.openslide import quick_hash
from dsfcnn.slides.source import shown

# Endings of what is taken from a folder; a file that is named itself may be called anything.
ENDS = {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp"}
ENDS |= {".svs", ".svslide", ".ndpi", ".scn", ".mrxs", ".bif", ".vms", ".vmu", ".czi", ".dcm"}


class Input(NamedTuple):
    """A file, and the name of the folder with its results."""

    path: Path
    name: str


def collect(paths: Sequence[Path], name: str | None, out: Path) -> list[Input]:
    """The inputs, with folders replaced by the pictures in them. No two may share a folder of results, and none may be written into."""
    found: list[Path] = []
    for path in paths:
        if os.path.isdir(path):  # Path.is_dir would raise for a name that is too long or a place that may not be looked at
            inside = _pictures(path)
            if not inside:
                raise MissingInputError(f"{shown(path)}: no images or slides in this folder; give one that has some")
            if real(out).is_relative_to(real(path)):
                raise UsageError(f"{shown(out)}: inside the input folder, where nothing is written; give another --out")
            found += inside
        else:
            found.append(path)
    found = _one_of_each_series(found)
    if name is not None and len(found) != 1:
        raise UsageError(f"--id names one input but there are {len(found)}; leave it out, or give one input at a time")
    inputs = [Input(path, name or path.stem) for path in found]
    seen: dict[str, Path] = {}
    for path, called in inputs:
        if not called or called in (".", "..", "summary.csv") or "/" in called or "\0" in called or called.startswith("."):
            raise UsageError(f"{shown(called)!r} cannot name a folder of results; give --id a plain name")
        if called in seen:
            raise UsageError(
                f"{shown(path)} and {shown(seen[called])} would both write to {shown(called)}; rename one, or use --id and --out"
            )
        seen[called] = path
        if real(out) == real(path) or real(path).is_relative_to(real(out / called)):
            raise UsageError(f"{shown(out)}: would write over the input; give another --out")
    return inputs


def _pictures(folder: Path) -> list[Path]:
    try:
        return sorted(one for one in folder.iterdir() if one.suffix.lower() in ENDS and not one.name.startswith("."))
    except OSError as error:
        raise MissingInputError(f"{shown(folder)}: cannot be read ({error.strerror}); check its permissions") from error


def _one_of_each_series(paths: list[Path]) -> list[Path]:
    """A DICOM slide is several files, any of which opens it as a whole: the first stands for all."""
    seen, kept = set(), []
    for path in paths:
        series = quick_hash(path) if path.suffix.lower() == ".dcm" else None
        if series is None or series not in seen:
            kept.append(path)
        seen.add(series)
    return kept


def real(path: Path) -> Path:
    """A path without links; those in a circle stay, where ``Path.resolve`` would raise."""
    return Path(os.path.realpath(path))
