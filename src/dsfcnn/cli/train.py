"""``dsfcnn train``: any model on any data."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer


def train(
    config: Annotated[Path, typer.Argument(readable=False, help="A configuration, such as configs/nuclei-small.yaml.")],
    changes: Annotated[list[str] | None, typer.Argument(help="key=value changes of it.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("run"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in --out stopped.")] = False,
    backend: Annotated[str, typer.Option(envvar="DSFCNN_BACKEND", help="auto, dense or spectral G-convolutions.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads of the network; all processors by default.")] = None,
) -> None:
    """Train a model; the best one ends in OUT/best, curves and metrics beside it."""
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from dsfcnn.errors import UsageError
    from dsfcnn.inference.margin import note_margin
    from dsfcnn.kernels import set_backend
    from dsfcnn.kernels.memory import keep_memory
    from dsfcnn.slides.source import shown
    from dsfcnn.tasks.task import Segmentation
    from dsfcnn.training.config import read_config
    from dsfcnn.training.images import open_images, rescale
    from dsfcnn.training.progress import PlainProgress
    from dsfcnn.training.run import Run
    from dsfcnn.training.state import State

    keep_memory()
    set_backend(backend)
    if threads:
        torch.set_num_threads(threads)
    settings = read_config(config, changes or [])
    console = Console(stderr=True)

    def tell(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True, markup=False)

    place = shown(config.name if config.is_absolute() or ".." in config.parts else config)
    command = shlex.join(["dsfcnn", "train", place, *map(_without_folders, changes or [])])
    run = Run(settings, out, tell=tell, command=command)
    columns = (TextColumn("step"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[speed]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal or not run.processes.first) as bar:
        task = bar.add_task("", total=settings.steps, speed="")
        lines = PlainProgress(settings.steps, settings.batch, run.tell)

        def progress(state: State, loss: float) -> None:
            if bar.disable:
                lines(state.step, loss)
                return
            speed = (bar.tasks[0].speed or 0) * settings.batch
            bar.update(task, completed=state.step, speed=f"loss {loss:.3f}, {speed:.1f} samples/s")

        run.train(resume, progress)
    if run.processes.first:
        if isinstance(run.task, Segmentation):
            learned, valid = open_images(settings)
            seen = valid if len(valid) else learned
            some = (seen[number] for number in range(0, len(seen), -(-len(seen) // 8)))
            try:
                note_margin(out / "best", (rescale(sample.image, sample.mpp, run.mpp) for sample in some))
            except UsageError as error:  # the model is there all the same, and tiles get the largest margin
                print(f"note: {error}", file=sys.stderr)
        print(f"best model: {out / 'best'}")


def _without_folders(change: str) -> str:
    """A card tells which data, not where on somebody's machine it was."""
    from dsfcnn.slides.source import shown
    from dsfcnn.training.config import PLACES

    key, _, value = change.partition("=")
    return f"{key}={shown(Path(value).name)}" if key in PLACES else change
