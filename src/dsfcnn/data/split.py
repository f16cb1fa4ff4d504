"""A split of data that comes without one: made by a seed, and written down so that it stays.

Names are put into the order of their hash with the seed, so the split depends on no library and hardly changes when images are added.
The file is a table with the columns name and split; it is written where the user says, never into the data.
"""

import csv
import hashlib
import io
from pathlib import Path

from dsfcnn.errors import DataError, UsageError
from dsfcnn.files import atomic_write
from dsfcnn.slides.source import open_file, shown

SPLITS = ("train", "valid", "test")


def make_split(groups: dict[str, list[str]], seed: int = 0, valid: float = 0.15, test: float = 0.15) -> dict[str, str]:
    """Name -> split, with the same shares in every group (the classes, or one group for all).

    >>> make_split({"all": ["a", "b", "c", "d"]}, valid=0.25, test=0.25)
    {'a': 'train', 'b': 'train', 'c': 'test', 'd': 'valid'}
    """
    if not (valid >= 0 and test >= 0 and valid + test < 1):
        raise UsageError(f"shares of {valid} for validation and {test} for testing; leave some for training")
    chosen = {}
    for names in groups.values():
        ordered = sorted(names, key=lambda name: hashlib.sha256(f"{seed}\0{name}".encode("utf-8", "surrogateescape")).digest())
        first, second = round(len(names) * valid), round(len(names) * (valid + test))
        for place, name in enumerate(ordered):
            chosen[name] = "valid" if place < first else "test" if place < second else "train"
    return dict(sorted(chosen.items()))


def write_split(path: Path, split: dict[str, str]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("name", "split"))
    writer.writerows(split.items())
    with atomic_write(path) as stream:
        stream.write(text.getvalue().encode("utf-8", "surrogateescape"))


def read_split(path: Path) -> dict[str, str]:
    """Name -> split. A table may have been corrected in a spreadsheet, which adds a mark of its encoding, semicolons or empty lines."""
    with open_file(path) as stream:
        text = stream.read().decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    try:
        first = text.partition("\n")[0]
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count)))
    except csv.Error as error:
        raise DataError(f"{shown(path)}: not a table; make it with dsfcnn data split") from error
    header, *lines = rows or [[]]
    if [title.strip().lower() for title in header] != ["name", "split"]:
        raise DataError(f"{shown(path)}: not a table of name and split; make it with dsfcnn data split")
    split: dict[str, str] = {}
    for number, line in enumerate(lines, 2):
        if not any(line):
            continue
        if len(line) != 2 or line[1] not in SPLITS:
            raise DataError(f"{shown(path)}: no name and one of train, valid, test; correct row {number}")
        if line[0] in split:
            raise DataError(f"{shown(path)}: a name that stands there twice; take out row {number} or the other")
        split[line[0]] = line[1]
    return split


def expect_there(chosen: set[str] | None, names: set[str], folder: Path) -> None:
    missing = sorted((chosen or set()) - names)
    if missing:
        raise DataError(f"{shown(folder)}: the split file names {missing[0]!r}, which is not here; make a new split")
