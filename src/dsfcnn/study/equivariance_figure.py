"""Pictures of the variance study: variance maps side by side, and a sheet of frames that a page can step through."""

from collections.abc import Sequence
from textwrap import fill

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from PIL import Image
from torch import Tensor

from dsfcnn.study.equivariance import Column, Feature, disc

FRAME = 80  # pixels a side of a frame on the sheet, where nothing else is asked for
_BRIGHTEST = 0.995  # quantile of the variances that is drawn brightest: single pixels should not darken the rest
_VARIANCE, _FEATURE = "inferno", "gray"
_RELATIVE = ("A", "B")  # divided by their own variance, since networks differ in the scale of their features


def draw_variance(views: Sequence[Tensor], columns: Sequence[Column]) -> Figure:
    """A row per feature and prediction; for each network what it gives for the upright image, and the variance over the turns.

    A row's variance maps share their colours. Those of features are divided by the feature's own variance, those of probabilities are as
    they are.

    Args:
        views: the turned images, (1, C, H, W) each.
        columns: one per network.
    """
    names = list(dict.fromkeys(name for column in columns for name in column.features))
    across = 1 + 2 * len(columns)
    figure = Figure(figsize=(1.5 * across + 0.6, 1.75 * len(names) + 0.8), layout="constrained")
    axes = figure.subplots(len(names), across, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for row, (view, degrees) in enumerate(zip(views[:2], (0, 360 / len(views)))):
        if row < len(names):
            _show(axes[row, 0], _colours(view), f"input, {degrees:g}°")
    for row, name in enumerate(names):
        drawn = _draw_row(axes[row], name, columns)
        if drawn is not None:
            bar = figure.colorbar(drawn, ax=axes[row, -1], fraction=0.08)
            bar.set_label("variance / its own" if name in _RELATIVE else "variance", fontsize=7)
            bar.ax.tick_params(labelsize=6)
    for number, column in enumerate(columns):
        heading = axes[0, 1 + 2 * number]
        passes = "" if column.passes == 1 else f"\n{column.passes} passes"
        heading.set_title(f"{fill(column.label, 22)}{passes}\n{heading.get_title()}", fontsize=7, fontweight="bold", parse_math=False)
    figure.suptitle(
        f"Variance over {len(views)} turns of the input; above each map its mean, relative to the output's own variance", fontsize=9
    )
    return figure


def _draw_row(axes: Sequence[Axes], name: str, columns: Sequence[Column]) -> AxesImage | None:
    """One feature of every network that has it; the last variance map, if there is any."""
    limit = _limit([_shown_variance(name, column.features[name]) for column in columns if name in column.features])
    drawn = None
    for column, picture, variance in zip(columns, axes[1::2], axes[2::2]):
        if name not in column.features:
            continue
        feature = column.features[name]
        if feature.own is None:
            _draw_classes(picture, feature)
            variance.text(0.5, 0.5, _figures(feature), ha="center", va="center", fontsize=7, transform=variance.transAxes)
            continue
        _show(picture, feature.pictures[0].numpy(), f"feature {name}" if name in _RELATIVE else f"{name} probability", cmap=_FEATURE)
        inside = np.where(disc(feature.variance_map()).numpy(), _shown_variance(name, feature), np.nan)
        drawn = _show(variance, inside, _figures(feature), cmap=_VARIANCE, vmin=0, vmax=limit)
    return drawn


def frame_sheet(views: Sequence[Tensor], columns: Sequence[Column], side: int = FRAME) -> tuple[Image.Image, list[str]]:
    """One picture of many frames, a column per turn, and what its rows show: the turned input, then every map of every network.

    Maps are as the network gives them for the turned input. A row has one scale of grey; probabilities have that of 0 to 1.
    """
    rows = [np.concatenate([_frame(_colours(view), side) for view in views], axis=1)]
    names = ["input"]
    for column in columns:
        for name, feature in column.features.items():
            if feature.own is None:
                continue
            pictures = torch.stack(feature.pictures)
            low, high = (pictures.min(), pictures.max()) if feature.layer else (0.0, 1.0)
            scaled = ((pictures - low) / max(float(high - low), 1e-30)).numpy()
            rows.append(np.concatenate([_frame(picture, side) for picture in scaled], axis=1))
            names.append(f"{column.label}: {name}")
    return Image.fromarray(np.concatenate(rows)), names


def _frame(picture: np.ndarray, side: int) -> np.ndarray:
    """(H, W) or (H, W, 3) in [0, 1] -> uint8 (side, side, 3)."""
    colours = picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, axis=2)
    frame = Image.fromarray((np.clip(colours, 0, 1) * 255).round().astype(np.uint8))
    smaller = frame.width > side
    return np.asarray(frame.resize((side, side), Image.Resampling.BOX if smaller else Image.Resampling.NEAREST))


def _colours(view: Tensor) -> np.ndarray:
    return view[0].expand(3, -1, -1).movedim(0, -1).clamp(0, 1).numpy()


def _shown_variance(name: str, feature: Feature) -> np.ndarray:
    variance = feature.variance_map().numpy()
    return variance / feature.own if name in _RELATIVE and feature.own else variance


def _limit(maps: Sequence[np.ndarray]) -> float:
    inside = [values[disc(torch.from_numpy(values)).numpy()] for values in maps if values.ndim == 2]
    return max((float(np.quantile(values, _BRIGHTEST)) for values in inside), default=0.0) or 1.0


def _figures(feature: Feature) -> str:
    found = feature.report()
    kind, unit = ("ratio", "") if feature.own else ("mean_variance", "variance ")
    lines = [(f"{found['all_steps']['turns']} turns", found["all_steps"][kind]), ("quarter turns", found["quarter_turns"][kind])]
    return "\n".join(f"{label}: {unit}{_short(value)}" for label, value in lines if value is not None)


def _short(value: float) -> str:
    return f"{value:.2g}" if value >= 1e-3 else f"{value:.0e}"


def _show(
    axis: Axes, picture: np.ndarray, title: str, cmap: str | None = None, vmin: float | None = None, vmax: float | None = None
) -> AxesImage:
    axis.set_title(title, fontsize=7)
    if cmap is None:
        return axis.imshow(picture)
    return axis.imshow(picture, cmap=colormaps[cmap], norm=Normalize(vmin, vmax), interpolation="nearest")


def _draw_classes(axis: Axes, feature: Feature) -> None:
    """Probabilities of the classes for every turn."""
    probabilities = torch.stack(feature.pictures).numpy()  # turns, classes
    axis.set_axis_on()
    axis.plot(np.arange(len(probabilities)) * 360 / len(probabilities), probabilities, marker=".", linewidth=1)
    axis.set_ylim(0, 1)
    axis.set_xlabel("degrees", fontsize=6)
    axis.tick_params(labelsize=6)
    axis.set_title("class probabilities", fontsize=7)
