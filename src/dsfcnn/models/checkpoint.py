"""Model folders: config.json, model.safetensors and a card. Reading one executes nothing and believes nothing.

A folder is written file by file, each whole or not at all. Weights are checked before they are used: names, shapes, number types and
that every number is finite; the network is first built without memory, so a config that lies about its size costs nothing.
"""

import json
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from dsfcnn import __version__
from dsfcnn.errors import DataError, DsfcnnError, MissingInputError, UsageError
from dsfcnn.files import atomic_write, claim_outputs
from dsfcnn.models.registry import count_parameters, create, is_number

FORMAT = 1  # of the folder; raised when an older program could not read a new one rightly
_CONFIG, _WEIGHTS, _CARD = "config.json", "model.safetensors", "README.md"
_NORMALISATION = "RGB in [0, 1]"
_LARGEST_MARGIN = 1 << 14  # pixels
_LARGEST_CONFIG, _LARGEST_WEIGHTS = 1 << 20, 1 << 28  # bytes; weights may also be twice what the model needs


def save_model(
    model: nn.Module,
    folder: str | Path,
    *,
    task: str | None = None,
    mpp: float | None = None,
    classes: list[dict[str, str]] | None = None,
    tile_margin: int | None = None,
    decode: dict[str, float] | None = None,
    card: str | None = None,
    overwrite: bool = False,
) -> None:
    """Write a model made by ``create`` as a model folder.

    Args:
        model: in any mode; its weights and statistics are saved in float32.
        folder: made if missing; files of an earlier model there are refused without ``overwrite``.
        task: "tumour", "glands", "nuclei" or "digits"; by default the last part of the model's name.
        mpp: resolution it was trained at, microns per pixel.
        classes: name and colour of what it finds, such as [{"name": "nucleus", "color": "#1f77b4"}].
        tile_margin: pixels of context that a tile needs around it.
        decode: settings by which objects are found in its maps, where they differ from the task's own.
        card: text of the model card, Markdown.
    """
    architecture = getattr(model, "architecture", None)
    if architecture is None:
        raise UsageError("this model was not made by dsfcnn.create, so a folder could not build it again; save its state_dict instead")
    state = {name: _stored(tensor) for name, tensor in model.state_dict().items()}
    _expect_usable(state, type(model).__name__, "train again from the last good checkpoint")
    config = {
        "format": FORMAT,
        "dsfcnn": __version__,
        "architecture": architecture,
        "task": task or architecture["name"].rpartition("-")[2],
        "mpp": mpp,
        "classes": classes,
        "normalisation": _NORMALISATION,
        "tile_margin": tile_margin,
        "decode": decode or {},
    }
    problem = _problem(config)
    if problem:
        raise UsageError(f"{problem}, so nothing could use the folder; save the model with another")
    with torch.device("meta"):
        differences = _differences(_as_stored(architecture).state_dict(), state)
    if differences:
        raise UsageError(
            f"this model is not what dsfcnn.create makes of its architecture ({differences}), so a folder could not build it again; "
            "unwrap it, give create what it should have, or save its state_dict instead"
        )
    try:
        text = json.dumps(config, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the model's config: {error}; give plain numbers and texts") from error
    folder = Path(folder)
    claim_outputs(folder, [_CONFIG, _WEIGHTS, _CARD], overwrite)
    contents = {
        _WEIGHTS: save(state),
        _CARD: (card or _default_card(model, config)).encode(),
        _CONFIG: text.encode() + b"\n",  # last: a folder with a config has everything
    }
    for name, content in contents.items():
        with atomic_write(folder / name) as stream:
            stream.write(content)


def load_model(folder: str | Path) -> nn.Module:
    """The model of a folder, in evaluation mode."""
    folder = Path(folder)
    config = read_config(folder)
    try:
        with torch.device("meta"):
            model = _as_stored(config["architecture"])
    except (DsfcnnError, TypeError, AttributeError) as error:
        raise DataError(f"{folder / _CONFIG}: {error}; this folder does not describe a model of this version") from error
    expected = model.state_dict()
    state = _read_weights(folder / _WEIGHTS, needed=sum(tensor.nbytes for tensor in expected.values()))
    _expect_same(expected, state, folder / _WEIGHTS)
    _expect_usable(state, str(folder / _WEIGHTS), "get the model again")
    model._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))  # to_empty() does this too, but loads sympy: a second
    model.load_state_dict(state)
    return model.eval()


def read_config(folder: str | Path) -> dict[str, Any]:
    """What a model folder says of its model."""
    path = Path(folder) / _CONFIG
    with _open(path) as stream:
        content = stream.read(_LARGEST_CONFIG + 1)
    if len(content) > _LARGEST_CONFIG:
        raise DataError(f"{path}: too many bytes for a config; get the model again")
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON; get the model again") from error
    version = config.get("format") if isinstance(config, dict) else None
    if not isinstance(version, int) or version is True or version < 1 or not isinstance(config.get("architecture"), dict):
        raise DataError(f"{path}: not the config of a dsfcnn model; give a folder written by save_model or dsfcnn train")
    if version > FORMAT:
        made_by = _one_line(config.get("dsfcnn", "unknown"))
        raise DataError(f"{path}: made by version {made_by}, needs dsfcnn >= {made_by} but this is {__version__}; upgrade dsfcnn")
    check_config(config, str(path))
    return config


def check_config(config: dict[str, Any], where: str) -> None:
    """Refuse what no program could use, before any work is done with it; ``where`` names the file."""
    problem = _problem(config)
    if problem:
        raise DataError(f"{where}: {problem}; get the model again")


def _problem(config: dict[str, Any]) -> str:
    """The first thing that is wrong with a config, for a message; empty where there is none."""
    mpp, margin, classes, decode = (config.get(key) for key in ("mpp", "tile_margin", "classes", "decode"))
    wrong = {
        "task": not isinstance(config.get("task"), str),
        "architecture": not isinstance(config.get("architecture"), dict),
        "mpp": mpp is not None and not (is_number(mpp) and mpp > 0),
        "tile_margin": margin is not None and not (is_number(margin) and margin == int(margin) and 0 <= margin <= _LARGEST_MARGIN),
        "classes": classes is not None and not (isinstance(classes, list) and classes and all(map(_is_class, classes))),
        "decode": decode is not None and not (isinstance(decode, dict) and all(map(is_number, decode.values()))),
        "normalisation": config.get("normalisation", _NORMALISATION) != _NORMALISATION,
    }
    return next((f"{key} is {_one_line(json.dumps(config.get(key), default=str))}" for key, is_wrong in wrong.items() if is_wrong), "")


def _is_class(value: object) -> bool:
    """A name, and a colour that QuPath can show."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not isinstance(value.get("color"), str):
        return False
    return bool(value["name"].strip() and re.fullmatch("#[0-9a-fA-F]{6}", value["color"]))


def _open(path: Path) -> BinaryIO:
    """A regular file; a pipe or device is not even opened."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise MissingInputError(f"{path}: not a file; give a model folder")
        return path.open("rb")
    except MissingInputError:
        raise
    except OSError as error:
        raise MissingInputError(f"{path}: {error.strerror}; give a model folder") from error


def _read_weights(path: Path, needed: int) -> dict[str, Tensor]:
    """The tensors of a safetensors file. One far larger than the ``needed`` bytes is not read into memory at all."""
    try:
        with _open(path) as stream:
            if os.fstat(stream.fileno()).st_size > max(2 * needed, _LARGEST_WEIGHTS):
                raise ValueError("too large")
            content = stream.read()
        length = int.from_bytes(content[:8], "little")
        if len(content) < 8 or length > len(content) - 8:
            raise ValueError("no header")
        json.loads(content[8 : 8 + length], object_pairs_hook=_without_duplicates)
        return load(content)
    except (ValueError, RecursionError, SafetensorError, KeyError) as error:
        raise DataError(f"{path}: not a safetensors file, or a damaged one; get the model again") from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a name occurs twice")
    return dict(pairs)


def _as_stored(architecture: dict[str, Any]) -> nn.Module:
    """The network that a folder describes: in float32, whatever torch's default type is."""
    return create(**architecture).float()


def _expect_same(expected: dict[str, Tensor], found: dict[str, Tensor], path: Path) -> None:
    differences = _differences(expected, found)
    if differences:
        raise DataError(f"{path}: weights of another model ({differences}); give the weights that belong to config.json")


def _differences(expected: dict[str, Tensor], found: dict[str, Tensor]) -> str:
    """The first few, for a message; empty where there are none."""
    differences = [
        f"{_one_line(name)}: expected {_describe(expected.get(name))}, found {_describe(found.get(name))}"
        for name in [*expected, *(name for name in found if name not in expected)]
        if _describe(expected.get(name)) != _describe(found.get(name))
    ]
    return ", ".join(differences[:3]) + (f" and {len(differences) - 3} more" if len(differences) > 3 else "")


def _describe(tensor: Tensor | None) -> str:
    return "nothing" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _one_line(text: object) -> str:
    """A text from a file, fit for a message."""
    return " ".join(str(text)[:80].split())


def _expect_usable(state: dict[str, Tensor], where: str, remedy: str) -> None:
    for name, tensor in state.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise DataError(f"{where}: {name} has numbers that are not finite; {remedy}")
        if name.endswith(("running_var", "mean_square")) and (tensor < 0).any():
            raise DataError(f"{where}: {name} has a negative variance; {remedy}")


def _stored(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).contiguous()


def _default_card(model: nn.Module, config: dict[str, Any]) -> str:
    count = count_parameters(model)
    architecture = ", ".join(f"{key} {value}" for key, value in config["architecture"].items())
    resolution = "not stated" if config["mpp"] is None else f"{config['mpp']} um per pixel"
    return (
        f"# {config['architecture']['name']}\n\nTask: {config['task']}. Resolution: {resolution}.\n\n"
        f"Architecture: {architecture}. {count['live']:,} learned parameters ({count['paper']:,} as the DSF-CNN paper counts).\n\n"
        "Data, licence and metrics: not stated.\n\nResearch use only; not for diagnosis.\n"
    )
