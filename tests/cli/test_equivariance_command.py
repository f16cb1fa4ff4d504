"""``dsfcnn equivariance``: three whole files or a line that says why not."""

import json

import numpy as np
import pytest
from PIL import Image

from dsfcnn.cli.main import main
from dsfcnn.models import create, save_model

MODELS = ("--model", "cnn-glands:0.1", "--model", "steerable-glands:C4:0.1")
FILES = ["frames.png", "variance.json", "variance.png"]


def run(*arguments):
    """The exit code, in this process: every command of its own would import torch again."""
    with pytest.raises(SystemExit) as stopped:
        main(["equivariance", *map(str, arguments)])
    return stopped.value.code


@pytest.fixture
def image(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((40, 48), Image.Resampling.BICUBIC).save(tmp_path / "image.png")
    return tmp_path / "image.png"


def test_what_it_writes(image, tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    assert run(*MODELS, image, "--out", out, "--size", 32, "--steps", 4, "--test-time-turning", "--json") == 0
    printed = capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == FILES
    report = json.loads((out / "variance.json").read_text())
    assert json.loads(printed) == report
    assert (report["size"], report["angles"]) == (32, [0, 90, 180, 270])
    plain, steerable, averaged = report["models"]
    assert [model["model"] for model in report["models"]] == [
        "cnn-glands width 0.1",
        "steerable-glands C4 width 0.1",
        "cnn-glands width 0.1, mean of 4 turns",
    ]
    assert (plain["passes"], averaged["passes"], plain["weights"]) == (1, 4, "random")
    assert steerable["architecture"]["group"] == "C4"
    for name in ("A", "B", "object"):
        assert plain["features"][name]["quarter_turns"]["ratio"] > 0.05
        assert steerable["features"][name]["quarter_turns"]["ratio"] < 1e-8
    assert averaged["features"]["object"]["all_steps"]["ratio"] < 1e-8
    with Image.open(out / "variance.png") as figure:
        assert len(figure.convert("RGB").getcolors(1 << 20)) > 100
    frames = report["frames"]
    with Image.open(out / frames["file"]) as sheet:
        assert sheet.size == (4 * frames["side"], len(frames["rows"]) * frames["side"])
    assert str(tmp_path) not in printed


def test_nothing_is_overwritten_unasked(image, tmp_path, capsys):
    out, again = tmp_path / "out", tmp_path / "again"
    arguments = ("--model", "steerable-digits:C4:0.1", image, "--size", 32)
    assert run(*arguments, "--out", out) == 0
    table = capsys.readouterr().out
    assert "steerable-digits C4 width 0.1" in table
    assert table.count("\n") == 5
    before = {name: (out / name).read_bytes() for name in FILES}
    assert run(*arguments, "--seed", 1, "--out", out) == 73
    assert "--overwrite" in capsys.readouterr().err
    assert {name: (out / name).read_bytes() for name in FILES} == before
    assert run(*arguments, "--out", again) == 0
    assert {name: (again / name).read_bytes() for name in FILES} == before  # the same bytes every time
    assert run(*arguments, "--seed", 1, "--out", out, "--overwrite") == 0
    assert (out / "variance.json").read_bytes() != before["variance.json"]
    assert sorted(path.name for path in out.iterdir()) == FILES


def test_frames_of_another_size(image, tmp_path):
    out = tmp_path / "out"
    assert run("--model", "cnn-digits:0.1", image, "--size", 32, "--steps", 3, "--frame-size", 48, "--out", out) == 0
    assert json.loads((out / "variance.json").read_text())["frames"]["side"] == 48
    with Image.open(out / "frames.png") as sheet:
        assert sheet.size == (3 * 48, 3 * 48)


def test_a_model_folder(image, tmp_path, capsys):
    save_model(create("vfcnn-tumour", group="C4", width=0.1), tmp_path / "mine")
    assert run("--model", tmp_path / "mine", image, "--size", 32, "--out", tmp_path / "out", "--json") == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert (model["model"], model["weights"]) == ("mine", "folder")
    assert list(model["features"]) == ["A", "B", "classes"]
    assert model["features"]["A"]["quarter_turns"]["ratio"] < 1e-8
    assert len(model["features"]["classes"]["probabilities"]) == 4
    for inside in (tmp_path / "mine", tmp_path / "mine" / "new"):
        assert run("--model", tmp_path / "mine", image, "--out", inside) == 2
        assert "model folder" in capsys.readouterr().err
    assert len(list((tmp_path / "mine").iterdir())) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("none.png",), 66, "No such file"),
        (("text.png",), 65, "not an image"),
        (("tiny.png",), 65, "20 x 20 pixels"),
        (("image.png", "--model", "cnn-nucleus"), 66, "neither a model folder"),
        (("image.png", "--model", "cnn-nuclei:C8"), 2, "no option 'group'"),
        (("image.png", "--model", "steerable-nuclei:C8:0"), 2, "width"),
        (("image.png", "--model", "steerable-nuclei:C8:1x"), 2, "name:group:width"),
        (("image.png", "--size", "31"), 2, "32 pixels or more"),
        (("image.png", "--steps", "1"), 2, "--steps"),
        (("image.png", "--model", "cnn-nuclei:0.1", "--out", "image.png/folder"), 73, "--out"),
    ],
)
def test_a_mistake_is_one_line(arguments, code, words, image, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.png").write_text("no picture")
    Image.new("RGB", (20, 20)).save(tmp_path / "tiny.png")
    assert run("--out", tmp_path / "out", *arguments) == code
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()
