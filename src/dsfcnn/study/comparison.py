"""The paper's comparisons: the rows of a table, each trained with the same budget and seeds, scored once on the test split.

A study is a folder of runs, one for each row and seed. Whatever is there is not done again: an interrupted study goes on where it was.
"""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

from matplotlib.figure import Figure

from dsfcnn.data import Dataset, open_dataset
from dsfcnn.errors import UsageError
from dsfcnn.files import atomic_write
from dsfcnn.models import count_parameters, load_model
from dsfcnn.study.judge import Judged
from dsfcnn.tasks.metrics.auc import auc_difference
from dsfcnn.tasks.metrics.bootstrap import Estimate
from dsfcnn.training.config import TrainConfig, check
from dsfcnn.training.run import Run, headline
from dsfcnn.training.state import State

Budget = Literal["small", "paper"]


@dataclass(frozen=True)
class Row:
    """A network of a table, and what the paper reports for it, by metric."""

    label: str
    model: str
    group: str | None = None
    options: tuple[tuple[str, Any], ...] = ()
    paper: tuple[tuple[str, float], ...] = ()

    @property
    def folder(self) -> str:
        return "-".join([self.model, *([self.group] if self.group else []), *(f"{key}{value}" for key, value in self.options)])


@dataclass(frozen=True)
class Study:
    """A table: its rows, the settings that all share, and the split and metrics of the report."""

    name: str
    rows: tuple[Row, ...]
    metrics: tuple[str, ...]  # reported; the first is plotted
    test_split: str
    shared: dict[str, Any]
    small: dict[str, Any]
    paper: dict[str, Any]
    beside_paper: str  # what the paper's column is called, or empty where its data is not at hand


def _family(task: str, rows: list[tuple[str, str, str | None, dict[str, Any], dict[str, float]]]) -> tuple[Row, ...]:
    return tuple(
        Row(label, f"{family}-{task}", group, tuple(options.items()), tuple(paper.items())) for label, family, group, options, paper in rows
    )


_DIGITS = _family(
    "digits",
    [
        ("CNN", "cnn", None, {}, {"error": 2.001}),
        ("H-Net 1", "hnet", None, {"max_frequency": 1}, {"error": 1.371}),
        ("H-Net 2", "hnet", None, {"max_frequency": 2}, {"error": 1.352}),
        ("G-CNN C4", "gcnn", "C4", {}, {"error": 0.976}),
        ("G-CNN C8", "gcnn", "C8", {}, {"error": 0.962}),
        ("G-CNN C12", "gcnn", "C12", {}, {"error": 0.940}),
        ("VF-CNN C8", "vfcnn", "C8", {}, {"error": 1.202}),
        ("VF-CNN C12", "vfcnn", "C12", {}, {"error": 1.172}),
        ("steerable C8", "steerable", "C8", {}, {"error": 0.820}),
        ("steerable C12", "steerable", "C12", {}, {"error": 0.809}),
    ],
)
_TUMOUR = _family(
    "tumour",
    [
        ("CNN", "cnn", None, {}, {}),
        ("G-CNN C8", "gcnn", "C8", {}, {}),
        ("steerable C8", "steerable", "C8", {}, {}),
        ("DSF-CNN C8", "dsf", "C8", {}, {}),
    ],
)
_GLANDS = _family(
    "glands",
    [
        ("CNN", "cnn", None, {}, {}),
        ("G-CNN C8", "gcnn", "C8", {}, {}),
        ("steerable C8", "steerable", "C8", {}, {}),
        ("DSF-CNN C8", "dsf", "C8", {}, {}),
    ],
)
_NUCLEI = _family(
    "nuclei",
    [
        ("CNN", "cnn", None, {}, {"pq": 0.447, "binary_dice": 0.767}),
        ("steerable C4", "steerable", "C4", {}, {"pq": 0.542, "binary_dice": 0.809}),
        ("steerable C8", "steerable", "C8", {}, {"pq": 0.543, "binary_dice": 0.818}),
    ],
)
_ONE_CYCLE = {"optimiser": "adamw", "schedule": "one-cycle", "warm_up": 0.2, "clip": 5.0, "average": 0.99, "weight_decay": 1e-4}

# Small budgets are guesses at what two cores train in an hour or two; the paper's follow configs/paper-*.yaml.
STUDIES = {
    study.name: study
    for study in (
        Study(
            "rotmnist",
            _DIGITS,
            ("error", "accuracy"),
            "test",
            {"task": "digits", "format": "rotmnist", "valid_split": "valid", "crop": 28, "batch": 64, "select": "accuracy"},
            {**_ONE_CYCLE, "width": 0.35, "steps": 600, "learning_rate": 0.005, "validate_every": 300, "images": 2000},
            {"steps": 9400, "milestones": {4700: 1e-4, 7520: 1e-5}, "validate_every": 940},
            "paper, on the official data",
        ),
        Study(
            "pcam",
            _TUMOUR,
            ("auc", "accuracy"),
            "test",
            {"task": "tumour", "format": "pcam", "valid_split": "valid", "crop": 96, "batch": 32, "select": "auc"},
            {**_ONE_CYCLE, "width": 0.35, "steps": 300, "learning_rate": 0.003, "validate_every": 100},
            {"steps": 409600, "milestones": {122880: 1e-4, 327680: 2e-5}, "validate_every": 8192},
            "",
        ),
        Study(
            "glands",
            _GLANDS,
            ("object_dice", "object_f1", "object_hausdorff"),
            "testA",
            {"task": "glands", "format": "glas", "held_out": 15, "select": "object_dice"},
            {
                **_ONE_CYCLE,
                "width": 0.35,
                "steps": 300,
                "learning_rate": 0.003,
                "validate_every": 100,
                "mpp": 1.24,
                "crop": 192,
                "batch": 4,
                "per_epoch": 140,
            },
            {"steps": 151000, "milestones": {32400: 1e-4, 108000: 5e-5}, "validate_every": 10800, "crop": 448, "batch": 8, "mpp": 0.5},
            "",
        ),
        Study(
            "nuclei",
            _NUCLEI,
            ("pq", "binary_dice"),
            "test_same",
            {"task": "nuclei", "format": "kumar", "held_out": 3, "select": "pq"},
            {
                **_ONE_CYCLE,
                "width": 0.35,
                "steps": 300,
                "learning_rate": 0.003,
                "validate_every": 100,
                "mpp": 0.5,
                "crop": 160,
                "batch": 6,
                "per_epoch": 130,
                "decode": {"marker_threshold": 0.5},
            },
            {"steps": 9200, "milestones": {1970: 1e-4, 3940: 5e-5}, "validate_every": 656, "crop": 256, "batch": 8, "per_epoch": 1050},
            "paper, on 14 test images",
        ),
    )
}


def configuration(study: Study, row: Row, budget: Budget, seed: int, data: Path, cache: Path, changes: dict[str, Any]) -> TrainConfig:
    """The run of one row: the same for all rows but for the network."""
    settings = {
        **study.shared,
        **(study.small if budget == "small" else study.paper),
        "model": row.model,
        "group": row.group,
        "options": dict(row.options),
        "data": str(data),
        "cache": str(cache) if study.name == "rotmnist" else None,
        "seed": seed,
        **changes,
    }
    return check(settings, study.name)


def run_study(
    study: Study,
    data: Path,
    out: Path,
    budget: Budget = "small",
    seeds: int = 1,
    changes: dict[str, Any] | None = None,
    rows: list[str] | None = None,
    tell: Callable[[str], None] = print,
    progress: Callable[[str, State, float], None] = lambda run, state, loss: None,
) -> None:
    """Train and score every row with every seed, and write the table after each. ``rows`` chooses some by their labels."""
    chosen = [row for row in study.rows if rows is None or row.label in rows]
    if rows is not None and len(chosen) < len(rows):
        raise UsageError(f"{study.name} has no such row; use some of {', '.join(row.label for row in study.rows)}")
    (out / "runs").mkdir(parents=True, exist_ok=True)
    for seed in range(seeds):
        for row in chosen:
            folder = out / "runs" / f"{row.folder}-seed{seed}"
            if not (folder / "test.json").exists():
                tell(f"{row.label}, seed {seed}")
                config = configuration(study, row, budget, seed, data, out / "cache", changes or {})
                run = Run(config, folder, tell, f"dsfcnn study {study.name} --budget {budget}")
                run.train((folder / "config.yaml").exists(), partial(progress, row.label))
                _test(study, config, folder)
            write_table(study, chosen, out, budget)


def _test(study: Study, config: TrainConfig, folder: Path) -> None:
    """The best model of a run on the test split, once; test.json is the last file of a finished row."""
    judged = Judged(folder / "best")
    results = judged.score(_split(config, study.test_split))
    scores = headline(results)
    if "accuracy" in scores:
        scores["error"] = 100 * (1 - scores["accuracy"])
    test = {"split": study.test_split, "images": len(results.images), "scores": scores}
    if config.valid_split and "p_tumour" in results.rows:  # for the difference of two rows, on as many images as there are
        both = judged.score(_split(config, config.valid_split)), results
        test |= {name: [value for part in both for value in part.rows[name].tolist()] for name in ("label", "p_tumour")}
    with atomic_write(folder / "test.json") as stream:
        stream.write(json.dumps(test, indent=2).encode() + b"\n")


def _split(config: TrainConfig, split: str) -> Dataset:
    return open_dataset(config.data, split, config.format, config.data_mpp, cache=config.cache)


@dataclass(frozen=True)
class Line:
    """A row with its scores, one of each finished seed."""

    row: Row
    parameters: int
    scores: dict[str, list[float]]
    curve: tuple[list[float], list[float]]  # steps and validation scores of the first seed
    ahead: Estimate | None  # AUC minus the first row's, on the same images of the validation and test splits; of the first seed


def lines(study: Study, rows: list[Row], out: Path) -> list[Line]:
    found: list[Line] = []
    first = None
    for row in rows:
        folders = sorted((out / "runs").glob(f"{row.folder}-seed*"))
        done = [folder for folder in folders if (folder / "test.json").exists()]
        if not done:
            continue
        tests = [json.loads((folder / "test.json").read_text()) for folder in done]
        with (done[0] / "metrics.csv").open() as stream:
            history = list(csv.DictReader(stream))
        metric = study.metrics[0] if study.metrics[0] in history[0] else study.metrics[1]
        validated = [line for line in history if metric in line]  # none in a final fit
        curve = [float(line["step"]) for line in validated], [float(line[metric]) for line in validated]
        scores = {name: [test["scores"][name] for test in tests] for name in study.metrics}
        first = first or tests[0]
        ahead = auc_difference(first["label"], tests[0]["p_tumour"], first["p_tumour"]) if "label" in tests[0] and found else None
        found.append(Line(row, count_parameters(load_model(done[0] / "best"))["paper"], scores, curve, ahead))
    return found


def write_table(study: Study, rows: list[Row], out: Path, budget: str) -> None:
    """table.md, table.csv and plots of what is finished."""
    found = lines(study, rows, out)
    if not found:
        return
    header = ["network", "parameters (paper's count)", "seeds", *study.metrics]
    paired = any(line.ahead for line in found)
    if paired:
        header.append(f"auc minus that of {found[0].row.label}, valid and {study.test_split} (95 %)")
    known = [metric for metric in study.metrics if any(metric in dict(line.row.paper) for line in found)] if study.beside_paper else []
    header += [f"{metric}, {study.beside_paper}" for metric in known]
    cells = [
        [
            line.row.label,
            f"{line.parameters:,}",
            str(len(line.scores[study.metrics[0]])),
            *(_spread(line.scores[metric]) for metric in study.metrics),
            *([] if not paired else [""] if line.ahead is None else ["{:+.4f} ({:+.4f} to {:+.4f})".format(*line.ahead)]),
            *(f"{dict(line.row.paper).get(metric, float('nan')):g}" for metric in known),
        ]
        for line in found
    ]
    markdown = "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *cells]) + "\n"
    with atomic_write(out / "table.md") as stream:
        stream.write(markdown.encode())
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([header, *cells])
    with atomic_write(out / "table.csv") as stream:
        stream.write(text.getvalue().encode())
    for name, figure in (("groups.png", _plot_groups(study, found)), ("convergence.png", _plot_curves(found))):
        with atomic_write(out / name) as stream:
            figure.savefig(stream, format="png", dpi=110, metadata={"Software": None})


def _spread(values: list[float]) -> str:
    return f"{mean(values):.4g}" if len(values) < 2 else f"{mean(values):.4g} ± {stdev(values):.2g}"


def _plot_groups(study: Study, found: list[Line]) -> Figure:
    """Score against the number of orientations, a line for each family."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    families: dict[str, list[tuple[int, float]]] = {}
    for line in found:
        orientations = int(line.row.group[1:]) if line.row.group else 1
        families.setdefault(line.row.model.partition("-")[0], []).append((orientations, mean(line.scores[study.metrics[0]])))
    for family, points in families.items():
        axes.plot(*zip(*sorted(points)), marker="o", label=family)
    axes.set(xlabel="orientations", ylabel=f"{study.metrics[0]} ({study.test_split})")
    axes.legend(fontsize=8)
    return figure


def _plot_curves(found: list[Line]) -> Figure:
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for line in found:
        axes.plot(*line.curve, label=line.row.label)
    axes.set(xlabel="step", ylabel="validation score")
    axes.legend(fontsize=8)
    return figure
