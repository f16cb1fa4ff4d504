"""Classes of patches on a slide: every cell is judged by the patch around it, once."""

import csv
import json

import numpy as np
import pytest
import tifffile
from PIL import Image

from dsfcnn.inference import run
from dsfcnn.inference.geojson import read_geojson
from dsfcnn.inference.job import Options
from dsfcnn.inference.predictor import Predictor


class RedIsTumour:
    """Logits from the central 32 x 32 pixels alone: the redder, the more tumour."""

    device = "cpu"

    def __init__(self):
        self.patches = 0

    def logits(self, batch, part=None):
        assert batch.shape[1:] == (3, 96, 96)
        self.patches += len(batch)
        red = batch[:, 0, 32:64, 32:64].mean((1, 2)) * 8 - 4
        return {"class": np.stack([-red, red], 1)}

    def largest_tile(self, margin):
        return 512


@pytest.fixture
def network(monkeypatch, tmp_path):
    network = RedIsTumour()
    monkeypatch.setattr(run, "load", lambda name, device: Predictor(network, {"task": "tumour"}))
    monkeypatch.setattr(run, "find_model", lambda name: tmp_path)
    monkeypatch.setattr(run, "model_hash", lambda path: "abc")
    return network


def picture(rows, columns, seed=0):
    """Cells of 32 pixels, red or not; the last ones cut off."""
    red = np.random.default_rng(seed).random((rows, columns)) > 0.5
    image = np.zeros((rows * 32 - 5, columns * 32 - 9, 3), np.uint8)
    image[..., 0] = np.kron(red, np.ones((32, 32)))[: image.shape[0], : image.shape[1]] * 255
    return image, red


def test_cells_get_their_own_class(network, tmp_path):
    image, red = picture(7, 20)  # more than one tile wide
    Image.fromarray(image).save(tmp_path / "a.png")
    assert run.predict([tmp_path / "a.png"], "m", tmp_path / "out", Options(workers=0)) == {}
    folder = tmp_path / "out" / "a"
    heat = tifffile.imread(folder / "probability.tif")
    assert heat.shape == red.shape
    assert ((heat > 127) == red).all()
    assert network.patches == red.size
    features = list(read_geojson(folder / "tumour.geojson"))
    assert len(features) == red.size
    assert {feature["properties"]["objectType"] for feature in features} == {"tile"}
    names = [feature["properties"]["classification"]["name"] for feature in features]
    assert (np.array(names).reshape(red.shape) == np.where(red, "Tumour", "Normal")).all()
    with (folder / "measurements.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["object"], row["id"], row["class"]) for row in rows] == [
        (str(number), feature["id"], name) for number, (feature, name) in enumerate(zip(features, names), 1)
    ]
    chances = np.array([[float(row["Probability Normal"]), float(row["Probability Tumour"])] for row in rows])
    np.testing.assert_allclose(chances.sum(1), 1, atol=2e-4)
    np.testing.assert_allclose(chances[:, 1].reshape(red.shape) * 255, heat, atol=0.6)
    assert (rows[0]["x"], rows[0]["y"]) == ("16", "16")
    assert np.asarray(Image.open(folder / "overlay.png")).shape == image.shape
    record = json.loads((folder / "run.json").read_bytes())
    assert (record["counts"]["objects"], record["counts"]["tiles"]) == (red.size, 2)


def test_only_cells_in_the_region_are_looked_at(network, tmp_path):
    image, _ = picture(8, 8)
    Image.fromarray(image).save(tmp_path / "a.png")
    run.predict([tmp_path / "a.png"], "m", tmp_path / "out", Options(workers=0, region="64,32,64,96"))
    assert network.patches == 2 * 3
    assert len(list(read_geojson(tmp_path / "out" / "a" / "tumour.geojson"))) == 6


def test_numbers_that_are_not_finite_are_no_answer(network, tmp_path, monkeypatch):
    Image.fromarray(picture(2, 2)[0]).save(tmp_path / "a.png")
    monkeypatch.setattr(network, "logits", lambda batch: {"class": np.full((len(batch), 2), np.nan, np.float32)})
    failed = run.predict([tmp_path / "a.png"], "m", tmp_path / "out", Options(workers=0))
    assert "not finite" in str(failed["a"])


def test_a_slide_of_another_resolution(network, tmp_path):
    """Pixels of 0.485 um: a cell is 64 of them."""
    image, red = picture(5, 6)
    fine = image.repeat(2, 0).repeat(2, 1)
    options = {"resolution": (1e4 / 0.485, 1e4 / 0.485), "resolutionunit": "CENTIMETER", "metadata": None}
    tifffile.imwrite(tmp_path / "s.tif", fine, tile=(128, 128), photometric="rgb", **options)
    run.predict([tmp_path / "s.tif"], "m", tmp_path / "out", Options(workers=0, find_mask=False))
    heat = tifffile.imread(tmp_path / "out" / "s" / "probability.tif")
    assert ((heat > 127) == red).all()
    first = next(iter(read_geojson(tmp_path / "out" / "s" / "tumour.geojson.gz")))
    corners = np.array(first["geometry"]["coordinates"][0])
    np.testing.assert_allclose(corners.max(0), 64, rtol=1e-3)
