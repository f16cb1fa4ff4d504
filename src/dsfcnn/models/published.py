"""The parameter columns of the paper's tables, for the networks that are built here."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Row(NamedTuple):
    """A row of one of the paper's tables."""

    table: str
    name: str
    options: dict[str, Any]
    parameters: float  # thousands


def _rows(table: str, task: str, figures: Mapping[str, float]) -> list[Row]:
    rows = []
    for label, parameters in figures.items():
        family, _, variant = label.partition(" ")
        options: dict[str, Any] = {}
        if family == "hnet":
            options = {"max_frequency": int(variant)}
        elif variant:
            options = {"group": variant}
        rows.append(Row(table, f"{family}-{task}", options, parameters))
    return rows


_SEGMENTATION = {
    "cnn": 984,
    "gcnn C4": 982,
    "gcnn C8": 988,
    "gcnn C12": 979,
    "steerable C1": 981,
    "steerable C4": 984,
    "steerable C8": 989,
    "steerable C12": 976,
    "dsf C8": 3700,
}

PUBLISHED = [
    *_rows(
        "I",
        "tumour",
        {
            "cnn": 564,
            "hnet 1": 553,
            "hnet 2": 542,
            "vfcnn C4": 556,
            "vfcnn C8": 556,
            "vfcnn C12": 556,
            "gcnn C4": 561,
            "gcnn C8": 557,
            "gcnn C12": 557,
            "steerable C1": 553,
            "steerable C4": 546,
            "steerable C8": 565,
            "steerable C12": 545,
            "p4m D4": 119,
            "dsf C8": 2200,
        },
    ),
    *_rows("II", "glands", _SEGMENTATION),
    *_rows("III", "nuclei", _SEGMENTATION),
    *_rows(
        "A1",
        "digits",
        {
            "cnn": 416,
            "hnet 1": 418,
            "hnet 2": 414,
            "gcnn C4": 413,
            "gcnn C8": 407,
            "gcnn C12": 411,
            "vfcnn C8": 418,
            "vfcnn C12": 418,
            "steerable C8": 416,
            "steerable C12": 424,
            "sfcnn C16": 3300,
        },
    ),
]
