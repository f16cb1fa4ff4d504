"""``dsfcnn evaluate``: a model's scores on a split of a data set."""

import json as json_format
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    model: Annotated[str, typer.Option(help="A shipped model's name, or a model folder.")],
    data: Annotated[Path, typer.Option(readable=False, help="Folder of the data set.")],
    split: Annotated[str, typer.Option(help="Split to score on.")],
    data_format: Annotated[str, typer.Option(help="Format of the folder; auto looks at its files.")] = "auto",
    data_mpp: Annotated[float | None, typer.Option(help="Microns per pixel of the images, where their format does not say.")] = None,
    split_file: Annotated[Path | None, typer.Option(readable=False, help="Divides a folder that has no splits.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Folder for what takes long to make from the data.")] = None,
    aligned: Annotated[
        bool,
        typer.Option("--aligned/--as-is", help="Images moved to where their outlines lie, where these are displaced (Kumar's), or not."),
    ] = True,
    turns: Annotated[int, typer.Option(min=1, help="Mean over so many turned copies of each image (test-time turning); 1: none.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder for metrics.json, table.md, best.png, middle.png and worst.png.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
    backend: Annotated[str, typer.Option(envvar="DSFCNN_BACKEND", help="auto, dense or spectral G-convolutions.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Score a model with the measures of its task: per image, as means and pooled, with 95 % intervals."""
    from rich.console import Console
    from rich.progress import Progress

    from dsfcnn.data import open_dataset
    from dsfcnn.files import claim_outputs, expect_outside
    from dsfcnn.kernels import set_backend
    from dsfcnn.kernels.memory import keep_memory
    from dsfcnn.study.judge import Judged, write_judgement
    from dsfcnn.study.turning import TurnedLogits

    keep_memory()
    set_backend(backend)
    if out is not None:
        expect_outside(out, data)
        claim_outputs(out, ["metrics.json", "table.md", "best.png", "middle.png", "worst.png"], overwrite)
    judged = Judged(model, wrap=(lambda network: TurnedLogits(network, turns)) if turns > 1 else None)
    images = open_dataset(data, split, data_format, data_mpp, split_file=split_file, cache=cache, aligned=aligned)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        shown = bar.add_task("scoring", total=len(images))
        results = judged.score(images, seen=lambda *seen: bar.advance(shown))
    about = {"data": images.name, "split": split, "mpp": judged.mpp, "aligned": aligned, "turns": turns, "weights": judged.weights}
    if out is not None:
        write_judgement(out, judged, images, results, about)
    if json:
        print(json_format.dumps({**about, **results.as_dict()}, indent=2))
        return
    print(results.table(), end="")
    if out is not None:
        print(f"written: {out}/metrics.json, table.md, best.png, middle.png, worst.png")
