"""Is it equivariant? For the layers of this package and for anybody's own.

>>> import torch
>>> from dsfcnn.layers import LiftConv2d
>>> layer = LiftConv2d(3, 2, group="C4").double()
>>> assert_equivariant(layer, torch.randn(1, 3, 16, 16, dtype=torch.float64), group="C4")
>>> assert_equivariant(torch.nn.Conv2d(3, 2, 7, padding=3), torch.randn(1, 3, 16, 16), group="C4", rtol=1e-3)
Traceback (most recent call last):
...
AssertionError: Conv2d turned 90 degrees: error ..., allowed 1e-03
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from dsfcnn.errors import ShapeError, UsageError
from dsfcnn.groups import Group, act, parse_group

# Where turns between pixels are compared: away from the image's edge, which no filter sees whole. The image itself fades out towards
# the edge of the inscribed disc, so that no corner turns out of sight.
_COMPARED, _VISIBLE, _FADING = 0.6, 0.95, 0.15  # fractions of half the image's side


def equivariance_error(
    function: Callable[..., Any], images: Tensor, group: str | Group = "C8", *, angles: Collection[float] | None = None
) -> dict[float | str, float]:
    """How far ``function(turned images)`` is from ``turned function(images)``, for every element of the group but the identity.

    Args:
        function: a layer or model. Its output (or each one of a dict, list or tuple) may be G-feature maps (N, C, G, H, W), whose
            orientations change places, maps (N, C, H, W), or vectors (N, C) that should not change at all.
        images: (N, C, H, W), or (N, C, G, H, W) for hidden layers. Square, unless only multiples of 90 degrees are in the group.
        group: name such as "C8".
        angles: only these, in degrees; by default all of the group.

    Returns:
        Relative errors |difference| / |expected| (Euclidean norm, mean over images, the largest of several outputs), by angle in degrees;
        mirrored elements of D_n have keys such as "mirror 90". Multiples of 90 degrees compare the whole map and should be as small as
        rounding. Other angles are interpolated by quintic splines and compared inside a disc of 0.6 times half the side, on images that
        fade out towards their edge; what remains there is the error of the filters' pixels and of pooling.
    """
    group = parse_group(group)
    elements = list(range(1, group.size)) if angles is None else _elements(group, angles)
    return {
        _name(group, element): _worst(_euclidean(want, got) for want, got in pairs)
        for element, pairs in _compare(function, images, group, elements)
    }


def assert_equivariant(function: Callable[..., Any], images: Tensor, group: str | Group = "C8", rtol: float = 1e-9) -> None:
    """Fail unless every turn and mirror of the group that maps pixels onto pixels commutes with ``function``.

    The largest difference of any value may be ``rtol`` times the largest value: 1e-9 is meant for float64, use 1e-5 for float32.
    Arguments as in equivariance_error.
    """
    group = parse_group(group)
    exact = [element for element in range(1, group.size) if group.is_exact(element)]
    if not exact:
        raise UsageError(f"no element of {group} maps pixels onto pixels, so nothing is exact; use equivariance_error")
    for element, pairs in _compare(function, images, group, exact):
        error = _worst(_largest(want, got) for want, got in pairs)
        if not error <= rtol:
            name = _name(group, element)
            move = f"turned {name} degrees" if isinstance(name, int | float) else f"moved by {name} degrees"
            label = getattr(function, "__name__", type(function).__name__)
            raise AssertionError(f"{label} {move}: error {error:.1e}, allowed {rtol:.0e}")


def _compare(
    function: Callable[..., Any], images: Tensor, group: Group, elements: list[int]
) -> Iterator[tuple[int, list[tuple[Tensor, Tensor]]]]:
    """For each element: [(expected, computed)] of every output, cut to where they should agree."""
    if images.dim() not in (4, 5):
        raise ShapeError(f"images come as (N, C, H, W), or (N, C, G, H, W), but got {tuple(images.shape)}; give a batch even of one")
    with torch.no_grad():
        whole, faded = None, None
        for element in elements:
            if group.is_exact(element):
                whole = _outputs(function(images)) if whole is None else whole
                want, x = whole, images
            else:
                if faded is None:
                    fading = images * _disc(images, _VISIBLE, _FADING)
                    faded = fading, _outputs(function(fading))
                x, want = faded
            got = _outputs(function(act(x, group, element)))
            pairs = [(act(w, group, element), g) for w, g in zip(want, got, strict=True)]
            if not group.is_exact(element):
                pairs = [(_inner(w), _inner(g)) for w, g in pairs]
            yield element, pairs


def _elements(group: Group, angles: Collection[float]) -> list[int]:
    """Those that turn by one of the angles."""
    degrees = {element: group.degrees(element) for element in range(1, group.size)}
    found = [element for element, turn in degrees.items() if any(math.isclose(turn, angle, abs_tol=0.01) for angle in angles)]
    if not found:
        known = ", ".join(f"{turn:g}" for turn in sorted(set(degrees.values())))
        raise UsageError(f"angles: {group} turns by none of {list(angles)}, so there is nothing to compare; use some of {known}")
    return found


def _inner(y: Tensor) -> Tensor:
    return y * _disc(y, _COMPARED) if y.dim() >= 4 else y


def _outputs(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    parts = output.values() if isinstance(output, Mapping) else output
    return [tensor for part in parts for tensor in _outputs(part)]


def _disc(like: Tensor, radius: float, edge: float = 0.0) -> Tensor:
    """1 inside a disc of ``radius`` times half the side, 0 outside, with a raised-cosine edge of ``edge`` times half the side."""
    height, width = like.shape[-2:]
    rows, columns = (torch.arange(n, dtype=torch.float64) - (n - 1) / 2 for n in (height, width))
    distance = torch.hypot(rows[:, None], columns) / (min(height, width) / 2)
    if edge == 0:
        return (distance <= radius).to(like)
    return (0.5 - 0.5 * torch.cos(math.pi * ((radius - distance) / edge).clamp(0, 1))).to(like)


def _name(group: Group, element: int) -> float | str:
    degrees = group.degrees(element)
    angle = int(degrees) if degrees == int(degrees) else degrees
    return f"mirror {angle:g}" if group.mirrors(element) else angle


def _euclidean(want: Tensor, got: Tensor) -> float:
    _same_shape(want, got)
    difference, size = ((got - want).double().flatten(1).norm(dim=1), want.double().flatten(1).norm(dim=1))
    return _ratio(difference, size).mean().item()


def _largest(want: Tensor, got: Tensor) -> float:
    _same_shape(want, got)
    return _ratio((got - want).abs().max().double(), want.abs().max().double()).item()


def _worst(errors: Iterable[float]) -> float:
    """The largest, or NaN if there is one; Python's max() would pass over it."""
    return torch.tensor(list(errors), dtype=torch.float64).max().item()


def _ratio(difference: Tensor, size: Tensor) -> Tensor:
    return torch.where(difference == 0, 0.0, difference / size)


def _same_shape(want: Tensor, got: Tensor) -> None:
    if want.shape != got.shape:
        raise ShapeError(
            f"the output for the turned input has shape {tuple(got.shape)} but {tuple(want.shape)} was expected; "
            "check that padding and pooling treat height and width alike"
        )
