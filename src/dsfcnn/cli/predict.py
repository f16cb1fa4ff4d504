"""``dsfcnn predict``: nuclei, glands or tumour in images and slides."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dsfcnn.errors import DsfcnnError


def predict(
    inputs: Annotated[list[Path], typer.Argument(metavar="INPUT...", readable=False, help="Images, slides, or folders of them.")],
    model: Annotated[str, typer.Option(help="A shipped model's name, a model folder, or an exported ONNX file.")] = "nuclei",
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a run with the same model and options stopped.")] = False,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode beside the network; 0 for none.")] = 1,
    scheduler: Annotated[str | None, typer.Option(help="Dask scheduler whose workers compute the tiles; local for some here.")] = None,
    mask: Annotated[Path | None, typer.Option(readable=False, help="Picture of the whole slide: look where it is not black.")] = None,
    no_mask: Annotated[bool, typer.Option("--no-mask", help="Look everywhere, not only where tissue is found.")] = False,
    region: Annotated[str | None, typer.Option(metavar="X,Y,W,H", help="Only this rectangle, in pixels of the slide.")] = None,
    within: Annotated[Path | None, typer.Option(readable=False, help="Only inside these annotations, GeoJSON from QuPath.")] = None,
    slide_mpp: Annotated[float | None, typer.Option("--slide-mpp", help="Microns per pixel, when the slide does not say.")] = None,
    mpp: Annotated[float | None, typer.Option(help="Resolution that the network sees; the model's by default.")] = None,
    name: Annotated[str | None, typer.Option("--id", help="What the only input is called in the results.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace results that are there.")] = False,
    max_pixels: Annotated[int, typer.Option(min=1, help="Refuse larger plain images.")] = 150_000_000,
    backend: Annotated[str, typer.Option(envvar="DSFCNN_BACKEND", help="auto, dense or spectral G-convolutions.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, or a GPU such as cuda:0.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads of the network; all processors by default.")] = None,
    tile: Annotated[int | None, typer.Option(min=64, help="Pixels a side that the network sees at once; by memory by default.")] = None,
) -> None:
    """Find nuclei, glands or tumour in images and slides; the results open in QuPath."""
    from dsfcnn.errors import UsageError
    from dsfcnn.inference.within import parse_region
    from dsfcnn.slides.resolution import check_mpp

    if mask is not None and no_mask:
        raise UsageError("--mask and --no-mask contradict each other; give one of them")
    if region is not None and within is not None:
        raise UsageError("--region and --within both say where to look; give one of them")
    if resume and overwrite:
        raise UsageError("--resume keeps what --overwrite replaces; give one of them")
    if region is not None:
        parse_region(region)
    for option, stated in (("--slide-mpp", slide_mpp), ("--mpp", mpp)):
        if stated is not None:
            check_mpp(stated, option)

    import torch

    from dsfcnn.inference.job import Options
    from dsfcnn.inference.run import predict as run
    from dsfcnn.kernels import set_backend
    from dsfcnn.kernels.memory import keep_small_memory

    keep_small_memory()
    set_backend(backend)
    if threads is not None:
        torch.set_num_threads(threads)
    options = Options(
        mask=mask,
        find_mask=not no_mask,
        region=region,
        within=within,
        slide_mpp=slide_mpp,
        mpp=mpp,
        max_pixels=max_pixels,
        tile=tile,
        workers=workers,
    )
    with _Signals(), _Bar() as bar:
        failed = run(
            inputs,
            model,
            out,
            options,
            name=name,
            scheduler=scheduler,
            device=device,
            resume=resume,
            overwrite=overwrite,
            tell=bar.tell,
            progress=bar.of,
        )
    raise typer.Exit(_outcome(failed, inputs, out))


def _outcome(failed: "dict[str, DsfcnnError]", inputs: list[Path], out: Path) -> int:
    """Say what failed and where the results are; the exit code is the input's own if there was only one."""
    from dsfcnn.inference.run import SUMMARY
    from dsfcnn.slides.source import shown

    for error in failed.values():
        print(f"error: {error}", file=sys.stderr)
    print(shown(out / SUMMARY))
    if not failed:
        return 0
    alone = len(inputs) == 1 and not os.path.isdir(inputs[0])
    return next(iter(failed.values())).exit_code if alone else 65


class _Signals:
    """SIGINT and SIGTERM stop at the next step, with one line; finished tiles are kept. A second one stops at once.

    What a library makes of being interrupted (an archive that cannot be closed half-written, say) is not told: the signal is.
    """

    def __enter__(self) -> None:
        self._stopped: BaseException | None = None
        self._before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}

    def _stop(self, number: int, frame: FrameType | None) -> None:
        from dsfcnn.errors import Interrupted

        signal.signal(number, signal.SIG_DFL)
        self._stopped = Interrupted(f"stopped by {signal.Signals(number).name}; continue with --resume", 128 + number)
        raise self._stopped

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._stopped is not None and error is not self._stopped:
            raise self._stopped from error


class _Bar:
    """A progress bar on stderr; where that is no terminal, a plain line for each input and tenth of it."""

    def __enter__(self) -> "_Bar":
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._progress.start()
        return self

    def of(self, name: str) -> Callable[[str, int, int], None]:
        from dsfcnn.slides.source import shown

        tasks: dict[str, object] = {}
        said: dict[str, int] = {}

        def show(what: str, done: int, total: int) -> None:
            label = f"{shown(name)}: {what}"
            if self._console.is_terminal:
                if what not in tasks:
                    for task in tasks.values():
                        self._progress.remove_task(task)  # type: ignore[arg-type]
                    tasks[what] = self._progress.add_task(label, total=total)
                self._progress.update(tasks[what], completed=done)  # type: ignore[arg-type]
            elif total and 10 * done // total > said.get(what, -1):
                said[what] = 10 * done // total
                print(f"{label} {done} of {total}", file=sys.stderr, flush=True)

        return show

    def tell(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True, markup=False)

    def __exit__(self, *error: object) -> None:
        self._progress.stop()
