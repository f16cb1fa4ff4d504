"""``dsfcnn study``: a table of the paper, trained and scored."""

from pathlib import Path
from typing import Annotated

import typer


def study(
    name: Annotated[str, typer.Argument(help="rotmnist, pcam, glands, nuclei, or efficiency: fewer training images.")],
    changes: Annotated[list[str] | None, typer.Argument(help="key=value changes of the settings of all rows.")] = None,
    data: Annotated[Path, typer.Option(readable=False, help="Folder of the data set.")] = ...,  # type: ignore[assignment]
    out: Annotated[Path, typer.Option(help="Folder of the study; what is finished there is not done again.")] = ...,  # type: ignore[assignment]
    budget: Annotated[str, typer.Option(help="small (two cores, hours) or paper.")] = "small",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each row.")] = 1,
    row: Annotated[list[str] | None, typer.Option(help="Only this row, such as 'steerable C8'; may be given several times.")] = None,
    backend: Annotated[str, typer.Option(envvar="DSFCNN_BACKEND", help="auto, dense or spectral G-convolutions.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads of the networks; all processors by default.")] = None,
) -> None:
    """Train and score the rows of one of the paper's tables with equal budgets and seeds; run it again to go on."""
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from dsfcnn.errors import UsageError
    from dsfcnn.files import claim_outputs, expect_outside
    from dsfcnn.kernels import set_backend
    from dsfcnn.kernels.memory import keep_memory
    from dsfcnn.study.comparison import run_study
    from dsfcnn.study.plans import STUDIES
    from dsfcnn.training.config import parse_change

    if name not in STUDIES:
        raise UsageError(f"no study {name!r}; use one of {', '.join(STUDIES)}")
    if budget not in ("small", "paper"):
        raise UsageError(f"no budget {budget!r}; use small or paper")
    pairs = [change.partition("=") for change in changes or []]
    if any(not equals for _, equals, _ in pairs):
        raise UsageError("changes are written key=value")
    keep_memory()
    set_backend(backend)
    if threads:
        torch.set_num_threads(threads)
    expect_outside(out, data)
    claim_outputs(out, [], overwrite=True)
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        BarColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        shown = bar.add_task("")

        def progress(what: str, done: int, total: int) -> None:
            bar.update(shown, description=what, completed=done, total=total)

        settings = {key: parse_change(key, value) for key, _, value in pairs}
        tell = lambda line: bar.console.print(line, highlight=False, soft_wrap=True)  # noqa: E731
        run_study(STUDIES[name], data, out, budget, seeds, settings, row, tell, progress)  # type: ignore[arg-type]
    print((out / "table.md").read_text(), end="")
