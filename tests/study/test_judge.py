"""A model folder is scored by its task's measures, with pictures, and turns are judged beside."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from PIL import Image

import dsfcnn
from dsfcnn.data import open_dataset
from dsfcnn.errors import DataError
from dsfcnn.inference.job import Options
from dsfcnn.inference.predictor import as_slide
from dsfcnn.inference.run import predict
from dsfcnn.study.judge import Judged, ranked, write_judgement
from dsfcnn.tasks.metrics import panoptic_quality
from dsfcnn.training.images import Chosen


@pytest.fixture(scope="module")
def nuclei(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    model = dsfcnn.create("steerable-nuclei", group="C4", width=0.1)
    dsfcnn.save_model(model, folder, mpp=0.5, decode={"marker_threshold": 0.3})
    return folder


def test_settings_come_with_the_model(nuclei):
    judged = Judged(nuclei)
    assert judged.mpp == 0.5
    assert judged.task.settings.marker_threshold == 0.3
    assert judged.task.settings.object_threshold == 0.5


def test_a_judgement_is_written_whole(nuclei, tmp_path):
    judged, images = Judged(nuclei), Chosen((open_dataset(None, "test", "synthetic-nuclei"),), [0, 1])
    results = judged.score(images)
    write_judgement(tmp_path, judged, images, results, {"split": "test"})
    found = json.loads((tmp_path / "metrics.json").read_text())
    assert [row["image"] for row in found["images"]] == [images.source(0), images.source(1)]
    assert found["equivariance error"]["90 degrees"] < 1e-5
    assert 0 < found["equivariance error"]["45 degrees"] < 1
    assert {path.name for path in tmp_path.iterdir()} == {"metrics.json", "table.md", "best.png", "middle.png", "worst.png"}


def test_images_with_classes_have_no_instances(nuclei, refused):
    with refused(DataError, "give data that has them"):
        Judged(nuclei).score(open_dataset(None, "test", "synthetic-tumour"))


def test_odd_names_and_lines_of_pixels_are_judged(nuclei, tmp_path):
    for part in ("images", "labels"):
        (tmp_path / "data" / part).mkdir(parents=True)
        dtype = np.uint8 if part == "labels" else (np.uint8, 3)
        for name, shape in (("a line", (1, 40)), ("c^$_{$", (40, 40))):
            Image.fromarray(np.zeros(shape, dtype)).save(tmp_path / "data" / part / f"{name}.png")
    judged, images = Judged(nuclei), open_dataset(tmp_path / "data", "all", mpp=0.5)
    write_judgement(tmp_path, judged, images, judged.score(images), {})
    assert "90 degrees" in json.loads((tmp_path / "metrics.json").read_text())["equivariance error"]
    assert judged.equivariance(Chosen((images,), [0])) == {}


def test_classes_of_other_names_are_refused(tmp_path):
    """Their labels would count in another order: cancer before normal."""
    dsfcnn.save_model(dsfcnn.create("cnn-tumour", width=0.1), tmp_path / "model")
    for name in ("cancer", "normal"):
        (tmp_path / "data" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((96, 96, 3), np.uint8)).save(tmp_path / "data" / name / "a.png")
    with pytest.raises(DataError, match="its classes are cancer, normal, those of tumour are normal, tumour"):
        Judged(tmp_path / "model").score(open_dataset(tmp_path / "data", "all", mpp=0.97))


def test_an_ordinary_network_does_not_turn(tmp_path):
    torch.manual_seed(0)
    dsfcnn.save_model(dsfcnn.create("cnn-tumour", width=0.1), tmp_path)
    images = Chosen((open_dataset(None, "test", "synthetic-tumour"),), list(range(4)))
    judged = Judged(tmp_path)
    assert judged.equivariance(images)["90 degrees"] > 2e-5
    results = judged.score(images)
    order = ranked(results, judged.task)
    assert sorted(order) == [0, 1, 2, 3]
    sure = [p if label else 1 - p for label, p in zip(results.rows["label"], results.rows["p_tumour"])]
    assert [sure[number] for number in order] == sorted(sure, reverse=True)


@pytest.fixture
def finds_objects(tmp_path):
    """Random weights with a picture's own statistics, and last biases such that a third of it is nucleus, and all of that marker."""
    model = dsfcnn.create("steerable-nuclei", group="C4", width=0.1)
    sample = open_dataset(None, "test", "synthetic-nuclei")[0]
    image = torch.from_numpy(as_slide(sample.image, 0.25).read(0, 0, 256, 256, 0.5)).permute(2, 0, 1)[None].float() / 255
    with torch.no_grad():
        for _ in range(30):
            model.train()(image)
        background, nucleus = model.eval()(image)["object"][0]
        model.heads["object"][-1].bias[1] -= (nucleus - background).quantile(0.7)
        model.heads["marker"][-1].bias[0] += 20
    dsfcnn.save_model(model, tmp_path / "model", mpp=0.5)
    return tmp_path / "model"


def test_digits_are_judged_together_as_each_by_itself(tmp_path):
    dsfcnn.save_model(dsfcnn.create("steerable-digits", group="C4", width=0.1), tmp_path / "model")
    images = open_dataset(None, "test", "synthetic-digits")
    samples = [images[number] for number in range(5)]
    predictor = dsfcnn.load(tmp_path / "model")
    np.testing.assert_allclose(Judged(tmp_path / "model").predict(samples), [predictor.classify(s.image) for s in samples], atol=1e-6)


@pytest.mark.parametrize("mpp", [0.25, 0.4])
def test_what_is_judged_is_what_predict_finds(finds_objects, tmp_path, mpp):
    """`dsfcnn evaluate`, `dsfcnn.load(...).segment` and `dsfcnn predict` find the same, up to the border of the image."""
    sample = dataclasses.replace(open_dataset(None, "test", "synthetic-nuclei")[0], mpp=mpp)
    (judged,) = Judged(finds_objects).predict([sample])
    assert judged.max() > 3
    assert (judged == dsfcnn.load(finds_objects).segment(sample.image, mpp)).all()
    Image.fromarray(sample.image).save(tmp_path / "a.png")
    assert predict([tmp_path / "a.png"], finds_objects, tmp_path / "out", Options(slide_mpp=mpp, workers=0)) == {}
    written = np.asarray(Image.open(tmp_path / "out" / "a" / "instances.png")).astype(int)
    assert ((written > 0) == (judged > 0)).all()
    assert panoptic_quality(judged, written).pq == 1
