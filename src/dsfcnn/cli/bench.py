"""``dsfcnn bench``: how fast the models are on this machine."""

import json as json_format
from typing import Annotated

import typer

_MODELS = ["dsf-tumour", "dsf-glands", "dsf-nuclei", "steerable-tumour", "steerable-nuclei", "steerable-digits"]


def bench(
    model: Annotated[list[str] | None, typer.Option(help="A model to measure; may be given several times.")] = None,
    backend: Annotated[list[str] | None, typer.Option(help="auto, dense or spectral; may be given several times.")] = None,
    group: Annotated[str, typer.Option(help="The models' group.")] = "C8",
    width: Annotated[float, typer.Option(help="Factor on every layer's number of fields.")] = 1.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of which the fastest counts.")] = 3,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads; all processors by default.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Measure seconds per megapixel and training steps per second for each model and backend on this machine."""
    import torch
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    from dsfcnn.errors import UsageError
    from dsfcnn.kernels.backend import BACKENDS
    from dsfcnn.kernels.memory import keep_memory
    from dsfcnn.models import names
    from dsfcnn.study.speed import measure

    chosen, ways = model or _MODELS, backend or ["dense", "auto"]
    for name in chosen:
        if name not in names():
            raise UsageError(f"no model {name!r}; use one of {', '.join(names())}")
    for way in ways:
        if way not in BACKENDS:
            raise UsageError(f"no backend {way!r}; use one of {', '.join(BACKENDS)}")
    keep_memory()
    if threads:
        torch.set_num_threads(threads)
    console, found = Console(stderr=True), []
    for name, way in track([(name, way) for name in chosen for way in ways], "measuring", console=console, transient=True):
        options = {"width": width} if name.startswith(("cnn-", "hnet-")) else {"width": width, "group": group}
        found.append(measure(name, way, options, rounds))
    if json:
        print(json_format.dumps([speed._asdict() for speed in found], indent=2))
        return
    table = Table(box=None, header_style="bold")
    for column in ("model", "backend", "s per megapixel", "training steps per s", "training batch"):
        table.add_column(column, justify="left" if column in ("model", "backend") else "right")
    for speed in found:
        size = f"{speed.batch} x {speed.side}x{speed.side}"
        table.add_row(speed.model, speed.backend, f"{speed.seconds_per_megapixel:.2f}", f"{speed.steps_per_second:.3g}", size)
    Console().print(table)
