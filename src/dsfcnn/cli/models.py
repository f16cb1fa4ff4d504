"""``dsfcnn models``: every model with its parameter counts beside the paper's."""

import json as json_format
from typing import Annotated

import typer


def models(json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False) -> None:
    """List every model with group, parameters as the paper counts them, live parameters and the paper's figure."""
    from dsfcnn.study.tables import parameter_table

    rows = parameter_table()
    if json:
        print(json_format.dumps([row._asdict() for row in rows], indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for title, side in (
        ("model", "left"),
        ("group", "left"),
        ("paper count", "right"),
        ("live", "right"),
        ("paper", "right"),
        ("table", "left"),
    ):
        table.add_column(title, justify=side)  # type: ignore[arg-type]
    for row in rows:
        published = "" if row.published is None else f"{row.published:,.0f}K"
        table.add_row(row.name, row.group, f"{row.paper:,}", f"{row.live:,}", published, row.table)
    Console().print(table)
