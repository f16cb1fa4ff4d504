"""Checkpoints: what is saved comes back, what is damaged or foreign is refused, nothing is unpickled."""

import json
import os
import pickle

import pytest
import torch
from safetensors.torch import load, save

from dsfcnn.errors import DataError, UsageError
from dsfcnn.training.config import TrainConfig
from dsfcnn.training.loop import start
from dsfcnn.training.state import restore, save_state

DIGITS = {"task": "digits", "model": "gcnn-digits", "group": "C4", "width": 0.05, "steps": 10}


def trained(steps=1, **more):
    """A state whose weights, optimiser and random numbers have moved."""
    state = start(TrainConfig(**{**DIGITS, "average": 0.9, **more}))
    for _ in range(steps):
        state.model(torch.rand(2, 1, 28, 28)).square().sum().backward()
        state.optimiser.step()
        state.step += 1
        state.losses.append(0.1 + state.step)
    state.best, state.history = 0.3, [{"step": 1, "loss": 1 / 3}]
    return state


def everything(state):
    optimiser = state.optimiser.state_dict()["state"]
    tensors = {f"{number}/{name}": value for number, values in optimiser.items() for name, value in values.items()}
    return {**tensors, **state.model.state_dict(), **{f"averaged {k}": v for k, v in state.averaged.state_dict().items()}}


@pytest.fixture
def folder(tmp_path):
    """Checkpoints of steps 1 and 2."""
    save_state(trained(1), tmp_path, "mine")
    save_state(trained(2), tmp_path, "mine")
    return tmp_path


def edit(path, tensors=lambda found: found, **about):
    """Write a checkpoint again with something changed."""
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    old = json.loads(header["__metadata__"]["dsfcnn"])
    path.write_bytes(save(tensors(load(content)), {"dsfcnn": json.dumps({**old, **about})}))


def test_everything_comes_back(tmp_path):
    state = trained(2)
    save_state(state, tmp_path, "mine")
    following = torch.rand(3)
    other = start(TrainConfig(**{**DIGITS, "average": 0.9, "seed": 5}))
    assert restore(other, tmp_path, "mine") == []
    assert torch.rand(3).equal(following)
    assert (other.step, other.best, other.history, other.losses) == (state.step, state.best, state.history, state.losses)
    mine, its = everything(state), everything(other)
    assert set(mine) == set(its)
    assert [name for name in mine if not mine[name].equal(its[name])] == []


def test_a_folder_whose_name_is_no_text(tmp_path):
    odd = tmp_path / os.fsdecode(b"\xffrun")
    odd.mkdir()
    save_state(trained(2), odd, "mine")
    other = start(TrainConfig(**{**DIGITS, "average": 0.9}))
    assert restore(other, odd, "mine") == []
    assert other.step == 2


def test_the_last_two_are_kept_and_an_interruption_until_the_next(tmp_path):
    for steps in (1, 2):
        save_state(trained(steps), tmp_path, "mine")
    save_state(trained(3), tmp_path, "mine", interrupted=True)
    names = ["interrupted.safetensors", "step-00000001.safetensors", "step-00000002.safetensors"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    state = trained(0)
    restore(state, tmp_path, "mine")
    assert state.step == 3
    save_state(trained(4), tmp_path, "mine")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002.safetensors", "step-00000004.safetensors"]


def test_without_a_checkpoint_nothing_changes(tmp_path):
    state = trained(0)
    assert restore(state, tmp_path / "none", "mine") == []
    assert state.step == 0


def _renamed_pt(path):
    torch.save({"weight": torch.zeros(3)}, path)


def _pickled(path):
    path.write_bytes(pickle.dumps([1, 2]))


def _truncated(path):
    path.write_bytes(path.read_bytes()[:-7])


def _longer_header(path):
    content = path.read_bytes()
    path.write_bytes((1 << 40).to_bytes(8, "little") + content[8:])


def _without_metadata(path):
    path.write_bytes(save(load(path.read_bytes())))


def _not_finite(path):
    def poison(tensors):
        name = next(name for name in tensors if name.startswith("optimiser/") and name.endswith("exp_avg"))
        return {**tensors, name: torch.full_like(tensors[name], float("nan"))}

    edit(path, poison)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "renamed .pt": _renamed_pt,
    "pickle": _pickled,
    "truncated": _truncated,
    "header lies": _longer_header,
    "no metadata": _without_metadata,
    "no step": lambda path: edit(path, step=None),
    "not finite": _not_finite,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_costs_one_checkpoint_and_all_damaged_is_the_end(damage, folder, refused):
    first, second = sorted(folder.iterdir())
    DAMAGES[damage](second)
    state = trained(0)
    (warning,) = restore(state, folder, "mine")
    assert state.step == 1
    assert warning.startswith(f"{second}: ")
    assert warning.endswith(f"; going on from {first.name}")
    DAMAGES[damage](first)
    with refused(DataError, "another --out"):
        restore(trained(0), folder, "mine")


def test_a_newer_format_is_not_guessed_at(folder, refused):
    edit(sorted(folder.iterdir())[-1], format=2, dsfcnn="9.1")
    with refused(DataError, "upgrade dsfcnn"):
        restore(trained(0), folder, "mine")
    with pytest.raises(DataError, match=r"made by version 9\.1, needs dsfcnn >= 9\.1"):
        restore(trained(0), folder, "mine")


def test_other_data_is_refused(folder, refused):
    with refused(UsageError, "give those"):
        restore(trained(0), folder, "other")


@pytest.mark.parametrize("more", [{"width": 0.2}, {"average": 0.0}, {"precision": "float64"}, {"model": "steerable-digits"}])
def test_a_checkpoint_of_another_model_is_refused_with_the_differences(more, folder, refused):
    with refused(DataError, "its own folder"):
        restore(start(TrainConfig(**{**DIGITS, "average": 0.9, **more})), folder, "mine")
    with pytest.raises(DataError, match=r"another model \((\S+: expected .*, found .*){1,3}( and \d+ more)?\)"):
        restore(start(TrainConfig(**{**DIGITS, "average": 0.9, **more})), folder, "mine")


def test_an_optimiser_of_other_shapes_is_refused(folder, refused):
    def shorten(tensors):
        return {**tensors, "optimiser/0/exp_avg": tensors["optimiser/0/exp_avg"].flatten()[:1]}

    edit(sorted(folder.iterdir())[-1], shorten)
    with refused(DataError, "its own folder"):
        restore(trained(0), folder, "mine")


def test_weights_that_are_not_finite_are_never_saved(tmp_path, refused):
    for part in ("model", "averaged"):
        state = trained(1)
        with torch.no_grad():
            next(getattr(state, part).parameters()).view(-1)[0] = float("inf")
        with refused(DataError, "lower learning_rate"):
            save_state(state, tmp_path, "mine")
    assert list(tmp_path.iterdir()) == []


def test_reading_needs_no_pickle(folder, monkeypatch):
    """A pickle in the load path would run what a file says; here unpickling is made impossible first."""
    state = trained(0)
    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(module, name, None)
    restore(state, folder, "mine")
    assert state.step == 2
