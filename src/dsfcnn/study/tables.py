"""The paper's tables: what it reports beside what is built here."""

from typing import Any, NamedTuple

import torch

from dsfcnn.models import count_parameters, create, names
from dsfcnn.models.published import PUBLISHED


class ParameterRow(NamedTuple):
    """One model's size."""

    name: str
    group: str  # "SO(2)" and the frequency limit for H-Net, which turns by every angle
    paper: int  # counted as the paper does
    live: int
    published: float | None  # thousands, as the paper's table has it
    table: str


def parameter_table() -> list[ParameterRow]:
    """Every row of Tables I to III and A1 that is built here, then every other model at its defaults."""
    variants: list[tuple[str, dict[str, Any], float | None, str]] = [
        (row.name, row.options, row.parameters, row.table) for row in PUBLISHED
    ]
    listed = {row.name for row in PUBLISHED}
    for name in names():
        if name not in listed:
            variants.append((name, {}, None, ""))
    rows = []
    for name, options, published, table in variants:
        with torch.device("meta"):  # counting needs no weights
            model = create(name, **options)
        count = count_parameters(model)
        rows.append(ParameterRow(name, _symmetry(model.architecture), count["paper"], count["live"], published, table))
    return rows


def _symmetry(architecture: Any) -> str:
    if "max_frequency" in architecture:
        return f"SO(2), k <= {architecture['max_frequency']}"
    return architecture.get("group", "C1")
