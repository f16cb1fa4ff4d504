"""How much do features and predictions change when the image is turned? The paper's variance figure, for any model.

The image is turned in equal steps, the network runs on each copy, and what it computes is turned back: planes in space, orientations to
their places, complex numbers and arrows by their angle. Of a network that is equivariant nothing but interpolation is left in the variance
over the turns. Feature A is the output of the second convolution, feature B that of the convolution after the last up-sampling, or of the
last convolution of a classifier.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dsfcnn import __version__
from dsfcnn.errors import DataError, MissingInputError, UsageError
from dsfcnn.groups import Group
from dsfcnn.layers import GConv2d, LiftConv2d, Upsample
from dsfcnn.layers.harmonic import HarmonicConv2d
from dsfcnn.layers.vector import VectorConv2d
from dsfcnn.models import create, find_model, load_model, names, shipped
from dsfcnn.slides import read_image
from dsfcnn.slides.source import shown
from dsfcnn.study.turning import probabilities, turn, turned

_CONVOLUTIONS = (nn.Conv2d, LiftConv2d, GConv2d, HarmonicConv2d, VectorConv2d)
_STEPS = 8  # for networks without orientations, as in the paper's figure
_SMALLEST = 32  # pixels a side: four poolings leave two


@dataclass(frozen=True)
class Network:
    """A model to study, in float64: with the weights of its folder, or with random ones."""

    label: str
    model: nn.Module
    stored: bool  # whether the weights come from a folder

    @property
    def orientations(self) -> int:
        """Rotations of its group; 1 where it has none."""
        groups = (layer.group for layer in self.model.modules() if isinstance(layer, LiftConv2d | GConv2d | VectorConv2d))
        return next((group.orientations for group in groups), 1)

    def reads(self, view: Tensor) -> Tensor:
        """An RGB image as the network reads it: digit models get the mean of its channels."""
        return view if self.channels == view.shape[1] else view.mean(1, keepdim=True)

    @property
    def channels(self) -> int:
        """Of the images it reads."""
        first = next(layer for layer in self.model.modules() if isinstance(layer, _CONVOLUTIONS))
        return next(getattr(first, name) for name in ("in_channels", "in_fields") if hasattr(first, name))


def open_network(model: str, seed: int = 0) -> Network:
    """A model folder, or a name with group and width for random weights: ``steerable-nuclei``, ``steerable-nuclei:C4``, ``cnn-nuclei:0.5``.

    >>> open_network("steerable-digits:C4:0.2").label
    'steerable-digits C4 width 0.2'
    """
    if model in shipped() or Path(model).is_dir():
        folder = find_model(model).resolve()
        label = folder.parent if folder.name == "best" else folder  # which a training run calls its model; the run has a name
        return Network(shown(label.name), load_model(folder).double(), stored=True)
    name, *parts = model.split(":")
    if name not in names():
        raise MissingInputError(f"{shown(model)}: neither a model folder nor a model's name; give one of them, such as steerable-nuclei:C8")
    options: dict[str, Any] = {}
    for part in parts:
        options |= {"width": _number(part, model)} if part[:1].isdigit() else {"group": part}
    torch.manual_seed(seed)
    built = create(name, **options).double().eval()
    group = f" {built.architecture['group']}" if "group" in built.architecture else ""  # type: ignore[operator,index]
    width = f" width {options['width']:g}" if "width" in options else ""
    return Network(f"{name}{group}{width}", built, stored=False)


def _number(text: str, model: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"{shown(model)}: {text!r} is neither a group nor a width; write name:group:width as in steerable-nuclei:C8:0.5"
        ) from None


def open_image(path: str | Path, size: int) -> tuple[Tensor, int]:
    """An image as float64 (1, 3, H, W) in [0, 1] with even sides, and the side of the even square about its centre, at most ``size``.

    What lies around the square stays as far as its corners reach when it is turned.
    """
    if size < _SMALLEST:
        raise UsageError(f"size must be {_SMALLEST} pixels or more but is {size}; 256 is the usual")
    pixels = read_image(path)
    height, width = (side // 2 * 2 for side in pixels.shape[:2])
    side = min(size // 2 * 2, height, width)
    if side < _SMALLEST:
        found = f"{pixels.shape[1]} x {pixels.shape[0]} pixels"
        raise DataError(f"{shown(path)}: {found} are too few to turn; give an image of {_SMALLEST} or more a side")
    reach = math.ceil(side / math.sqrt(2)) + 1  # pixels from the centre, one more to interpolate
    rows, columns = (slice(max(0, length // 2 - reach), min(length, length // 2 + reach)) for length in (height, width))
    image = torch.from_numpy(np.ascontiguousarray(pixels[rows, columns])).permute(2, 0, 1)
    return image[None].double() / 255, side


def default_steps(networks: Sequence[Network]) -> int:
    """As many turns as the largest group has; a network without orientations counts for 8."""
    return max(n if (n := network.orientations) > 1 else _STEPS for network in networks)


class Spread:
    """Mean and variance of tensors that come one by one, without losing digits where all are nearly equal (Welford's sums)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Tensor = torch.zeros(())
        self.squares: Tensor = torch.zeros(())

    def add(self, x: Tensor) -> None:
        self.count += 1
        change = x - self.mean
        self.mean = self.mean + change / self.count
        self.squares = self.squares + change * (x - self.mean)

    def variance(self) -> Tensor:
        return self.squares / self.count


@dataclass
class Feature:
    """One output of a network over the turns: maps (1, C, [planes,] H, W), or class probabilities (1, C)."""

    layer: str | None = None  # its name in the model; None for predictions
    every: Spread = field(default_factory=Spread)
    quarter: Spread = field(default_factory=Spread)
    own: float | None = None  # variance over the disc of the upright image's output, mean over planes; classes have none
    shown: int = 0  # the field that pictures show: the one that varies most
    pictures: list[Tensor] = field(default_factory=list)  # for each turn (H, W) or (H, W, 3), as the network gives it; classes (C,)

    def add(self, upright: Tensor, degrees: float) -> None:
        if self.every.count == 0 and upright.dim() >= 4:
            inside = _planes(upright)[:, disc(upright)]
            self.own = inside.var(dim=1, unbiased=False).mean().item()
        self.every.add(upright)
        if degrees % 90 == 0:
            self.quarter.add(upright)

    def variance_map(self) -> Tensor:
        """Pixel-wise variance over all turns, mean over planes: (H, W); for classes, (C,)."""
        return _over_planes(self.every.variance())

    def report(self) -> dict[str, Any]:
        """Figures: mean variance inside the disc, its ratio to the output's own, for all steps and quarter turns; classes of each turn."""
        found: dict[str, Any] = {"layer": self.layer, "feature_variance": self.own}
        for name, spread in (("all_steps", self.every), ("quarter_turns", self.quarter)):
            variance = spread.variance()
            mean = _over_planes(variance)[disc(variance)].mean().item() if variance.dim() >= 4 else variance.mean().item()
            enough = spread.count > 1
            found[name] = {
                "turns": spread.count,
                "mean_variance": mean if enough else None,
                "ratio": mean / self.own if enough and self.own else None,
            }
        if self.own is None:
            found["probabilities"] = [picture.tolist() for picture in self.pictures]
        return found


@dataclass(frozen=True)
class Column:
    """What was found of one network, or of one with test-time turning."""

    network: Network
    turns: int | None  # copies of test-time turning
    features: dict[str, Feature]

    @property
    def label(self) -> str:
        return self.network.label if self.turns is None else f"{self.network.label}, mean of {self.turns} turns"

    @property
    def passes(self) -> int:
        """Through the network for one prediction."""
        return self.turns or 1

    def report(self) -> dict[str, Any]:
        features = {name: feature.report() for name, feature in self.features.items()}
        return {
            "model": self.label,
            "architecture": self.network.model.architecture,
            "weights": "folder" if self.network.stored else "random",
            "passes": self.passes,
            "features": features,
        }


@dataclass(frozen=True)
class Comparison:
    """Several networks on one image."""

    views: list[Tensor]  # the image's turned crops, (1, 3, size, size) each
    columns: list[Column]

    def report(self) -> dict[str, Any]:
        angles = [360 * step / len(self.views) for step in range(len(self.views))]
        return {
            "dsfcnn": __version__,
            "size": self.views[0].shape[-1],
            "angles": angles,
            "quarter_turns": [angle for angle in angles if angle % 90 == 0],
            "models": [column.report() for column in self.columns],
        }


def compare(
    networks: Sequence[Network], image: Tensor, size: int, steps: int, turns: int | None = None, tick: Callable[[], None] = lambda: None
) -> Comparison:
    """Run networks on the image's middle ``size`` x ``size`` pixels in ``steps`` orientations.

    Args:
        image: (1, 3, H, W) float64 of even sides, as from ``open_image``; digit models get the mean of its channels.
        turns: also the first network with test-time turning over so many copies.
        tick: called after each orientation of each network.
    """
    if steps < 2:
        raise UsageError(f"steps must be 2 or more but is {steps}; 8 is the paper's")
    views = [turn(image, 360 * step / steps, (size, size)) for step in range(steps)]
    columns = []
    for network in networks:
        if not network.stored:
            take_statistics(network, views[0])
        columns.append(study(network, views, tick=tick))
    if turns is not None:
        columns.append(study(networks[0], views, turns, tick))
    return Comparison(views, columns)


def study(network: Network, views: Sequence[Tensor], turns: int | None = None, tick: Callable[[], None] = lambda: None) -> Column:
    """One network on the turned crops; with ``turns`` of test-time turning, predictions alone."""
    model = network.model
    layers = {} if turns else find_features(network)
    predict = turned(model, turns) if turns else lambda view: probabilities(model(view))
    features: dict[str, Feature] = {name: Feature(layer) for name, layer in layers.items()}
    with torch.no_grad(), watched(model, layers) as outputs:
        for step, view in enumerate(views):
            degrees = 360 * step / len(views)
            found = predict(network.reads(view))
            predictions = found if isinstance(found, dict) else {"classes": found}
            for name, output in {**outputs, **predictions}.items():
                layer = model.get_submodule(layers[name]) if name in layers else None
                feature = features.setdefault(name, Feature())
                feature.add(turn_back(output, layer, degrees), degrees)
                _keep_picture(feature, output, layer)
            tick()
    return Column(network, turns, features)


def find_features(network: Network) -> dict[str, str]:
    """Layers of features A and B by name, from the order in which the model calls its convolutions; 1x1 ones do not count."""
    model, calls = network.model, list[str]()

    def note(name: str) -> Callable[..., None]:
        return lambda *_: calls.append(name)

    convolutions = {name: layer for name, layer in model.named_modules() if isinstance(layer, _CONVOLUTIONS) and _reach(layer) > 1}
    ups = {name: layer for name, layer in model.named_modules() if isinstance(layer, Upsample)}
    handles = [layer.register_forward_hook(note(name)) for name, layer in (convolutions | ups).items()]
    try:
        with torch.no_grad():
            model(torch.zeros(1, network.channels, _SMALLEST, _SMALLEST, dtype=torch.float64))
    finally:
        for handle in handles:
            handle.remove()
    order = [name for name in calls if name in convolutions]
    last_up = max((place for place, name in enumerate(calls) if name in ups), default=None)
    return {"A": order[1], "B": order[-1] if last_up is None else calls[last_up + 1]}


def _reach(layer: nn.Module) -> int:
    size = layer.kernel_size
    return max(size) if isinstance(size, tuple) else int(size)  # type: ignore[arg-type]


@contextmanager
def watched(model: nn.Module, layers: dict[str, str]) -> Iterator[dict[str, Tensor]]:
    """What the named layers gave in the latest pass."""
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        return lambda layer, inputs, output: outputs.__setitem__(name, output)

    handles = [model.get_submodule(layer).register_forward_hook(keep(name)) for name, layer in layers.items()]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def take_statistics(network: Network, crop: Tensor) -> None:
    """Batch norms of random weights take the statistics of the upright crop; without any, values grow or vanish with depth.

    Those in the head of a classifier stay as they are: they see one pixel an image.
    """
    model = network.model
    norms: dict[str, Any] = {name: layer for name, layer in model.named_modules() if hasattr(layer, "momentum")}
    for name, norm in norms.items():
        if not name.startswith("head."):
            norm.momentum = 1.0  # the next batch's, as they are
            norm.train()
    with torch.no_grad():
        model(network.reads(crop))
    model.eval()


def turn_back(output: Tensor, layer: nn.Module | None, degrees: float) -> Tensor:
    """A layer's output for an image turned by ``degrees``, moved to where the upright image's should be.

    Args:
        output: maps, or (N, C) that do not turn.
        layer: what gave it, which says how its planes move among themselves; None for ordinary maps.
    """
    if output.dim() < 4:
        return output
    maps = turn(output, -degrees)
    match layer:
        case LiftConv2d() | GConv2d():
            return _move_orientations(maps, layer.group, -degrees)
        case HarmonicConv2d():
            return _turn_numbers(maps, range(layer.max_frequency + 1), -degrees)
        case VectorConv2d():
            return _turn_numbers(maps, [1], -degrees)
    return maps


def _move_orientations(maps: Tensor, group: Group, degrees: float) -> Tensor:
    """Orientation h goes to g h; where the turn lies between two elements of the group, linearly between their places."""
    steps = degrees * group.orientations / 360
    whole = math.floor(steps)
    share = steps - whole
    by_mirror = maps.unflatten(2, (-1, group.orientations))  # N C (turns, mirrors) n H W
    moved = by_mirror.roll(whole, dims=3)
    if share:
        moved = (1 - share) * moved + share * by_mirror.roll(whole + 1, dims=3)
    return moved.flatten(2, 3)


def _turn_numbers(maps: Tensor, frequencies: Sequence[int], degrees: float) -> Tensor:
    """Pairs of planes are complex numbers (or arrows, frequency 1) that turn by k times the angle: (N, C, 2 K, H, W)."""
    real, imaginary = maps.unflatten(2, (len(frequencies), 2)).unbind(3)
    angle = torch.tensor(frequencies, dtype=maps.dtype)[:, None, None] * math.radians(degrees)
    cosine, sine = angle.cos(), angle.sin()
    return torch.stack((cosine * real - sine * imaginary, sine * real + cosine * imaginary), dim=3).flatten(2, 3)


def _keep_picture(feature: Feature, output: Tensor, layer: nn.Module | None) -> None:
    """What a viewer sees of it for this turn: a field's invariant map, or probabilities as colours."""
    if output.dim() < 4:
        picture = output[0]
    elif layer is None:  # two channels are told by the second, three by red, green and blue
        channels = output.shape[1]
        picture = output[0, :3].movedim(0, -1) if channels >= 3 else output[0, channels - 1]
    else:
        maps = _invariant(output, layer)[0]
        if not feature.pictures:
            feature.shown = int(maps.flatten(1).var(dim=1).argmax())
        picture = maps[feature.shown]
    feature.pictures.append(picture.float())


def _invariant(output: Tensor, layer: nn.Module) -> Tensor:
    """(N, C, H, W): the maximum over orientations, or the magnitude of complex numbers and arrows."""
    if isinstance(layer, HarmonicConv2d | VectorConv2d):
        return output.square().sum(2).sqrt()
    return output.amax(2) if output.dim() == 5 else output


def disc(maps: Tensor) -> Tensor:
    """The inscribed disc of square maps: (H, W), true inside."""
    side = maps.shape[-1]
    offsets = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    return torch.hypot(offsets[:, None], offsets) <= side / 2


def _planes(maps: Tensor) -> Tensor:
    return maps.flatten(0, -3)


def _over_planes(variance: Tensor) -> Tensor:
    return _planes(variance).mean(0) if variance.dim() >= 4 else variance[0]
