"""H-Net layers (Worrall et al. 2017), for the paper's comparison: complex maps that turn with a phase.

A harmonic map holds, for each of its C fields, complex planes of frequencies 0 .. m: (N, C, S, H, W) with S = 2 (m + 1) planes, the
real and imaginary part of frequency 0, of frequency 1, and so on. Turning the image by an angle turns the planes and multiplies those of
frequency k by exp(i k angle): for every angle, up to what pixels blur.
"""

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsfcnn.basis import radial_profile
from dsfcnn.basis.atoms import pixel_grid
from dsfcnn.basis.context import on_cpu
from dsfcnn.basis.rings import check_kernel_size
from dsfcnn.filters.init import expected_gain
from dsfcnn.layers.fixed import FixedTensors
from dsfcnn.layers.length import length
from dsfcnn.layers.shapes import expect_channels, expect_fields, expect_positive
from dsfcnn.layers.steered import PlainFieldConv

RINGS = 4  # N of the paper's count, for 7x7
_RING_WIDTH = 0.5  # pixels, as in Worrall's code


@cache
@on_cpu
def harmonic_pictures(kernel_size: int, frequencies: range) -> Tensor:
    """Rings times exp(i k azimuth): (F, RINGS, K, K, 2), each complex picture of unit norm, zero at the centre for k != 0."""
    check_kernel_size(kernel_size)
    points = pixel_grid(kernel_size)
    pictures = []
    for frequency in frequencies:
        for radius in torch.linspace(0 if frequency == 0 else 1, kernel_size // 2, RINGS, dtype=torch.float64).tolist():
            picture = torch.polar(radial_profile(points.abs(), radius, _RING_WIDTH), frequency * points.angle())
            if frequency != 0:
                picture[kernel_size // 2, kernel_size // 2] = 0
            pictures.append(picture / torch.linalg.vector_norm(picture))
    return torch.view_as_real(torch.stack(pictures)).unflatten(0, (len(frequencies), RINGS))


@cache
@on_cpu
def _gain(kernel_size: int, frequencies: range) -> float:
    pictures = harmonic_pictures(kernel_size, frequencies)
    parts = pictures.movedim(-1, 0).flatten(0, 2)[None]  # real and imaginary pictures of all frequencies and rings
    return expected_gain(parts, torch.ones(parts.shape[1]).double())


class HarmonicConv2d(FixedTensors):
    """Convolution with filters R(r) exp(i (k azimuth + phase)); from frequency p to frequency q the filter's frequency is q - p.

    (N, in_fields, S, H, W) -> (N, out_fields, S, H, W), or with ``lifts`` from images (N, in_fields, H, W). Learned per pair of fields and
    filter frequency: N ring weights and one phase. Filters of the same frequency are shared by all pairs (p, q) that they join.
    """

    pictures: Tensor  # F N K K 2

    def __init__(self, in_fields: int, out_fields: int, kernel_size: int = 7, *, max_frequency: int = 1, lifts: bool = False):
        super().__init__()
        expect_positive(in_fields=in_fields, out_fields=out_fields, max_frequency=max_frequency)
        self.in_fields, self.out_fields, self.kernel_size, self.max_frequency = in_fields, out_fields, kernel_size, max_frequency
        self.lifts = lifts
        self.frequencies = range(0 if lifts else -max_frequency, max_frequency + 1)
        shape = (len(self.frequencies), out_fields, in_fields)
        self.radial = nn.Parameter(torch.empty(*shape, RINGS))
        self.phase = nn.Parameter(torch.empty(shape))
        self.register_fixed(like=self.radial)
        self.reset_parameters()

    def fixed(self) -> dict[str, Tensor]:
        return {"pictures": harmonic_pictures(self.kernel_size, self.frequencies)}

    def reset_parameters(self) -> None:
        if self.radial.is_meta:  # nothing to fill, and drawing there loads a compiler, two seconds
            return
        gain = _gain(self.kernel_size, self.frequencies) / len(self.frequencies)
        read = self.in_fields * (1 if self.lifts else self.max_frequency + 1)
        nn.init.normal_(self.radial, std=math.sqrt(2 / (read * gain)))
        nn.init.uniform_(self.phase, -math.pi, math.pi)

    def kernel(self) -> Tensor:
        """(out_fields S, planes read, K, K): each complex product written out as four real filters."""
        unturned = torch.einsum("foin,fnhwc->foihwc", self.radial, self.pictures)  # f o i K K (real, imaginary)
        cosine, sine = self.phase.cos()[..., None, None], self.phase.sin()[..., None, None]
        real = cosine * unturned[..., 0] - sine * unturned[..., 1]  # f o i K K
        imaginary = cosine * unturned[..., 1] + sine * unturned[..., 0]
        written = range(self.max_frequency + 1)
        read = [0] if self.lifts else written
        index = torch.tensor([[q - p - self.frequencies.start for p in read] for q in written], device=real.device)
        real, imaginary = real[index], imaginary[index]  # q p o i K K
        # (re + i im)(x + i y): the real plane gets re x - im y, the imaginary one im x + re y. Images have no y.
        to_real, to_imaginary = ([real], [imaginary]) if self.lifts else ([real, -imaginary], [imaginary, real])
        bank = torch.stack((torch.stack(to_real), torch.stack(to_imaginary)))  # out-part in-part q p o i K K
        return bank.permute(4, 2, 0, 5, 3, 1, 6, 7).flatten(3, 5).flatten(0, 2)

    def forward(self, x: Tensor) -> Tensor:
        planes = 2 * (self.max_frequency + 1)
        if self.lifts:
            expect_channels(x, self.in_fields, "HarmonicConv2d")
        else:
            expect_fields(x, self.in_fields, planes, "HarmonicConv2d")
            x = x.flatten(1, 2)
        return F.conv2d(x, self.kernel(), padding=self.kernel_size // 2).unflatten(1, (self.out_fields, planes))

    def plain(self) -> nn.Module:
        return PlainFieldConv(self.kernel(), None, 2 * (self.max_frequency + 1))

    def extra_repr(self) -> str:
        return f"{self.in_fields}, {self.out_fields}, kernel_size={self.kernel_size}, max_frequency={self.max_frequency}"


def _magnitude(x: Tensor) -> Tensor:
    """|z| of every complex plane, at least in single precision: (N, C, S, H, W) -> (N, C, S / 2, H, W)."""
    return length(x.unflatten(2, (-1, 2)), dim=3)


class HarmonicNorm(nn.Module):
    """Batch norm and ReLU of the magnitudes, one scale and shift per field and frequency; phases stay as they are."""

    def __init__(self, fields: int, max_frequency: int = 1):
        super().__init__()
        self.norm = nn.BatchNorm2d(fields * (max_frequency + 1))

    def forward(self, x: Tensor) -> Tensor:
        magnitude = _magnitude(x)
        wanted = self.norm(magnitude.flatten(1, 2).to(x.dtype)).relu().unflatten(1, magnitude.shape[1:3])
        return (x.unflatten(2, (-1, 2)) * (wanted / magnitude).unsqueeze(3)).flatten(2, 3).to(x.dtype)


class HarmonicMagnitude(nn.Module):
    """Invariant maps: magnitudes summed over frequencies. (N, C, S, H, W) -> (N, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return _magnitude(x).sum(2).to(x.dtype)
