"""A run: its folder, what it writes and when, and how it ends and goes on."""

import hashlib
import json
import math
import os
import platform
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dsfcnn import __version__
from dsfcnn.data import Dataset
from dsfcnn.errors import Interrupted, OutputError, UsageError
from dsfcnn.files import atomic_write, claim_outputs, expect_outside, locked, remove_unfinished
from dsfcnn.models import count_parameters, save_model
from dsfcnn.slides.source import shown
from dsfcnn.tasks import Task, get
from dsfcnn.tasks.metrics.results import Results
from dsfcnn.tasks.task import Segmentation, with_settings
from dsfcnn.training import loop, report
from dsfcnn.training.averaging import settle
from dsfcnn.training.config import PLACES, TrainConfig, check, parse, written
from dsfcnn.training.distributed import Processes
from dsfcnn.training.evaluation import evaluate
from dsfcnn.training.images import expect_two_classes, open_images
from dsfcnn.training.state import State, has_checkpoint, restore, save_state

_MAY_CHANGE = {"workers"}  # settings that have no effect on the result
_OUTPUTS = ("config.yaml", "run.json", "checkpoints", "best", "metrics.csv", "curves.png", "examples.png", "events")
_LOWER_IS_BETTER = {"object_hausdorff"}
_FIRST_CHOICE = {"nuclei": "pq", "glands": "object_dice", "tumour": "auc", "digits": "accuracy"}


class Run:
    """A training run in a folder of its own. ``tell`` is given lines for people; ``progress`` every step's loss."""

    def __init__(self, config: TrainConfig, folder: Path, tell: Callable[[str], None], command: str = "dsfcnn train"):
        self.config, self.folder, self.command = config, folder, command
        self.task: Task = with_settings(get(config.task), config.decode)
        self.mpp = config.mpp or self.task.mpp
        self.select = config.select or _FIRST_CHOICE[config.task]
        if self.select not in metrics_of(self.task):
            raise UsageError(f"select: no metric {self.select!r}; use one of {', '.join(metrics_of(self.task))}")
        self.stopped_by: int | None = None
        self.began, self.began_cpu = time.time(), _cpu_seconds()
        self.processes = Processes()
        self.tell = tell if self.processes.first else _silent

    def train(self, resume: bool, progress: Callable[[State, float], None]) -> State:
        """To the last step, or to an interruption, which leaves a checkpoint and raises."""
        first = self.processes.first
        if first:
            if self.config.data is not None:
                expect_outside(self.folder, Path(self.config.data))
            if resume and not (self.folder / "config.yaml").is_file():
                raise UsageError(f"{self.folder}: no run to go on with; leave --resume away")
            claim_outputs(self.folder, [], overwrite=False)
        with locked(self.folder) if first else nullcontext(), self.processes.together(), self._signals():
            if first:
                self._take_over(resume)
            images, valid = open_images(self.config)
            if self.select == "auc" and len(valid):
                expect_two_classes(valid, self.config.seed)
            going_on = resume and has_checkpoint(self.folder / "checkpoints")  # which has all weights, wherever the first came from
            state = loop.start(self.config.model_copy(update={"init": None}) if going_on else self.config)
            fingerprint = self._fingerprint(images, valid)
            if resume:
                self._expect_same_config()
                for warning in restore(state, self.folder / "checkpoints", fingerprint):
                    self.tell(f"warning: {warning}")
            elif first:
                self._write("config.yaml", written(self.config))
            try:
                self._loop(state, images, valid, fingerprint, progress)
            except Interrupted:
                if first:
                    save_state(state, self.folder / "checkpoints", fingerprint, interrupted=True)
                raise
            finally:
                if first:
                    self._write_record(state, fingerprint)
        return state

    def _take_over(self, resume: bool) -> None:
        """Nothing of an earlier run is overwritten without --resume; with it, what a killed process left unfinished goes."""
        if resume:
            remove_unfinished(self.folder)
            return
        for name in _OUTPUTS:
            if (self.folder / name).exists():
                raise OutputError(f"{self.folder / name}: exists already; give another --out, or go on with --resume")

    def _loop(self, state: State, images: Dataset, valid: Dataset, fingerprint: str, progress: Callable[[State, float], None]) -> None:
        config, processes = self.config, self.processes
        feed = loop.batches(config, images, self.mpp, range(state.step, config.steps), processes.share(config.batch))
        steps = loop.steps(state, config, self.task, feed, processes.wrap(state.model, config.synchronise), processes)
        while True:
            last = state.step == config.steps
            if state.losses and (last or state.step % config.validate_every == 0):
                if processes.first:
                    self._settle(state, images)
                    self._report(state, valid)
                state.losses = []
                processes.wait()
            if processes.first and state.step and (last or state.step % config.checkpoint_every == 0):
                save_state(state, self.folder / "checkpoints", fingerprint)
            if last:
                return
            self._stop_if_asked()
            progress(state, next(steps))

    def _settle(self, state: State, images: Dataset) -> None:
        """Averaged weights get their statistics from batches that follow the last one of training: the same at every validation."""
        if state.averaged is None or (self.config.final_fit and state.step < self.config.steps):
            return
        config = self.config.model_copy(update={"workers": 0})
        following = range(config.steps, config.steps + config.statistics)

        def tensors() -> Iterator[Tensor]:
            for batch in loop.batches(config, images, self.mpp, following):
                self._stop_if_asked(alone=True)
                yield loop.tensors(batch, config)[0]

        with loop.precision(config):
            settle(state.averaged, tensors())

    def _report(self, state: State, valid: Dataset) -> None:
        rate = loop.learning_rate(self.config, state.step - 1)
        scores = {} if self.config.final_fit else self._validate(state, valid)
        if self.config.final_fit and state.step == self.config.steps:
            self._write_best(state, None)
        state.history.append({"step": state.step, "loss": sum(state.losses) / len(state.losses), "learning_rate": rate, **scores})
        report.write_metrics(self.folder / "metrics.csv", state.history)
        report.write_curves(self.folder / "curves.png", state.history)
        report.write_events(self.folder / "events", state.history[-1])
        told = ", ".join(f"{name} {number:.4g}" for name, number in state.history[-1].items() if name != "step")
        self.tell(f"step {state.step} of {self.config.steps}: {told}")

    def _validate(self, state: State, valid: Dataset) -> dict[str, float]:
        examples = report.Examples()

        def see(*seen: Any) -> None:
            self._stop_if_asked(alone=True)
            examples.see(*seen)

        results = evaluate(state.judged(), self.task, valid, self.mpp, resamples=200, seen=see)
        scores = headline(results)
        value = scores[self.select]
        sign = -1 if self.select in _LOWER_IS_BETTER else 1
        if state.best is None or math.isnan(state.best) or sign * value > sign * state.best:
            state.best = value
            self._write_best(state, results)
        examples.write(self.folder / "examples.png")
        return scores

    def _write_best(self, state: State, results: Results | None) -> None:
        card = model_card(self.config, self.task, self.mpp, state, results, self.command)
        folder, decode = self.folder / "best", self.config.decode
        save_model(state.judged(), folder, task=self.task.name, mpp=self.mpp, decode=decode, card=card, overwrite=True)

    def _write(self, name: str, content: bytes) -> None:
        with atomic_write(self.folder / name) as stream:
            stream.write(content)

    def _fingerprint(self, images: Dataset, valid: Dataset) -> str:
        """Of everything that the result depends on: settings, which images there are, how large their files, and the first image."""
        names = [data.source(number) for data in (images, valid) for number in range(len(data))]
        files = [(path.name, _size(path)) for data in (images, valid) for path in data.files]
        sample = images[0]
        told = self.config.model_dump(exclude_defaults=True)  # a setting that a later version adds does not end older runs
        settings = {key: value for key, value in told.items() if key not in _MAY_CHANGE | {"data", "cache"}}
        digest = hashlib.sha256(json.dumps([settings, names, files], default=str).encode())
        digest.update(sample.image.tobytes())
        digest.update(b"" if sample.instances is None else sample.instances.tobytes())
        return digest.hexdigest()

    def _expect_same_config(self) -> None:
        path = self.folder / "config.yaml"
        before = check(parse(path.read_bytes(), str(path)), str(path)).model_dump()
        for key, value in self.config.model_dump().items():
            if before[key] != value and key not in _MAY_CHANGE:
                raise UsageError(f"{key}: is {value!r} but the run was started with {before[key]!r}; change it back, or give another --out")

    def _write_record(self, state: State, fingerprint: str) -> None:
        """run.json: the one file that may hold times."""
        path = self.folder / "run.json"
        before = json.loads(path.read_text()) if path.exists() else {}
        record = {
            "dsfcnn": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "fingerprint": fingerprint,
            "best_sha256": _sha256(self.folder / "best" / "model.safetensors"),
            "seed": self.config.seed,
            "mpp": self.mpp,
            "device": "cpu",
            "threads": torch.get_num_threads(),
            "steps": state.step,
            "hours": before.get("hours", 0) + (time.time() - self.began) / 3600,
            "cpu_hours": before.get("cpu_hours", 0) + (_cpu_seconds() - self.began_cpu) / 3600,
        }
        self._write("run.json", json.dumps(record, indent=2).encode() + b"\n")

    def _stop_if_asked(self, alone: bool = False) -> None:
        """Raise if a signal came, to this process or (unless it is ``alone`` at work) to another."""
        asked = self.stopped_by is not None if alone else self.processes.any(self.stopped_by is not None)
        if asked:
            self.stopped_by = self.stopped_by or signal.SIGTERM
            raise Interrupted(f"stopped at a signal; continue with --resume --out {self.folder}", 128 + self.stopped_by)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM asks the run to stop, a second SIGINT stops at once."""

        def ask(number: int, frame: Any) -> None:
            if self.stopped_by is not None and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.stopped_by = number

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _cpu_seconds() -> float:
    """Of this process and of its workers that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _size(path: Path) -> int:
    """In bytes; -1 for a file that cannot be read, which reading it will tell better."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _sha256(path: Path) -> str | None:
    """Of a file's bytes; None before there is one."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def _silent(line: str) -> None:
    """What every process but the first says."""


def headline(results: Results) -> dict[str, float]:
    """The numbers that stand for a validation: means over images, and for the measures that have none, pooled values."""
    return {name: estimate.value for name, estimate in {**results.pooled, **results.mean}.items()}


def metrics_of(task: Task) -> list[str]:
    """Names of the numbers that stand for a validation."""
    if isinstance(task, Segmentation):
        return [name for measure in task.measures for name in measure.names]
    return ["auc", "accuracy"] if len(task.heads["class"]) == 2 else ["accuracy"]


def model_card(config: TrainConfig, task: Task, mpp: float, state: State, results: Results | None, command: str) -> str:
    """README.md of a trained model; without results it has seen the validation images too."""
    count = count_parameters(state.judged())
    data = config.format if config.data is None else f"{shown(Path(config.data).name)} ({config.format})"
    splits = config.train_split
    if results is None:
        splits = f"{splits} and {config.valid_split}" if config.valid_split else f"{splits}, all of it"
        validation = f"## Validation\n\nNone: a final fit of {state.step} steps, seed {config.seed}, to the validation images too.\n\n"
    else:
        valid = config.valid_split or f"held out of {config.train_split}"
        validation = (
            f"## Validation ({valid}), after {state.step} steps, seed {config.seed}\n\n{results.table()}\n"
            f"The best of this run's validations; a test on other data is the fair figure.\n\n"
        )
    places = {key: value and shown(Path(value).name) for key, value in config.model_dump(include=PLACES - {"data"}).items()}
    settings = ", ".join(f"{key} {value}" for key, value in {**config.model_dump(exclude={"data"}), **places}.items())
    parameters = f"{count['live']:,} learned parameters ({count['paper']:,} as the paper counts)"
    return (
        f"# {config.model}{'' if config.group is None else f', {config.group}'}, for {task.name}\n\n"
        f"Resolution: {mpp} um per pixel. Width {config.width}, {parameters}.\n\n"
        f"## Data\n\nTrained on {data}, split {splits}. Licence of the data: {config.licence}.\n\n{validation}"
        f"## Training\n\n    {command}\n\nSettings: {settings}.\n\n"
        "Research use only; not for diagnosis.\n"
    )
