"""What a run shows: metrics.csv, curves.png and a sheet of examples. The same run gives the same bytes."""

import csv
import io
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from skimage.segmentation import find_boundaries

from dsfcnn.data import Sample
from dsfcnn.files import atomic_write, make_folder

_SHOWN = 4  # examples on a sheet
TRUTH, FOUND = (255, 220, 0), (0, 90, 255)  # colours of contours


def write_metrics(path: Path, history: list[dict[str, float]]) -> None:
    """One row per validation; columns in the order in which they came up."""
    columns = list(dict.fromkeys(key for row in history for key in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()} for row in history)
    with atomic_write(path) as stream:
        stream.write(text.getvalue().encode())


def write_curves(path: Path, history: list[dict[str, float]]) -> None:
    """Loss and learning rate on the left, the validation's measures (where there is one) on the right."""
    measures = [key for key in history[-1] if key not in ("step", "loss", "learning_rate")]
    panels = 2 if measures else 1
    figure = Figure(figsize=(5 * panels, 3.6), layout="constrained")
    left, *right = np.atleast_1d(figure.subplots(1, panels))
    steps = [row["step"] for row in history]
    left.plot(steps, [row["loss"] for row in history], color="black")
    left.set(xlabel="step", ylabel="training loss")
    rate = left.twinx()
    rate.plot(steps, [row["learning_rate"] for row in history], color="tab:gray", linestyle=":")
    rate.set_ylabel("learning rate (dotted)")
    for axes in right:
        for name in measures:
            values = [row.get(name, np.nan) for row in history]
            if all(not v > 1.5 for v in values):  # distances have no place beside shares
                axes.plot(steps, values, label=name)
        axes.set(xlabel="step", ylabel="validation", ylim=(0, 1))
        axes.legend(fontsize=8)
    with atomic_write(path) as stream:
        figure.savefig(stream, format="png", dpi=100, metadata={"Software": None})


def write_events(folder: Path, row: dict[str, float]) -> None:
    """A validation for TensorBoard, in a file of its own; nothing where the package tensorboard is not installed.

    TensorBoard reads the files of a folder in the order of their names. A run that goes on writes those after its checkpoint again.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter
    except Exception:  # missing, or built for another protobuf, which raises anything
        return
    now, step = time.time(), int(row["step"])
    values = [Summary.Value(tag=_tag(name), simple_value=value) for name, value in row.items() if name != "step"]
    make_folder(folder)
    with atomic_write(folder / f"events.out.tfevents.{step:010d}") as stream:
        records = RecordWriter(stream)
        records.write(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
        records.write(Event(wall_time=now, step=step, summary=Summary(value=values)).SerializeToString())


def _tag(name: str) -> str:
    return f"{'training' if name in ('loss', 'learning_rate') else 'validation'}/{name}"


class Examples:
    """The first few validation images with the contours of truth (yellow) and prediction (blue)."""

    def __init__(self) -> None:
        self.pictures: list[tuple[np.ndarray, str]] = []

    def see(self, number: int, sample: Sample, found: np.ndarray) -> None:
        if number >= _SHOWN:
            return
        picture = np.repeat(sample.image, 3, axis=2) if sample.image.shape[2] == 1 else sample.image.copy()
        title = sample.source
        if sample.instances is None:
            title = f"{sample.source}: class {sample.label}, p = {found[sample.label or 0]:.2f}"
        else:
            picture[find_boundaries(sample.instances, mode="inner")] = TRUTH
            picture[find_boundaries(found, mode="inner")] = FOUND
        self.pictures.append((picture[:512, :512], title))

    def write(self, path: Path) -> None:
        figure = Figure(figsize=(4 * len(self.pictures), 4.2), layout="constrained")
        for axes, (picture, title) in zip(np.atleast_1d(figure.subplots(1, len(self.pictures))), self.pictures):
            axes.imshow(picture)
            # Names of files are anybody's: a dollar sign is no formula, and bytes that are no text must not stop a run.
            axes.set_title(title.encode("utf-8", "replace").decode(), fontsize=7, parse_math=False)
            axes.set_axis_off()
        with atomic_write(path) as stream:
            figure.savefig(stream, format="png", dpi=100, metadata={"Software": None})
