"""The architecture of DSF-CNN as a picture, read off a model that was built."""

from collections.abc import Iterable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from torch import nn

from dsfcnn.layers import GConv2d, LiftConv2d
from dsfcnn.models.dsf import DSFSegmenter

_COLOURS = {"conv": "#f4d7b5", "dense": "#bcd4ea", "head": "#d7e8c8"}


def draw_architecture(model: Any) -> Figure:
    """A DSFClassifier or DSFSegmenter: levels from top to bottom, the encoder on the left, the decoder on the right, skips across."""
    figure = Figure(figsize=(11, 6.8), layout="constrained")
    axis = figure.subplots()
    axis.set_xlim(0, 11)
    axis.set_ylim(-6.2, 1.5)
    axis.set_axis_off()
    decodes = isinstance(model, DSFSegmenter)
    left, right = (0.2, 6.2) if decodes else (1.2, 6.2)
    encoder = [_stem_text(model), *(_block_text(block) for block in model.encoder.blocks)]
    for level, text in enumerate(encoder):
        _box(axis, left, -1.3 * level, text, "conv" if level == 0 else "dense")
        axis.text(left - 0.1, -1.3 * level - 0.42, f"1/{2**level}", ha="right", va="center", fontsize=8, color="0.4")
        if level:
            _arrow(axis, (left + 2, -1.3 * level + 0.5), (left + 2, -1.3 * level + 0.02), "max-pool")
    if decodes:
        for number, block in enumerate(model.blocks):
            level = 3 - number
            _box(axis, right, -1.3 * level, _block_text(block), "dense")
            _arrow(axis, (left + 4, -1.3 * level - 0.4), (right, -1.3 * level - 0.4), "+ skip")
        _arrow(axis, (left + 4.02, -5.6), (right + 2, -4.75), "up-sample")
        for level in (2, 1, 0):
            _arrow(axis, (right + 2, -1.3 * level - 1.28), (right + 2, -1.3 * level - 0.82), "up-sample")
        _box(axis, right, 0, f"{_conv_text(model.last)}\nmaximum over orientations", "conv")
        _arrow(axis, (left + 4, -0.4), (right, -0.4), "+ skip")
        heads = "    ".join(f"{name}: 1x1 {head[0][0].out_channels}, 1x1 {head[1].out_channels}" for name, head in model.heads.items())
        _box(axis, right, 1.3, heads, "head")
        _arrow(axis, (right + 2, 0.02), (right + 2, 0.48), "")
    else:
        widths = [layer.out_channels for layer in model.head.modules() if hasattr(layer, "out_channels")]
        text = "mean over space, maximum over orientations\n" + ", ".join(f"1x1 {width}" for width in widths)
        _box(axis, right, -5.2, text, "head")
        _arrow(axis, (left + 4, -5.6), (right, -5.6), "")
    group = model.encoder.stem[0].group
    axis.set_title(
        f"{model.architecture['name']}, {group}: numbers of fields, each with {group.size} orientations; "
        "batch norm and ReLU before every convolution of a unit",
        fontsize=9,
    )
    return figure


def _conv_text(sequence: Iterable[nn.Module]) -> str:
    convs = [layer for layer in sequence if isinstance(layer, LiftConv2d | GConv2d)]
    return ", ".join(f"{conv.kernel_size}x{conv.kernel_size} {conv.out_fields}" for conv in convs)


def _stem_text(model: Any) -> str:
    return f"input layer, hidden layer\n{_conv_text(model.encoder.stem)}"


def _block_text(block: Any) -> str:
    unit, closing = block.units[0], block.closing[-1]
    return (
        f"{len(block.units)} dense units [{_conv_text(unit.body)}]\nthen {closing.kernel_size}x{closing.kernel_size} {closing.out_fields}"
    )


def _box(axis: Axes, x: float, y: float, text: str, kind: str) -> None:
    axis.add_patch(FancyBboxPatch((x, y - 0.8), 4, 0.8, boxstyle="round,pad=0.02", facecolor=_COLOURS[kind], edgecolor="0.4"))
    axis.text(x + 2, y - 0.4, text, ha="center", va="center", fontsize=8)


def _arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float], label: str) -> None:
    axis.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=10, color="0.3"))
    middle = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    if label:
        axis.text(middle[0] + 0.08, middle[1] + 0.08, label, fontsize=7, color="0.3")
