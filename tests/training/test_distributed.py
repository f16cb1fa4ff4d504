"""Several processes train one model as one process would."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from dsfcnn.errors import UsageError
from dsfcnn.training.distributed import Processes
from training.launch import Started, free_port


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
    """The losses of a run on ``count`` processes, as each of them saw them, and its folder."""

    def run(config, count, *changes):
        port, out = str(free_port()), tmp_path / f"run{count}"
        started = []
        for number in range(count):
            rank = {"RANK": str(number), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} if count > 1 else {}
            arguments = ["train", config, *changes, "workers=0", "--out", out]
            started.append(Started(tmp_path / f"{count}-{number}.log", arguments, [Note(tmp_path / f"{count}-{number}.txt")], rank))
        for process in started:
            done = process.wait(300)
            assert done.code == 0, done.said
        return [np.loadtxt(tmp_path / f"{count}-{number}.txt") for number in range(count)], out

    return run


CHANGES = ["precision=float64", "steps=20", "batch=4", "validate_every=20", "checkpoint_every=20"]


def test_two_processes_have_the_losses_of_one(nuclei, together):
    """Batch norm over both, Dice sums over both, the same batch: the same training."""
    (alone,), folder = together(nuclei, 1, *CHANGES)
    (first, second), shared = together(nuclei, 2, *CHANGES)
    assert len(alone) == 20
    assert (first == second).all()
    assert np.abs(first - alone).max() < 1e-6
    assert alone.max() - alone.min() > 0.01, "nothing was learned, so nothing was compared"
    weights = [torch.cat([t.flatten() for t in _weights(f).values()]) for f in (folder, shared)]
    assert (weights[0] - weights[1]).abs().max() < 1e-6


def _weights(folder):
    from safetensors.torch import load_file

    return {name: tensor for name, tensor in load_file(folder / "best" / "model.safetensors").items() if tensor.is_floating_point()}


def test_class_weights_are_those_of_the_whole_batch(tumour, together):
    changes = ["precision=float64", "steps=3", "options.dropout=0", "class_weights=[1.0, 5.0]", "batch=6", "validate_every=3"]
    (alone,), _ = together(tumour, 1, *changes)
    (first, _), _ = together(tumour, 2, *changes)
    assert np.abs(first - alone).max() < 1e-9


def test_batch_norms_can_be_left_alone(tumour, together):
    """Then the losses differ from one process's: the check above can fail."""
    changes = ["precision=float64", "steps=2", "options.dropout=0", "synchronise=false", "validate_every=2"]
    (alone,), _ = together(tumour, 1, *changes)
    (first, _), _ = together(tumour, 2, *changes)
    assert np.abs(first - alone).max() > 1e-6


def test_a_batch_that_does_not_divide(monkeypatch, refused):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with refused(UsageError, "a multiple of 2"):
        Processes().share(3)
    assert Processes().share(4) == (0, 2)


def test_torchrun_and_the_death_of_one_process(tumour, tmp_path):
    """All stop with a message; started again with --resume, they finish."""
    out = tmp_path / "run"

    def torchrun(*more):
        runner = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port", str(free_port()), "-m"]
        command = [*runner, "dsfcnn", "train", str(tumour), "workers=0", "options.dropout=0", "--threads", "1", "--out", str(out), *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    steps = "steps=100000"
    run = torchrun(steps, "validate_every=100000")
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
