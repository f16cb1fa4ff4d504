"""Exported models compute the same, for sizes that the exporter did not see; ONNX files can be used to predict."""

import json

import numpy as np
import onnxruntime
import pytest
import torch

import dsfcnn
from dsfcnn.errors import DataError, UsageError
from dsfcnn.inference.export import export

SIZES = [(1, 32, 48), (3, 96, 64)]


@pytest.fixture
def folder(tmp_path, as_trained):
    def write(name, **options):
        model = as_trained(dsfcnn.create(name, width=0.05, **options)).eval()
        dsfcnn.save_model(model, tmp_path / name, mpp=0.5, tile_margin=48)
        return tmp_path / name, model

    return write


def agree(model, exported):
    for size in SIZES:
        images = torch.rand(size[0], 3, *size[1:])
        with torch.no_grad():
            wanted, found = model(images), exported(images)
        if isinstance(wanted, torch.Tensor):
            wanted, found = {"class": wanted}, {"class": found}
        for head, values in wanted.items():
            torch.testing.assert_close(found[head], values, atol=1e-4, rtol=1e-3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "options"), [("cnn-nuclei", {}), ("cnn-tumour", {"centre": 1 / 3})])
def test_torchscript_and_pt2(folder, tmp_path, name, options):
    path, model = folder(name, **options)  # pt2 of networks with skips takes long; the smaller network shows as much
    export(path, tmp_path / "m.pt", "torchscript")
    extra = {"dsfcnn": ""}
    agree(model, torch.jit.load(tmp_path / "m.pt", _extra_files=extra))
    assert json.loads(extra["dsfcnn"])["mpp"] == 0.5
    if name == "cnn-tumour":
        export(path, tmp_path / "m.pt2", "pt2")
        agree(model, torch.export.load(tmp_path / "m.pt2").module())


def test_onnx_predicts_what_the_folder_does(folder, tmp_path):
    path, _ = folder("steerable-nuclei", group="C4")
    export(path, tmp_path / "m.onnx", "onnx")
    ours, theirs = dsfcnn.load(path), dsfcnn.load(tmp_path / "m.onnx")
    assert (theirs.mpp, theirs.margin, theirs.task.name) == (0.5, 48, "nuclei")
    assert theirs.network.largest_tile(48) == ours.network.largest_tile(48)
    image = np.random.default_rng(0).integers(0, 256, (70, 50, 3), np.uint8)
    for size in SIZES:
        images = np.random.default_rng(1).random((size[0], 3, *size[1:]), np.float32)
        wanted, found = ours.network.logits(images), theirs.network.logits(images)
        for head, values in wanted.items():
            np.testing.assert_allclose(found[head], values, atol=1e-4, rtol=1e-3)
    assert theirs.segment(image).shape == (70, 50)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "options"), [("steerable-tumour", {"group": "C4", "centre": 1 / 3}), ("p4m-tumour", {})])
def test_onnx_of_fields_takes_every_size(folder, tmp_path, name, options):
    path, _ = folder(name, **options)
    export(path, tmp_path / "m.onnx", "onnx")
    ours, theirs = dsfcnn.load(path), dsfcnn.load(tmp_path / "m.onnx")
    for size in [*SIZES, (2, 96, 96)]:
        images = np.random.default_rng(1).random((size[0], 3, *size[1:]), np.float32)
        np.testing.assert_allclose(theirs.network.logits(images)["class"], ours.network.logits(images)["class"], atol=1e-4, rtol=1e-3)


@pytest.mark.filterwarnings("ignore")
def test_onnx_of_digits(folder, tmp_path):
    path, model = folder("steerable-digits", group="C4")
    export(path, tmp_path / "m.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    digits = torch.rand(3, 1, 28, 28)
    with torch.no_grad():
        np.testing.assert_allclose(session.run(None, {"image": digits.numpy()})[0], model(digits), atol=1e-4, rtol=1e-3)


def test_onnx_classifies(folder, tmp_path):
    path, _ = folder("cnn-tumour")
    export(path, tmp_path / "m.onnx", "onnx")
    image = np.random.default_rng(0).integers(0, 256, (96, 96, 3), np.uint8)
    np.testing.assert_allclose(dsfcnn.load(tmp_path / "m.onnx").classify(image), dsfcnn.load(path).classify(image), atol=1e-5)


def test_what_cannot_be_exported_or_loaded_is_refused(folder, tmp_path, refused):
    with refused(UsageError, "torchscript or pt2"):
        export(folder("hnet-nuclei")[0], tmp_path / "m.onnx", "onnx")
    with refused(UsageError, "onnx, torchscript, pt2"):
        export(folder("cnn-tumour")[0], tmp_path / "m.h5", "keras")
    assert not (tmp_path / "m.onnx").exists()
    (tmp_path / "m.onnx").write_bytes(b"no network")
    with refused(DataError, "export it again"):
        dsfcnn.load(tmp_path / "m.onnx")
