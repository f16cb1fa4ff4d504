"""``dsfcnn predict`` and ``dsfcnn export`` as a user meets them: exit codes, one line for a mistake, and going on after a kill."""

import os
import resource
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest
from PIL import Image

import dsfcnn
from dsfcnn.cli.predict import _Signals
from dsfcnn.errors import Interrupted


def command(*arguments):
    return [sys.executable, "-m", "dsfcnn", *map(str, arguments)]


def run(*arguments):
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=300)


@pytest.fixture
def model(tmp_path, as_trained):
    dsfcnn.save_model(as_trained(dsfcnn.create("cnn-nuclei", width=0.1)), tmp_path / "model", mpp=0.25, tile_margin=32)
    return tmp_path / "model"


@pytest.fixture
def image(tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (260, 300, 3), np.uint8)).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def results(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "run.json"}


def test_a_run_a_bad_input_and_a_second_run(model, image, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    done = run("predict", image, tmp_path / "bad.png", "--model", model, "--out", tmp_path / "out", "--workers", 0)
    assert done.returncode == 65
    assert [line for line in done.stderr.splitlines() if line.startswith("error: ")] == [
        line for line in done.stderr.splitlines() if "bad.png" in line
    ]
    assert "Traceback" not in done.stderr
    assert (tmp_path / "out" / "a" / "nuclei.geojson").exists()
    again = run("predict", image, "--model", model, "--out", tmp_path / "out")
    assert (again.returncode, again.stderr.count("error: ")) == (73, 1)
    assert "--resume" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--model", "nucleus"), 2, "a model folder"),
        (("--model", "x" * 300), 2, "a model folder"),
        (("--region", "1,2,3"), 2, "x,y,width,height"),
        (("--resume", "--overwrite"), 2, "one of them"),
        (("--slide-mpp", "0"), 2, "--slide-mpp"),
        (("--mpp", "nan"), 2, "--mpp"),
    ],
)
def test_a_mistake_is_one_line(image, tmp_path, arguments, code, words):
    done = run("predict", image, "--out", tmp_path / "out", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert words in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_environment_chooses_the_backend(image, tmp_path, monkeypatch):
    monkeypatch.setenv("DSFCNN_BACKEND", "fast")
    done = run("predict", image, "--out", tmp_path / "out")
    assert (done.returncode, "no backend 'fast'" in done.stderr) == (2, True)


def test_odd_names_in_a_plain_environment(model, tmp_path):
    """Spaces, quotes, line breaks, dashes, bytes that are no text, long ones; no HOME, no locale."""
    names = [b"a b", b"quote'\"", b"line\nbreak", b"-dash", b"caf\xe9", "\u00e4\u6f22".encode(), b"x" * 200, b"a.b.c"]
    folder = tmp_path / "in"
    folder.mkdir()
    for name in names:
        with open(os.fsencode(folder) + b"/" + name + b".png", "wb") as stream:
            Image.new("RGB", (20, 20), "white").save(stream, "PNG")
    arguments = command("predict", folder, "--model", model, "--out", tmp_path / "out \n", "--workers", 0)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "LC_ALL": "C"}
    done = subprocess.run(arguments, capture_output=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    found = set(os.listdir(os.fsencode(tmp_path / "out \n"))) - {b".lock", b"summary.csv"}
    assert found == set(names)
    assert done.stdout.count(b"\n") == 1
    assert b"Traceback" not in done.stderr


def test_links_pipes_and_folders(model, image, tmp_path):
    """Told at once, without waiting for a pipe; in a folder, the rest is done."""
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    done = run("predict", tmp_path / "pipe.png", "--model", model, "--out", tmp_path / "out", "--workers", 0)
    assert (done.returncode, done.stderr.count("error: ")) == (66, 1), done.stderr
    done = run("export", "--model", model, "--out", tmp_path, "--overwrite")
    assert (done.returncode, done.stderr.count("\n")) == (73, 1), done.stderr
    done = run("predict", tmp_path, "--model", model, "--out", tmp_path.parent / f"{tmp_path.name}-out", "--workers", 0)
    assert (done.returncode, done.stderr.count("error: ")) == (65, 3), done.stderr
    assert done.stderr.count("cannot be read") == 2


def test_a_full_disk_can_be_mended(model, image, tmp_path):
    options = ("predict", image, "--model", model, "--tile", 128, "--threads", 1, "--workers", 1)
    assert run(*options, "--out", tmp_path / "whole").returncode == 0
    largest = max(path.stat().st_size for path in (tmp_path / "whole" / "a").iterdir())
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (largest - 1,) * 2)  # the last of the results does not fit
    done = subprocess.run(command(*options, "--out", tmp_path / "out"), capture_output=True, text=True, timeout=300, preexec_fn=limit)
    assert (done.returncode, done.stderr.count("error: ")) == (74, 1), done.stderr
    assert "the disk is full" in done.stderr
    assert not [path for path in (tmp_path / "out").rglob(".*") if path.name not in (".lock", ".state")]
    assert run(*options, "--out", tmp_path / "out", "--resume").returncode == 0
    assert results(tmp_path / "out") == results(tmp_path / "whole")


def wait_for_tiles(folder, process, count):
    while len(list(folder.glob("a/.state/probability-*"))) < count and process.poll() is None:
        time.sleep(0.01)


@pytest.mark.parametrize(("signals", "code"), [([signal.SIGTERM], 143), ([signal.SIGKILL, signal.SIGKILL], -9)])
def test_a_killed_run_goes_on_to_the_same_bytes(model, image, tmp_path, signals, code):
    options = ("predict", image, "--model", model, "--tile", 64, "--threads", 1)
    assert run(*options, "--out", tmp_path / "whole", "--workers", 0).returncode == 0
    for number, kill in enumerate(signals):
        more = ["--resume"] if number else []
        process = subprocess.Popen(command(*options, "--out", tmp_path / "out", *more), stderr=subprocess.PIPE, text=True)
        wait_for_tiles(tmp_path / "out", process, 5 * (number + 1))
        os.kill(process.pid, kill)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == code, said
        assert kill == signal.SIGKILL or said.splitlines()[-1].endswith("continue with --resume")
    refused = run("predict", image, "--model", model, "--tile", 128, "--out", tmp_path / "out", "--resume")
    assert (refused.returncode, "begun with tile 64" in refused.stderr) == (2, True)
    assert run(*options, "--out", tmp_path / "out", "--resume").returncode == 0
    assert results(tmp_path / "out") == results(tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("answer", [None, ValueError("cannot be closed half-written")])
def test_a_signal_is_told_whatever_is_made_of_it(number, answer):
    """A library in whose middle it came may raise an error of its own, or none."""

    def interrupted():
        with _Signals():
            try:
                os.kill(os.getpid(), number)
                time.sleep(60)
            except Interrupted:
                if answer is not None:
                    raise answer from None

    before = signal.getsignal(number)
    with pytest.raises(Interrupted) as told:
        interrupted()
    assert told.value.exit_code == 128 + number
    assert signal.getsignal(number) is before


def test_export_and_predict_with_the_file(model, image, tmp_path):
    assert run("export", "--model", model, "--out", tmp_path / "m.onnx").returncode == 0
    assert run("export", "--model", model, "--out", tmp_path / "m.onnx").returncode == 73
    done = run("predict", image, "--model", tmp_path / "m.onnx", "--out", tmp_path / "out", "--workers", 0)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "a" / "instances.png").exists()
