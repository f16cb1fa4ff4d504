"""``dsfcnn models``: every model with its parameter counts beside the paper's."""

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

_COLUMNS = ("model", "group", "paper count", "live", "paper's figure", "table")


def models(
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the list as a Markdown table.")] = False,
    draw: Annotated[Path | None, typer.Option(help="Draw DSF-CNN's architecture into this folder instead.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace pictures that are there.")] = False,
) -> None:
    """List every model with group, parameters as the paper counts them, live parameters and the paper's figure."""
    if draw is not None:
        _draw(draw, overwrite)
        return
    from dsfcnn.study.tables import parameter_table

    rows = parameter_table()
    if json:
        print(json_format.dumps([row._asdict() for row in rows], indent=2))
        return
    cells = [(r.name, r.group, f"{r.paper:,}", f"{r.live:,}", "" if r.published is None else f"{r.published:,.0f}K", r.table) for r in rows]
    if markdown:
        print(f"| {' | '.join(_COLUMNS)} |\n| --- | --- | ---: | ---: | ---: | --- |")
        for row in cells:
            print(f"| {' | '.join(row)} |")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in ("model", "group", "table") else "right")
    for row in cells:
        table.add_row(*row)
    Console().print(table)


def _draw(folder: Path, overwrite: bool) -> None:
    import torch

    from dsfcnn.files import atomic_write, claim_outputs
    from dsfcnn.models import create
    from dsfcnn.study.architecture import draw_architecture

    names = ["dsf-tumour", "dsf-nuclei"]
    claim_outputs(folder, [f"{name}.png" for name in names], overwrite)
    for name in names:
        with torch.device("meta"):
            model = create(name)
        with atomic_write(folder / f"{name}.png") as stream:
            draw_architecture(model).savefig(stream, format="png", dpi=110)
        print(folder / f"{name}.png")
