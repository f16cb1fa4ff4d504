"""A run through the command line: complete, the same each time, and not to be killed."""

import csv
import fcntl
import hashlib
import json
import os
import shutil
import signal
import sys

import numpy as np
import pytest
import safetensors
import yaml
from PIL import Image

from dsfcnn.models import load_model
from dsfcnn.training.config import read_config
from dsfcnn.training.report import write_events
from dsfcnn.training.run import Run
from training.conftest import contents
from training.launch import disk_full_at_fsync, killed_at_fsync, nan_at_step, signal_at_step, worker_killed_at_batch


def said(done, code, *words):
    """One line for people, beside those of validations."""
    assert done.code == code, done.said
    errors = [line for line in done.said.splitlines() if not line.startswith(("step ", "warning: "))]
    assert len(errors) == 1, done.said
    assert errors[0].startswith("error: ")
    assert "; " in errors[0]
    for word in words:
        assert word in errors[0], errors[0]


def test_a_run_is_complete(whole, tumour):
    names = set(contents(whole))
    assert names == {
        ".lock",
        "best/README.md",
        "best/config.json",
        "best/model.safetensors",
        "checkpoints/step-00000004.safetensors",
        "checkpoints/step-00000006.safetensors",
        "config.yaml",
        "curves.png",
        "examples.png",
        "metrics.csv",
    }
    rows = list(csv.DictReader((whole / "metrics.csv").open()))
    assert [row["step"] for row in rows] == ["3", "6"]
    assert all(0 <= float(row[name]) <= 1 for row in rows for name in ("auc", "accuracy"))
    assert all(np.isfinite(float(row["loss"])) for row in rows)
    for name in ("curves.png", "examples.png"):
        with Image.open(whole / name) as picture:
            assert len(picture.convert("RGB").getcolors(1 << 20)) > 20, "an empty picture"
    settings = yaml.safe_load((whole / "config.yaml").read_text())
    assert {**settings, **yaml.safe_load(tumour.read_text())} == settings
    record = json.loads((whole / "run.json").read_text())
    assert {"dsfcnn", "torch", "fingerprint", "seed", "mpp", "device", "steps", "hours"} <= set(record)
    assert record["steps"] == 6


def test_the_best_model_is_a_model_folder_with_a_card(whole):
    model = load_model(whole / "best")
    assert model.architecture["name"] == "dsf-tumour"
    assert json.loads((whole / "best" / "config.json").read_text())["mpp"] == 0.97
    card = (whole / "best" / "README.md").read_text()
    for word in ("C4", "Licence of the data", "| auc |", "seed 0", "dsfcnn train config.yaml", "steps 6", "not for diagnosis"):
        assert word in card


def test_a_final_fit_validates_nothing_and_keeps_the_last_weights(train, tumour, tmp_path, monkeypatch):
    monkeypatch.chdir(tumour.parents[1])
    config = tumour.relative_to(tumour.parents[1])
    done = train(config, tmp_path / "run", "final_fit=true", f"cache={tmp_path}/kept")
    assert done.code == 0, done.said
    assert [set(row) for row in csv.DictReader((tmp_path / "run" / "metrics.csv").open())] == 2 * [{"step", "loss", "learning_rate"}]
    assert not (tmp_path / "run" / "examples.png").exists()
    card = (tmp_path / "run" / "best" / "README.md").read_text()
    assert "split train and valid" in card
    assert "None: a final fit of 6 steps" in card
    assert f"dsfcnn train {config} final_fit=true cache=kept" in card, "as it can be typed there again"
    assert str(tmp_path) not in card
    with safetensors.safe_open(tmp_path / "run" / "checkpoints" / "step-00000006.safetensors", "np") as last:
        averaged = {name.removeprefix("averaged/"): last.get_tensor(name) for name in set(last.keys()) if name.startswith("averaged/")}
    with safetensors.safe_open(tmp_path / "run" / "best" / "model.safetensors", "np") as best:
        assert set(best.keys()) == set(averaged)
        assert all(np.array_equal(best.get_tensor(name), weight) for name, weight in averaged.items())


def test_events_hold_the_validations(whole):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(whole / "events"))
    events.Reload()
    rows = list(csv.DictReader((whole / "metrics.csv").open()))
    for tag, name in (("training/loss", "loss"), ("validation/auc", "auc")):
        found = events.Scalars(tag)
        assert [event.step for event in found] == [3, 6]
        assert [event.value for event in found] == pytest.approx([float(row[name]) for row in rows], rel=1e-5)


def test_without_tensorboard_nothing_is_missed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    write_events(tmp_path / "events", {"step": 1, "loss": 2.0})
    assert not (tmp_path / "events").exists()


def test_the_same_seed_gives_the_same_bytes_whatever_the_workers(train, tumour, whole, tmp_path):
    assert train(tumour, tmp_path / "run").code == 0
    assert contents(tmp_path / "run") == contents(whole)
    assert train(tumour, tmp_path / "none", "workers=0").code == 0
    for name in ("metrics.csv", "best/model.safetensors"):
        assert (tmp_path / "none" / name).read_bytes() == (whole / name).read_bytes()


def test_another_seed_gives_other_weights(train, tumour, whole, tmp_path):
    assert train(tumour, tmp_path / "run", "seed=1", "steps=1").code == 0
    with safetensors.safe_open(tmp_path / "run" / "best" / "model.safetensors", "pt") as ours:
        name = next(name for name in ours.keys() if name.endswith("weight"))  # noqa: SIM118
        with safetensors.safe_open(whole / "best" / "model.safetensors", "pt") as theirs:
            assert not ours.get_tensor(name).equal(theirs.get_tensor(name))


def test_killed_again_and_again_it_comes_to_the_same_bytes(train, tumour, whole, tmp_path):
    """Before a file has its final name, and after; each time it gets a little further."""
    resume = []
    for number in (4, 9, 12):
        done = train(tumour, tmp_path / "run", *resume, mishaps=[killed_at_fsync(number)])
        assert done.code == -signal.SIGKILL, done.said
        resume = ["--resume"] if (tmp_path / "run" / "config.yaml").exists() else []
    assert train(tumour, tmp_path / "run", "--resume").code == 0
    assert contents(tmp_path / "run") == contents(whole)


@pytest.mark.parametrize(("number", "step"), [(signal.SIGTERM, 3), (signal.SIGINT, 0)])
def test_a_signal_saves_and_says_how_to_go_on(number, step, train, tumour, whole, tmp_path):
    done = train(tumour, tmp_path / "run", mishaps=[signal_at_step(step, number)])
    said(done, 128 + number, f"--resume --out {tmp_path / 'run'}")
    assert (tmp_path / "run" / "checkpoints" / "interrupted.safetensors").exists()
    assert train(tumour, tmp_path / "run", "--resume").code == 0
    assert contents(tmp_path / "run") == contents(whole)


def test_a_second_interrupt_stops_at_once(train, tumour, tmp_path):
    done = train(tumour, tmp_path / "run", mishaps=[signal_at_step(1, signal.SIGINT, signal.SIGINT)])
    assert done.code == 130
    assert not (tmp_path / "run" / "checkpoints" / "interrupted.safetensors").exists()


def test_a_full_disk_can_be_mended(train, tumour, whole, tmp_path):
    done = train(tumour, tmp_path / "run", mishaps=[disk_full_at_fsync(7)])
    said(done, 74, "the disk is full; make room")
    assert not [path for path in (tmp_path / "run").rglob(".*") if path.name != ".lock"]
    assert train(tumour, tmp_path / "run", "--resume").code == 0
    assert contents(tmp_path / "run") == contents(whole)


def test_a_dead_worker_costs_nothing(train, tumour, whole, tmp_path):
    done = train(tumour, tmp_path / "run", mishaps=[worker_killed_at_batch(3)])
    assert done.code == 0, done.said
    assert contents(tmp_path / "run") == contents(whole)


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_state(train, tumour, whole, tmp_path):
    done = train(tumour, tmp_path / "run", mishaps=[nan_at_step(3)])
    said(done, 65, "step 3: the loss is nan on ", ".png", "learning_rate")
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["step-00000002.safetensors"]
    assert train(tumour, tmp_path / "run", "--resume").code == 0  # this time without the mishap
    assert contents(tmp_path / "run") == contents(whole)


def test_a_damaged_checkpoint_costs_the_steps_since_the_one_before(train, tumour, whole, tmp_path):
    assert train(tumour, tmp_path / "run", mishaps=[nan_at_step(5)]).code == 65
    newest = tmp_path / "run" / "checkpoints" / "step-00000004.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    done = train(tumour, tmp_path / "run", "--resume")
    assert done.code == 0
    assert f"warning: {newest}: not a safetensors file of a run, or a damaged one; going on from step-00000002" in done.said
    assert contents(tmp_path / "run") == contents(whole)
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.write_bytes(b"")
    said(train(tumour, tmp_path / "run", "--resume"), 65, "no other checkpoint is left")


def test_two_runs_in_one_folder(whole, train, tumour):
    with (whole / ".lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        for arguments in ([], ["--resume"]):
            said(train(tumour, whole, *arguments), 75, "another run is at work")


def test_an_existing_run_is_not_overwritten(whole, train, tumour, tmp_path):
    before = contents(whole)
    said(train(tumour, whole), 73, "exists already", "--resume")
    assert contents(whole) == before
    (tmp_path / "best").mkdir()  # not even half of one
    said(train(tumour, tmp_path), 73, str(tmp_path / "best"))


def test_a_finished_run_that_goes_on_changes_nothing(whole, train, tumour):
    before = contents(whole)
    assert train(tumour, whole, "--resume", "workers=0").code == 0
    assert contents(whole) == before


@pytest.mark.parametrize("change", ["seed=3", "options.dropout=0.1", "batch=2"])
def test_a_run_goes_on_with_its_own_settings_only(change, whole, train, tumour):
    before = contents(whole)
    said(train(tumour, whole, change, "--resume"), 2, f"{change.partition('=')[0].partition('.')[0]}: is ", "was started with")
    assert contents(whole) == before


def test_a_run_goes_on_with_its_own_data_only(train, patches, tumour, whole, tmp_path):
    other, run = tmp_path / "data", tmp_path / "run"
    shutil.copytree(patches, other)
    assert train(tumour, run, f"data={other}", "steps=2").code == 0
    next((other / "train" / "normal").iterdir()).unlink()
    said(train(tumour, run, f"data={other}", "steps=2", "--resume"), 2, "data: not the images")


def test_a_file_of_another_size_is_other_data(train, patches, tumour, tmp_path):
    other, run = tmp_path / "data", tmp_path / "run"
    shutil.copytree(patches, other)
    assert train(tumour, run, f"data={other}", "steps=2").code == 0
    last = max((other / "valid" / "tumour").iterdir())
    Image.new("RGB", (20, 20)).save(last)
    said(train(tumour, run, f"data={other}", "steps=2", "--resume"), 2, "data: not the images")


def test_the_record_names_the_best_weights(whole):
    record = json.loads((whole / "run.json").read_text())
    assert record["best_sha256"] == hashlib.sha256((whole / "best" / "model.safetensors").read_bytes()).hexdigest()


def test_a_run_is_not_charged_for_what_its_process_did_before(tumour, tmp_path, monkeypatch):
    used = iter((5 * 3600.0, 7 * 3600.0))
    monkeypatch.setattr("dsfcnn.training.run._cpu_seconds", lambda: next(used))
    Run(read_config(tumour, ["steps=1", "workers=0"]), tmp_path / "run", tell=print).train(False, lambda state, loss: None)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["cpu_hours"] == 2


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("part", ["images", "labels"])
def test_a_damaged_file_ends_training_by_its_name(part, workers, train, nuclei, squares, tmp_path):
    """And at once: workers of a run that fails must not keep it waiting."""
    shutil.copytree(squares, tmp_path / "data")
    path = max((tmp_path / "data" / "train" / part).iterdir())
    path.write_bytes(path.read_bytes()[:-100])
    done = train(nuclei, tmp_path / "run", f"data={tmp_path / 'data'}", f"workers={workers}")
    said(done, 65, str(path), "a damaged")
    assert not (tmp_path / "run" / "best").exists()


def test_there_must_be_a_run_to_go_on_with(train, tumour, tmp_path):
    said(train(tumour, tmp_path / "none", "--resume"), 2, "no run to go on with")
    assert not (tmp_path / "none").exists()


def test_nothing_is_written_into_the_data(train, tumour, patches):
    said(train(tumour, patches / "run"), 2, "lies in the data")
    assert not (patches / "run").exists()


def test_mistakes_are_told_before_work_begins(train, tumour, tmp_path):
    said(train(tumour, tmp_path / "a", "select=f1"), 2, "select: no metric 'f1'; use one of auc, accuracy")
    said(train(tumour, tmp_path / "b", "init=/nowhere"), 2, 'no model "/nowhere"')
    said(train(tmp_path / "none.yaml", tmp_path / "c"), 66, "no such file")
    said(train(tmp_path, tmp_path / "c"), 66, "not a regular file")
    said(train(tumour, tmp_path / "c", "group=Z8"), 2, "group, width or options: no group 'Z8'; use C1")
    said(train(tumour, tmp_path / "d", "bacth=3"), 2, "no setting 'bacth'; did you mean 'batch'?")
    assert not any((tmp_path / name / "config.yaml").exists() for name in "abcd")


def test_a_configuration_whose_name_is_no_text(train, tumour, tmp_path):
    odd = tmp_path / os.fsdecode(b"\xff.yaml")
    shutil.copy(tumour, odd)
    done = train(odd, tmp_path / "run", "steps=1")
    assert done.code == 0, done.said
    assert r"\udcff.yaml" in (tmp_path / "run" / "best" / "README.md").read_text()


def test_fine_tuning_starts_from_a_model(train, tumour, whole, tmp_path):
    assert train(tumour, tmp_path / "run", f"init={whole / 'best'}", "learning_rate=1e-9", "steps=1", "average=0").code == 0
    ours, theirs = (dict(load_model(folder / "best").named_parameters()) for folder in (tmp_path / "run", whole))
    assert all(ours[name].sub(weight).abs().max() < 1e-7 for name, weight in theirs.items())
    said(train(tumour, tmp_path / "other", f"init={whole / 'best'}", "width=0.2"), 65, "init: ", "another architecture", "expected")
    said(train(tumour, tmp_path / "turns", f"init={whole / 'best'}", "group=D2"), 65, "group: expected D2, found C4")


def test_a_run_goes_on_without_the_model_that_it_began_with(train, tumour, whole, tmp_path):
    first = tmp_path / "first"
    shutil.copytree(whole / "best", first)
    assert train(tumour, tmp_path / "run", f"init={first}").code == 0
    shutil.rmtree(first)
    assert train(tumour, tmp_path / "run", f"init={first}", "--resume").code == 0


def test_validation_images_of_one_class(train, tumour, patches, tmp_path):
    shutil.copytree(patches, tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / "valid" / "normal")
    there = f"data={tmp_path / 'data'}"
    said(train(tumour, tmp_path / "a", there), 65, "all 2 images to judge by are tumour", "select=accuracy")
    assert not (tmp_path / "a" / "config.yaml").exists()
    assert train(tumour, tmp_path / "b", there, "select=accuracy").code == 0
    assert "auc" not in (tmp_path / "b" / "metrics.csv").read_text()


@pytest.mark.parametrize("precision", ["bfloat16", "float64"])
def test_nuclei_in_other_precisions(precision, train, nuclei, tmp_path):
    done = train(nuclei, tmp_path / "run", f"precision={precision}", "clip=1.0")
    assert done.code == 0, done.said
    rows = list(csv.DictReader((tmp_path / "run" / "metrics.csv").open()))
    assert all(np.isfinite(float(row["loss"])) for row in rows)
    assert {"pq", "aji", "dice"} & set(rows[0])
