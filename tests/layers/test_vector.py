"""VF-CNN layers against loops in numpy, and the arrows with which their maps turn."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from dsfcnn.errors import ShapeError
from dsfcnn.layers.pool import MagnitudePool
from dsfcnn.layers.vector import VectorConv2d, VectorLength, VectorNorm
from dsfcnn.testing import assert_equivariant

ORIENTATIONS = {"C4": 4, "C8": 8, "C12": 12}


def random_maps(fields, size=(7, 8), batch=2, planes=2):
    return torch.randn(batch, fields, planes, *size, dtype=torch.float64)


def images(channels=2, size=(7, 8), batch=2):
    return torch.randn(batch, channels, *size, dtype=torch.float64)


def turned(maps, quarter_turns):
    """The places turn, and so does every arrow: a quarter turn takes right (x) to up (y) and up to left."""
    maps = torch.rot90(maps, quarter_turns, (-2, -1))
    for _ in range(quarter_turns):
        maps = torch.stack((-maps[:, :, 1], maps[:, :, 0]), dim=2)
    return maps


# The slow way.


def filter_on_grid(live, kernel_size, whole):
    """Weights of an ordinary filter, row by row: the whole square, or the disc that no turn leaves."""
    half = kernel_size // 2
    grid, used = {}, iter(live)
    for row in range(kernel_size):
        for column in range(kernel_size):
            x, y = column - half, half - row
            if whole or math.hypot(x, y) <= half + 0.5:
                grid[x, y] = next(used)
    assert next(used, None) is None
    return grid


def read_between(grid, x, y):
    """Bilinear interpolation, zero where there is no weight."""
    left, below = math.floor(x), math.floor(y)
    right, above = x - left, y - below
    corners = {(0, 0): (1 - right) * (1 - above), (1, 0): right * (1 - above), (0, 1): (1 - right) * above, (1, 1): right * above}
    return sum(share * grid.get((left + a, below + b), 0.0) for (a, b), share in corners.items())


def turned_filter(grid, angle, kernel_size):
    """The value at u is that of the unturned filter at u turned back; nothing outside the support."""
    half, cosine, sine = kernel_size // 2, round(math.cos(angle), 14), round(math.sin(angle), 14)
    values = np.zeros((kernel_size, kernel_size))
    for x, y in grid:
        values[half - y, x + half] = read_between(grid, cosine * x + sine * y, cosine * y - sine * x)
    return values


def direct(layer, x, group):
    orientations, size, half = ORIENTATIONS[group], layer.kernel_size, layer.kernel_size // 2
    weight = layer.weight.detach().numpy()
    maps = x.numpy()[:, :, None] if layer.lifts else x.numpy()
    padded = np.pad(maps, [(0, 0)] * 3 + [(half, half)] * 2)
    batch, fields, components, height, width = maps.shape
    out = np.zeros((batch, layer.out_fields, 2, height, width))
    angles = [2 * math.pi * t / orientations for t in range(orientations)]
    for o in range(layer.out_fields):
        strongest = np.full((batch, height, width), -np.inf)
        direction = np.zeros((batch, height, width))
        for angle in angles:
            bank = np.zeros((fields, components, size, size))
            for i in range(fields):
                grids = [filter_on_grid(weight[o, i, c], size, whole=orientations == 4) for c in range(components)]
                parts = [turned_filter(grid, angle, size) for grid in grids]
                if components == 2:  # arrows of the filter turn with it
                    u, v = parts
                    parts = [math.cos(angle) * u - math.sin(angle) * v, math.sin(angle) * u + math.cos(angle) * v]
                bank[i] = parts
            for n, row, column in np.ndindex(batch, height, width):
                response = (padded[n, :, :, row : row + size, column : column + size] * bank).sum()
                if response > strongest[n, row, column]:
                    strongest[n, row, column], direction[n, row, column] = response, angle
        length = np.maximum(strongest, 0)
        out[:, o, 0], out[:, o, 1] = length * np.cos(direction), length * np.sin(direction)
    return torch.from_numpy(out)


@pytest.mark.parametrize("group", ORIENTATIONS)
@pytest.mark.parametrize("lifts", [True, False], ids=["images", "maps"])
@pytest.mark.parametrize("kernel_size", [3, 5, 7])
def test_the_convolution_keeps_the_strongest_orientation(group, lifts, kernel_size):
    layer = VectorConv2d(2, 2, kernel_size, group=group, lifts=lifts).double()
    x = images(size=(4, 5)) if lifts else random_maps(2, size=(4, 5))
    with torch.no_grad():
        torch.testing.assert_close(layer(x), direct(layer, x, group), rtol=1e-10, atol=1e-10)


def test_negative_responses_give_no_arrow():
    """A filter that answers every orientation with a negative number."""
    layer = VectorConv2d(1, 1, 3, group="C4", lifts=True).double()
    with torch.no_grad():
        layer.weight.fill_(-1)
        assert (layer(torch.rand(1, 1, 5, 5).double() + 0.1) == 0).all()
        layer.weight.fill_(1)
        assert (VectorLength()(layer(torch.rand(1, 1, 5, 5).double() + 0.1)) > 0.3).all()


def test_parameters():
    """The paper counts every pixel of the square, twice between vector maps; those outside the disc are not stored."""
    lift, hidden = VectorConv2d(3, 5, 7, group="C8", lifts=True), VectorConv2d(3, 5, 7, group="C8")
    assert (lift.paper_count(), lift.weight.numel()) == (3 * 5 * 49, 3 * 5 * 37)
    assert (hidden.paper_count(), hidden.weight.numel()) == (2 * 3 * 5 * 49, 2 * 3 * 5 * 37)
    assert VectorConv2d(3, 5, 7, group="C4").weight.numel() == 2 * 3 * 5 * 49


# How maps turn.


@pytest.mark.parametrize("group", ORIENTATIONS)
@pytest.mark.parametrize("quarter_turns", [1, 2, 3])
@pytest.mark.parametrize("size", [(8, 8), (9, 9), (7, 10)], ids=str)
def test_a_turned_image_gives_turned_arrows(group, quarter_turns, size):
    layer = VectorConv2d(2, 3, group=group, lifts=True).double()
    x = images(size=size)
    with torch.no_grad():
        found, wanted = layer(torch.rot90(x, quarter_turns, (-2, -1))), turned(layer(x), quarter_turns)
    assert (found - wanted).abs().max() < 1e-11 * wanted.abs().max()


@pytest.mark.parametrize("group", ORIENTATIONS)
@pytest.mark.parametrize("quarter_turns", [1, 2, 3])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_turned_arrows_give_turned_arrows(group, quarter_turns, training):
    """Convolution, norm with random statistics, pooling of odd and even axes; then lengths, which only turn in place."""
    norm = VectorNorm(3)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    norm.mean_square.uniform_(0.5, 2)
    layers = nn.Sequential(VectorConv2d(2, 3, group=group), norm, MagnitudePool()).double().train(training)
    x = random_maps(2, size=(9, 10))
    with torch.no_grad():
        maps, found = layers(x), layers(turned(x, quarter_turns))
        wanted = turned(maps, quarter_turns)
        assert (found - wanted).abs().max() < 1e-11 * wanted.abs().max()
        lengths = VectorLength()
        torch.testing.assert_close(lengths(found), torch.rot90(lengths(maps), quarter_turns, (-2, -1)), rtol=1e-9, atol=1e-9)


def test_the_arrows_matter():
    """Arrows that stayed as they are while their places turn would be wrong."""
    layer = VectorConv2d(2, 3, group="C8", lifts=True).double()
    x = images(size=(8, 8))
    found, still = layer(torch.rot90(x, 1, (-2, -1))), torch.rot90(layer(x), 1, (-2, -1))
    assert (found - still).abs().max() > 0.5 * still.abs().max()
    torch.testing.assert_close(VectorLength()(found), VectorLength()(still))


# Norm and lengths.


def test_the_norm_divides_by_the_mean_square_length():
    norm = VectorNorm(3, momentum=0.25).double()
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([0.5, 1.0, 3.0]))
    x = random_maps(3) * torch.tensor([1.0, 10.0, 0.1]).double()[:, None, None, None]
    lengths = x.pow(2).sum(2)
    measured = torch.stack([lengths[:, field].mean() for field in range(3)])
    y = norm(x)
    after = torch.stack([y[:, field].pow(2).sum(1).mean() for field in range(3)])
    torch.testing.assert_close(after.sqrt(), norm.weight * (measured / (measured + 1e-5)).sqrt())
    torch.testing.assert_close(norm.mean_square, 0.75 + 0.25 * measured)  # from 1, a quarter of the way to this batch
    norm(2 * x)
    torch.testing.assert_close(norm.mean_square, 0.75 * (0.75 + 0.25 * measured) + 0.25 * 4 * measured)
    before = norm.mean_square.clone()
    wanted = x * (norm.weight / (before + 1e-5).sqrt())[:, None, None, None]
    torch.testing.assert_close(norm.eval()(x), wanted)
    assert torch.equal(norm.mean_square, before)


def test_the_norm_keeps_directions():
    x = random_maps(3)
    y = VectorNorm(3).double()(x)
    torch.testing.assert_close(torch.atan2(y[:, :, 1], y[:, :, 0]), torch.atan2(x[:, :, 1], x[:, :, 0]))


def test_running_statistics_are_saved_and_have_no_gradient():
    norm = VectorNorm(2)
    norm(torch.randn(2, 2, 2, 5, 5, requires_grad=True)).sum().backward()
    assert set(norm.state_dict()) == {"weight", "mean_square"}
    assert not norm.mean_square.requires_grad


@pytest.mark.parametrize(
    "layer",
    [VectorNorm(2), VectorNorm(2).eval(), VectorLength(), nn.Sequential(VectorNorm(2), VectorLength())],
    ids=["norm", "norm in evaluation", "length", "both"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_at_zero_are_finite(layer, dtype):
    layer = layer.to(dtype)
    x = random_maps(2).to(dtype)
    x[..., :4] = 0
    for maps in (x, torch.zeros_like(x)):
        maps = maps.clone().requires_grad_()
        y = layer(maps)
        assert y.isfinite().all()
        (y * torch.randn_like(y)).sum().backward()
        assert maps.grad.isfinite().all()
        assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_gradients_are_right():
    layer = nn.Sequential(
        VectorConv2d(1, 2, 3, group="C4", lifts=True), VectorNorm(2), VectorConv2d(2, 1, 3, group="C4"), VectorLength()
    ).double()
    layer.eval()  # finite differences must not move the statistics
    parameters = dict(layer.named_parameters())
    x = images(1, size=(3, 4)).requires_grad_()

    def function(x, *values):
        return torch.func.functional_call(layer, dict(zip(parameters, values)), (x,))

    assert torch.autograd.gradcheck(function, (x, *parameters.values()), fast_mode=True)


# Pooling.


def windows(length):
    """Pairs along an even axis; along an odd one, threes about every second place, as far as there are any."""
    if length % 2 == 0:
        return [range(start, start + 2) for start in range(0, length, 2)]
    return [range(max(centre - 1, 0), min(centre + 2, length)) for centre in range(0, length, 2)]


@pytest.mark.parametrize("size", [(6, 8), (7, 8), (6, 9), (7, 9), (1, 1), (1, 2), (3, 5)], ids=str)
@pytest.mark.parametrize("planes", [2, 4, 6])
def test_pooling_keeps_the_longest(size, planes):
    x = random_maps(3, size, planes=planes)
    rows, columns = (windows(length) for length in size)
    wanted = torch.zeros(2, 3, planes, len(rows), len(columns), dtype=torch.float64)
    for n, c, pair, row, column in np.ndindex(2, 3, planes // 2, len(rows), len(columns)):
        candidates = [x[n, c, 2 * pair : 2 * pair + 2, a, b] for a in rows[row] for b in columns[column]]
        wanted[n, c, 2 * pair : 2 * pair + 2, row, column] = max(candidates, key=lambda arrow: arrow.norm().item())
    assert torch.equal(MagnitudePool()(x), wanted)


def test_pooling_passes_gradients_to_what_it_kept():
    x = random_maps(1, (4, 4), batch=1).requires_grad_()
    y = MagnitudePool()(x)
    y.sum().backward()
    assert x.grad.sum() == y.numel()
    assert set(x.grad.flatten().tolist()) == {0, 1}
    torch.testing.assert_close((x * x.grad).sum(), y.sum())


def test_mistakes(refused):
    with refused(ShapeError, fix="give images of 3 channels"):
        VectorConv2d(3, 2, lifts=True)(torch.zeros(1, 1, 8, 8))
    with refused(ShapeError, fix=""):
        VectorConv2d(3, 2)(torch.zeros(1, 3, 4, 8, 8))


def test_mirrored_images_give_mirrored_arrows():
    network = nn.Sequential(
        VectorConv2d(3, 2, 5, group="D4", lifts=True), VectorConv2d(2, 2, 5, group="D4"), VectorConv2d(2, 2, 5, group="D4"), VectorLength()
    ).double()
    assert_equivariant(network, torch.rand(1, 3, 16, 16, dtype=torch.float64), group="D4")
