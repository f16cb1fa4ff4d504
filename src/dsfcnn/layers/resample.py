"""Up-sampling that commutes with turns."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsfcnn.errors import ShapeError, UsageError


class Upsample(nn.Module):
    """Bilinear up-sampling by 2 of images or G-feature maps, the inverse of the pooling layers' halving.

    (..., h, w) -> (..., 2 h, 2 w), or to ``size``, each length of which is 2 h or 2 h - 1 as the pooled map's was. An even axis has its
    coarse pixels between pairs of fine ones (half-pixel centres), an odd axis on every second of them: both are symmetric. Source
    positions that start at the first pixel, as in old TensorFlow, are not, and break equivariance at every level.
    """

    def __init__(self, factor: int = 2):
        super().__init__()
        if factor != 2:
            raise UsageError(f"Upsample doubles height and width but was asked for {factor!r}; up-sample again for more")

    def forward(self, x: Tensor, size: tuple[int, int] | torch.Size | None = None) -> Tensor:
        planes = x.flatten(1, 2) if x.dim() == 5 else x
        height, width = (2 * planes.shape[-2], 2 * planes.shape[-1]) if size is None else size
        planes = _double_axes(planes, height, width)
        return planes.unflatten(1, x.shape[1:3]) if x.dim() == 5 else planes

    def plain(self) -> nn.Module:
        return self


def _double_axes(planes: Tensor, height: int, width: int) -> Tensor:
    h, w = planes.shape[-2:]
    if 2 * h - height not in (0, 1) or 2 * w - width not in (0, 1):
        raise ShapeError(
            f"Upsample turns {h} x {w} into {2 * h} x {2 * w}, or one less each, but was asked for {height} x {width}; "
            "give the size of the map before pooling"
        )
    if height == 2 * h and width == 2 * w:
        return F.interpolate(planes, size=(height, width), mode="bilinear", align_corners=False)
    if height != 2 * h and width != 2 * w:
        return F.interpolate(planes, size=(height, width), mode="bilinear", align_corners=True)
    # One even and one odd axis: interpolate each by its own rule.
    planes = F.interpolate(planes, size=(height, w), mode="bilinear", align_corners=bool(height != 2 * h))
    return F.interpolate(planes, size=(height, width), mode="bilinear", align_corners=bool(width != 2 * w))
