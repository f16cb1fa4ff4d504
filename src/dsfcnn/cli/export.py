"""``dsfcnn export``: a model for other programs."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    out: Annotated[Path, typer.Option(help="File to write.")],
    model: Annotated[str, typer.Option(help="A shipped model's name, or a model folder.")] = "nuclei",
    format: Annotated[str, typer.Option(help="onnx, torchscript or pt2.")] = "onnx",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there.")] = False,
) -> None:
    """Write a model as ONNX, TorchScript or pt2, in ordinary layers; dsfcnn predict runs the ONNX file too."""
    from dsfcnn.errors import UsageError
    from dsfcnn.files import claim_outputs
    from dsfcnn.inference.export import FORMATS
    from dsfcnn.inference.export import export as write
    from dsfcnn.models import find_model

    if format not in FORMATS:
        raise UsageError(f"no format {format!r}; use one of {', '.join(FORMATS)}")
    folder = find_model(model)
    claim_outputs(out.parent, [out.name], overwrite)
    write(folder, out, format)  # type: ignore[arg-type]
    print(out)
