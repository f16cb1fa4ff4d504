"""Checks of what goes into a layer."""

from numbers import Integral

from torch import Tensor

from dsfcnn.errors import ShapeError, UsageError


def expect_channels(x: Tensor, channels: int, layer: str) -> None:
    if x.dim() != 4 or x.shape[1] != channels:
        hint = "images come as (N, C, H, W), a batch even of one" if x.dim() != 4 else f"give images of {channels} channels"
        raise ShapeError(f"{layer} expects (N, {channels}, H, W) but got {tuple(x.shape)}; {hint}")


def expect_fields(x: Tensor, fields: int | None, size: int | None, layer: str) -> None:
    """A G-feature map (N, fields, size, H, W); None stands for any number."""
    if x.dim() == 5 and fields in (None, x.shape[1]) and size in (None, x.shape[2]):
        return
    wanted = f"(N, {fields or 'C'}, {size or 'G'}, H, W)"
    if x.dim() != 5:
        hint = "lift images with LiftConv2d first"
    elif size not in (None, x.shape[2]):
        hint = "give both layers the same group="
    else:
        hint = f"set the layer's fields to {x.shape[1]}"
    raise ShapeError(f"{layer} expects {wanted} but got {tuple(x.shape)}; {hint}")


def expect_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if not isinstance(number, Integral) or isinstance(number, bool) or number < 1:
            raise UsageError(f"{name} must be a positive integer but is {number!r}; give 1 or more")
