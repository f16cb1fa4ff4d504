"""Averaged weights have batch norms that fit them."""

import copy

import pytest
import torch
from torch import nn

from dsfcnn.models import create, heads
from dsfcnn.training.averaging import settle

MODELS = [("cnn-tumour", {}), ("hnet-tumour", {}), ("vfcnn-tumour", {"group": "C8"}), ("dsf-tumour", {"group": "C4", "dropout": 0.5})]


def statistics(model):
    return {name: buffer for name, buffer in model.named_buffers() if name.endswith(("running_mean", "running_var", "mean_square"))}


@pytest.mark.parametrize(("name", "options"), MODELS)
def test_statistics_are_means_over_the_batches_whatever_they_were(name, options):
    torch.manual_seed(0)
    model = create(name, width=0.1, **options).double().eval()
    twin = copy.deepcopy(model)
    batches = [torch.rand(2, 3, 32, 32, dtype=torch.float64) for _ in range(3)]
    for buffer in statistics(model).values():
        buffer.fill_(7.0)
    drawn = torch.get_rng_state()
    settle(model, iter(batches))
    assert torch.get_rng_state().equal(drawn), "dropout stays off"
    assert not any(module.training for module in model.modules())
    of_each = []
    for images in batches:  # by batch norm's own momentum, one batch at a time
        alone = copy.deepcopy(twin)
        for module in alone.modules():
            if hasattr(module, "momentum"):
                module.train().momentum = 1.0
        alone(images)
        of_each.append(statistics(alone))
    found = statistics(model)
    assert found
    for place, value in found.items():
        torch.testing.assert_close(value, torch.stack([one[place] for one in of_each]).mean(0))


def test_heads_take_statistics_of_whole_maps(monkeypatch):
    """As every other norm they see a batch once, not strip by strip."""
    monkeypatch.setattr(heads, "_STRIP_BYTES", 1)
    model = create("dsf-nuclei", group="C4", width=0.1).eval()
    settle(model, [torch.rand(1, 3, 16, 16) for _ in range(2)])
    counts = [buffer.item() for name, buffer in model.named_buffers() if name.endswith("num_batches_tracked")]
    assert counts == [2] * len(counts)
    assert len(counts) > 2


@pytest.mark.parametrize(("name", "options"), MODELS)
def test_doing_it_again_leaves_no_trace(name, options):
    """As a run does that was stopped while its average was settled or judged."""
    model = create(name, width=0.1, **options).eval()
    again, batches = copy.deepcopy(model), [torch.rand(2, 3, 32, 32) for _ in range(3)]
    settle(model, batches)
    settle(again, batches[:2])
    settle(again, batches)
    found = again.state_dict()
    assert all(found[place].equal(value) for place, value in model.state_dict().items())


def test_momentum_is_given_back():
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2, momentum=0.3)).eval()
    settle(model, [torch.rand(1, 3, 8, 8)])
    assert model[1].momentum == 0.3
