"""Small models of every name that look trained, and images for them."""

import pytest
import torch
from torch import nn

from dsfcnn.layers.vector import VectorNorm
from dsfcnn.models import create

# Wide enough that layers have two fields or more: a batch norm takes the scale of a single one away again, gradient and all.
WIDTHS = {"hnet": 0.1, "sfcnn": 0.1}
WIDTH = 0.2


@pytest.fixture
def images():
    """Random images with as many channels as a model of this name reads."""

    def draw(name, height, width, batch=1, dtype=torch.float64):
        return torch.randn(batch, 1 if name.endswith("digits") else 3, height, width, dtype=torch.float64).to(dtype)

    return draw


@pytest.fixture
def small(images):
    """A light model in evaluation mode, its scales and shifts random, its running statistics those of random images.

    Fresh statistics would do as well as none: values would grow or vanish from layer to layer.
    """

    def build(name, dtype=torch.float64, **options):
        width = WIDTHS.get(name.partition("-")[0], WIDTH)
        model = create(name, **{"width": width, **options}).to(dtype)
        for part in model.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm | VectorNorm):
                nn.init.uniform_(part.weight, 0.5, 1.5)
                if isinstance(part, nn.modules.batchnorm._BatchNorm):
                    nn.init.normal_(part.bias, std=0.2)
                part.momentum = 1.0  # take the statistics of the next batch as they are
        with torch.no_grad():
            model.train()(images(name, 24, 24, batch=4, dtype=dtype))
        return model.eval()

    return build


@pytest.fixture
def outputs():
    """Every output tensor of a model, by name."""

    def compute(model, x):
        found = model(x)
        return found if isinstance(found, dict) else {"classes": found}

    return compute
