"""Dense blocks that compute again in the backward pass what they did not keep: the same numbers, in far less memory."""

import copy

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from dsfcnn.kernels import backend, library
from dsfcnn.layers import GDenseBlock
from dsfcnn.models import create


def blocks(dtype=torch.float64, units=3):
    """The same block twice: one that keeps everything, one that computes again."""
    kept = GDenseBlock(2, units=units, group="C4", middle=3, growth=2, out_fields=3).to(dtype)
    for norm in kept.modules():
        if isinstance(norm, nn.BatchNorm3d):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, std=0.3)
    again = GDenseBlock(2, units=units, group="C4", middle=3, growth=2, out_fields=3, checkpointing=True).to(dtype)
    again.load_state_dict(kept.state_dict())
    return kept, again


def batch(dtype=torch.float64, size=(8, 9)):
    return torch.randn(2, 2, 4, *size, dtype=torch.float64).to(dtype)


def trained(block, batches):
    """Outputs, input gradients and parameter gradients of some batches, and the state after them."""
    told = {}
    for number, x in enumerate(batches):
        x = x.clone().requires_grad_()
        y = block(x)
        weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
        (y * weights).sum().backward()
        told |= {f"output {number}": y.detach(), f"input gradient {number}": x.grad}
    return {**told, **{f"gradient of {name}": parameter.grad for name, parameter in block.named_parameters()}, **block.state_dict()}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 5e-6)], ids=["double", "single"])
def test_the_same_numbers(dtype, tolerance):
    """Outputs, gradients and running statistics after three batches; every batch was counted once."""
    kept, again = blocks(dtype)
    batches = [batch(dtype) for _ in range(3)]
    wanted, found = trained(kept, batches), trained(again, batches)
    assert list(found) == list(wanted)
    for what, values in wanted.items():
        scale = values.abs().max().clamp(min=1e-30)
        assert (found[what] - values).abs().max() <= tolerance * scale, what
    counts = [values for what, values in found.items() if what.endswith("num_batches_tracked")]
    assert len(counts) == 7
    assert {count.item() for count in counts} == {3}


def test_the_statistics_did_move():
    """Otherwise the test above would say nothing about them."""
    _, again = blocks()
    before = copy.deepcopy(again.state_dict())
    trained(again, [batch()])
    for name, values in again.state_dict().items():
        if name.endswith(("running_mean", "running_var", "num_batches_tracked")):
            assert not torch.equal(values, before[name]), name


def test_two_backward_passes_count_a_batch_once():
    kept, again = blocks()
    x = batch()
    for block in (kept, again):
        loss = block(x).square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
    for name, values in kept.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], values, rtol=1e-12, atol=1e-14)
    for (name, parameter), other in zip(kept.named_parameters(), again.parameters()):
        torch.testing.assert_close(other.grad, parameter.grad, rtol=1e-11, atol=1e-12, msg=name)


def test_momentum_is_what_it_was():
    _, again = blocks()
    trained(again, [batch()])
    assert {norm.momentum for norm in again.modules() if isinstance(norm, nn.BatchNorm3d)} == {0.1}


def test_cumulative_statistics():
    """momentum=None: the mean over all batches, which needs the count."""
    kept, again = blocks()
    for block in (kept, again):
        for norm in block.modules():
            if isinstance(norm, nn.BatchNorm3d):
                norm.momentum = None
        for seed in range(2):
            torch.manual_seed(seed)
            block(batch()).square().sum().backward()
    for name, values in kept.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], values, rtol=1e-12, atol=1e-14)


def test_evaluation_and_inference():
    kept, again = blocks()
    x = batch()
    for block in (kept, again):
        trained(block, [x])
        block.eval()
    torch.testing.assert_close(again(x), kept(x), rtol=1e-12, atol=1e-14)
    with torch.no_grad():
        torch.testing.assert_close(again.train()(x), kept.train()(x), rtol=1e-12, atol=1e-14)


def test_a_whole_model():
    options = {"group": "C4", "width": 0.2}
    kept = create("dsf-glands", **options).double()
    again = create("dsf-glands", **options, checkpointing=True).double()
    again.load_state_dict(kept.state_dict())
    x = torch.randn(2, 3, 20, 24, dtype=torch.float64)
    for model in (kept, again):
        model(x)["object"].square().sum().backward()
    for (name, parameter), other in zip(kept.named_parameters(), again.parameters()):
        assert (other.grad - parameter.grad).abs().max() <= 1e-11 * parameter.grad.abs().max(), name
    for name, values in kept.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], values, rtol=1e-12, atol=1e-14)


def bytes_kept(block, x):
    """Bytes that a forward pass took and did not give back: its output, and what the backward pass waits for."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        y = block(x)
    taken = sum(event.self_cpu_memory_usage for event in measured.key_averages())
    assert taken >= y.numel() * y.element_size()  # the profiler does see memory
    return taken


def test_far_fewer_bytes_are_kept(monkeypatch):
    """Of a block with six units: not much more than the maps that they add, instead of every step between them."""
    monkeypatch.setattr(backend, "_chosen", "dense")  # the kernel keeps little by itself
    kept, again = blocks(torch.float32, units=6)
    x = batch(torch.float32, size=(32, 32))
    bytes_kept(again, x)  # the first pass also fills caches
    everything, little = bytes_kept(kept, x), bytes_kept(again, x)
    maps = (6 * 2 + 3) * x[:, :1].numel() * x.element_size()  # two fields a unit, three of the output
    assert maps <= little < 1.5 * maps
    assert everything > 5 * little
    if library.load().functions is not None:
        monkeypatch.setattr(backend, "_chosen", "spectral")
        bytes_kept(kept, x)
        assert bytes_kept(kept, x) < everything / 3
