"""``dsfcnn filters``: pictures of the basis and of filters in every orientation."""

from pathlib import Path
from typing import Annotated

import typer


def filters(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")],
    model: Annotated[str | None, typer.Option(help="A shipped model's name, or a model folder; without it, random filters.")] = None,
    kernel_size: Annotated[int, typer.Option(help="Size of random filters, odd.")] = 7,
    group: Annotated[str, typer.Option(help="Of random filters: C4, C8, D4, ...")] = "C8",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of random filters.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace pictures that are there.")] = False,
) -> None:
    """Draw the basis, and a layer's filters in all their orientations."""
    import torch

    from dsfcnn.files import atomic_write, claim_outputs
    from dsfcnn.layers import GConv2d, LiftConv2d
    from dsfcnn.models import find_model, load_model
    from dsfcnn.study.figures import draw_basis, draw_hidden_filter, draw_lifting_filters, first_layers

    if model is None:
        torch.manual_seed(seed)
        lift, hidden = LiftConv2d(1, 4, kernel_size, group=group), GConv2d(1, 1, kernel_size, group=group)
    else:
        lift, hidden = first_layers(load_model(find_model(model)))
    size = lift.kernel_size
    figures = {
        f"basis-{size}x{size}.png": lambda: draw_basis(size),
        "basis-11x11.png": lambda: draw_basis(11),  # the size of the paper's figure
        f"input-layer-{lift.group}.png": lambda: draw_lifting_filters(lift),
        f"hidden-layer-{hidden.group}.png": lambda: draw_hidden_filter(hidden),
    }
    claim_outputs(out, list(figures), overwrite)
    for name, draw in figures.items():
        with atomic_write(out / name) as stream:
            draw().savefig(stream, format="png", dpi=120)
        print(out / name)
