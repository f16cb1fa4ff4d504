"""The paper's comparisons: the rows of a table, each trained with the same budget and seeds, scored once on the test split.

A study is a folder of runs, one for each row and seed. Whatever is there is not done again: an interrupted study goes on where it was.
"""

import csv
import io
import json
import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from matplotlib.figure import Figure

from dsfcnn.data import Dataset, open_dataset
from dsfcnn.errors import Interrupted, UsageError
from dsfcnn.files import atomic_write
from dsfcnn.groups import parse_group
from dsfcnn.models import count_parameters, load_model
from dsfcnn.slides.source import shown
from dsfcnn.study.judge import Judged
from dsfcnn.study.plans import LICENCES, Budget, Row, Study
from dsfcnn.tasks.metrics.auc import auc_difference
from dsfcnn.tasks.metrics.bootstrap import Estimate
from dsfcnn.training.config import TrainConfig, check
from dsfcnn.training.images import expect_two_classes
from dsfcnn.training.run import Run, headline
from dsfcnn.training.state import State

_OWN = ("model", "group", "options", "width", "images", "seed")  # settings in which the runs of a study may differ


def configuration(study: Study, row: Row, budget: Budget, seed: int, data: Path, cache: Path, changes: dict[str, Any]) -> TrainConfig:
    """The run of one row: the same for all rows but for the network, which no change takes away."""
    for key in ("model", "group", "seed", *([] if row.images is None else ["images"])):
        if key in changes:
            raise UsageError(f"{key}: is what the runs of {study.name} differ in; leave it away (--row and --seeds choose among them)")
    budgeted, own = (study.small, dict(row.small)) if budget == "small" else (study.paper, {})
    settings = {
        **study.shared,
        **budgeted,
        "model": row.model,
        "group": row.group,
        "options": {**budgeted.get("options", {}), **dict(row.options), **own.pop("options", {})},
        "data": str(data),
        "cache": str(cache) if study.shared["format"] == "rotmnist" else None,
        "seed": seed,
        "licence": LICENCES[study.shared["format"]],
        **({} if row.images is None else {"images": row.images}),
        **own,
        **changes,
    }
    if isinstance(settings["options"], dict):
        settings["options"] = {**settings["options"], **dict(row.options)}
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
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> None:
    """Train and score every row with every seed, and write the table after each.

    Args:
        rows: labels of those to do; all by default.
        tell: is given one-line notices.
        progress: is told what is being done, how much of it is done, and of how much.
    """
    chosen = [row for row in study.rows if rows is None or row.label in rows]
    if rows is not None and len(chosen) < len(set(rows)):
        raise UsageError(f"{study.name} has no such row; use some of {', '.join(row.label for row in study.rows)}")
    (out / "runs").mkdir(parents=True, exist_ok=True)
    shared = configuration(study, study.rows[0], budget, 0, data, out / "cache", changes or {})
    for test in sorted((out / "runs").glob("*/test.json")):  # of other rows too, since they stand in one table
        _expect_same_settings(test.parent, shared, _OWN)
    for seed in range(seeds):
        for row in chosen:
            folder = out / "runs" / f"{row.folder}-seed{seed}"
            config = configuration(study, row, budget, seed, data, out / "cache", changes or {})
            if (folder / "test.json").exists():
                _expect_same_settings(folder, config)
            else:
                tell(f"{row.label}, seed {seed}")
                if "auc" in study.metrics:
                    expect_two_classes(_split(config, study.test_split), seed, "give a test split with both")
                run = Run(config, folder, tell, _command(study, row, data, out, budget, seed, changes or {}))
                _train(run, row.label, progress)
                _test(study, run, partial(progress, f"{row.label}, scored"))
            write_table(study, out)


def _command(study: Study, row: Row, data: Path, out: Path, budget: Budget, seed: int, changes: dict[str, Any]) -> str:
    """What trains this row; of folders the names only, for a card does not tell where on somebody's machine they were."""
    words = ["dsfcnn", "study", study.name, "--data", shown(data.name), "--out", shown(out.name), "--budget", budget, "--row", row.label]
    words += ["--seeds", str(seed + 1)] if seed else []
    words += [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in changes.items()]
    return shlex.join(words)


def _settings(config: TrainConfig) -> dict[str, Any]:
    """Those that have an effect on the result, as they are stored."""
    stored: dict[str, Any] = json.loads(config.model_dump_json(exclude={"data", "cache", "workers"}))
    return stored


def _expect_same_settings(folder: Path, config: TrainConfig, but: Collection[str] = ()) -> None:
    """A finished row counts for the settings that it was trained with; one that a later version has added does not end older studies."""
    now = _settings(config)
    for key, value in json.loads((folder / "test.json").read_text())["settings"].items():
        if now.get(key) != value and key not in but:
            raise UsageError(
                f"{key}: is {now.get(key)!r} but {folder.name} was trained with {value!r}; change it back, or give another --out"
            )


def _train(run: Run, label: str, progress: Callable[[str, int, int], None]) -> None:
    def step(state: State, loss: float) -> None:
        progress(f"{label}, loss {loss:.3f}", state.step, run.config.steps)

    try:
        run.train((run.folder / "config.yaml").exists(), step)
    except Interrupted as stop:  # whose advice is for a run of its own
        raise Interrupted("stopped at a signal; give the same command again to go on", stop.exit_code) from None


def _test(study: Study, run: Run, progress: Callable[[int, int], None]) -> None:
    """The best model of a run on the test split, once; test.json, the last file of a finished row, has all that tables are made of."""
    config, folder = run.config, run.folder
    judged, images = Judged(folder / "best"), _split(config, study.test_split)
    results = judged.score(images, seen=lambda number, *_: progress(number + 1, len(images)))
    scores = headline(results)
    if "accuracy" in scores:
        scores["error"] = 100 * (1 - scores["accuracy"])
    test = {
        "command": run.command,
        "settings": _settings(config),
        "parameters": count_parameters(load_model(folder / "best"))["paper"],
        "curve": _curve(study, folder),
        "split": study.test_split,
        "images": len(results.images),
        "scores": scores,
    }
    if config.valid_split and "p_tumour" in results.rows:  # for the difference of two rows, on as many images as there are
        both = judged.score(_split(config, config.valid_split)), results
        test |= {name: [value for part in both for value in part.rows[name].tolist()] for name in ("label", "p_tumour")}
    with atomic_write(folder / "test.json") as stream:
        stream.write(json.dumps(test, indent=2).encode() + b"\n")


def _curve(study: Study, folder: Path) -> dict[str, list[float]]:
    """Steps, and the validation scores after each; none in a final fit."""
    with (folder / "metrics.csv").open() as stream:
        history = list(csv.DictReader(stream))
    metric = study.metrics[0] if study.metrics[0] in history[0] else study.metrics[1]
    validated = [line for line in history if metric in line]
    return {"steps": [float(line["step"]) for line in validated], "scores": [float(line[metric]) for line in validated]}


def _split(config: TrainConfig, split: str) -> Dataset:
    return open_dataset(config.data, split, config.format, config.data_mpp, cache=config.cache, aligned=True)


@dataclass(frozen=True)
class Line:
    """A row with its scores, one of each finished seed."""

    row: Row
    parameters: int
    scores: dict[str, list[float]]
    curves: list[dict[str, list[float]]]  # of each seed
    ahead: Estimate | None  # AUC minus the first row's, means over seeds, on the same images of the validation and test splits


def lines(study: Study, out: Path) -> list[Line]:
    """The rows of which a seed is finished."""
    found: list[Line] = []
    first: list[dict[str, Any]] = []
    for row in study.rows:
        tests = [json.loads(path.read_text()) for path in sorted((out / "runs").glob(f"{row.folder}-seed*/test.json"))]
        if not tests:
            continue
        scores = {name: [test["scores"][name] for test in tests] for name in study.metrics}
        ahead = None
        if first and "label" in tests[0]:
            ahead = auc_difference(tests[0]["label"], *([test["p_tumour"] for test in rows] for rows in (tests, first)))
        first = first or tests
        found.append(Line(row, tests[0]["parameters"], scores, [test["curve"] for test in tests], ahead))
    return found


def write_table(study: Study, out: Path) -> None:
    """table.md, table.csv and plots of what is finished, made of the files ``runs/*/test.json``."""
    found = lines(study, out)
    if not found:
        return
    header = ["network", "parameters (paper's count)", "seeds", *study.metrics]
    paired = any(line.ahead for line in found)
    if paired:
        header.append(f"auc minus that of {found[0].row.label}, valid and {study.test_split} (95 % over images)")
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
    figures: dict[str, Figure] = {study.against: plot_scores(study, found)}
    if any(curve["steps"] for line in found for curve in line.curves):
        figures["convergence"] = plot_curves(found)
    for name, figure in figures.items():
        with atomic_write(out / f"{name}.png") as stream:
            figure.savefig(stream, format="png", dpi=110, metadata={"Software": None})


def _spread(values: list[float]) -> str:
    """Mean and standard deviation; of two seeds, for which that says little, both."""
    if len(values) == 2:
        return f"{mean(values):.4g} ({values[0]:.4g}, {values[1]:.4g})"
    return f"{mean(values):.4g}" if len(values) < 2 else f"{mean(values):.4g} ± {stdev(values):.2g}"


def plot_scores(study: Study, found: list[Line]) -> Figure:
    """Score against the number of orientations or of training images, a line for each family and a dot for each seed; H-Net, which has all
    orientations, is a level.
    """
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    families: dict[str, list[tuple[int, list[float]]]] = {}
    styles = iter(("--", ":"))
    for line in found:
        family, scores = line.row.model.partition("-")[0], line.scores[study.metrics[0]]
        if family == "hnet":
            axes.axhline(mean(scores), color="grey", linestyle=next(styles), label=line.row.label)
            continue
        group = parse_group(line.row.group or "C1")
        if group.size > group.orientations:
            family += " with mirrors"
        families.setdefault(family, []).append((line.row.images or group.orientations, scores))
    for family, points in families.items():
        (drawn,) = axes.plot(*zip(*sorted((place, mean(scores)) for place, scores in points)), marker="o", label=family)
        for place, scores in points:
            axes.plot([place] * len(scores), scores, ".", color=drawn.get_color(), alpha=0.5)
    axes.set(xlabel=study.against, ylabel=f"{study.metrics[0]} ({study.test_split})")
    if study.against == "images":
        axes.set(xscale="log", yscale="log")
        places = sorted({place for points in families.values() for place, _ in points})
        axes.set_xticks(places, [f"{place:,}" for place in places])
        axes.xaxis.minorticks_off()
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
    axes.legend(fontsize=8)
    return figure


def plot_curves(found: list[Line]) -> Figure:
    """Validation score against steps: the mean over seeds, and each seed thin."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for line in found:
        steps, scores = line.curves[0]["steps"], [curve["scores"] for curve in line.curves]
        (drawn,) = axes.plot(steps, [mean(values) for values in zip(*scores, strict=True)], label=line.row.label)
        for values in scores if len(scores) > 1 else []:
            axes.plot(steps, values, color=drawn.get_color(), linewidth=0.7, alpha=0.5)
    axes.set(xlabel="step", ylabel="validation score")
    figure.legend(fontsize=8, loc="outside right center")
    return figure
