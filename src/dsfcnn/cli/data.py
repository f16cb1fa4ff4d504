"""``dsfcnn data``: look at a data set before training on it, and divide one that has no splits."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dsfcnn.data.check import Report

data = typer.Typer(no_args_is_help=True, help="Check a data set, or divide it into training, validation and test images.")

_Folder = Annotated[Path, typer.Argument(metavar="DIR", readable=False, help="Folder of the data set.")]


@data.command()
def check(
    folder: _Folder,
    format: Annotated[str, typer.Option(help="pcam, kumar, crag, glas, rotmnist, folder, slides, or auto to look.")] = "auto",
    split: Annotated[str | None, typer.Option(help="Only this split.")] = None,
    mpp: Annotated[float | None, typer.Option("--mpp", "--data-mpp", help="Microns per pixel, where the data set does not say.")] = None,
    split_file: Annotated[Path | None, typer.Option(readable=False, help="Table that divides a folder without splits.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for montage.png and report.json.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Read every file once; report counts, sizes, objects and what is wrong, and draw a montage with contours."""
    from dsfcnn.data.check import check_dataset
    from dsfcnn.files import atomic_write, claim_outputs, expect_outside

    if out is not None:
        expect_outside(out, folder)
        claim_outputs(out, ["montage.png", "report.json"], overwrite)
    with _Bar() as bar:
        report, montage = check_dataset(folder, format, split, mpp, split_file=split_file, progress=bar.show)
    text = json_format.dumps(report.as_dict(), indent=2)
    if out is not None:
        from PIL import Image

        with atomic_write(out / "montage.png") as stream:
            Image.fromarray(montage).save(stream, "PNG")
        with atomic_write(out / "report.json") as stream:
            stream.write((text + "\n").encode())
    print(text) if json else _print_report(report)
    if report.problems:
        raise typer.Exit(65)


@data.command()
def split(
    folder: _Folder,
    out: Annotated[Path, typer.Option(help="Table to write, outside the data.")],
    seed: Annotated[int, typer.Option(help="Another seed gives another split.")] = 0,
    valid: Annotated[float, typer.Option(help="Share of the images for validation.")] = 0.15,
    test: Annotated[float, typer.Option(help="Share of the images for testing.")] = 0.15,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the table if it is there.")] = False,
) -> None:
    """Divide a folder of images (or of annotated slides) that has no splits, and write the split down."""
    from dsfcnn.data import annotated
    from dsfcnn.data.folder import split_folder
    from dsfcnn.data.open import recognise, splits
    from dsfcnn.data.split import write_split
    from dsfcnn.errors import UsageError
    from dsfcnn.files import claim_outputs, expect_outside
    from dsfcnn.slides.source import shown

    expect_outside(out, folder)
    claim_outputs(out.parent, [out.name], overwrite)
    format = recognise(folder)
    there = splits(folder, format)
    if there != ["all"]:
        raise UsageError(f"{shown(folder)}: has the splits {', '.join(there)} already; use these, they need no table")
    divide = annotated.split_folder if format == "slides" else split_folder
    chosen = divide(folder, seed, valid, test)
    write_split(out, chosen)
    parts = list(chosen.values())
    print(f"{out}: {', '.join(f'{name} {parts.count(name)}' for name in ('train', 'valid', 'test'))}")


class _Bar:
    """A progress bar on stderr, one line for each split; silent where stderr is no terminal."""

    def __enter__(self) -> "_Bar":
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self._progress = Progress(console=console, transient=True, disable=not console.is_terminal)
        self._tasks: dict[str, object] = {}
        self._progress.start()
        return self

    def show(self, split: str, done: int, total: int) -> None:
        if split not in self._tasks:
            self._tasks[split] = self._progress.add_task(split, total=total)
        self._progress.update(self._tasks[split], completed=done)  # type: ignore[arg-type]

    def __exit__(self, *error: object) -> None:
        self._progress.stop()


def _print_report(report: "Report") -> None:
    import sys

    for split in report.splits:
        print(f"{report.format} {split.name}: {split.read} of {split.samples} images read, {split.mpp:g} microns per pixel")
        sizes = list(split.sizes.items())
        print(f"  sizes: {', '.join(f'{size} ({count})' for size, count in sizes[:5])}{', ...' if len(sizes) > 5 else ''}")
        if split.objects_per_image:
            fewest, median, most = split.objects_per_image
            print(f"  objects: {split.objects:,}; in an image {fewest} to {most}, median {median:g}")
        if split.classes:
            print(f"  classes: {', '.join(f'{name} {count}' for name, count in split.classes.items())}")
        for sentence in split.notes:
            print(f"  note: {sentence}")
    for sentence in report.duplicates:
        print(f"duplicate: {sentence}")
    for sentence in report.problems:
        print(f"error: {sentence}", file=sys.stderr)
