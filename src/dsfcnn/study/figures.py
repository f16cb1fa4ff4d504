"""Pictures of the basis and of filters, as in the paper's figures."""

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from dsfcnn.basis import frequency_limits, sample_atoms
from dsfcnn.errors import UsageError
from dsfcnn.layers import GConv2d, LiftConv2d

_REAL, _IMAGINARY = "#c0392b", "#2c5aa0"  # borders, red and blue as in the paper's figure of the basis


def draw_basis(kernel_size: int) -> Figure:
    """Every atom: a row per ring j, a pair of pictures per frequency k, real part in red and imaginary part in blue."""
    atoms = sample_atoms(kernel_size)
    limits = frequency_limits(kernel_size)
    rows, columns = len(limits), 2 * max(limits) + 1
    figure = Figure(figsize=(1.1 * columns + 0.6, 1.1 * rows + 0.9), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for values, ring, frequency in zip(atoms.values, atoms.ring.tolist(), atoms.frequency.tolist()):
        if frequency == 0:
            _picture(axes[ring, 0], values.real, _REAL)
        else:
            _picture(axes[ring, 2 * frequency - 1], values.real, _REAL)
            _picture(axes[ring, 2 * frequency], values.imag, _IMAGINARY)
    for ring in range(rows):
        axes[ring, 0].set_title(f"j = {ring}", loc="left", fontsize=9)
    for frequency in range(1, max(limits) + 1):
        ring = limits.index(max(limits)) if frequency > limits[1] else 1
        axes[ring, 2 * frequency - 1].set_title(f"k = {frequency}", loc="left", fontsize=9)
    figure.suptitle(f"Atoms of {kernel_size}x{kernel_size} steerable filters: red real part, blue imaginary part", fontsize=10)
    return figure


def first_layers(model: nn.Module) -> tuple[LiftConv2d, GConv2d]:
    """The input layer of a group network, and its first hidden layer."""
    lift = next((layer for layer in model.modules() if isinstance(layer, LiftConv2d)), None)
    hidden = next((layer for layer in model.modules() if isinstance(layer, GConv2d)), None)
    if lift is None or hidden is None:
        raise UsageError(f"{type(model).__name__} has no group convolutions to draw; give a dsf, steerable, gcnn, p4m or sfcnn model")
    return lift, hidden


def draw_lifting_filters(layer: LiftConv2d) -> Figure:
    """The first channel's filters of an input layer: a row per field, a column per orientation (Eq. 19)."""
    size = layer.group.size
    kernel = layer.kernel().detach()[:, 0].unflatten(0, (layer.out_fields, size))  # o t K K
    figure = _grid(kernel, [_label(layer, element) for element in range(size)], [f"field {field}" for field in range(layer.out_fields)])
    figure.suptitle(f"Input layer, {layer.group}: each filter in its {size} orientations", fontsize=10)
    return figure


def draw_hidden_filter(layer: GConv2d) -> Figure:
    """One G-filter of a hidden layer: a row per output orientation theta, a column per input orientation phi (Eq. 18)."""
    size = layer.group.size
    kernel = layer.kernel().detach().unflatten(0, (layer.out_fields, size)).unflatten(2, (layer.in_fields, size))[0, :, 0]  # t p K K
    labels = [_label(layer, element) for element in range(size)]
    figure = _grid(kernel, [f"from {label}" for label in labels], [f"to {label}" for label in labels])
    figure.suptitle(f"Hidden layer, {layer.group}: one G-filter; from row to row its planar filters turn and change place", fontsize=10)
    return figure


def _label(layer: LiftConv2d | GConv2d, element: int) -> str:
    mirrored = "mirror " if layer.group.mirrors(element) else ""
    return f"{mirrored}{layer.group.degrees(element):g}°"


def _grid(pictures: Tensor, columns: list[str], rows: list[str]) -> Figure:
    figure = Figure(figsize=(1.0 * len(columns) + 0.9, 1.0 * len(rows) + 0.8), layout="constrained")
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    limit = pictures.abs().max().item()
    for row in range(len(rows)):
        for column in range(len(columns)):
            _picture(axes[row, column], pictures[row, column], "0.6", limit)
        axes[row, 0].set_ylabel(rows[row], fontsize=8)
    for column, label in enumerate(columns):
        axes[0, column].set_title(label, fontsize=8)
    return figure


def _picture(axis: Axes, values: Tensor, border: str, limit: float | None = None) -> None:
    """One filter, white at zero, red above and blue below."""
    limit = values.abs().max().item() if limit is None else limit
    axis.set_axis_on()
    axis.imshow(values.to(torch.float32).numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit)
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_color(border)
        spine.set_linewidth(1.5)
