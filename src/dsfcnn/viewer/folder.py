"""What an output folder holds: results of prediction, studies of turning, and inputs that failed.

The list is made once. A request names an entry by a key that was drawn at random, never by a path; links that lead out of the folder are
not followed.
"""

import csv
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from dsfcnn.errors import DataError, DsfcnnError, MissingInputError
from dsfcnn.slides.source import open_file, shown

_RECORD, _VARIANCE, _SUMMARY, _STATE = "run.json", "variance.json", "summary.csv", ".state"
_WANTED = "give one that 'dsfcnn predict' or 'dsfcnn equivariance' has written"
_LARGEST_JSON = 1 << 24  # bytes; a study of 360 turns has some hundred thousand


class _Settings(BaseModel):
    task: str
    input: str  # sha256
    slide_mpp: float = Field(gt=0, allow_inf_nan=False)
    mpp: float = Field(gt=0, allow_inf_nan=False)


class _Input(BaseModel):
    name: str
    width: int = Field(ge=1, lt=1 << 31)
    height: int = Field(ge=1, lt=1 << 31)
    bounds: tuple[int, int] = (0, 0)


class _Counts(BaseModel):
    objects: int
    tissue_mm2: float
    unreadable_tiles: int


class Record(BaseModel):
    """What the viewer wants to know from ``run.json``."""

    settings: _Settings
    input: _Input
    counts: _Counts
    mpp_source: str


@dataclass(frozen=True)
class Result:
    """One input's results."""

    key: str
    folder: Path
    record: Record

    @property
    def name(self) -> str:
        return self.record.input.name

    def file(self, *names: str) -> Path | None:
        """The first of these that is there."""
        return next((path for name in names if (path := self.folder / name).is_file() and _is_inside(path, self.folder)), None)

    def files(self, pattern: str) -> list[Path]:
        return sorted(path for path in self.folder.glob(pattern) if path.is_file() and _is_inside(path, self.folder))


@dataclass(frozen=True)
class Study:
    """What ``dsfcnn equivariance`` wrote: its report and its sheet of frames."""

    key: str
    name: str
    sheet: Path
    report: dict[str, Any]


@dataclass
class Contents:
    """All that is in a folder, in the order of names."""

    name: str
    results: list[Result] = field(default_factory=list)
    studies: list[Study] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # name and reason


def look(out: Path) -> Contents:
    """The contents of a folder: one result or study, or a folder of them."""
    if not out.is_dir():
        raise MissingInputError(f"{shown(out)}: no such folder; {_WANTED}")
    contents = Contents(shown(out.resolve().name))
    try:
        inside = sorted(path for path in out.iterdir() if path.is_dir() and path.name != _STATE and _is_inside(path, out))
    except OSError as error:
        raise MissingInputError(f"{shown(out)}: cannot be read ({error.strerror}); check its permissions") from error
    for folder in [out, *inside]:
        try:
            _add(contents, folder)
        except DsfcnnError as error:
            contents.failures[shown(folder.name)] = str(error).replace(shown(folder), shown(folder.name))
    for name, reason in _failed(out / _SUMMARY):
        contents.failures.setdefault(name, reason)
    if not (contents.results or contents.studies or contents.failures):
        raise MissingInputError(f"{shown(out)}: no results in this folder; {_WANTED}")
    return contents


def _add(contents: Contents, folder: Path) -> None:
    key = secrets.token_hex(8)
    if (folder / _RECORD).is_file():
        contents.results.append(Result(key, folder, _record(folder / _RECORD)))
    elif (folder / _VARIANCE).is_file():
        contents.studies.append(Study(key, shown(folder.resolve().name), folder / "frames.png", _read_json(folder / _VARIANCE)))
    elif (folder / _STATE).is_dir():
        contents.failures[shown(folder.name)] = "not finished; go on with 'dsfcnn predict ... --resume'"


def _record(path: Path) -> Record:
    try:
        return Record.model_validate(_read_json(path))
    except ValidationError as error:
        raise DataError(f"{shown(path)}: not the record of a prediction; run 'dsfcnn predict' again") from error


def _read_json(path: Path) -> dict[str, Any]:
    with open_file(path) as stream:
        text = stream.read(_LARGEST_JSON + 1)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{shown(path)}: not JSON; write it again") from error
    if len(text) > _LARGEST_JSON or not isinstance(found, dict):
        raise DataError(f"{shown(path)}: not the record of a run; write it again")
    return found


def _failed(path: Path) -> list[tuple[str, str]]:
    """Inputs that failed in the last run."""
    try:
        with path.open(newline="", encoding="utf-8", errors="replace") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, csv.Error):
        return []
    return [(str(row.get("input")), str(row.get("reason"))) for row in rows if row.get("state") == "failed"]


def _is_inside(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())
