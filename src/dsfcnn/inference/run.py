"""Many inputs, one after the other: a bad one does not stop the rest."""

import csv
import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dsfcnn.errors import DataError, DsfcnnError, MissingInputError, OutputError, UsageError
from dsfcnn.files import atomic_write, locked
from dsfcnn.inference.cohort import connect
from dsfcnn.inference.inputs import Input, collect, real
from dsfcnn.inference.job import Job, Options, Progress, model_hash
from dsfcnn.inference.predictor import load
from dsfcnn.kernels import get_backend
from dsfcnn.models import find_model
from dsfcnn.slides import MissingLibraries
from dsfcnn.slides.source import open_file, shown

SUMMARY = "summary.csv"
_COLUMNS = ("input", "state", "objects", "tissue_mm2", "mpp", "unreadable_tiles", "reason")


def predict(
    paths: Sequence[Path],
    model: str | Path,
    out: Path,
    options: Options,
    *,
    name: str | None = None,
    scheduler: str | None = None,
    device: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    tell: Callable[[str], None] = print,
    progress: Callable[[str], Progress] = lambda name: lambda what, done, total: None,
) -> dict[str, DsfcnnError]:
    """Results for every input in ``out``; returns the inputs that failed, with the reason.

    Args:
        paths: images, slides, and folders of them.
        model: as for ``dsfcnn.load``.
        name: what the only input is called in the results.
        scheduler: address of a Dask scheduler whose workers compute the tiles, or "local" for workers on this machine.
        device: as for ``dsfcnn.load``; Dask workers use the same.
        resume: go on where an earlier run with the same model and options stopped.
        tell: is given one-line notices.
        progress: for the name of an input, a function of what is done, how much, and of how much.
    """
    inputs = collect(paths, name, out)
    _expect_places_of_one(options, inputs, out)
    predictor = load(model, device)
    if predictor.task.name == "digits":
        raise UsageError("a model of digits looks at single digits, not at images and slides; use dsfcnn.load and classify")
    digest, backend = model_hash(find_model(model)), get_backend()
    with locked(out), connect(scheduler, find_model(model), predictor.network.device, backend, options.workers) as cluster:
        jobs = [Job(predictor, source, out, options, digest, cluster) for source in inputs]
        _expect_own_summary(out / SUMMARY)
        for left in out.glob(f".{SUMMARY}.*.part"):  # by a run that was killed
            left.unlink()
        for job in jobs:
            if resume:
                with suppress(DataError, MissingInputError, MissingLibraries):  # which are dealt with when their turn comes
                    job.check(backend)
            elif not overwrite or not job.state.is_begun():
                job.state.expect_new()
        failed: dict[str, DsfcnnError] = {}
        rows: list[dict[str, Any]] = []
        for job in jobs:
            try:
                record = job.run(resume, overwrite, tell, progress(job.source.name), backend)
                rows.append(_row(job.source, record))
            except (DataError, MissingInputError, MissingLibraries) as error:
                failed[job.source.name] = error
                rows.append({"input": job.source.name, "state": "failed", "reason": _reason(error, job.source, options)})
        _write_summary(out / SUMMARY, rows)
    return failed


def _row(source: Input, record: dict[str, Any]) -> dict[str, Any]:
    counts = record["counts"]
    return {
        "input": source.name,
        "state": "done",
        "objects": counts["objects"],
        "tissue_mm2": counts["tissue_mm2"],
        "mpp": f"{record['settings']['slide_mpp']:.6g}",
        "unreadable_tiles": counts["unreadable_tiles"],
        "reason": "",
    }


def _expect_places_of_one(options: Options, inputs: list[Input], out: Path) -> None:
    """A mask and annotations belong to one slide; on another they would choose the wrong places without a word.

    Nor may they lie where results are written and earlier ones removed.
    """
    for option, path in (("--mask", options.mask), ("--within", options.within)):
        if path is not None:
            if len(inputs) > 1:
                raise UsageError(f"{option} belongs to one slide but there are {len(inputs)} inputs; give one input at a time")
            if real(path).is_relative_to(real(out / inputs[0].name)):
                raise UsageError(f"{option} {shown(path)}: lies where results are written; move it, or give another --out")
            open_file(path).close()


def _reason(error: DsfcnnError, source: Input, options: Options) -> str:
    """Without paths, which may tell more than results should."""
    text = str(error)
    for path, name in ((source.path, source.name), (options.mask, "mask"), (options.within, "annotations")):
        if path is not None and text.startswith(f"{shown(path)}:"):
            text = name + text.removeprefix(shown(path))
    return text


def _expect_own_summary(path: Path) -> None:
    """A summary of earlier inputs makes room for that of these; another table of the same name does not."""
    try:
        with path.open("rb") as stream:
            ours = stream.read(64).startswith(",".join(_COLUMNS[:3]).encode())
    except FileNotFoundError:
        return
    except OSError as error:
        raise OutputError(f"{shown(path)}: {error.strerror}; give another --out") from error
    if not ours:
        raise OutputError(f"{shown(path)}: not the summary of a run; give another --out")


def _write_summary(path: Path, rows: list[dict[str, Any]]) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, _COLUMNS, restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    with atomic_write(path) as stream:
        stream.write(text.getvalue().encode("utf-8", "surrogateescape"))
