"""Layers are ordinary modules: any size, any precision, saved, copied, compiled and spread over processes like any other."""

import copy
import io
import pickle

import pytest
import torch
import torch.multiprocessing
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dsfcnn.errors import GroupError, KernelSizeError, ShapeError, UsageError
from dsfcnn.filters import rotated_basis, steerable_basis
from dsfcnn.groups import parse_group
from dsfcnn.layers import (
    AntialiasedPool,
    GBatchNorm,
    GConv2d,
    GDenseBlock,
    GDenseUnit,
    GPool,
    LiftConv2d,
    MaxPool,
    MeanPool,
    Upsample,
)

KINDS = ["steerable", "rotated"]
kinds = pytest.mark.parametrize("filters", KINDS)


def small_model(group="C4", filters="steerable"):
    """One of each learned layer, from an image to a map."""
    return nn.Sequential(
        LiftConv2d(3, 2, 5, group=group, filters=filters, bias=True),
        GBatchNorm(2),
        nn.ReLU(),
        MaxPool(),
        GConv2d(2, 3, 3, group=group, filters=filters),
        GDenseUnit(3, group=group, middle=2, growth=1),
        AntialiasedPool(),
        Upsample(),
        GPool(),
        nn.Conv2d(4, 2, 1),
    )


def one_of_each(group="C8", size=8):
    """Name, layer, and the shape of its input without batch and pixels."""
    return [
        ("lift", LiftConv2d(3, 2, 7, group=group), (3,)),
        ("lift, rotated", LiftConv2d(3, 2, 7, group=group, filters="rotated"), (3,)),
        ("gconv", GConv2d(3, 2, 7, group=group, bias=True), (3, size)),
        ("gconv, rotated", GConv2d(3, 2, 7, group=group, filters="rotated"), (3, size)),
        ("norm", GBatchNorm(3).eval(), (3, size)),
        ("unit", GDenseUnit(3, group=group, middle=2, growth=1).eval(), (3, size)),
        ("block", GDenseBlock(3, units=2, group=group, middle=2, growth=1).eval(), (3, size)),
        ("maximum over orientations", GPool(), (3, size)),
        ("mean over orientations", GPool("mean"), (3, size)),
        *[(f"{kind.__name__} of {what}", kind(), shape) for kind in (MaxPool, MeanPool, AntialiasedPool, Upsample)
          for what, shape in (("fields", (3, size)), ("channels", (3,)))],
    ]  # fmt: skip


NAMES = [name for name, _, _ in one_of_each()]


def each(name):
    return next((layer, shape) for found, layer, shape in one_of_each() if found == name)


@pytest.mark.parametrize(("group", "size"), [("C1", 1), ("C8", 8), ("D4", 8), ("C3", 3), ("D6", 12)])
def test_shapes(group, size):
    image, fields = torch.randn(2, 3, 9, 12), torch.randn(2, 4, size, 9, 12)
    assert LiftConv2d(3, 5, group=group)(image).shape == (2, 5, size, 9, 12)
    assert GConv2d(4, 5, group=group)(fields).shape == (2, 5, size, 9, 12)
    assert GBatchNorm(4)(fields).shape == fields.shape
    assert GPool()(fields).shape == GPool("mean")(fields).shape == (2, 4, 9, 12)
    for pool in (MaxPool(), MeanPool(), AntialiasedPool()):
        assert pool(fields).shape == (2, 4, size, 5, 6)
        assert pool(image).shape == (2, 3, 5, 6)
    assert Upsample()(fields).shape == (2, 4, size, 18, 24)
    assert Upsample()(fields, size=(17, 24)).shape == (2, 4, size, 17, 24)
    assert Upsample()(image, size=torch.Size((18, 23))).shape == (2, 3, 18, 23)
    assert GDenseUnit(4, group=group, middle=3, growth=2)(fields).shape == (2, 6, size, 9, 12)
    assert GDenseBlock(4, units=2, group=group, middle=3, growth=2)(fields).shape == (2, 8, size, 9, 12)
    assert GDenseBlock(4, units=1, group=group, out_fields=1, middle=3, growth=2)(fields).shape == (2, 1, size, 9, 12)


def test_the_papers_dense_unit_by_default():
    """7x7 to 14 fields and 5x5 to 6, C8."""
    convolutions = [layer for layer in GDenseBlock(10, units=2).modules() if isinstance(layer, GConv2d)]
    wanted = [(10, 14, 7), (14, 6, 5), (16, 14, 7), (14, 6, 5), (22, 22, 5)]
    assert [(layer.in_fields, layer.out_fields, layer.kernel_size) for layer in convolutions] == wanted
    assert {str(layer.group) for layer in convolutions} == {"C8"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 1), (2, 3), (5, 8)])
def test_any_size(name, size):
    layer, shape = each(name)
    out = layer(torch.randn(1, *shape, *size))
    assert out.isfinite().all()
    factor = {"MaxPool": 0.5, "MeanPool": 0.5, "AntialiasedPool": 0.5, "Upsample": 2}.get(name.split()[0], 1)
    assert out.shape[-2:] == tuple(int(length * factor + 0.5) for length in size)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions(name, dtype):
    layer, shape = each(name)
    x = torch.randn(2, *shape, 9, 12)
    exact = layer(x).double()
    out = layer.to(dtype)(x.to(dtype))
    assert out.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float64 else 0.05
    assert (out.double() - exact).abs().max() < tolerance * exact.abs().max()


@kinds
@pytest.mark.parametrize("kernel_size", [5, 7])
def test_double_after_float_is_exact(filters, kernel_size):
    """The fixed pictures come anew in float64: the layer is the one that was built in float64 with the same weights."""
    cast = GConv2d(2, 2, kernel_size, group="C8", filters=filters).double()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        built = GConv2d(2, 2, kernel_size, group="C8", filters=filters)
    finally:
        torch.set_default_dtype(before)
    built.load_state_dict(cast.state_dict())
    x = torch.randn(1, 2, 8, 6, 6, dtype=torch.float64)
    assert torch.equal(cast(x), built(x))
    assert torch.equal(cast.moved, cast.basis().moved)
    assert not torch.equal(cast.moved, cast.moved.float().double())  # it would show: the pictures are no float32 numbers


@kinds
def test_bias_is_one_number_for_a_field(filters):
    for layer, x in (
        (LiftConv2d(3, 2, 3, group="C8", filters=filters, bias=True), torch.randn(1, 3, 5, 5)),
        (GConv2d(3, 2, 3, group="C8", filters=filters, bias=True), torch.randn(1, 3, 8, 5, 5)),
    ):
        assert layer.bias.tolist() == [0, 0]
        without = layer(x)
        with torch.no_grad():
            layer.bias.copy_(torch.tensor([1.0, -2.0]))
        torch.testing.assert_close(layer(x) - without, layer.bias.view(1, 2, 1, 1, 1).expand_as(without))


def test_pooling_takes_what_it_says():
    fields = torch.randn(1, 2, 8, 4, 4) - 1  # maxima of both signs
    assert torch.equal(GPool()(fields), fields.max(2).values)
    torch.testing.assert_close(GPool("mean")(fields), fields.mean(2))
    assert torch.equal(MaxPool()(fields)[:, 0], F.max_pool2d(fields[:, 0], 2))
    row = torch.tensor([1.0, 5.0, 2.0, 0.0, 4.0]).view(1, 1, 1, 5)
    assert MaxPool()(row).flatten().tolist() == [5, 5, 4]
    torch.testing.assert_close(MeanPool()(row).flatten(), torch.tensor([2.0, 2.25, 3.0]))
    torch.testing.assert_close(MeanPool()(row[..., :4]).flatten(), torch.tensor([3.0, 1.0]))
    constant = torch.full((1, 1, 6, 7), 3.0)
    torch.testing.assert_close(AntialiasedPool()(constant), torch.full((1, 1, 3, 4), 3.0))


def test_upsampling_reads_between_pixels():
    row = torch.tensor([0.0, 4.0, 8.0]).view(1, 1, 1, 3)
    assert Upsample()(row)[0, 0, 0].tolist() == [0, 1, 3, 5, 7, 8]
    assert Upsample()(row, size=(1, 5))[0, 0, 0].tolist() == [0, 2, 4, 6, 8]


def test_pooling_along_one_axis_does_not_depend_on_the_other():
    """Even and odd axes follow each its own rule."""
    x = torch.randn(1, 2, 6, 7)
    for pool in (MaxPool(), MeanPool(), AntialiasedPool()):
        torch.testing.assert_close(pool(x).transpose(-2, -1), pool(x.transpose(-2, -1)))


def test_the_state_holds_what_was_learned():
    """Weights, biases and running statistics, no pictures; the same in training and in evaluation."""
    assert set(GConv2d(2, 3).state_dict()) == set(LiftConv2d(2, 3).state_dict()) == {"weight"}
    assert set(GConv2d(2, 3, bias=True).state_dict()) == {"weight", "bias"}
    assert GConv2d(2, 3, 7, group="C8").state_dict()["weight"].shape == (3, 2, 8, 18)
    assert LiftConv2d(2, 3, 7, group="C8", filters="rotated").state_dict()["weight"].shape == (3, 2, 37)
    model = GDenseBlock(2, units=1, group="C4", middle=2, growth=1)
    training = {name: value.clone() for name, value in model.train().state_dict().items()}
    evaluation = model.eval().state_dict()
    assert list(training) == list(evaluation)
    assert all(torch.equal(training[name], evaluation[name]) for name in training)
    assert {name.rpartition(".")[2] for name in training} == {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}


@pytest.mark.parametrize(
    ("layer", "paper", "live"),
    [
        (GConv2d(10, 14, 7, group="C8"), 10 * 14 * 8 * 22, 10 * 14 * 8 * 18),
        (GConv2d(14, 6, 5, group="C8", bias=True), 14 * 6 * 8 * 14 + 6, 14 * 6 * 8 * 11 + 6),
        (LiftConv2d(3, 10, 7, group="C8"), 3 * 10 * 22, 3 * 10 * 18),
        (LiftConv2d(3, 10, 7, group="C12", filters="rotated"), 3 * 10 * 49, 3 * 10 * 37),
        (GConv2d(2, 3, 7, group="D4", filters="rotated"), 2 * 3 * 8 * 49, 2 * 3 * 8 * 49),
    ],
)
def test_parameters_are_counted_as_stored_and_as_in_the_paper(layer, paper, live):
    assert layer.paper_count() == paper
    assert sum(parameter.numel() for parameter in layer.parameters()) == live


@kinds
def test_copies_and_saved_modules_compute_the_same(filters, as_trained):
    model = as_trained(small_model(filters=filters)).eval()
    x = torch.randn(1, 3, 9, 10)
    wanted = model(x)
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(stream, weights_only=False)):
        assert torch.equal(again(x), wanted)
        with torch.no_grad():  # and stand on their own
            next(again.parameters()).zero_()
        assert not torch.equal(again(x), wanted)
    assert torch.equal(model(x), wanted)


@kinds
def test_gradients_are_right(filters):
    """Against finite differences, for the map and the weights."""
    layer = GConv2d(1, 1, 3, group="C8", filters=filters, bias=True).double()
    x = torch.randn(1, 1, 8, 3, 3, dtype=torch.float64, requires_grad=True)
    parameters = dict(layer.named_parameters())

    def function(x, *values):
        return torch.func.functional_call(layer, dict(zip(parameters, values)), (x,))

    assert torch.autograd.gradcheck(function, (x, *parameters.values()), fast_mode=True)


def gradients(model, x):
    model.zero_grad()
    model(x).square().mean().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@kinds
def test_a_compiled_block_is_the_block(filters, as_trained):
    """Forward and backward, without a graph break."""
    block = as_trained(GDenseBlock(2, units=1, group="C4", middle=2, growth=1, filters=filters))
    x = torch.randn(2, 2, 4, 7, 8)
    wanted, wanted_gradients = block(x), gradients(block, x)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), wanted)
    block.zero_grad()
    compiled(x).square().mean().backward()
    for name, parameter in block.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted_gradients[name])
        assert parameter.grad.abs().max() > 0


def test_checkpointing_changes_memory_alone(as_trained):
    """Computed again in the backward pass, a block gives the same outputs, gradients and running statistics."""
    kept = as_trained(GDenseBlock(2, units=2, group="C4", middle=2, growth=1)).double()
    again = GDenseBlock(2, units=2, group="C4", middle=2, growth=1, checkpointing=True).double()
    again.load_state_dict(kept.state_dict())
    x = torch.randn(2, 2, 4, 7, 8, dtype=torch.float64)
    wanted, found = gradients(kept, x), gradients(again, x)
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-12, atol=1e-14)
    for name, value in kept.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value, rtol=1e-12, atol=1e-14)
    assert torch.equal(again.eval()(x), kept.eval()(x))


@pytest.fixture
def nothing_cached():
    """Pictures of filters are made once and kept: begin with none, and leave none behind."""
    for basis in (steerable_basis, rotated_basis):
        basis.cache_clear()
    yield
    for basis in (steerable_basis, rotated_basis):
        basis.cache_clear()


@kinds
@pytest.mark.usefixtures("nothing_cached")
def test_built_on_the_meta_device(filters, as_trained):
    """A model without memory gets it later, with the right pictures; layers built afterwards are not touched by it."""
    with torch.device("meta"):
        empty = small_model(filters=filters)
    assert all(tensor.is_meta for tensor in (*empty.parameters(), *empty.buffers()))
    fresh = as_trained(small_model(filters=filters)).eval()
    assert not any(tensor.is_meta for tensor in (*fresh.parameters(), *fresh.buffers()))
    filled = empty.to_empty(device="cpu").eval()
    filled.load_state_dict(fresh.state_dict())
    x = torch.randn(1, 3, 9, 10)
    assert torch.equal(filled(x), fresh(x))
    torch.manual_seed(1)
    filled[4].reset_parameters()
    torch.manual_seed(1)
    fresh[4].reset_parameters()
    assert torch.equal(filled(x), fresh(x))


@kinds
@pytest.mark.usefixtures("nothing_cached")
def test_built_in_inference_mode(filters):
    """What inference made is not what later training computes with."""
    x = torch.randn(1, 3, 9, 10)
    with torch.inference_mode():
        assert small_model(filters=filters)(x).isfinite().all()
    model = small_model(filters=filters)
    assert all(gradient.abs().max() > 0 for name, gradient in gradients(model, x).items() if "weight" in name)
    assert not any(buffer.is_inference() for buffer in model.buffers())
    basis = {"steerable": steerable_basis, "rotated": rotated_basis}[filters]
    assert not basis(5, parse_group("C4")).moved.is_inference()  # what was made for the layer in inference is kept for all later ones


def unnormalised_model():
    torch.manual_seed(3)
    layers = LiftConv2d(3, 2, 5, group="C4"), nn.ReLU(), MaxPool(), GConv2d(2, 2, 3, group="C4", bias=True), GPool(), nn.Conv2d(2, 1, 1)
    return nn.Sequential(*layers).double()


def joint_batch():
    return torch.randn(4, 3, 8, 9, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def work_on_half(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    model = DistributedDataParallel(unnormalised_model())
    model(joint_batch()[2 * rank : 2 * rank + 2]).square().mean().backward()
    torch.save({name: parameter.grad for name, parameter in model.module.named_parameters()}, f"{folder}/gradients{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_processes_average_to_the_joint_batch(tmp_path):
    """DistributedDataParallel: gradients of two halves of a batch, in two processes, are those of the whole in one."""
    torch.multiprocessing.spawn(work_on_half, args=(str(tmp_path),), nprocs=2)
    wanted = gradients(unnormalised_model(), joint_batch())
    for rank in range(2):
        found = torch.load(tmp_path / f"gradients{rank}.pt")
        assert set(found) == set(wanted)
        for name, gradient in wanted.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-10, atol=1e-14)
            assert gradient.abs().max() > 0


def image(*shape):
    return torch.zeros(2, *shape, 8, 8)


@pytest.mark.parametrize(
    ("mistake", "error", "fix"),
    [
        (lambda: GConv2d(3, 2)(image(3)), ShapeError, "lift images with LiftConv2d first"),
        (lambda: GConv2d(3, 2)(image(4, 8)), ShapeError, "set the layer's fields to 4"),
        (lambda: GConv2d(3, 2, group="C8")(image(3, 4)), ShapeError, "give both layers the same group="),
        (lambda: LiftConv2d(3, 2)(image(1)), ShapeError, "give images of 3 channels"),
        (lambda: LiftConv2d(3, 2)(torch.zeros(3, 8, 8)), ShapeError, "a batch even of one"),
        (lambda: GBatchNorm(3)(image(3)), ShapeError, "lift images with LiftConv2d first"),
        (lambda: GBatchNorm(3)(image(4, 8)), ShapeError, "set the layer's fields to 4"),
        (lambda: GDenseBlock(3, units=1)(image(4, 8)), ShapeError, "set the layer's fields to 4"),
        (lambda: GPool()(image(3)), ShapeError, "lift images with LiftConv2d first"),
        (lambda: GConv2d(3, 2, group="E8"), GroupError, "use C1, C2, C3, ... (rotations) or D1, D2, ..."),
        (lambda: LiftConv2d(3, 2, group="E8"), GroupError, "use C1, C2, C3, ... (rotations) or D1, D2, ..."),
        (lambda: GConv2d(3, 2, 4), KernelSizeError, "use an odd size such as 3 or 5"),
        (lambda: LiftConv2d(3, 2, 6, filters="rotated"), KernelSizeError, "use an odd size such as 5 or 7"),
        (lambda: GConv2d(3, 2, filters="cubic"), UsageError, "use 'steerable' or 'rotated'"),
        (lambda: GConv2d(0, 2), UsageError, "give 1 or more"),
        (lambda: GConv2d(3, 0), UsageError, "give 1 or more"),
        (lambda: LiftConv2d(3, 2.0), UsageError, "give 1 or more"),
        (lambda: GDenseBlock(3, units=0), UsageError, "give 1 or more"),
        (lambda: GPool("median"), UsageError, "use 'max' or 'mean'"),
        (lambda: MaxPool(3), UsageError, "pool again for more"),
        (lambda: MeanPool(4), UsageError, "pool again for more"),
        (lambda: Upsample(4), UsageError, "up-sample again for more"),
        (lambda: Upsample()(image(3), size=(14, 16)), ShapeError, "give the size of the map before pooling"),
        (lambda: Upsample()(image(3, 8), size=(16, 17)), ShapeError, "give the size of the map before pooling"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_fix(mistake, error, fix, refused):
    with refused(error, fix=fix):
        mistake()


def test_the_sentence_names_what_was_expected_and_what_came():
    with pytest.raises(ShapeError, match=r"^GConv2d expects \(N, 3, 8, H, W\) but got \(2, 4, 8, 8, 8\); "):
        GConv2d(3, 2)(image(4, 8))
    with pytest.raises(UsageError, match=r"^out_fields must be a positive integer but is 0; "):
        GConv2d(3, 0)
    with pytest.raises(ShapeError, match=r"^Upsample turns 8 x 8 into 16 x 16, or one less each, but was asked for 14 x 16; "):
        Upsample()(image(3), size=(14, 16))
