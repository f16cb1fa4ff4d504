"""Images: which ones a run sees, at which resolution; and predictions that come back in the image's own pixels."""

import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn

from dsfcnn.data import open_dataset
from dsfcnn.errors import DataError, UsageError
from dsfcnn.models import create
from dsfcnn.tasks import get
from dsfcnn.training.config import TrainConfig
from dsfcnn.training.evaluation import evaluate, predict, probabilities
from dsfcnn.training.images import open_images, rescale, size_at


def config(squares, **more):
    known = {"data": str(squares), "format": "folder", "data_mpp": 0.25}
    return TrainConfig(**{"task": "nuclei", "model": "dsf-nuclei", "steps": 1, **known, **more})


def sources(images):
    return [images.source(number) for number in range(len(images))]


def test_held_out_images_are_chosen_by_the_seed(squares):
    choices = set()
    for seed in range(8):
        images, valid = open_images(config(squares, held_out=2, seed=seed))
        again = open_images(config(squares, held_out=2, seed=seed))[1]
        assert sources(valid) == sources(again)
        assert len(valid) == 2
        assert sorted(sources(images) + sources(valid)) == [f"case {number}.png" for number in range(4)]
        choices.add(tuple(sources(valid)))
    assert len(choices) > 1


def test_slides_are_held_out_whole(squares, monkeypatch):
    """Two images of each of two slides, as the parts of their regions are called."""
    data = open_dataset(squares, "train", "folder", 0.25)
    names = ["a.svs[0]", "b.svs[0]", "a.svs[1]", "b.svs[1]"]
    known = {"name": "slides", "classes": data.classes, "source": lambda self, n: names[n]}
    slides = type("Slides", (), {**known, "__len__": lambda self: 4, "__getitem__": lambda self, n: data[n]})()
    monkeypatch.setattr("dsfcnn.training.images.open_dataset", lambda *given, **options: slides)
    for seed in range(4):
        images, valid = open_images(config(squares, held_out=1, seed=seed))
        assert {len({name[0] for name in sources(part)}) for part in (images, valid)} == {1}
        assert len(images) == len(valid) == 2


@pytest.mark.parametrize("name", ["a.svs", "a", "a.svs[1]"])
def test_a_slide_is_held_out_whole_by_its_name(name, squares, monkeypatch):
    names = ["a.svs[0]", "b.svs[0]", "a.svs[1]", "b.svs[1]"]
    data = open_dataset(squares, "train", "folder", 0.25)
    known = {"name": "slides", "classes": data.classes, "source": lambda self, n: names[n]}
    slides = type("Slides", (), {**known, "__len__": lambda self: 4, "__getitem__": lambda self, n: data[n]})()
    monkeypatch.setattr("dsfcnn.training.images.open_dataset", lambda *given, **options: slides)
    held = sources(open_images(config(squares, held_out=[name]))[1])
    assert held == ["a.svs[0]", "a.svs[1]"]


@pytest.mark.parametrize("names", [["case 1", "case 3"], ["case 3.png", "case 1.png", "case 1"]])
def test_held_out_images_by_name(names, squares):
    images, valid = open_images(config(squares, held_out=names))
    assert sources(valid) == ["case 1.png", "case 3.png"]
    assert sources(images) == ["case 0.png", "case 2.png"]


@pytest.mark.parametrize(
    ("more", "fix"),
    [
        ({"held_out": ["case 9"]}, "it has case 0"),
        ({"held_out": 4}, "smaller number"),
        ({"held_out": 0}, "set valid_split"),
        ({"valid_split": "test"}, "it has train, valid"),
        ({"data_mpp": None, "mpp": 0.25}, "data_mpp="),
        ({"valid_split": "train"}, "share no image"),
        ({"valid_split": "train", "final_fit": True}, "share no image"),
        ({"valid_split": "train", "format": "synthetic-nuclei", "data": None, "data_mpp": None}, "share no image"),
    ],
)
def test_images_that_are_not_there(more, fix, squares, refused):
    with refused(UsageError, fix):
        open_images(config(squares, **more))


def test_a_split_within_another_is_not_judged_by(squares, tmp_path, refused):
    """As Kumar's original files have, where "all" holds the others too."""
    (tmp_path / "Tissue Images").mkdir()
    (tmp_path / "Annotations").mkdir()
    for patient in ("A7-A13E", "E2-A1B5"):
        shutil.copy(squares / "train" / "images" / "case 0.png", tmp_path / "Tissue Images" / f"TCGA-{patient}-01Z.tif")
        (tmp_path / "Annotations" / f"TCGA-{patient}-01Z.xml").write_text("<Annotations/>")
    given = {"format": "kumar", "data_mpp": None, "train_split": "all"}
    with refused(UsageError, "share no image"):
        open_images(config(tmp_path, **given, valid_split="test_same"))
    assert len(open_images(config(tmp_path, **{**given, "train_split": "train"}, valid_split="test_same"))[1]) == 1


@pytest.mark.parametrize(("task", "fix"), [("nuclei", "give data that has them"), ("digits", "give rotated MNIST")])
def test_images_that_do_not_fit_the_task(task, fix, tmp_path, refused):
    for name in "0123456789":
        (tmp_path / "train" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((28, 28, 3), np.uint8)).save(tmp_path / "train" / name / "a.png")
    with refused(DataError, fix):
        open_images(TrainConfig(task=task, model=f"cnn-{task}", steps=1, data=str(tmp_path), format="folder", data_mpp=1, held_out=2))


@pytest.mark.parametrize(("more", "count"), [({"held_out": 2}, 4), ({"valid_split": "valid"}, 6)], ids=["held out", "a split"])
def test_a_final_fit_has_all_images(more, count, squares):
    images, valid = open_images(config(squares, final_fit=True, **more))
    assert len(valid) == 0
    assert len(images) == len({(images.source(number), images[number].image.tobytes()) for number in range(count)}) == count
    assert len(images.files) >= count


def test_fewer_images_are_a_part_of_all(squares):
    images, valid = open_images(config(squares, valid_split="valid", images=2))
    assert len(images) == 2
    assert set(sources(images)) < {f"case {number}.png" for number in range(4)}
    assert len(valid) == 2


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.05, 5), st.floats(0.05, 5))
def test_every_size_can_be_rescaled(height, width, mpp, wanted):
    image = np.full((height, width, 3), 77, np.uint8)
    size = size_at((height, width), mpp, wanted)
    if max(size) > 400:
        return
    found = rescale(image, mpp, wanted)
    assert found.shape == (*size, 3)
    assert (found == 77).all()


class Darkness(nn.Module):
    """A nuclei model that knows: dark is nucleus, and all of it marker."""

    def forward(self, x):
        dark = 20 * (0.55 - x.mean(1, keepdim=True))
        return {"object": torch.cat((-dark, dark), 1), "marker": torch.cat((dark, torch.full_like(dark, -20), -dark), 1)}


@pytest.mark.parametrize("mpp", [0.125, 0.25, 0.33, 0.5])
def test_objects_come_back_in_the_pixels_of_the_image(mpp, squares):
    sample = open_dataset(squares, "valid", "folder", 0.25)[0]
    found = predict(Darkness(), get("nuclei"), sample.image, 0.25, mpp)
    assert found.shape == sample.instances.shape
    assert found.max() == 2
    assert ((found > 0) != (sample.instances > 0)).mean() < 0.06


@pytest.mark.parametrize(("task", "data"), [("nuclei", "synthetic-nuclei"), ("digits", "synthetic-digits")])
def test_weights_that_were_driven_too_far_are_not_judged(task, data, refused):
    model = create(f"cnn-{task}", width=0.1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(1e30)
    with refused(DataError, "lower learning_rate"):
        evaluate(model, get(task), open_dataset(None, "valid", data), get(task).mpp)


def test_a_perfect_model_scores_one(squares):
    valid = open_dataset(squares, "valid", "folder", 0.25)
    seen = []
    model = Darkness().train()
    results = evaluate(model, get("nuclei"), valid, 0.25, resamples=20, seen=lambda number, sample, found: seen.append(sample.source))
    assert results.mean["pq"].value > 0.95
    assert seen == ["case 0.png", "case 1.png"] == list(results.images)
    assert model.training


@pytest.mark.parametrize("task", ["nuclei", "glands"])
@pytest.mark.parametrize("size", [(1, 1), (1, 19), (17, 33), (15, 16)])
def test_images_of_any_size(task, size):
    model = create(f"dsf-{task}", group="C4", width=0.05).eval()
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    found = probabilities(model, image)
    assert {maps.shape[1:] for maps in found.values()} == {size}
    assert all(np.allclose(maps.sum(0), 1, atol=1e-5) for maps in found.values())
    for image_mpp in (0.25, 1.0):
        assert predict(model, get(task), image, image_mpp, 0.5).shape == size


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_classes_of_any_size_and_precision(dtype):
    model = create("dsf-tumour", group="C4", width=0.05).to(dtype).eval()
    for size in ((1, 1), (31, 20)):
        found = predict(model, get("tumour"), np.zeros((*size, 3), np.uint8), 0.97, 0.97)
        assert found.shape == (2,)
        assert found.sum() == pytest.approx(1)
