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
    with open_file(path) as stream:
        try:
            rows = list(csv.reader(io.StringIO(stream.read().decode("utf-8", "surrogateescape"), newline="")))
        except csv.Error as error:
            raise DataError(f"{shown(path)}: not a table; make it with dsfcnn data split") from error
    if not rows or rows[0] != ["name", "split"] or any(len(row) != 2 or row[1] not in SPLITS for row in rows[1:]):
        raise DataError(f"{shown(path)}: not a table of name and split (train, valid, test); make it with dsfcnn data split")
    split = dict(rows[1:])
    if len(split) < len(rows) - 1:
        raise DataError(f"{shown(path)}: a name that stands there twice; make it with dsfcnn data split")
    return split
