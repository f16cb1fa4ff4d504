"""Pooling over orientations, and over space by a rule that is symmetric for every size.

Halving an axis of even length pairs its pixels. A pair has no place for the last pixel of an odd axis, and dropping it breaks
equivariance without a word. So an odd axis is read by windows of three, centred on every second pixel from the first to the last:
2 h - 1 pixels become h, mirrored and turned maps included.
"""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from dsfcnn.errors import UsageError
from dsfcnn.kernels import max_pool, reads_fields
from dsfcnn.layers.shapes import expect_fields


class GPool(nn.Module):
    """G-pooling of the paper: maximum (or mean) over the orientations. (N, C, G, H, W) -> (N, C, H, W)."""

    def __init__(self, kind: Literal["max", "mean"] = "max"):
        super().__init__()
        if kind not in ("max", "mean"):
            raise UsageError(f"no G-pooling of kind {kind!r}; use 'max' or 'mean'")
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        expect_fields(x, None, None, "GPool")
        return x.amax(2) if self.kind == "max" else x.mean(2)

    def plain(self) -> nn.Module:
        return self

    def extra_repr(self) -> str:
        return self.kind


class _HalvingPool(nn.Module):
    """Halves height and width of images or G-feature maps: (..., H, W) -> (..., ceil(H / 2), ceil(W / 2))."""

    def __init__(self, factor: int = 2):
        super().__init__()
        if factor != 2:
            raise UsageError(f"{type(self).__name__} halves height and width but was asked for {factor!r}; pool again for more")

    def forward(self, x: Tensor) -> Tensor:
        planes = x.flatten(1, 2) if x.dim() == 5 else x
        pooled = self.pool(planes)
        return pooled.unflatten(1, x.shape[1:3]) if x.dim() == 5 else pooled

    def pool(self, planes: Tensor) -> Tensor:
        raise NotImplementedError

    def plain(self) -> nn.Module:
        return self


class MaxPool(_HalvingPool):
    """Spatial max-pooling by 2: windows of 2 along an even axis, of 3 along an odd one."""

    def pool(self, planes: Tensor) -> Tensor:
        odd = [length % 2 for length in planes.shape[-2:]]
        if not any(odd) and reads_fields([planes]):
            return max_pool(planes)
        return F.max_pool2d(planes, kernel_size=[2 + o for o in odd], stride=2, padding=odd)


class MeanPool(_HalvingPool):
    """Spatial mean-pooling by 2: pairs along an even axis, weights 1 2 1 along an odd one, where the ends repeat."""

    def pool(self, planes: Tensor) -> Tensor:
        return _smooth(planes, even=(1, 1), odd=(1, 2, 1))


class AntialiasedPool(_HalvingPool):
    """Max-pooling by 2 that keeps turns between pixels: a running maximum, smoothed before every second pixel is kept.

    A plain max-pool samples a map that is rougher than its pixels; at 45 degrees that is most of a network's error. Here the same
    windows move by one pixel, and a binomial filter takes out what the coarser grid cannot hold.
    """

    def pool(self, planes: Tensor) -> Tensor:
        odd = [length % 2 for length in planes.shape[-2:]]
        # Windows of 2 stand between pixels, windows of 3 on them: either way every second one is where MaxPool's are.
        running = F.max_pool2d(planes, kernel_size=[2 + o for o in odd], stride=1, padding=odd)
        return _smooth(running, even=(1, 4, 6, 4, 1), odd=(1, 4, 6, 4, 1))


class MagnitudePool(nn.Module):
    """Spatial pooling by 2 that keeps, of each window, the pair of numbers with the largest magnitude.

    For maps (N, C, S, H, W) whose S planes are pairs: real and imaginary parts, or components of vectors.
    """

    def forward(self, x: Tensor) -> Tensor:
        pairs = x.unflatten(2, (-1, 2))  # N C S/2 2 H W
        odd = [length % 2 for length in x.shape[-2:]]
        magnitude = pairs.square().sum(3).flatten(1, 2)
        largest, index = F.max_pool2d(magnitude, kernel_size=[2 + o for o in odd], stride=2, padding=odd, return_indices=True)
        index = index.unflatten(1, pairs.shape[1:3]).unsqueeze(3).expand(-1, -1, -1, 2, -1, -1)
        kept = pairs.flatten(-2).gather(-1, index.flatten(-2)).unflatten(-1, largest.shape[-2:])
        return kept.flatten(2, 3)

    def plain(self) -> nn.Module:
        return self


def _smooth(planes: Tensor, even: tuple[int, ...], odd: tuple[int, ...]) -> Tensor:
    """Weighted means at every second place of both axes, the ends repeated, with the weights for its length along each axis."""
    for axis in (-2, -1):
        weights = odd if planes.shape[axis] % 2 else even
        length = len(weights)
        reach = (length - 1) // 2
        taps = planes.new_tensor(weights) / sum(weights)
        shape, pad, stride = ((length, 1), (0, 0, reach, reach), (2, 1)) if axis == -2 else ((1, length), (reach, reach, 0, 0), (1, 2))
        padded = F.pad(planes, pad, mode="replicate") if reach else planes
        channels = planes.shape[1]
        planes = F.conv2d(padded, taps.view(1, 1, *shape).expand(channels, -1, -1, -1), stride=stride, groups=channels)
    return planes
