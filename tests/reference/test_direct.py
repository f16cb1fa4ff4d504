"""The layers compute what the paper's equations say, written out as loops in direct.py."""

import math

import direct
import numpy as np
import pytest
import torch

from dsfcnn.layers import GConv2d, LiftConv2d

HEIGHT, WIDTH = 5, 6


def complex_weights(live, kernel_size):
    """{(j, k): w} from a layer's weights: the real parts of all atoms, then the imaginary parts of those with k > 0."""
    names = list(direct.atoms(kernel_size))
    oscillating = [(j, k) for j, k in names if k > 0]
    assert len(live) == len(names) + len(oscillating)
    weights = {name: complex(value) for name, value in zip(names, live)}
    for name, value in zip(oscillating, live[len(names) :]):
        weights[name] += 1j * value
    return weights


def pixel_weights(live, kernel_size, disc):
    """{u: w} from a layer's weights: the pixels inside the disc or square, row by row."""
    inside = [(x, y) for x, y in direct.places(kernel_size) if not disc or math.hypot(x, y) <= kernel_size // 2 + 0.5]
    assert len(live) == len(inside)
    return dict(zip(inside, live))


def nested(weight, convert):
    """The same nesting of lists with ``convert`` applied to the innermost ones."""
    return [nested(part, convert) for part in weight] if isinstance(weight[0], list) else convert(weight)


def reading(layer):
    """How the layer's weights become the loops' weights, and how those make a filter at an angle."""
    size, disc = layer.kernel_size, layer.group.orientations not in (1, 2, 4)
    if layer.filters == "steerable":
        return (lambda live: complex_weights(live, size)), (lambda weights, angle: direct.steered(weights, angle, size))
    return (lambda live: pixel_weights(live, size, disc)), (lambda filter_, angle: direct.turned(filter_, angle, size, disc))


def agree(layer, x, want):
    with torch.no_grad():
        got = layer(x)[0].numpy()
    assert np.abs(want).max() > 0.1
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kernel_size", [3, 5, 7])
@pytest.mark.parametrize("orientations", [1, 4, 8, 12])
@pytest.mark.parametrize("filters", ["steerable", "rotated"])
def test_lifting_is_equation_19(filters, orientations, kernel_size):
    layer = LiftConv2d(2, 2, kernel_size, group=f"C{orientations}", filters=filters).double()
    image = torch.randn(1, 2, HEIGHT, WIDTH, dtype=torch.float64)
    convert, move = reading(layer)
    weights = nested(layer.weight.tolist(), convert)
    agree(layer, image, direct.lift(image[0].numpy(), weights, orientations, move))


@pytest.mark.parametrize("kernel_size", [3, 5, 7])
@pytest.mark.parametrize("orientations", [1, 4, 8, 12])
@pytest.mark.parametrize("filters", ["steerable", "rotated"])
def test_g_convolution_is_equation_18(filters, orientations, kernel_size):
    layer = GConv2d(2, 2, kernel_size, group=f"C{orientations}", filters=filters).double()
    fields = torch.randn(1, 2, orientations, HEIGHT, WIDTH, dtype=torch.float64)
    convert, move = reading(layer)
    weights = nested(layer.weight.tolist(), convert)
    agree(layer, fields, direct.g_convolve(fields[0].numpy(), weights, orientations, move))


def unmoved(layer):
    convert, move = reading(layer)
    return nested(layer.weight.tolist(), lambda live: move(convert(live), 0.0))


@pytest.mark.parametrize("kernel_size", [3, 5, 7])
@pytest.mark.parametrize("filters", ["steerable", "rotated"])
def test_lifting_to_d4_moves_filters_by_matrices(filters, kernel_size):
    layer = LiftConv2d(2, 2, kernel_size, group="D4", filters=filters).double()
    image = torch.randn(1, 2, HEIGHT, WIDTH, dtype=torch.float64)
    agree(layer, image, direct.lift_by_matrices(image[0].numpy(), unmoved(layer), direct.square_symmetries()))


@pytest.mark.parametrize("kernel_size", [3, 5, 7])
@pytest.mark.parametrize("filters", ["steerable", "rotated"])
def test_g_convolution_over_d4_moves_filters_by_matrices(filters, kernel_size):
    layer = GConv2d(2, 2, kernel_size, group="D4", filters=filters).double()
    fields = torch.randn(1, 2, 8, HEIGHT, WIDTH, dtype=torch.float64)
    agree(layer, fields, direct.g_convolve_by_matrices(fields[0].numpy(), unmoved(layer), direct.square_symmetries()))


def test_the_comparison_rejects_the_opposite_turn():
    """Turning the filters clockwise instead is a different layer."""
    layer = GConv2d(1, 1, 5, group="C8").double()
    fields = torch.randn(1, 1, 8, HEIGHT, WIDTH, dtype=torch.float64)
    convert, move = reading(layer)
    weights = nested(layer.weight.tolist(), convert)
    want = direct.g_convolve(fields[0].numpy(), weights, 8, lambda weights, angle: move(weights, -angle))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        agree(layer, fields, want)
