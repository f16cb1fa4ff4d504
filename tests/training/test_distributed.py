"""Several processes train one model as one process would."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from dsfcnn.errors import UsageError
from dsfcnn.training.distributed import Processes
from training.conftest import contents
from training.launch import Started, free_port, signal_at_step


def losses_into(path):
    """Every step's loss, in full."""
    from dsfcnn.training import loop

    real = loop.steps

    def steps(*arguments):
        for value in real(*arguments):
            with open(path, "a") as stream:
                stream.write(f"{value!r}\n")
            yield value

    loop.steps = steps


class Note:
    def __init__(self, path):
        self.path = str(path)

    def __call__(self):
        losses_into(self.path)


@pytest.fixture
def together(tmp_path):
    """Start a run on ``count`` processes, wait for all, and tell how they ended. ``mishaps`` befall the last."""

    def run(config, out, count, *changes, mishaps=()):
        port, started = str(free_port()), []
        for number in range(count):
            rank = {"RANK": str(number), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} if count > 1 else {}
            arguments = ["train", config, *changes, "workers=0", "--out", out]
            what = [Note(tmp_path / f"{out.name}-{number}.txt"), *(mishaps if number == count - 1 else ())]
            started.append(Started(tmp_path / f"{out.name}-{number}.log", arguments, what, rank))
        return [process.wait(300) for process in started]

    return run


@pytest.fixture
def losses(together, tmp_path):
    """Of a run on ``count`` processes, as each of them saw them."""

    def run(config, count, *changes):
        out = tmp_path / f"run{count}"
        for done in together(config, out, count, *changes):
            assert done.code == 0, done.said
        return [np.loadtxt(tmp_path / f"{out.name}-{number}.txt") for number in range(count)]

    return run


CHANGES = ["precision=float64", "steps=20", "batch=4", "crop=16", "validate_every=20", "checkpoint_every=20"]


def test_two_processes_have_the_losses_of_one(nuclei, losses, tmp_path):
    """Batch norm over both, Dice sums over both, the same batch: the same training."""
    (alone,) = losses(nuclei, 1, *CHANGES)
    first, second = losses(nuclei, 2, *CHANGES)
    assert len(alone) == 20
    assert (first == second).all()
    assert np.abs(first - alone).max() < 1e-6
    assert alone.max() - alone.min() > 0.01, "nothing was learned, so nothing was compared"
    models = [load_file(tmp_path / name / "best" / "model.safetensors") for name in ("run1", "run2")]
    for name, weight in models[0].items():
        torch.testing.assert_close(models[1][name], weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("model", "group"), [("vfcnn-tumour", "C4"), ("hnet-tumour", "null")])
def test_norms_of_the_peers_are_synchronised_too(model, group, tumour, losses):
    changes = ["precision=float64", "steps=3", "options={}", "validate_every=3", f"model={model}", f"group={group}", "width=0.2", "crop=16"]
    (alone,) = losses(tumour, 1, *changes)
    first, second = losses(tumour, 2, *changes)
    assert (first == second).all()
    assert np.abs(first - alone).max() < 1e-9


def test_class_weights_are_those_of_the_whole_batch(tumour, losses):
    changes = ["precision=float64", "steps=3", "options.dropout=0", "class_weights=[1.0, 5.0]", "batch=6", "validate_every=3"]
    (alone,) = losses(tumour, 1, *changes)
    first, _ = losses(tumour, 2, *changes)
    assert np.abs(first - alone).max() < 1e-9


def test_batch_norms_can_be_left_alone(tumour, losses):
    """Then the losses differ from one process's: the check above can fail."""
    changes = ["precision=float64", "steps=2", "options.dropout=0", "synchronise=false", "validate_every=2"]
    (alone,) = losses(tumour, 1, *changes)
    first, _ = losses(tumour, 2, *changes)
    assert np.abs(first - alone).max() > 1e-6


def test_when_one_process_dies_the_others_stop_and_all_can_go_on(tumour, together, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert [done.code for done in together(tumour, whole, 2)] == [0, 0]
    first, second = together(tumour, killed, 2, mishaps=[signal_at_step(4, signal.SIGKILL)])
    assert second.code == -signal.SIGKILL
    assert first.code == 70
    assert first.said.endswith("error: another process of this run has ended; start all again with --resume\n")
    assert [done.code for done in together(tumour, killed, 2, "--resume")] == [0, 0]
    assert contents(killed) == contents(whole)


def test_a_batch_that_does_not_divide(monkeypatch, refused):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with refused(UsageError, "a multiple of 2"):
        Processes().share(3)
    assert Processes().share(4) == (0, 2)


def test_torchrun_and_the_death_of_one_process(tumour, tmp_path):
    """All stop, with a message."""
    out = tmp_path / "run"

    runner = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port", str(free_port()), "-m", "dsfcnn"]
    endless = ["steps=100000", "validate_every=100000", "workers=0", "--threads", "1"]
    command = [*runner, "train", str(tumour), *endless, "--out", str(out)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    checkpoints = out / "checkpoints"
    deadline = time.monotonic() + 300
    while not (checkpoints.exists() and list(checkpoints.glob("step-*"))):
        assert run.poll() is None, run.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    victims = _children(run.pid)
    assert len(victims) == 2
    os.kill(victims[1], signal.SIGKILL)
    said, _ = run.communicate(timeout=120)
    assert run.returncode != 0
    assert "--resume" in said
    assert not any(os.path.exists(f"/proc/{process}") for process in victims)


def _children(process):
    with open(f"/proc/{process}/task/{process}/children") as stream:
        return [int(number) for number in stream.read().split()]
