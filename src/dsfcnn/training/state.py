"""Checkpoints: everything that a run needs to go on to the same bytes, in one safetensors file; nothing is ever unpickled.

A file under its final name is complete. Two are kept, so that a damaged one costs no more than the steps since the one before.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from dsfcnn.errors import DataError
from dsfcnn.files import atomic_write

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
    for name, tensor in state.model.state_dict().items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise DataError(f"step {state.step}: {name} is not finite; lower the learning rate and go on from the last checkpoint")
    tensors = {f"model/{name}": tensor for name, tensor in state.model.state_dict().items()}
    if state.averaged is not None:
        tensors |= {f"averaged/{name}": tensor for name, tensor in state.averaged.state_dict().items()}
    for number, values in state.optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser/{number}/{name}": value for name, value in values.items()}
    tensors["random"] = torch.get_rng_state()
    about = {"format": _FORMAT, "fingerprint": fingerprint, "step": state.step, "best": state.best, "history": state.history}
    about["losses"] = state.losses
    folder.mkdir(exist_ok=True)
    name = _INTERRUPTED if interrupted else f"step-{state.step:08d}.safetensors"
    content = save({key: value.detach().contiguous() for key, value in tensors.items()}, {"dsfcnn": json.dumps(about)})
    with atomic_write(folder / name) as stream:
        stream.write(content)
    if not interrupted:
        (folder / _INTERRUPTED).unlink(missing_ok=True)
        for old in _regular(folder)[:-_KEPT]:
            old.unlink()


def _regular(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*.safetensors") if re.fullmatch(r"step-\d{8}\.safetensors", path.name))


def restore(state: State, folder: Path, fingerprint: str) -> list[str]:
    """Load the furthest whole checkpoint into ``state``; warnings about damaged ones. Without any checkpoint nothing changes."""
    candidates, warnings = [], []
    for path in [*_regular(folder), folder / _INTERRUPTED]:
        if path.exists():
            try:
                candidates.append((*_read(path), path))
            except DataError as error:
                warnings.append(str(error))
    if not candidates:
        if warnings:
            raise DataError(f"{folder}: no whole checkpoint is left ({warnings[-1]}); start again with another --out")
        return []
    about, tensors, path = max(candidates, key=lambda candidate: candidate[0]["step"])
    if about["fingerprint"] != fingerprint:
        raise DataError(f"{path}: belongs to another run; give its own folder to --resume")
    try:
        _load(state, about, tensors)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise DataError(
            f"{path}: does not fit this model ({' '.join(str(error).split())[:120]}); give its own folder to --resume"
        ) from error
    return warnings


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as stream:
            about = json.loads((stream.metadata() or {})["dsfcnn"])
            if about["format"] > _FORMAT:
                raise DataError(f"{path}: a checkpoint of a newer version; upgrade dsfcnn")
            return about, {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise DataError(f"{path}: a damaged checkpoint; the one before is used") from error


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
