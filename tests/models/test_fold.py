"""Every model folds to ordinary layers that compute the same, and that exporters take."""

import copy

import pytest
import torch

import dsfcnn
from dsfcnn.layers import GBatchNorm
from dsfcnn.layers.harmonic import HarmonicConv2d
from dsfcnn.layers.steered import SteeredConv
from dsfcnn.layers.vector import VectorConv2d
from dsfcnn.models import names

STEERED = (SteeredConv, HarmonicConv2d, VectorConv2d, GBatchNorm)


def error(found, wanted):
    """Largest difference, over the largest value of that output."""
    assert list(found) == list(wanted)
    return max(((found[output] - values).abs().max() / values.abs().max()).item() for output, values in wanted.items())


@pytest.mark.parametrize("name", names())
def test_a_folded_model_computes_the_same(name, small, images, outputs):
    """In float64 to rounding. In float32 to 1e-5, unless the model itself strays further from float64: then folding adds little to that."""
    model, x = small(name), images(name, 20, 26, batch=2)  # 5 x 7 and 3 x 4 on the way down
    with torch.no_grad():
        wanted = outputs(model, x)
        assert error(outputs(dsfcnn.fold(model), x), wanted) < 1e-11
        folded = dsfcnn.fold(model.float())
        assert error(outputs(folded, x.float()), wanted) < max(1e-5, 5 * error(outputs(model, x.float()), wanted))


@pytest.mark.parametrize("name", names())
def test_no_steering_is_left(name, small):
    """And the model itself stays what it was."""
    model = small(name)
    state, kinds = copy.deepcopy(model.state_dict()), [type(part) for part in model.modules()]
    folded = dsfcnn.fold(model)
    assert [type(part).__name__ for part in folded.modules() if isinstance(part, STEERED)] == []
    assert not folded.training
    assert [type(part) for part in model.modules()] == kinds
    assert list(model.state_dict()) == list(state)
    assert all(torch.equal(values, state[key]) for key, values in model.state_dict().items())


def test_a_middle_part_folds(small, images, outputs):
    model, x = small("dsf-tumour", centre=1 / 3), images("dsf-tumour", 96, 80)
    folded = dsfcnn.fold(model)
    with torch.no_grad():
        assert error(outputs(folded, x), outputs(model, x)) < 1e-11
    assert len([part for part in folded.modules() if isinstance(part, torch.nn.BatchNorm2d)]) < len(
        [part for part in model.modules() if isinstance(part, torch.nn.BatchNorm2d | GBatchNorm)]
    )  # its steps were traced: batch norms after convolutions are gone


def test_the_check_finds_steering(small):
    for name in ("dsf-nuclei", "hnet-digits", "vfcnn-digits"):
        assert any(isinstance(part, STEERED) for part in small(name).modules())


def test_a_model_in_training_folds_to_its_evaluation(small, images, outputs):
    model, x = small("dsf-tumour"), images("dsf-tumour", 24, 24)
    with torch.no_grad():
        wanted = outputs(model, x)
        assert error(outputs(dsfcnn.fold(model.train()), x), wanted) < 1e-11
    assert model.training


def test_onnx_runs_the_folded_model(small, images, tmp_path):
    import onnxruntime

    model, x = small("dsf-nuclei", torch.float32), images("dsf-nuclei", 32, 48, dtype=torch.float32)
    torch.onnx.export(dsfcnn.fold(model), (x,), tmp_path / "model.onnx", dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    with torch.no_grad():
        wanted = model(x)
    assert [values.shape for values in found] == [tuple(values.shape) for values in wanted.values()]
    assert error(dict(zip(wanted, map(torch.from_numpy, found))), wanted) < 1e-4


@pytest.mark.parametrize("name", ["hnet-digits", "vfcnn-glands"])
def test_the_folded_model_exports(name, small, images, outputs):
    model, x = small(name, torch.float32), images(name, 16, 20, dtype=torch.float32)
    exported = torch.export.export(dsfcnn.fold(model), (x,)).module()
    another = images(name, 16, 20, dtype=torch.float32)
    with torch.no_grad():
        assert error(outputs(exported, another), outputs(model, another)) < 1e-4
