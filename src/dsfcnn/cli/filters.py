"""``dsfcnn filters``: pictures of the basis and of filters in every orientation."""

from pathlib import Path
from typing import Annotated

import typer


def filters(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")],
    kernel_size: Annotated[int, typer.Option(help="Size of the drawn layer's filters, odd.")] = 7,
    group: Annotated[str, typer.Option(help="C4, C8, D4, ...")] = "C8",
    seed: Annotated[int, typer.Option(help="Of the layer's random weights.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace pictures that are there.")] = False,
) -> None:
    """Draw the basis, and a layer's filters in all their orientations."""
    import torch

    from dsfcnn.files import atomic_write, claim_outputs
    from dsfcnn.layers import GConv2d, LiftConv2d
    from dsfcnn.study.figures import draw_basis, draw_hidden_filter, draw_lifting_filters

    torch.manual_seed(seed)
    lift = LiftConv2d(1, 4, kernel_size, group=group)
    hidden = GConv2d(1, 1, kernel_size, group=group)
    figures = {
        f"basis-{kernel_size}x{kernel_size}.png": lambda: draw_basis(kernel_size),
        "basis-11x11.png": lambda: draw_basis(11),  # the size of the paper's figure
        f"input-layer-{lift.group}.png": lambda: draw_lifting_filters(lift),
        f"hidden-layer-{hidden.group}.png": lambda: draw_hidden_filter(hidden),
    }
    claim_outputs(out, list(figures), overwrite)
    for name, draw in figures.items():
        with atomic_write(out / name) as stream:
            draw().savefig(stream, format="png", dpi=120)
        print(out / name)
