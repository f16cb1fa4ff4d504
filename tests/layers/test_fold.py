"""A folded model computes the same with ordinary layers, and every exporter takes it."""

import copy
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import nn

import dsfcnn
from dsfcnn.layers import AntialiasedPool, GBatchNorm, GConv2d, GDenseBlock, GPool, LiftConv2d, MaxPool, Upsample
from dsfcnn.layers.steered import SteeredConv


def head(in_channels, out_channels):
    """A 1x1 classifier with a hidden layer, on maps without orientations."""
    return nn.Sequential(
        nn.Conv2d(in_channels, 3, 1, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, out_channels, 1), nn.BatchNorm2d(out_channels)
    )


def chain(group="C8", filters="steerable"):
    """Layer after layer, with a bias where a norm follows and where none does."""
    return nn.Sequential(
        LiftConv2d(3, 2, 5, group=group, filters=filters, bias=True),
        GBatchNorm(2),
        nn.ReLU(),
        MaxPool(),
        GConv2d(2, 3, 3, group=group, filters=filters),
        GBatchNorm(3),
        nn.ReLU(),
        GConv2d(3, 2, 3, group=group, filters=filters, bias=True),
        GPool(),
        head(2, 2),
    )


class Dense(nn.Module):
    """Dense blocks between two levels, a skip that is concatenated, and outputs by name."""

    def __init__(self, group="C8", filters="steerable"):
        super().__init__()
        self.lift = LiftConv2d(3, 2, 5, group=group, filters=filters)
        self.above = GDenseBlock(2, units=2, group=group, middle=2, growth=1, filters=filters)
        self.pool, self.upsample, self.across = AntialiasedPool(), Upsample(), GPool()
        self.below = GDenseBlock(4, units=1, group=group, out_fields=2, middle=2, growth=1, filters=filters)
        self.first, self.second = head(6, 2), head(6, 3)

    def forward(self, x):
        skip = self.above(self.lift(x).relu())
        below = self.upsample(self.below(self.pool(skip)), size=skip.shape[-2:])
        joined = self.across(torch.cat((skip, below), dim=1))
        return {"object": self.first(joined), "marker": self.second(joined)}


class Branches(nn.Module):
    """What a norm reads is also read elsewhere, once summed and once concatenated; merging it there would change the other branch."""

    def __init__(self, group="C8", filters="steerable"):
        super().__init__()
        self.lift, self.lift_norm = LiftConv2d(3, 2, 3, group=group, filters=filters), GBatchNorm(2)
        self.left, self.left_norm = GConv2d(2, 2, 3, group=group, filters=filters), GBatchNorm(2)
        self.right, self.right_norm = GConv2d(2, 2, 3, group=group, filters=filters), GBatchNorm(2)

    def forward(self, x):
        lifted = self.lift(x)
        y = lifted + self.lift_norm(lifted).relu()
        left, right = self.left(y), self.right(y)
        return torch.cat((self.left_norm(left) + right, self.right_norm(right), left), dim=1)


class Shared(nn.Module):
    """One convolution with two norms in turn, one norm after two convolutions, and one layer under two names."""

    def __init__(self, group="C8", filters="steerable"):
        super().__init__()
        self.lift = LiftConv2d(3, 2, 3, group=group, filters=filters)
        self.twice, self.norm, self.other_norm = GConv2d(2, 2, 3, group=group, filters=filters), GBatchNorm(2), GBatchNorm(2)
        self.before, self.after = (GConv2d(2, 2, 3, group=group, filters=filters) for _ in range(2))
        self.shared_norm = GBatchNorm(2)
        self.named = GConv2d(2, 2, 3, group=group, filters=filters)
        self.named_again = self.named

    def forward(self, x):
        y = self.norm(self.twice(self.lift(x))).relu()
        y = self.other_norm(self.twice(y)).relu()
        y = self.shared_norm(self.before(y)).relu()
        y = self.shared_norm(self.after(y)).relu()
        return self.named_again(self.named(y))


class Decides(nn.Module):
    """Looks at its values to choose what to compute, which no tracer can follow."""

    def __init__(self, group="C8", filters="steerable"):
        super().__init__()
        self.lift, self.norm = LiftConv2d(3, 2, 3, group=group, filters=filters), GBatchNorm(2)
        self.stages = nn.ModuleList(nn.Sequential(GConv2d(2, 2, 3, group=group, filters=filters), GBatchNorm(2)) for _ in range(2))

    def forward(self, x):
        y = self.norm(self.lift(x))
        for stage in self.stages:
            y = stage(y) if y.mean() > -100 else y * 0
        return y * float(y.std())


MODELS = {"chain": chain, "dense": Dense, "branches": Branches, "shared": Shared, "decides": Decides}
models = pytest.mark.parametrize("name", MODELS)


def by_name(out):
    return dict(out) if isinstance(out, Mapping) else {"": out}


def assert_same(found, wanted, tolerance=1e-5):
    """The same outputs, nowhere further apart than ``tolerance`` times the largest value."""
    found, wanted = by_name(found), by_name(wanted)
    assert list(found) == list(wanted)
    for f, w in zip(found.values(), wanted.values()):
        assert f.shape == w.shape
        assert w.abs().max() > 0.01
        assert (f - w).abs().max() <= tolerance * w.abs().max()


def steering_left(model):
    return [type(part).__name__ for part in model.modules() if isinstance(part, SteeredConv | GBatchNorm)]


@pytest.fixture
def x():
    return torch.randn(2, 3, 10, 13)


@models
@pytest.mark.parametrize("filters", ["steerable", "rotated"])
@pytest.mark.parametrize("group", ["C4", "C8", "D4"])
def test_the_same_function_in_ordinary_layers(name, filters, group, as_trained, x):
    model = as_trained(MODELS[name](group, filters)).eval()
    assert steering_left(model)
    folded = dsfcnn.fold(model)
    with torch.no_grad():
        assert_same(folded(x), model(x))
        assert_same(folded(x[:1, :, :7, :6]), model(x[:1, :, :7, :6]))  # another size: nothing was traced into it
    assert not folded.training
    assert steering_left(folded) == []


@models
def test_the_model_stays_as_it_is(name, as_trained, x):
    model = as_trained(MODELS[name]()).train()
    state, parts = copy.deepcopy(model.state_dict()), [type(part) for part in model.modules()]
    folded = dsfcnn.fold(model)
    with torch.no_grad():
        for parameter in folded.parameters():
            parameter.zero_()
    assert all(part.training for part in model.modules())
    assert [type(part) for part in model.modules()] == parts
    assert list(state) == list(model.state_dict())
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in state.items())


def test_folding_follows_evaluation(as_trained, x):
    """A model in training folds to what it is in evaluation, with the statistics of that moment."""
    model = as_trained(chain()).train()
    early = dsfcnn.fold(model)
    with torch.no_grad():
        in_training = model(x)  # moves the statistics
        late = dsfcnn.fold(model)
        assert_same(late(x), model.eval()(x))
        assert (early(x) - late(x)).abs().max() > 0.01
        assert (in_training - late(x)).abs().max() > 0.01


def test_norms_go_into_the_convolutions_before_them(as_trained):
    """A chain needs no norm at all; where another branch reads the convolution, the norm stays as scale and shift."""

    def kinds(name):
        return [type(part).__name__ for part in dsfcnn.fold(as_trained(MODELS[name]()).eval()).modules()]

    assert not {"FieldAffine", "BatchNorm2d"} & set(kinds("chain"))
    assert kinds("chain").count("Conv2d") == 5
    assert kinds("branches").count("FieldAffine") == 3
    assert kinds("shared").count("FieldAffine") == 3


@pytest.mark.parametrize("group", ["C8", "D4"])
@pytest.mark.parametrize("filters", ["steerable", "rotated"])
def test_a_single_layer_folds(group, filters, as_trained, x):
    layer = as_trained(LiftConv2d(3, 2, 5, group=group, filters=filters, bias=True))
    folded = dsfcnn.fold(layer)
    with torch.no_grad():
        assert_same(folded(x), layer(x))
    assert steering_left(folded) == []


def test_folding_twice_changes_nothing(as_trained, x):
    once = dsfcnn.fold(as_trained(chain()).eval())
    with torch.no_grad():
        assert torch.equal(dsfcnn.fold(once)(x), once(x))


def test_a_norm_without_affine_parameters_folds(as_trained, x):
    model = nn.Sequential(LiftConv2d(3, 2, 3), GBatchNorm(2, affine=False), GConv2d(2, 2, 3), GBatchNorm(2, affine=False)).eval()
    for norm in (model[1], model[3]):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    with torch.no_grad():
        assert_same(dsfcnn.fold(model)(x), model(x))


@pytest.mark.parametrize(("conv", "norm"), [(LiftConv2d, GBatchNorm), (nn.Conv2d, nn.BatchNorm2d)])
def test_a_norm_after_a_norm_folds(conv, norm, as_trained, x):
    model = as_trained(nn.Sequential(conv(3, 2, 3), norm(2), norm(2))).eval()
    with torch.no_grad():
        assert_same(dsfcnn.fold(model)(x), model(x))


def test_one_layer_under_two_names_in_a_model_that_decides(as_trained, x):
    class Model(Shared):
        def forward(self, x):
            return super().forward(x) if x.mean() > -100 else x

    model = as_trained(Model()).eval()
    folded = dsfcnn.fold(model)
    with torch.no_grad():
        assert_same(folded(x), model(x))
    assert steering_left(folded) == []


def test_a_model_that_counts_its_images(as_trained, x):
    class Model(Decides):
        def forward(self, x):
            return torch.cat([self.norm(self.lift(x[i : i + 1])) for i in range(len(x))])

    model = as_trained(Model()).eval()
    with torch.no_grad():
        assert_same(dsfcnn.fold(model)(x), model(x))


def test_an_optional_argument_stays_optional(as_trained, x):
    class Model(Decides):
        def forward(self, x, mask=None):
            y = self.norm(self.lift(x))
            return y if mask is None else y * mask

    model, mask = as_trained(Model()).eval(), torch.rand(10, 13)
    folded = dsfcnn.fold(model)
    with torch.no_grad():
        assert_same(folded(x), model(x))
        assert_same(folded(x, mask), model(x, mask))


def dense_model(as_trained, x):
    """A model with every kind of layer, folded, and what the unfolded one makes of x."""
    model = as_trained(Dense(group="C4")).eval()
    with torch.no_grad():
        return dsfcnn.fold(model), model(x)


def test_compiles(as_trained, x):
    folded, wanted = dense_model(as_trained, x)
    with torch.no_grad():
        assert_same(torch.compile(folded, fullgraph=True, backend="aot_eager")(x), wanted, 1e-4)


def test_exports_as_a_program(as_trained, x):
    folded, wanted = dense_model(as_trained, x)
    program = torch.export.export(folded, (x,))
    with torch.no_grad():
        assert_same(program.module()(x), wanted, 1e-4)


@pytest.mark.parametrize(
    "size",
    [
        (10, 12),
        (9, 13),
        (10, 13),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_traces_to_torchscript(size, as_trained):
    x = torch.randn(2, 3, *size)
    folded, wanted = dense_model(as_trained, x)
    traced = torch.jit.trace(folded, x, strict=False)  # not strict: the outputs are a dict
    with torch.no_grad():
        assert_same(traced(x), wanted, 1e-4)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_exports_to_onnx(as_trained, x, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    folded, wanted = dense_model(as_trained, x)
    torch.onnx.export(folded, (x,), tmp_path / "model.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    for f, w in zip(found, wanted.values(), strict=True):
        assert np.abs(f - w.numpy()).max() <= 1e-4 * w.abs().max().item()


def test_hooks_are_not_dropped_in_silence(as_trained):
    model = as_trained(chain()).eval()
    model[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    with pytest.raises(dsfcnn.errors.UsageError, match="remove them"):
        dsfcnn.fold(model)


def test_a_model_that_reads_a_layers_weights_is_refused(as_trained):
    class Model(Decides):
        def forward(self, x):
            return self.norm(input=self.lift(x)) * self.norm.weight.sum()

    with pytest.raises(dsfcnn.errors.UsageError, match="'norm', which fold replaces"):
        dsfcnn.fold(as_trained(Model()).eval())


def test_weights_that_are_also_read_elsewhere_stay(as_trained, x):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x):
            return nn.functional.conv_transpose2d(self.norm(self.conv(x)), self.conv.weight)

    model = as_trained(Tied()).eval()
    with torch.no_grad():
        assert_same(dsfcnn.fold(model)(x), model(x))


def test_weights_that_are_made_from_others_fold(as_trained, x):
    conv = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3))
    model = as_trained(nn.Sequential(conv, nn.BatchNorm2d(4))).eval()
    with torch.no_grad():
        conv.parametrizations.weight.original0.mul_(3)
        assert_same(dsfcnn.fold(model)(x), model(x))


def test_norms_without_statistics(x):
    kept = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)).eval()
    with torch.no_grad():
        assert_same(dsfcnn.fold(kept)(x), kept(x))
    with pytest.raises(dsfcnn.errors.UsageError, match="track_running_stats"):
        dsfcnn.fold(nn.Sequential(LiftConv2d(3, 4, 3), GBatchNorm(4, track_running_stats=False)))


class Raised(GConv2d):
    def forward(self, x):
        return super().forward(x) + 1


def test_a_layer_with_a_forward_of_its_own_stays(as_trained, x):
    model = as_trained(nn.Sequential(LiftConv2d(3, 4, 5), Raised(4, 4, 5), GBatchNorm(4))).eval()
    torch.testing.assert_close(dsfcnn.fold(model)(x), model(x), atol=1e-4, rtol=1e-4)
