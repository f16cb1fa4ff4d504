"""``dsfcnn equivariance``: how features and predictions vary when the image is turned."""

import hashlib
import json as json_format
from pathlib import Path
from typing import Annotated, Any

import typer

_DEFAULT = ["cnn-nuclei", "steerable-nuclei:C8"]
_COPIES = 4  # of test-time turning: quarter turns, which are exact


def equivariance(
    image: Annotated[Path, typer.Argument(readable=False, help="PNG, JPEG, TIFF or WebP; the square in its middle is used.")],
    out: Annotated[Path, typer.Option(help="Folder for variance.json, variance.png and frames.png.")],
    model: Annotated[
        list[str] | None,
        typer.Option(help="Model folder, or name:group:width for random weights, as steerable-nuclei:C8:0.5; may be given several times."),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=2, max=360, help="Turns of the image; by default those of the largest group.")] = None,
    size: Annotated[int, typer.Option(help="Side of the square, pixels.")] = 256,
    frame_size: Annotated[int, typer.Option(min=16, max=512, help="Side of a frame for dsfcnn view, pixels.")] = 80,
    test_time_turning: Annotated[
        bool, typer.Option("--test-time-turning", help="Also the first model's mean prediction over its quarter turns.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of random weights.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Turn an image, run models on each copy, turn what they compute back, and draw its variance."""
    from rich.console import Console
    from rich.progress import Progress

    from dsfcnn.errors import UsageError
    from dsfcnn.files import atomic_write, claim_outputs
    from dsfcnn.slides.source import open_file, shown
    from dsfcnn.study.equivariance import compare, default_steps, open_image, open_network
    from dsfcnn.study.equivariance_figure import draw_variance, frame_sheet

    chosen = model or _DEFAULT
    for folder in chosen:
        if Path(folder).is_dir() and out.resolve().is_relative_to(Path(folder).resolve()):
            raise UsageError(f"{shown(out)}: lies in the model folder {shown(folder)}; give another --out")
    pixels, side = open_image(image, size)
    networks = [open_network(name, seed) for name in chosen]
    turns = steps or default_steps(networks)
    claim_outputs(out, ["variance.json", "variance.png", "frames.png"], overwrite)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("turning", total=turns * (len(networks) + test_time_turning))
        found = compare(networks, pixels, side, turns, _COPIES if test_time_turning else None, tick=lambda: progress.advance(bar))
    sheet, rows = frame_sheet(found.views, found.columns, frame_size)
    with atomic_write(out / "variance.png") as stream:
        draw_variance(found.views, found.columns).savefig(stream, format="png", dpi=90, pil_kwargs={"optimize": True})
    with atomic_write(out / "frames.png") as stream:
        sheet.save(stream, format="PNG", optimize=True)
    with open_file(image) as stream:
        digest = hashlib.sha256(stream.read()).hexdigest()
    frames = {"file": "frames.png", "side": sheet.height // len(rows), "rows": rows}
    report = {**found.report(), "image_sha256": digest, "seed": seed, "frames": frames}
    text = json_format.dumps(report, indent=2)
    with atomic_write(out / "variance.json") as stream:  # last: with it, everything is there
        stream.write(text.encode() + b"\n")
    if json:
        print(text)
    else:
        _print_table(report)


def _print_table(report: dict[str, Any]) -> None:
    print(f"{'':<12}{'mean variance':>16}{'/ its own':>12}{'quarter turns':>16}")
    for model in report["models"]:
        print(model["model"] if model["passes"] == 1 else f"{model['model']} ({model['passes']} passes)")
        for name, feature in model["features"].items():
            figures = [feature["all_steps"]["mean_variance"], feature["all_steps"]["ratio"], feature["quarter_turns"]["ratio"]]
            mean, ratio, quarter = ("-" if figure is None else f"{figure:.2e}" for figure in figures)
            print(f"  {name:<10}{mean:>16}{ratio:>12}{quarter:>16}")
