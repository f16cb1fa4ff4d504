"""The command line: answers at once, and a mistake is one line with the right exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image


def dsfcnn(*arguments):
    return subprocess.run([sys.executable, "-m", "dsfcnn", *map(str, arguments)], capture_output=True, text=True, timeout=120)


def test_help_does_not_import_torch():
    code = """
import sys
from dsfcnn.cli.main import main
try:
    main(["--help"])
except SystemExit:
    print({"torch", "scipy", "matplotlib"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "filters" in done.stdout
    assert done.stdout.strip().endswith("set()")


def test_version():
    done = dsfcnn("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("dsfcnn ")


def test_doctor_names_what_is_missing_and_how_to_get_it():
    found = json.loads(dsfcnn("doctor", "--json").stdout)
    assert found["required"]["missing"] == []
    assert found["kernel"].startswith(("spectral", "dense, because"))
    assert found["required"]["packages"]["torch"]
    extras = {part["extra"]: part for part in found["extras"]}
    assert {"wsi", "dask", "onnx", "viewer", "test"} <= set(extras)
    assert extras["wsi"]["command"] == "pip install 'dsfcnn[wsi]'"
    assert "shapely" in extras["wsi"]["packages"]
    assert dsfcnn("doctor").returncode == 0


def test_filters_draws_pictures_and_does_not_overwrite(tmp_path):
    done = dsfcnn("filters", "--out", tmp_path / "new" / "pictures", "--group", "C4", "--kernel-size", 5)
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "new" / "pictures").iterdir())
    assert names == ["basis-11x11.png", "basis-5x5.png", "hidden-layer-C4.png", "input-layer-C4.png"]
    for line in done.stdout.splitlines():
        with Image.open(line) as picture:
            assert len(picture.convert("RGB").getcolors(1 << 20)) > 20, "an empty picture"
    again = dsfcnn("filters", "--out", tmp_path / "new" / "pictures", "--group", "C4", "--kernel-size", 5)
    assert again.returncode == 73
    assert again.stderr.startswith("error: ")
    assert again.stderr.count("\n") == 1
    assert "--overwrite" in again.stderr


@pytest.mark.parametrize("command", [("evaluate", "--model", "tumour", "--split", "test"), ("study", "pcam")])
def test_nothing_is_written_into_the_data(command, tmp_path):
    done = dsfcnn(*command, "--data", tmp_path, "--out", tmp_path / "scores")
    assert done.returncode == 2
    assert "lies in the data" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_filters_draws_those_of_a_shipped_model(tmp_path):
    done = dsfcnn("filters", "--model", "tumour", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "hidden-layer-C8.png").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, ""),
        (("nonsense",), 2, "No such command 'nonsense'"),
        (("filters",), 2, "--out"),
        (("filters", "--out", "OUT", "--grup", "C8"), 2, "--group"),
        (("filters", "--out", "OUT", "--group", "E8"), 2, "use C1"),
        (("filters", "--out", "OUT", "--kernel-size", "4"), 2, "odd"),
        (("filters", "--out", "OUT", "--kernel-size", "four"), 2, "integer"),
        (("filters", "--out", "/proc/no/such/folder"), 73, "--out"),
        (("bench", "--model", "dsf-nucleus"), 2, "dsf-nuclei"),
        (("bench", "--backend", "fast"), 2, "dense, spectral"),
        (("predict", "a.png", "--out", ""), 2, "--out is empty"),
        (("predict", "a.png", "--out="), 2, "--out is empty"),
        (("predict", ""), 2, "an argument is empty"),
        (("predict", "a.png", "--threads", "1000000"), 2, "1024"),
        (("predict", __file__, "--model", __file__, "--out", "OUT"), 65, "give the model's folder"),
        (("filters", "--out", "OUT", "--seed", "99999999999999999999"), 2, "--seed"),
    ],
)
def test_a_mistake_is_one_line(arguments, code, words, tmp_path):
    done = dsfcnn(*[str(tmp_path / "out") if a == "OUT" else a for a in arguments])
    assert done.returncode == code
    assert words in done.stderr
    assert done.stderr.count("\n") == (1 if words else 0)
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_too_little_memory_is_no_bug(tmp_path):
    config = Path(__file__).parents[2] / "configs" / "smoke.yaml"
    done = dsfcnn("train", config, "crop=10000000", "--out", tmp_path / "run")
    assert (done.returncode, done.stderr.count("\n")) == (70, 1)
    assert "not enough memory" in done.stderr


def test_debug_shows_the_traceback(tmp_path):
    for arguments in (("--debug", "filters"), ("filters", "--debug")):
        done = dsfcnn(*arguments, "--out", tmp_path / "out", "--group", "E8")
        assert "Traceback" in done.stderr
        assert "GroupError" in done.stderr


def test_bench_measures_each_backend():
    done = dsfcnn("bench", "--model", "steerable-digits", "--group", "C4", "--width", "0.1", "--rounds", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(speed["model"], speed["backend"]) for speed in found] == [("steerable-digits", "dense"), ("steerable-digits", "auto")]
    assert all(speed["seconds_per_megapixel"] > 0 and speed["steps_per_second"] > 0 for speed in found)


@pytest.fixture
def small_slide(tmp_path):
    """A tiled TIFF of pink tissue on glass at 0.5 um per pixel, whose description names somebody."""
    picture = np.full((512, 768, 3), 244, np.uint8)
    picture[100:400, 200:600] = (225, 160, 200)
    options = {"resolution": (20_000, 20_000), "resolutionunit": "CENTIMETER", "description": "Mrs Patient", "metadata": None}
    tifffile.imwrite(tmp_path / "slide.tif", picture, tile=(256, 256), photometric="rgb", **options)
    return tmp_path / "slide.tif"


def test_info_says_what_a_slide_is(small_slide):
    found = json.loads(dsfcnn("info", small_slide, "--json").stdout)
    assert (found["width"], found["height"], found["vendor"], found["reader"]) == (768, 512, "generic-tiff", "openslide")
    assert (found["mpp"], found["mpp_source"]) == (pytest.approx(0.5), "TIFF resolution tag")
    assert found["levels"] == [{"width": 768, "height": 512, "downsample": 1.0}]
    assert found["tissue"]["area_mm2"] == pytest.approx(300 * 400 * 0.25e-6, rel=0.05)
    text = dsfcnn("info", small_slide, "--slide-mpp", 0.25)
    assert "0.25 um per pixel, from --slide-mpp" in text.stdout
    assert "Patient" not in text.stdout + json.dumps(found)
    assert text.stderr == ""


def test_info_of_a_picture_without_resolution(tmp_path):
    Image.new("RGB", (30, 20), "white").save(tmp_path / "a.png")
    done = dsfcnn("info", tmp_path / "a.png")
    assert done.returncode == 0
    assert "30 x 20 pixels" in done.stdout
    assert "give --slide-mpp" in done.stdout
    assert json.loads(dsfcnn("info", tmp_path / "a.png", "--json").stdout)["mpp"] is None


def test_info_of_a_bad_file_is_one_line(tmp_path, small_slide):
    (tmp_path / "bad\n.svs").write_bytes(small_slide.read_bytes()[:200])
    os.mkfifo(tmp_path / "fifo.svs")
    cases = [("bad\n.svs", 65, "damaged TIFF"), ("fifo.svs", 66, "regular file"), ("none.svs", 66, "No such file")]
    for name, code, words in cases:
        done = dsfcnn("info", tmp_path / name)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert words in done.stderr
    assert dsfcnn("info", small_slide, "--slide-mpp", 0).returncode == 2


def test_info_does_not_import_torch(small_slide):
    code = """
import sys
from dsfcnn.cli.main import main
try:
    main(["info", sys.argv[1]])
except SystemExit as stop:
    sys.exit(stop.code or ("torch" in sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", code, small_slide], capture_output=True, timeout=60).returncode == 0
