"""Turned maps against rot90 and scipy; test-time turning against the mean written out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from torch import nn

from dsfcnn.errors import UsageError
from dsfcnn.models import create
from dsfcnn.study.turning import TurnedLogits, turn, turned


def smooth(*shape, blur=3.0):
    noise = np.random.default_rng(0).standard_normal(shape)
    return torch.from_numpy(ndimage.gaussian_filter(noise, sigma=(0,) * (len(shape) - 2) + (blur, blur)) * blur)


@pytest.mark.parametrize("quarters", [-5, -1, 0, 1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(2, 3, 6, 6), (1, 2, 4, 5, 8), (1, 7, 4)])
def test_quarter_turns_are_exact(quarters, shape):
    maps = torch.randn(shape)
    want = np.rot90(maps.numpy(), quarters, axes=(-2, -1))
    np.testing.assert_array_equal(turn(maps, 90 * quarters), want)


def test_a_quarter_turn_of_the_middle():
    maps = torch.arange(48.0).view(1, 6, 8)
    np.testing.assert_array_equal(turn(maps, 90, (4, 2)), np.rot90(maps[:, 2:4, 2:6].numpy(), axes=(1, 2)))


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.floats(-360, 360), st.sampled_from([(20, 20), (21, 21), (14, 23)]))
def test_other_angles_agree_with_scipy(degrees, size):
    """Mirrored surroundings included."""
    maps = torch.from_numpy(np.random.default_rng(0).standard_normal((2, *size)))
    want = ndimage.rotate(maps.numpy(), degrees, axes=(1, 2), reshape=False, order=1, mode="reflect")
    np.testing.assert_allclose(turn(maps, degrees, size), want, atol=1e-9)


def test_what_comes_from_outside_is_the_mirror_image():
    row = torch.arange(4.0, dtype=torch.float64).view(1, 1, 4).expand(1, 4, 4)
    np.testing.assert_allclose(turn(row, 0, (4, 8))[0, 0], [1, 0, 0, 1, 2, 3, 3, 2])
    np.testing.assert_allclose(turn(row, 180, (4, 8))[0, 0], [2, 3, 3, 2, 1, 0, 0, 1], atol=1e-12)


def test_half_precision_rounds_only_what_was_read():
    maps = torch.randn(1, 300, 300).bfloat16()
    torch.testing.assert_close(turn(maps, 45), turn(maps.float(), 45).bfloat16())


def plain_network():
    return nn.Sequential(nn.Conv2d(3, 4, 5, padding=2), nn.Tanh(), nn.Conv2d(4, 2, 3, padding=1)).double()


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.maps = plain_network()

    def forward(self, x):
        logits = self.maps(x)
        return {"one": logits, "two": 3 * logits}


class Classes(nn.Module):
    def __init__(self):
        super().__init__()
        self.maps = plain_network()

    def forward(self, x):
        return self.maps(x)[:, :, :3, :3].mean((-2, -1))  # looks at one corner


def test_four_turns_written_out():
    model, x = Heads(), torch.randn(2, 3, 9, 12, dtype=torch.float64)
    found = turned(model)(x)
    for head in ("one", "two"):
        copies = [model(x.rot90(k, (-2, -1)))[head].softmax(1).rot90(-k, (-2, -1)) for k in range(4)]
        torch.testing.assert_close(found[head], sum(copies) / 4)
        assert (found[head] - copies[0]).abs().max() > 1e-3


@pytest.mark.parametrize("turns", [4, 8])
def test_what_is_averaged_turns_with_the_image(turns):
    model, x = Heads(), torch.randn(1, 3, 16, 16, dtype=torch.float64)
    upright, moved = turned(model, turns)(x), turned(model, turns)(x.rot90(1, (-2, -1)))
    torch.testing.assert_close(moved["one"], upright["one"].rot90(1, (-2, -1)), rtol=0, atol=1e-9)
    alone = model(x)["one"], model(x.rot90(1, (-2, -1)))["one"]
    assert (alone[1] - alone[0].rot90(1, (-2, -1))).abs().max() > 1e-3


@pytest.mark.parametrize("turns", [4, 8])
def test_maps_alone_are_turned_as_those_by_name(turns):
    model, x = plain_network(), torch.randn(2, 3, 9, 12, dtype=torch.float64)
    named = turned(lambda images: {"maps": model(images)}, turns)(x)
    assert torch.equal(turned(model, turns)(x), named["maps"])


@pytest.mark.parametrize("turns", [1, 3, 4, 8])
def test_classes(turns):
    model, x = Classes(), torch.randn(2, 3, 12, 12, dtype=torch.float64)
    found = turned(model, turns)(x)
    torch.testing.assert_close(found.sum(1), torch.ones(2).double())
    copies = [model(turn(x, 360 * k / turns)).softmax(1) for k in range(turns)]
    torch.testing.assert_close(found, sum(copies) / turns)
    assert turned(model, turns).passes == turns


def test_no_corner_is_lost_between_quarter_turns():
    """A network that looks at single pixels: turned there and back, maps are nearly as they were, corners too."""
    pixelwise = nn.Conv2d(3, 2, 1).double()
    x = smooth(1, 3, 40, 26)
    found = turned(lambda images: {"maps": pixelwise(images)}, turns=8)(x)["maps"]
    want = pixelwise(x).softmax(1)
    assert found.shape == want.shape
    assert (found - want).abs().max() < 0.05 * (want.max() - want.min())


def test_a_model_by_name():
    model = create("cnn-glands", width=0.1).eval()
    found = turned(model)(torch.rand(1, 3, 17, 20))["object"]
    assert found.shape == (1, 3, 17, 20)
    torch.testing.assert_close(found.sum(1), torch.ones(1, 17, 20))
    assert not found.requires_grad


@pytest.mark.parametrize("turns", [0, -4])
def test_no_turns_are_refused(turns, refused):
    with refused(UsageError, fix="4 is exact"):
        turned(Classes(), turns)


@pytest.mark.parametrize("name", ["cnn-nuclei", "cnn-tumour"])
def test_a_turned_model_in_place_of_a_model(name):
    """Its softmax is the mean that ``turned`` gives."""
    torch.manual_seed(0)
    model, images = create(name, width=0.1).eval(), torch.rand(1, 3, 32, 32)
    with torch.inference_mode():
        found, wanted = TurnedLogits(model, 4)(images), turned(model, 4)(images)
    for ours, theirs in zip(found.values(), wanted.values()) if isinstance(found, dict) else [(found, wanted)]:
        torch.testing.assert_close(ours.softmax(1), theirs)
