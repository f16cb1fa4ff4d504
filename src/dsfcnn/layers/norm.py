"""Batch normalisation of G-feature maps."""

from torch import Tensor, nn

from dsfcnn.errors import UsageError
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

    def plain(self) -> "FieldAffine":
        return FieldAffine(*self.scale_and_shift())


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
