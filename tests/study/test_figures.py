"""Pictures of filters: one for every atom and orientation, and something to see on each."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from dsfcnn.errors import UsageError
from dsfcnn.layers import GConv2d, LiftConv2d
from dsfcnn.models import create
from dsfcnn.study.figures import draw_basis, draw_hidden_filter, draw_lifting_filters, first_layers


def drawn(figure):
    """The pictures of a figure, as arrays."""
    return [np.asarray(axis.images[0].get_array()) for axis in figure.axes if axis.images]


def expect_a_picture(figure):
    """Saved, it is no empty sheet."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=40)
    with Image.open(stream) as picture:
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 20
    assert figure.get_suptitle()


@pytest.mark.parametrize(("kernel_size", "rings", "highest", "real_parts"), [(5, 3, 2, 11), (7, 4, 3, 18), (9, 5, 4, 33)])
def test_the_basis(kernel_size, rings, highest, real_parts):
    """A row per ring; the real part of frequency 0, both parts of the others. So many real numbers has a filter."""
    figure = draw_basis(kernel_size)
    assert len(figure.axes) == rings * (2 * highest + 1)
    pictures = drawn(figure)
    assert len(pictures) == real_parts
    for picture in pictures:
        assert picture.shape == (kernel_size, kernel_size)
        assert np.abs(picture).max() > 0.01
    expect_a_picture(figure)


@pytest.mark.parametrize(("group", "size"), [("C1", 1), ("C6", 6), ("D2", 4)])
@pytest.mark.parametrize("filters", ["steerable", "rotated"])
def test_input_filters(group, size, filters):
    """A row per field, a column per orientation: each the filter with which the layer reads its first channel."""
    layer = LiftConv2d(2, 3, 5, group=group, filters=filters)
    figure = draw_lifting_filters(layer)
    pictures = drawn(figure)
    assert len(figure.axes) == len(pictures) == 3 * size
    dot = torch.zeros(1, 2, 5, 5)
    dot[0, 0, 2, 2] = 1
    with torch.no_grad():
        answers = layer(dot)[0].flip(-2, -1).flatten(0, 1)  # a dot shows the filter, turned over
    np.testing.assert_allclose(np.stack(pictures), answers, atol=1e-6)
    expect_a_picture(figure)


@pytest.mark.parametrize(("group", "size"), [("C1", 1), ("C6", 6), ("D2", 4)])
def test_a_hidden_filter(group, size):
    """A row per orientation written, a column per orientation read."""
    layer = GConv2d(2, 3, 5, group=group)
    figure = draw_hidden_filter(layer)
    pictures = drawn(figure)
    assert len(figure.axes) == len(pictures) == size**2
    for phi in range(size):
        dot = torch.zeros(1, 2, size, 5, 5)
        dot[0, 0, phi, 2, 2] = 1
        with torch.no_grad():
            answers = layer(dot)[0, 0].flip(-2, -1)
        np.testing.assert_allclose(np.stack(pictures[phi::size]), answers, atol=1e-6)
    expect_a_picture(figure)


def test_all_pictures_of_a_layer_share_their_colours():
    """So that strong and weak filters look it."""
    figure = draw_hidden_filter(GConv2d(1, 1, 5, group="C4"))
    limits = {axis.images[0].get_clim() for axis in figure.axes}
    largest = max(np.abs(picture).max() for picture in drawn(figure))
    assert len(limits) == 1
    assert limits.pop() == pytest.approx((-largest, largest))


@pytest.mark.parametrize("name", ["dsf-nuclei", "p4m-tumour", "sfcnn-digits", "gcnn-digits", "steerable-glands"])
def test_first_layers(name):
    model = create(name, width=0.1)
    lift, hidden = first_layers(model)
    assert isinstance(lift, LiftConv2d)
    assert lift.in_channels == (1 if name.endswith("digits") else 3)
    assert isinstance(hidden, GConv2d)
    assert hidden.in_fields == lift.out_fields


@pytest.mark.parametrize("name", ["cnn-tumour", "cnn-nuclei", "hnet-digits", "vfcnn-digits"])
def test_a_network_without_group_convolutions_is_refused(name, refused):
    with refused(UsageError, fix="give a dsf, steerable, gcnn, p4m or sfcnn model"):
        first_layers(create(name, width=0.1))
