"""A model takes images of any size and resolution and answers on their own pixels."""

import json

import numpy as np
import pytest
import torch

import dsfcnn
from dsfcnn.data.synthetic.fields import Window
from dsfcnn.data.synthetic.nuclei import draw_nuclei
from dsfcnn.errors import DataError, UsageError
from dsfcnn.inference import predictor as module
from dsfcnn.inference.margin import measure_margin
from dsfcnn.inference.network import TorchNetwork, find_device, probabilities_of, tile_for
from dsfcnn.models import find
from dsfcnn.tasks.metrics import panoptic_quality

from .stand_in import StandIn, paint, predictor


@pytest.fixture
def folder(tmp_path, as_trained):
    model = as_trained(dsfcnn.create("steerable-nuclei", group="C4", width=0.1))
    dsfcnn.save_model(model, tmp_path / "model", mpp=0.5, tile_margin=32)
    return tmp_path / "model", model.eval()


def test_a_loaded_model_gives_the_networks_probabilities(folder):
    path, model = folder
    loaded = dsfcnn.load(path)
    assert (loaded.mpp, loaded.margin, loaded.task.name) == (0.5, 32, "nuclei")
    image = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    with torch.no_grad():
        wanted = model(torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255)
    found = probabilities_of(loaded.network, image)
    for head in ("object", "marker"):
        np.testing.assert_allclose(found[head], wanted[head][0].softmax(0).numpy(), atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (33, 1), (17, 50)])
@pytest.mark.parametrize("mpp", [None, 0.25, 1.3])
def test_every_size_is_answered_in_its_own_size(folder, shape, mpp):
    found = dsfcnn.load(folder[0]).segment(np.full((*shape, 3), 200, np.uint8), mpp=mpp)
    assert (found.shape, found.dtype) == (shape, np.int32)


@pytest.mark.parametrize(("network_mpp", "image_mpp", "least"), [(0.25, 0.25, 0.99), (0.5, 0.25, 0.93), (0.25, 0.5, 0.8), (0.3, 0.25, 0.8)])
def test_objects_come_back_on_the_images_pixels(network_mpp, image_mpp, least):
    """What the stand-in sees are the painted objects, whatever the resolutions."""
    _, truth = draw_nuclei(11, Window(0, 0, 300, 260, image_mpp))
    model = predictor(mpp=network_mpp)
    exact = predictor(mpp=image_mpp).segment(paint(truth, image_mpp))
    found = model.segment(paint(truth, image_mpp), mpp=image_mpp)
    assert found.shape == truth.shape
    assert panoptic_quality(exact, found).pq > least


def test_decoding_is_as_fine_as_the_finer_of_image_and_task():
    model = predictor(mpp=1.0)
    for image_mpp, wanted in [(1.0, 0.25), (0.5, 0.25), (0.2, 0.2), (0.01, 0.125)]:
        grid = model.grid(module.as_slide(np.zeros((40, 40, 3), np.uint8), max(image_mpp, 0.05)))
        assert grid.decode_mpp == pytest.approx(wanted)


def test_classify(tmp_path, as_trained):
    model = as_trained(dsfcnn.create("steerable-tumour", group="C4", width=0.1))
    dsfcnn.save_model(model, tmp_path / "tumour")
    loaded = dsfcnn.load(tmp_path / "tumour")
    image = np.random.default_rng(0).integers(0, 256, (96, 96, 3), np.uint8)
    with torch.no_grad():
        wanted = model.eval()(torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255).softmax(1)[0].numpy()
    np.testing.assert_allclose(loaded.classify(image), wanted, atol=1e-5)
    assert loaded.classify(np.repeat(np.repeat(image, 2, 0), 2, 1), mpp=0.485) == pytest.approx(wanted, abs=0.2)
    for shape in [(1, 1), (5, 200)]:
        assert loaded.classify(np.zeros((*shape, 3), np.uint8)).sum() == pytest.approx(1)
    with pytest.raises(UsageError, match="use classify"):
        loaded.segment(image)
    digits = dsfcnn.create("steerable-digits", group="C4", width=0.1)
    dsfcnn.save_model(digits, tmp_path / "digits")
    assert dsfcnn.load(tmp_path / "digits").classify(image[:28, :28, 0]).shape == (10,)


def test_an_onnx_file_may_end_in_capitals(tmp_path, monkeypatch):
    (tmp_path / "M.ONNX").touch()
    config = {"architecture": {"heads": {"object": 2, "marker": 3}}, "task": "nuclei", "mpp": 0.3, "tile_margin": 16}
    monkeypatch.setattr("dsfcnn.inference.export.load_onnx", lambda path: (StandIn(), config))
    assert dsfcnn.load(tmp_path / "M.ONNX").mpp == 0.3


def edit(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": "glands"}, "needs heads"),
        ({"task": "tumour"}, "needs classes = 2 but the network has None"),
        ({"task": "lungs"}, "lungs"),
        ({"decode": {"marker_heigth": 0.3}}, "marker_heigth"),
        ({"mpp": 500}, "mpp"),
    ],
    ids=str,
)
def test_a_config_that_belongs_to_another_network_is_refused(folder, changes, words):
    edit(folder[0], **changes)
    with pytest.raises(DataError) as caught:
        dsfcnn.load(folder[0])
    assert words in str(caught.value)


def test_classes_of_patches_are_as_many_as_the_network_tells_apart(tmp_path, as_trained):
    dsfcnn.save_model(as_trained(dsfcnn.create("steerable-tumour", group="C4", width=0.1, classes=3)), tmp_path)
    with pytest.raises(DataError, match="needs classes = 2 but the network has 3"):
        dsfcnn.load(tmp_path)
    edit(tmp_path, classes=[{"name": name, "color": "#112233"} for name in ("stroma", "tumour", "fat")])
    assert dsfcnn.load(tmp_path).classify(np.zeros((40, 40, 3), np.uint8)).shape == (3,)


def test_what_is_no_image_or_no_model_is_refused(folder, refused, monkeypatch, tmp_path):
    loaded = dsfcnn.load(folder[0])
    for image in (np.zeros((5, 5), np.uint8), np.zeros((5, 5, 3)), np.zeros((0, 5, 3), np.uint8), np.zeros((5, 5, 4), np.uint8)):
        with refused(DataError, "convert it first"):
            loaded.segment(image)
    with refused(UsageError, ""):
        loaded.segment(np.zeros((5, 5, 3), np.uint8), mpp=0)
    with refused(UsageError, "use segment"):
        loaded.classify(np.zeros((5, 5, 3), np.uint8))
    monkeypatch.setattr(find, "shipped", dict)
    with refused(UsageError, "a model folder"):
        dsfcnn.load("nuclei")
    monkeypatch.setattr(find, "shipped", lambda: {"nuclei": folder[0]})
    assert dsfcnn.load("nuclei").mpp == 0.5
    with refused(UsageError, "one of nuclei, or a model folder"):
        dsfcnn.load("nucleus")


def test_the_margin_is_how_far_a_network_looks():
    """The stand-in looks 2 pixels far; a torch network with one pooling a little more; both need a multiple of 16."""
    random = np.random.default_rng(0).integers(0, 256, (432, 416, 3), np.uint8)
    assert measure_margin(StandIn(), [random]) == 16

    class Far(StandIn):
        def __init__(self, shift=40):
            super().__init__()
            self.shift = shift

        def logits(self, batch, part=None):
            left, above = np.zeros_like(batch), np.zeros_like(batch)  # zeros outside, as in a network
            left[..., self.shift :], above[..., self.shift :, :] = batch[..., : -self.shift], batch[..., : -self.shift, :]
            return super().logits(0.5 * batch + 0.25 * (left + above), part)

    assert measure_margin(Far(), [random, random[::-1]]) == 48
    assert measure_margin(Far(shift=200), [random]) == 208  # further than the smaller picture shows
    with pytest.raises(UsageError, match="further"):
        measure_margin(Far(shift=450), [random])


def test_tiles_fit_into_memory():
    model = dsfcnn.create("steerable-nuclei", group="C4", width=0.1)
    network = TorchNetwork(model)
    assert network.largest_tile(32) == 1536
    assert tile_for(800, 32) == 256


def test_a_device_must_be_there(monkeypatch, refused, folder):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert (find_device("auto"), find_device("cpu")) == ("cpu", "cpu")
    for name in ("cuda", "cuda:0"):
        with refused(UsageError, "cpu"):
            dsfcnn.load(folder[0], device=name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [find_device(name) for name in ("auto", "cpu", "cuda", "cuda:1")] == ["cuda:0", "cpu", "cuda:0", "cuda:1"]
    for name in ("cuda:2", "gpu", ""):
        with refused(UsageError, "cuda:1"):
            find_device(name)
