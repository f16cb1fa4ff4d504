"""Layers done together compute what they do one by one."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import dsfcnn
from dsfcnn.kernels import backend, calls, library
from dsfcnn.layers import FieldSequential, GBatchNorm, GConv2d, GDenseBlock, GDenseUnit, MaxPool

pytestmark = pytest.mark.skipif(library.load().functions is None, reason=f"dense here, because {library.load().reason}")


@pytest.fixture(autouse=True)
def usual_backend(monkeypatch):
    monkeypatch.setattr(backend, "_chosen", None)


def randomise(model):
    """Statistics, scales and shifts as after training, negative scales and a field without any included."""
    for module in model.modules():
        if isinstance(module, GBatchNorm):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
            module.weight.data[-1] = 0
    return model


def results(model, maps, training):
    """Output, gradients to maps and parameters, and what the norms have noted."""
    maps = [x.detach().clone().requires_grad_() for x in maps]
    model.train(training).zero_grad()
    y = model(*maps)
    generator = torch.Generator().manual_seed(1)
    y.backward(torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype))
    return [y.detach(), *(x.grad for x in maps), *(p.grad for p in model.parameters()), *(b.clone() for b in model.buffers())]


def assert_alike(model, maps, training):
    twin = copy.deepcopy(model).double()
    dsfcnn.set_backend("spectral")
    found = results(model, maps, training)
    dsfcnn.set_backend("dense")
    wanted = results(twin, [x.double() for x in maps], training)
    for ours, theirs in zip(found, wanted):
        if theirs.is_floating_point() and theirs.abs().max() > 0:
            assert (ours - theirs).abs().max() / theirs.abs().max() < 1e-4


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    st.sampled_from(["C2", "C4", "C8", "C12", "D2", "D4"]),
    st.sampled_from([3, 5, 7]),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),  # fields of each map
    st.integers(1, 7),
    st.sampled_from([1, 2, 3, 9]),
    st.integers(1, 18),
    st.sampled_from([1, 7, 16, 33, 64, 65, 130]),
    st.booleans(),
)
def test_norm_relu_and_convolution_of_several_maps(group, kernel_size, fields, out, images, height, width, training):
    torch.manual_seed(0)
    conv = GConv2d(sum(fields), out, kernel_size, group=group, bias=True)
    model = randomise(FieldSequential(GBatchNorm(sum(fields)), nn.ReLU(), conv))
    maps = [torch.randn(images, count, conv.group.size, height, width) * 2 + 0.5 for count in fields]
    assert_alike(model, maps, training)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(1, 2, 8, 3, 5), (3, 4, 4, 17, 33)])
def test_norm_and_relu_alone(shape, training):
    torch.manual_seed(0)
    model = randomise(FieldSequential(GBatchNorm(shape[1]), nn.ReLU(), MaxPool()))
    assert_alike(model, [torch.randn(shape) + 3], training)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("checkpointing", [True, False])
def test_a_whole_block(training, checkpointing):
    torch.manual_seed(0)
    block = randomise(GDenseBlock(3, 3, group="C4", middle=4, growth=2, checkpointing=checkpointing))
    assert_alike(block, [torch.randn(2, 3, 4, 13, 18)], training)


def test_a_large_mean_leaves_the_variance_its_digits():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, 30, 40) + 1000
    mean, variance = calls.moments(x)
    torch.testing.assert_close(mean, x.double().mean((0, 2, 3, 4)), rtol=1e-9, atol=0)
    torch.testing.assert_close(variance, x.double().var((0, 2, 3, 4), correction=0), rtol=1e-5, atol=0)


def test_convolutions_are_done_together_with_the_norm_before(monkeypatch):
    dsfcnn.set_backend("spectral")
    seen = []
    convolve = calls.convolve
    monkeypatch.setattr(calls, "convolve", lambda maps, *a, **k: seen.append((len(maps), a[2] is not None)) or convolve(maps, *a, **k))
    GDenseBlock(3, 2, group="C4")(torch.randn(1, 3, 4, 9, 9))
    assert seen == [(1, True), (1, True), (2, True), (1, True), (3, True)]


def test_hooks_see_what_each_layer_reads():
    torch.manual_seed(0)
    dsfcnn.set_backend("spectral")
    model, x = FieldSequential(GBatchNorm(2), nn.ReLU(), GConv2d(2, 3)).eval(), torch.randn(1, 2, 8, 9, 9)
    together, seen = model(x), []
    handle = model[2].register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
    torch.testing.assert_close(model(x), together)
    torch.testing.assert_close(seen[0], model[1](model[0](x)))
    handle.remove()
    model(x)
    assert len(seen) == 1


def test_wrong_fields_get_the_layers_own_words():
    dsfcnn.set_backend("spectral")
    model = FieldSequential(GBatchNorm(2), nn.ReLU(), GConv2d(2, 3))
    with pytest.raises(dsfcnn.errors.ShapeError, match="GBatchNorm expects"):
        model(torch.randn(1, 3, 8, 9, 9))
    with pytest.raises(dsfcnn.errors.ShapeError, match="same group="):
        model(torch.randn(1, 2, 4, 9, 9))


def test_no_number_stays_none():
    """A NaN that comes in comes out: a ReLU that turned it into zero would hide a broken training."""
    dsfcnn.set_backend("spectral")
    x = torch.randn(1, 2, 8, 9, 9)
    x[0, 0, 0, 4, 4] = float("nan")
    model = FieldSequential(GBatchNorm(2), nn.ReLU(), GConv2d(2, 3)).eval()
    assert model(x).isnan().any()
    assert FieldSequential(GBatchNorm(2), nn.ReLU()).eval()(x).isnan().any()


@pytest.mark.parametrize(
    "first", [GConv2d(6, 6, kernel_size=5, group="C4"), nn.Identity(), nn.Dropout(0.5)], ids=["conv", "identity", "dropout"]
)
def test_without_gradients_maps_are_written_over_only_where_nobody_sees_it(first):
    """A map that a convolution here has made, but never what the caller gave, which a layer may hand on as it is."""
    model = randomise(FieldSequential(first, GBatchNorm(6), nn.ReLU())).eval()
    x = torch.randn(1, 6, 4, 18, 20)
    wanted, before = model(x).detach(), x.clone()
    with torch.inference_mode():
        found = model(x)
    assert torch.equal(found, wanted)
    assert torch.equal(x, before)


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class Raised(GConv2d):
    def forward(self, x):
        return super().forward(x) + 1


class Leaky(nn.ReLU):
    def forward(self, x):
        return nn.functional.leaky_relu(x, 0.2)


@pytest.mark.parametrize(
    "layers",
    [
        lambda: [Residual(GConv2d(4, 4, 5), nn.ReLU())],
        lambda: [Raised(4, 4, 5)],
        lambda: [GBatchNorm(4), Leaky(), GConv2d(4, 4, 5)],
    ],
)
def test_a_forward_of_ones_own_is_called(layers):
    made, x = layers(), torch.randn(2, 4, 8, 12, 12)
    plain = nn.Sequential(*copy.deepcopy(made))
    torch.testing.assert_close(FieldSequential(*made)(x), plain(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_forward_set_on_an_instance_is_called(place):
    dsfcnn.set_backend("spectral")
    model, x = FieldSequential(GBatchNorm(4), nn.ReLU(), GConv2d(4, 4, 5)).eval(), torch.randn(2, 4, 8, 12, 12)
    as_made, forward = model(x), model[place].forward
    model[place].forward = lambda x: forward(x) - 1
    torch.testing.assert_close(model(x), nn.Sequential(*model)(x), atol=1e-5, rtol=1e-5)
    assert (model(x) - as_made).abs().max() > 0.1


def test_statistics_in_another_precision_fare_as_in_a_plain_sequence():
    model, x = FieldSequential(GBatchNorm(4), nn.ReLU()).eval(), torch.randn(2, 4, 8, 12, 12)
    model[0].running_mean, model[0].running_var = model[0].running_mean.double(), model[0].running_var.double()

    def outcome(layers):
        try:
            return layers(x).tolist()
        except RuntimeError as error:
            return str(error)

    assert outcome(model) == outcome(nn.Sequential(*model))


class RaisedUnit(GDenseUnit):
    def forward(self, x):
        return super().forward(x) + 1


@pytest.mark.parametrize("change", ["a subclass", "a wrapper", "another body"])
def test_a_dense_block_applies_the_units_it_has(change):
    block, x = randomise(GDenseBlock(4, 2, middle=4, growth=2)).eval(), torch.randn(2, 4, 8, 12, 12)
    if change == "a subclass":
        block.units[1] = RaisedUnit(6, middle=4, growth=2).eval()
    elif change == "a wrapper":
        block.units[1] = nn.Sequential(block.units[1])
    else:
        block.units[1].body = nn.Sequential(*block.units[1].body)
    torch.testing.assert_close(block(x), nn.Sequential(*block.units, block.closing)(x), atol=1e-5, rtol=1e-5)


def test_passes_in_evaluation_and_training_wait_for_one_backward_pass():
    """As in a loss of consistency; each has the gradients that it has alone."""
    dsfcnn.set_backend("spectral")
    model, x = randomise(FieldSequential(GBatchNorm(4), nn.ReLU(), GConv2d(4, 4, 5))), torch.randn(2, 4, 8, 12, 12)
    twin = copy.deepcopy(model)
    (model.eval()(x).square().sum() + model.train()(x).square().sum()).backward()
    for training in (False, True):
        twin.train(training)(x).square().sum().backward()
    for found, wanted in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(found.grad, wanted.grad)


def test_hooks_on_dense_units_fire():
    block, x, seen = GDenseBlock(4, 2, middle=4, growth=2), torch.randn(2, 4, 8, 12, 12), []
    wanted = block(x)
    for layer in (block.units[1], block.units[1].body, block.closing):
        layer.register_forward_hook(lambda layer, given, made: seen.append(type(layer).__name__))
    torch.testing.assert_close(block(x), wanted, atol=1e-5, rtol=1e-5)
    assert seen == ["_Body", "GDenseUnit", "_Body"]


@pytest.fixture
def default_dtype():
    before = torch.get_default_dtype()
    yield torch.set_default_dtype
    torch.set_default_dtype(before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_callers_default_type_is_not_that_of_the_maps(dtype, default_dtype):
    block, x = nn.Sequential(GDenseBlock(4, 1, middle=4, growth=2), MaxPool(2)), torch.randn(2, 4, 8, 12, 12)
    wanted = block(x)
    wanted.sum().backward()
    gradients = [parameter.grad.clone() for parameter in block.parameters()]
    block.zero_grad()
    default_dtype(dtype)
    found = block(x)
    found.sum().backward()
    assert torch.equal(found, wanted)
    assert all(torch.equal(parameter.grad, gradient) for parameter, gradient in zip(block.parameters(), gradients))


def test_the_callers_default_device_is_not_that_of_the_maps():
    conv, x = GConv2d(4, 4), torch.randn(2, 4, 8, 12, 12)
    wanted = conv(x)
    with torch.device("meta"):
        assert torch.equal(conv(x), wanted)


def test_other_derivatives_and_tracers_see_ordinary_operations():
    conv, x, direction = GConv2d(4, 4), torch.randn(2, 4, 8, 12, 12), torch.randn(2, 4, 8, 12, 12)
    wanted = conv(direction)  # linear: the derivative in a direction
    with torch.no_grad(), forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(conv(forward_ad.make_dual(x, direction))).tangent
    torch.testing.assert_close(tangent, wanted, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.func.jvp(conv, (x,), (direction,))[1], wanted, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(torch.func.vmap(conv)(x[None])[0], conv(x), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(make_fx(conv)(x)(direction), wanted, atol=1e-4, rtol=1e-4)


def test_weights_may_be_assigned_to_a_model_without_memory():
    model = dsfcnn.create("steerable-digits", width=0.1).eval()
    with torch.device("meta"):
        empty = dsfcnn.create("steerable-digits", width=0.1).eval()
    empty.load_state_dict(model.state_dict(), assign=True)
    x = torch.rand(2, 1, 28, 28)
    assert torch.equal(empty(x), model(x))
