"""The spectral G-convolution, and the batch norm around it, as functions with gradients."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dsfcnn.groups import Dihedral, Group
from dsfcnn.kernels import calls, mirrors
from dsfcnn.kernels.calls import Activation
from dsfcnn.kernels.tables import plan


class _GConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kernel_size: int, weight: Tensor, bias: Tensor | None, centre: Tensor, scale: Tensor, beta: Tensor, *maps: Tensor
    ) -> Tensor:
        ctx.save_for_backward(weight, centre, scale, beta, *maps)
        ctx.kernel_size = kernel_size
        activation = None if centre is None else Activation(centre, scale, beta)
        return calls.convolve(maps, weight, plan(weight.shape[2], kernel_size), activation, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, centre, scale, beta, *maps = ctx.saved_tensors
        _, needs_weight, needs_bias, *needs_rest = ctx.needs_input_grad
        to_bias = gradient.sum((0, 2, 3, 4)) if needs_bias else None
        if not needs_weight and not any(needs_rest):
            return None, None, to_bias, *(None for _ in needs_rest)
        activation = None if centre is None else Activation(centre, scale, beta)
        found = calls.convolve_back(gradient, maps, weight, plan(weight.shape[2], ctx.kernel_size), activation, needs_weight)
        return None, found.weight, to_bias, *_to_activation(activation, found.passed, found.passed_times), *found.maps


class _Activate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, centre: Tensor, scale: Tensor, beta: Tensor) -> Tensor:
        ctx.save_for_backward(x, centre, scale, beta)
        return calls.affine(x, scale, Activation(centre, scale, beta).shift())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, *numbers = ctx.saved_tensors
        activation = Activation(*numbers)
        to_x, passed, passed_times = calls.activate_back(x, gradient, activation)
        return to_x, *_to_activation(activation, passed, passed_times)


def _to_activation(activation: Activation | None, passed: Tensor | None, passed_times: Tensor | None) -> tuple[Tensor | None, ...]:
    """Gradients to centre, scale and beta of relu(scale (x - centre) + beta)."""
    if activation is None or passed is None or passed_times is None:
        return None, None, None
    to_beta = passed.to(activation.beta.dtype)
    return -activation.scale * to_beta, passed_times.to(to_beta.dtype), to_beta


class _Moments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = (value.to(x.dtype) for value in calls.moments(x))
        ctx.save_for_backward(x, mean)
        return mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_mean: Tensor, to_variance: Tensor) -> Tensor:
        """d mean / dx = 1 / M, d variance / dx = 2 (x - mean) / M, with M numbers in a field."""
        x, mean = ctx.saved_tensors
        numbers = x.numel() // x.shape[1]
        slope = 2 * to_variance / numbers
        return calls.affine(x, slope, to_mean / numbers - slope * mean, linear=True)


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return calls.max_pool(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return calls.max_pool(x, gradient)


def spectral_gconv(
    maps: Sequence[Tensor], weight: Tensor, bias: Tensor | None, kernel_size: int, group: Group, activation: Activation | None = None
) -> Tensor:
    """Hidden-layer G-convolution of steerable filters, Eq. (18), of maps side by side, each read through the activation if there is one.

    (N, C, G, H, W) with ``in`` fields in all, weights (out, in, G, L) -> (N, out, G, H, W).
    """
    if isinstance(group, Dihedral):
        maps = [mirrors.cyclic_fields(x) for x in maps]
        weight = mirrors.cyclic_weight(weight, kernel_size)
        bias = None if bias is None else bias.repeat_interleave(2)
        activation = None if activation is None else mirrors.cyclic_activation(activation)
        return mirrors.dihedral_fields(_cyclic_gconv(maps, weight, bias, kernel_size, activation))
    return _cyclic_gconv(maps, weight, bias, kernel_size, activation)


def _cyclic_gconv(maps: Sequence[Tensor], weight: Tensor, bias: Tensor | None, kernel_size: int, activation: Activation | None) -> Tensor:
    if not torch.is_grad_enabled():  # small maps notice what autograd costs
        return calls.convolve(maps, weight, plan(weight.shape[2], kernel_size), activation, bias)
    return _GConv.apply(kernel_size, weight, bias, *(activation or (None, None, None)), *maps)


def activate(x: Tensor, activation: Activation, in_place: bool = False) -> Tensor:
    """relu(scale (x - centre) + beta) per field of (N, C, n, H, W), in one pass; ``in_place`` counts only where no gradient is wanted."""
    if in_place and not torch.is_grad_enabled():
        return calls.affine(x, activation.scale, activation.shift(), in_place=True)
    return _Activate.apply(x, *activation)


def field_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and (uncorrected) variance of every field of (N, C, n, H, W)."""
    return _Moments.apply(x)


def max_pool(x: Tensor) -> Tensor:
    """The largest number of every 2 x 2 pixels of (..., H, W), both even."""
    return _MaxPool.apply(x)
