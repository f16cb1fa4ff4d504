"""Batch normalisation of G-feature maps."""

import torch
from torch import Tensor, nn

from dsfcnn.errors import UsageError
from dsfcnn.kernels import Activation
from dsfcnn.layers.joined import Joined
from dsfcnn.layers.shapes import expect_fields


class GBatchNorm(nn.BatchNorm3d):
    """G-batch-norm of the paper: one mean, variance, scale and shift per field, over images, pixels and orientations alike.

    (N, fields, G, H, W) -> the same. With fields on axis 1 and orientations on axis 2, it is exactly BatchNorm3d.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        expect_fields(input, self.num_features, None, "GBatchNorm")

    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """The affine map, per field, that this layer is in evaluation."""
        if self.running_mean is None or self.running_var is None:
            raise UsageError("GBatchNorm without running statistics has no fixed scale; keep track_running_stats=True")
        scale = (self.running_var + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        shift = -self.running_mean * scale
        return scale, shift if self.bias is None else shift + self.bias

    def before_relu(self, maps: Joined) -> Activation:
        """What this layer with a ReLU after it does to each field; in training by the batch's statistics, of which it takes note."""
        if self.training or self.running_mean is None or self.running_var is None:
            mean, variance, numbers = self.batch_moments(maps)
            if self.training:
                take_note(self, mean.detach(), variance.detach(), numbers)
        else:
            mean, variance = self.running_mean, self.running_var
            if torch.is_grad_enabled():  # a later batch in training writes over them, before this one's backward pass
                mean, variance = mean.clone(), variance.clone()
        scale = (variance + self.eps).rsqrt()
        beta = torch.zeros_like(mean) if self.bias is None else self.bias
        return Activation(mean, scale if self.weight is None else scale * self.weight, beta)

    def batch_moments(self, maps: Joined) -> tuple[Tensor, Tensor, int]:
        """Mean and variance of every field, and of how many numbers."""
        return *maps.moments(), maps.numbers()

    def plain(self) -> "FieldAffine":
        return FieldAffine(*self.scale_and_shift())


def take_note(norm: nn.modules.batchnorm._BatchNorm, mean: Tensor, variance: Tensor, numbers: int) -> None:
    """Running statistics, by the rules of torch's batch norm."""
    if norm.running_mean is None or norm.running_var is None:
        return
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    momentum = norm.momentum
    if momentum is None:
        assert norm.num_batches_tracked is not None
        momentum = 1 / norm.num_batches_tracked.item()
    norm.running_mean.lerp_(mean, momentum)
    norm.running_var.lerp_(variance * (numbers / (numbers - 1)), momentum)


class FieldAffine(nn.Module):
    """Scale and shift of each field: what is left of a G-batch-norm in evaluation."""

    scale: Tensor
    shift: Tensor

    def __init__(self, scale: Tensor, shift: Tensor):
        super().__init__()
        self.register_buffer("scale", scale.detach().clone()[:, None, None, None])
        self.register_buffer("shift", shift.detach().clone()[:, None, None, None])

    def forward(self, input: Tensor) -> Tensor:
        return input * self.scale + self.shift
