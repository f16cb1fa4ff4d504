"""Checkpoints: everything that a run needs to go on to the same bytes, in one safetensors file; nothing is ever unpickled.

A file under its final name is complete. Two are kept, so that a damaged one costs no more than the steps since the one before.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from dsfcnn import __version__
from dsfcnn.errors import DataError, UsageError
from dsfcnn.files import atomic_write, make_folder

_FORMAT = 1
_KEPT = 2
_INTERRUPTED = "interrupted.safetensors"


@dataclass
class State:
    """A run between two steps."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    averaged: nn.Module | None  # the moving average of the weights
    step: int = 0  # steps done
    best: float | None = None
    history: list[dict[str, float]] = field(default_factory=list)  # rows of metrics.csv
    losses: list[float] = field(default_factory=list)  # of the steps since the last row

    def judged(self) -> nn.Module:
        """The weights that are validated and kept."""
        return self.averaged or self.model


def save_state(state: State, folder: Path, fingerprint: str, interrupted: bool = False) -> None:
    """Write a checkpoint and remove those that are too old. One made by an interruption goes when the next regular one is there."""
    tensors = _weights(state)
    for number, values in state.optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser/{number}/{name}": value for name, value in values.items()}
    for name, tensor in tensors.items():
        if not _is_finite(tensor):
            raise DataError(f"step {state.step}: {name} is not finite; lower learning_rate and start again with another --out")
    about = {"format": _FORMAT, "dsfcnn": __version__, "fingerprint": fingerprint}
    about |= {"step": state.step, "best": state.best, "history": state.history, "losses": state.losses}
    name = _INTERRUPTED if interrupted else f"step-{state.step:08d}.safetensors"
    content = save({key: value.detach().contiguous() for key, value in tensors.items()}, {"dsfcnn": json.dumps(about)})
    make_folder(folder)
    with atomic_write(folder / name) as stream:
        stream.write(content)
    if not interrupted:
        (folder / _INTERRUPTED).unlink(missing_ok=True)
        for old in _regular(folder)[:-_KEPT]:
            old.unlink()


def _weights(state: State) -> dict[str, Tensor]:
    """What every checkpoint of this run has, before the first step as well as later."""
    tensors = {f"model/{name}": tensor for name, tensor in state.model.state_dict().items()}
    if state.averaged is not None:
        tensors |= {f"averaged/{name}": tensor for name, tensor in state.averaged.state_dict().items()}
    return {**tensors, "random": torch.get_rng_state()}


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def _regular(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*.safetensors") if re.fullmatch(r"step-\d{8}\.safetensors", path.name))


def has_checkpoint(folder: Path) -> bool:
    return bool(_regular(folder)) or (folder / _INTERRUPTED).exists()


def restore(state: State, folder: Path, fingerprint: str) -> list[str]:
    """Load the furthest whole checkpoint into ``state``; warnings about damaged ones. Without any checkpoint nothing changes."""
    whole, damaged = [], []
    for path in [*_regular(folder), folder / _INTERRUPTED]:
        if path.exists():
            try:
                whole.append((*_read(path), path))
            except _Damaged as error:
                damaged.append(f"{path}: {error}")
    if not whole:
        if damaged:
            raise DataError(f"{damaged[-1]}, and no other checkpoint is left; start again with another --out")
        return []
    about, tensors, path = max(whole, key=lambda candidate: candidate[0]["step"])
    _expect_fitting(state, tensors, path)
    if about["fingerprint"] != fingerprint:
        raise UsageError(f"data: not the images that {path} was trained on; give those, or another --out")
    try:
        _load(state, about, tensors)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise DataError(f"{path}: does not fit this run ({' '.join(str(error).split())[:120]}); start again with another --out") from error
    return [f"{problem}; going on from {path.name}" for problem in damaged]


class _Damaged(Exception):
    """A file that is no whole checkpoint."""


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        content = path.read_bytes()  # safetensors opens no path that is not UTF-8
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        about = json.loads(header["__metadata__"]["dsfcnn"])
        newer, _ = int(about["format"]) > _FORMAT, int(about["step"])
        tensors = {} if newer else load(content)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise _Damaged("not a safetensors file of a run, or a damaged one") from error
    if newer:
        made_by = " ".join(str(about.get("dsfcnn", "unknown")).split())[:40]
        raise DataError(f"{path}: made by version {made_by}, needs dsfcnn >= {made_by} but this is {__version__}; upgrade dsfcnn")
    for name, tensor in tensors.items():
        if not _is_finite(tensor):
            raise _Damaged(f"{name} has numbers that are not finite")
    return about, tensors


def _expect_fitting(state: State, tensors: dict[str, Tensor], path: Path) -> None:
    """The tensors of a checkpoint are those of this model, and the optimiser's are those of its weights."""
    expected = {name: _describe(tensor) for name, tensor in _weights(state).items()}
    moments = {name: _describe(tensor) for name, tensor in tensors.items() if name.startswith("optimiser/")}
    weights = [_describe(weight) for group in state.optimiser.param_groups for weight in group["params"]]
    for name in moments:
        _, number, kind = (*name.split("/"), "", "")[:3]
        known = number.isdigit() and int(number) < len(weights)
        expected[name] = "a weight's" if not known else "float32 ()" if kind == "step" else weights[int(number)]
    found = {name: _describe(tensor) for name, tensor in tensors.items()}
    differences = [
        f"{name}: expected {expected.get(name, 'nothing')}, found {found.get(name, 'nothing')}"
        for name in dict.fromkeys([*expected, *found])
        if expected.get(name) != found.get(name)
    ]
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        shown = " ".join(", ".join(differences[:3]).split())
        raise DataError(f"{path}: a checkpoint of another model ({shown}{more}); give its own folder to --resume")


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _load(state: State, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

    state.model.load_state_dict(part("model/"))
    if state.averaged is not None:
        state.averaged.load_state_dict(part("averaged/"))
    moments: dict[int, dict[str, Tensor]] = {}
    for key, value in part("optimiser/").items():
        number, _, name = key.partition("/")
        moments.setdefault(int(number), {})[name] = value
    state.optimiser.load_state_dict({**state.optimiser.state_dict(), "state": moments})
    torch.set_rng_state(tensors["random"])
    state.step, state.best, state.history, state.losses = (about[key] for key in ("step", "best", "history", "losses"))
