"""H-Net layers against complex arithmetic written out in numpy, and the phases with which their maps turn."""

import cmath
import math

import numpy as np
import pytest
import torch
from torch import nn

from dsfcnn.errors import ShapeError, UsageError
from dsfcnn.layers.harmonic import HarmonicConv2d, HarmonicMagnitude, HarmonicNorm
from dsfcnn.layers.pool import MagnitudePool

frequencies = pytest.mark.parametrize("max_frequency", [1, 2, 3])


def as_complex(maps):
    """(N, C, 2 (m + 1), H, W) real -> (N, C, m + 1, H, W) complex."""
    return torch.complex(maps[:, :, 0::2], maps[:, :, 1::2])


def as_real(planes):
    return torch.view_as_real(planes).movedim(-1, 3).flatten(2, 3)


def turned(maps, quarter_turns):
    """Planes turn; those of frequency k are multiplied by exp(i k angle) = i^(k turns)."""
    planes = torch.rot90(as_complex(maps), quarter_turns, (-2, -1))
    phases = torch.tensor([1j ** (k * quarter_turns) for k in range(planes.shape[2])])
    return as_real(planes * phases[:, None, None].to(planes))


def random_maps(fields, max_frequency, size=(7, 8), batch=2):
    return torch.randn(batch, fields, 2 * (max_frequency + 1), *size, dtype=torch.float64)


def images(channels=2, size=(7, 8), batch=2):
    return torch.randn(batch, channels, *size, dtype=torch.float64)


# The slow way.


def filter_value(radial, phase, frequency, row, column, kernel_size):
    """sum_n w_n ring_n(r) e^{i (k azimuth + phase)}, each ring times harmonic of unit norm over the square."""
    half = kernel_size // 2
    radii = [(0 if frequency == 0 else 1) + n * (half - (frequency != 0)) / 3 for n in range(4)]

    def picture(radius, row, column):
        x, y = column - half, half - row  # x to the right, y up
        if frequency != 0 and x == 0 and y == 0:
            return 0.0
        return math.exp(-((math.hypot(x, y) - radius) ** 2) / (2 * 0.5**2)) * cmath.exp(1j * frequency * math.atan2(y, x))

    total = 0j
    for weight, radius in zip(radial, radii):
        norm = math.sqrt(sum(abs(picture(radius, a, b)) ** 2 for a in range(kernel_size) for b in range(kernel_size)))
        total += weight * picture(radius, row, column) / norm
    return total * cmath.exp(1j * phase)


def direct(layer, x):
    """Correlation of complex maps: what frequency q receives from frequency p, through filters of frequency q - p."""
    size, half, lowest = layer.kernel_size, layer.kernel_size // 2, 0 if layer.lifts else -layer.max_frequency
    radial, phase = layer.radial.detach().numpy(), layer.phase.detach().numpy()
    kernels = np.zeros((*phase.shape, size, size), dtype=complex)
    for f, o, i, row, column in np.ndindex(kernels.shape):
        kernels[f, o, i, row, column] = filter_value(radial[f, o, i], phase[f, o, i], f + lowest, row, column, size)
    maps = x.numpy()[:, :, None].astype(complex) if layer.lifts else as_complex(x).numpy()
    padded = np.pad(maps, [(0, 0)] * 3 + [(half, half)] * 2)
    batch, _, read, height, width = maps.shape
    out = np.zeros((batch, layer.out_fields, layer.max_frequency + 1, height, width), dtype=complex)
    for n, o, q, row, column in np.ndindex(out.shape):
        for p in range(read):
            window = padded[n, :, p, row : row + size, column : column + size]
            out[n, o, q, row, column] += (window * kernels[q - p - lowest, o]).sum()
    return torch.from_numpy(out)


@frequencies
@pytest.mark.parametrize("lifts", [True, False], ids=["images", "maps"])
@pytest.mark.parametrize("kernel_size", [3, 5, 7])
def test_the_convolution_is_a_complex_correlation(max_frequency, lifts, kernel_size):
    layer = HarmonicConv2d(2, 2, kernel_size, max_frequency=max_frequency, lifts=lifts).double()
    x = images(size=(4, 5), batch=1) if lifts else random_maps(2, max_frequency, size=(4, 5), batch=1)
    with torch.no_grad():
        torch.testing.assert_close(as_complex(layer(x)), direct(layer, x), rtol=1e-11, atol=1e-11)


def test_parameters():
    """Four rings and a phase per pair of fields and filter frequency: 0 .. m from images, -m .. m between maps."""
    for max_frequency in (1, 2):
        lift = HarmonicConv2d(3, 5, max_frequency=max_frequency, lifts=True)
        hidden = HarmonicConv2d(3, 5, max_frequency=max_frequency)
        assert sum(p.numel() for p in lift.parameters()) == 3 * 5 * (max_frequency + 1) * 5
        assert sum(p.numel() for p in hidden.parameters()) == 3 * 5 * (2 * max_frequency + 1) * 5


# How maps turn.


@frequencies
@pytest.mark.parametrize("quarter_turns", [1, 2, 3])
@pytest.mark.parametrize("size", [(8, 8), (9, 9), (7, 10)], ids=str)
def test_a_turned_image_gives_turned_maps(max_frequency, quarter_turns, size):
    layer = HarmonicConv2d(2, 3, max_frequency=max_frequency, lifts=True).double()
    x = images(size=size)
    with torch.no_grad():
        found, wanted = layer(torch.rot90(x, quarter_turns, (-2, -1))), turned(layer(x), quarter_turns)
    assert (found - wanted).abs().max() < 1e-12 * wanted.abs().max()


@frequencies
@pytest.mark.parametrize("quarter_turns", [1, 2, 3])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_turned_maps_give_turned_maps(max_frequency, quarter_turns, training):
    """Convolution, norm with random statistics, pooling of odd and even axes; then magnitudes, which only turn in place."""
    norm = HarmonicNorm(3, max_frequency)
    nn.init.uniform_(norm.norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.norm.bias)
    norm.norm.running_mean.uniform_(0, 2)
    norm.norm.running_var.uniform_(0.5, 2)
    layers = nn.Sequential(HarmonicConv2d(2, 3, max_frequency=max_frequency), norm, MagnitudePool()).double().train(training)
    x = random_maps(2, max_frequency, size=(9, 10))
    with torch.no_grad():
        maps, found = layers(x), layers(turned(x, quarter_turns))
        wanted = turned(maps, quarter_turns)
        assert (found - wanted).abs().max() < 1e-11 * wanted.abs().max()
        invariant = HarmonicMagnitude()
        torch.testing.assert_close(invariant(found), torch.rot90(invariant(maps), quarter_turns, (-2, -1)), rtol=1e-9, atol=1e-9)


def test_the_phase_matters():
    """Maps of frequency 1 that only turned in place would be wrong by as much as they are large."""
    layer = HarmonicConv2d(2, 3, max_frequency=1, lifts=True).double()
    x = images(size=(8, 8))
    found, still = as_complex(layer(torch.rot90(x, 1, (-2, -1)))), torch.rot90(as_complex(layer(x)), 1, (-2, -1))
    torch.testing.assert_close(found[:, :, 0], still[:, :, 0])
    assert (found - still)[:, :, 1].abs().max() > still[:, :, 1].abs().max()


def blobs(degrees, size=31, count=6, images=12):
    """Smooth images that can be turned by any angle without interpolation: sums of Gaussians whose centres turn."""
    draw = torch.Generator().manual_seed(5)
    centres = torch.polar(
        6 * torch.rand(images, 1, count, generator=draw).double(), 2 * math.pi * torch.rand(images, 1, count, generator=draw).double()
    )
    heights = torch.randn(images, 1, count, generator=draw, dtype=torch.float64)
    axis = torch.arange(size, dtype=torch.float64) - size // 2
    points = torch.complex(axis.expand(size, size), -axis[:, None].expand(size, size))
    centres = centres * cmath.exp(1j * math.radians(degrees))
    distances = (points - centres[..., None, None]).abs()
    return (heights[..., None, None] * torch.exp(-(distances**2) / (2 * 2.5**2))).sum(2)


@pytest.mark.parametrize("degrees", [45, 30, -100])
@pytest.mark.parametrize("layers", [1, 2])
def test_other_angles_on_smooth_images(degrees, layers):
    """At the centre, about which everything turns, nothing needs to be read between pixels: only the filters' pixels are seen.

    On a square grid frequency k looks a little like k - 4, so frequency 2 is held worst.
    """
    stack = [HarmonicConv2d(1, 4, max_frequency=2, lifts=True), HarmonicConv2d(4, 4, max_frequency=2)][:layers]
    model = nn.Sequential(*stack).double()
    with torch.no_grad():
        before, after = (as_complex(model(blobs(angle)))[..., 15, 15] for angle in (0, degrees))
    phases = torch.tensor([cmath.exp(1j * k * math.radians(degrees)) for k in range(3)])
    for k, allowed in enumerate((0.01, 0.04, 0.15)):
        error = (after - before * phases)[..., k].norm() / before[..., k].norm()
        assert error < allowed, f"frequency {k}: {error:.4f}"
    assert (after - before)[..., 1:].norm() > 0.3 * before[..., 1:].norm()


# Norm and magnitudes.


@frequencies
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_the_norm_keeps_phases(max_frequency, training):
    """Magnitudes get batch norm and ReLU, as numbers of each field and frequency; directions stay."""
    norm = HarmonicNorm(3, max_frequency).double().train(training)
    with torch.no_grad():
        norm.norm.weight.uniform_(0.5, 1.5)
        norm.norm.bias.normal_()
        norm.norm.running_mean.uniform_(0, 2)
        norm.norm.running_var.uniform_(0.5, 2)
    x = random_maps(3, max_frequency)
    z = as_complex(x)
    planes = z.abs().flatten(1, 2)
    mean, variance = norm.norm.running_mean.clone(), norm.norm.running_var.clone()
    if training:
        mean, variance = planes.mean((0, 2, 3)), planes.var((0, 2, 3), correction=0)
    wanted = (planes - mean[:, None, None]) / (variance[:, None, None] + 1e-5).sqrt()
    wanted = (wanted * norm.norm.weight[:, None, None] + norm.norm.bias[:, None, None]).clamp(min=0).view_as(z.real)
    found = as_complex(norm(x))
    torch.testing.assert_close(found.abs(), wanted, rtol=1e-8, atol=1e-10)
    alive = wanted > 1e-6
    assert 0.2 < alive.double().mean() < 1
    torch.testing.assert_close((found / z).angle()[alive], torch.zeros(int(alive.sum())).double(), rtol=0, atol=1e-12)


def test_magnitudes_are_summed_over_frequencies():
    x = random_maps(3, 2)
    torch.testing.assert_close(HarmonicMagnitude()(x), as_complex(x).abs().sum(2), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "layer", [HarmonicNorm(2, 1), HarmonicNorm(2, 1).eval(), HarmonicMagnitude()], ids=["norm", "norm in evaluation", "magnitude"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_at_zero_are_finite(layer, dtype):
    """|z| has a corner there, and images have empty regions."""
    layer = layer.to(dtype)
    x = random_maps(2, 1).to(dtype)
    x[..., :4] = 0
    for maps in (x, torch.zeros_like(x)):
        maps = maps.clone().requires_grad_()
        y = layer(maps)
        assert y.isfinite().all()
        (y * torch.randn_like(y)).sum().backward()
        assert maps.grad.isfinite().all()
        assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_gradients_are_right():
    layer = nn.Sequential(HarmonicConv2d(1, 2, 3, lifts=True), HarmonicNorm(2, 1), HarmonicConv2d(2, 1, 3), HarmonicMagnitude()).double()
    parameters = dict(layer.named_parameters())
    x = images(1, size=(3, 4)).requires_grad_()

    def function(x, *values):
        return torch.func.functional_call(layer, dict(zip(parameters, values)), (x,))

    assert torch.autograd.gradcheck(function, (x, *parameters.values()), fast_mode=True)


def test_mistakes(refused):
    with refused(ShapeError, fix="give images of 3 channels"):
        HarmonicConv2d(3, 2, lifts=True)(torch.zeros(1, 1, 8, 8))
    with refused(ShapeError, fix=""):
        HarmonicConv2d(3, 2, max_frequency=1)(torch.zeros(1, 3, 6, 8, 8))
    with refused(UsageError, fix="give 1 or more"):
        HarmonicConv2d(3, 2, max_frequency=0)


def test_half_precision_has_no_zeros_to_divide_by():
    norm = HarmonicNorm(2, max_frequency=1).eval().half()
    norm.norm.bias.data.fill_(0.5)
    assert norm(torch.zeros(1, 2, 4, 3, 3, dtype=torch.float16)).isfinite().all()
