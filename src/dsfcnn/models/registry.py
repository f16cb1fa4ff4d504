"""Models by name."""

import re
import sys
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

from torch import nn

from dsfcnn.errors import UsageError
from dsfcnn.groups import Group, parse_group
from dsfcnn.layers.steered import independent_weights
from dsfcnn.models import budget
from dsfcnn.models.comparison import Classifier, DigitClassifier, Family, GroupFamily, HarmonicFamily, PlainFamily, Segmenter, VectorFamily
from dsfcnn.models.dsf import DSFClassifier, DSFSegmenter, scaled
from dsfcnn.models.peers import SFCNN, P4MDenseNet

# What each task needs at the end of a model: classes, or channels of each head. The task says what they mean.
_OUTPUTS: dict[str, dict[str, Any]] = {
    "tumour": {"classes": 2},
    "glands": {"heads": {"object": 3}},
    "nuclei": {"heads": {"object": 2, "marker": 3}},
    "digits": {"classes": 10},
}


_LARGEST_GROUP = 128  # tables grow with its square; a config could ask for anything


def names() -> list[str]:
    """Every model that ``create`` can build."""
    return list(_MODELS)


def create(name: str, **options: Any) -> nn.Module:
    """Build a model with new weights.

    Args:
        name: one of ``names()``.
        group: "C8", "D4", ...; not for cnn, which has no orientations, and hnet, which has all of them.
        max_frequency: of hnet, 1 or 2.
        width: factor on the number of fields of every layer, below 1 for lighter versions.
        classes: of tumour and digit models.
        heads: of gland and nuclei models, channels by name.
        checkpointing: of dsf models, compute dense units again in the backward pass instead of keeping them.
        dropout: of dsf-tumour and sfcnn-digits, between the last convolutions.
        centre: of dsf-tumour and the compared networks for tumour, the middle part of a patch's height and width that decides its class;
            1 is all of it, as in the paper. PatchCamelyon labels a patch by its middle third.

    What made a model stays with it: ``create(**model.architecture)`` builds its like.

    >>> create("steerable-digits", group="C4", width=0.25).architecture
    {'name': 'steerable-digits', 'group': 'C4', 'width': 0.25, 'classes': 10}
    """
    if name not in _MODELS:
        raise UsageError(f"no model {name!r}; use one of {', '.join(_MODELS)}")
    defaults, build = _MODELS[name]
    for option in options:
        if option not in defaults:
            raise UsageError(f"{name} has no option {option!r}; it takes {', '.join(defaults)}")
    given = {option: str(value) if isinstance(value, Group) else value for option, value in options.items()}
    chosen = deepcopy({**defaults, **given})  # stays with the model, whatever becomes of what was given
    _check(chosen)
    with independent_weights():
        model = build(**chosen)
    model.architecture = {"name": name, **chosen}  # type: ignore[assignment]
    return model


def _check(chosen: dict[str, Any]) -> None:
    """Every option that could otherwise fail deep inside, or build something absurd."""
    width, dropout, centre = chosen["width"], chosen.get("dropout", 0.0), chosen.get("centre", 1.0)
    if not is_number(width) or not 0 < width <= 16:
        raise UsageError(f"width must be a number above 0 and up to 16 but is {width!r}; 1 is the paper's")
    if not is_number(dropout) or not 0 <= dropout < 1:
        raise UsageError(f"dropout must be a number from 0 to below 1 but is {dropout!r}; 0.3 is the usual")
    if not is_number(centre) or not 0 < centre <= 1:
        raise UsageError(f"centre must be a number above 0 and up to 1 but is {centre!r}; 1 is all of a patch")
    if chosen.get("checkpointing", False) not in (True, False):
        raise UsageError(f"checkpointing must be true or false but is {chosen['checkpointing']!r}; leave it out for false")
    if parse_group(chosen.get("group", "C1")).size > _LARGEST_GROUP:
        raise UsageError(f"no group {chosen['group']!r} for a model, which may have up to {_LARGEST_GROUP} elements; use C8 or C12")
    heads = chosen.get("heads", {"classes": chosen.get("classes")})
    if not isinstance(heads, dict) or not heads:
        raise UsageError(f"heads must be channels by name but is {heads!r}; give for example heads={{'object': 3}}")
    for name, channels in heads.items():
        if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name) or hasattr(nn.ModuleDict, name):
            raise UsageError(f"a head cannot be called {name!r}; use small letters, digits and underscores")
        if not isinstance(channels, int) or isinstance(channels, bool) or not 0 < channels <= 10_000:
            raise UsageError(f"{name} needs from 1 to 10,000 output channels but was given {channels!r}; give classes= or heads=")
    if chosen.get("max_frequency", 1) not in (1, 2, 3):
        raise UsageError(f"max_frequency must be 1, 2 or 3 but is {chosen['max_frequency']!r}; the paper compares 1 and 2")


def is_number(value: Any) -> bool:
    """Finite, and not so many digits that it could not be a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Parameters of a model: ``live``, those that are stored and learned, and ``paper``, as the paper counts them.

    The paper counts two reals for every complex weight (the imaginary part of frequency 0 has no effect), every pixel of a masked
    filter, and biases in front of batch norms.
    """
    return {"paper": _paper_count(model), "live": sum(parameter.numel() for parameter in model.parameters())}


def _paper_count(module: nn.Module) -> int:
    count = getattr(module, "paper_count", None)
    if count is not None:
        return count()
    own = sum(parameter.numel() for parameter in module.parameters(recurse=False))
    return own + sum(_paper_count(child) for child in module.children())


def _comparison(family: str, task: str, *, width: float, group: str = "C1", max_frequency: int = 1, **outputs: Any) -> nn.Module:
    """A family's network on the skeleton of a task, as wide as its parameter budget allows."""
    members = parse_group(group)
    families: dict[str, Callable[[], Family]] = {
        "cnn": PlainFamily,
        "hnet": lambda: HarmonicFamily(max_frequency),
        "vfcnn": lambda: VectorFamily(members),
        "gcnn": lambda: GroupFamily(members, "rotated"),
        "steerable": lambda: GroupFamily(members, "steerable"),
    }
    base = budget.DIGITS if task == "digits" else budget.HISTOLOGY
    fields = budget.widths(family, base, members, max_frequency, width)
    skeleton: Any = {"tumour": Classifier, "digits": DigitClassifier}.get(task, Segmenter)
    return skeleton(families[family](), fields, scaled(96, width), **outputs)


# Name -> (options with their defaults, builder).
_MODELS: dict[str, tuple[dict[str, Any], Callable[..., nn.Module]]] = {
    "dsf-tumour": (
        {"group": "C8", "width": 1.0, **_OUTPUTS["tumour"], "dropout": 0.3, "centre": 1.0, "checkpointing": False},
        DSFClassifier,
    ),
    "dsf-glands": ({"group": "C8", "width": 1.0, **_OUTPUTS["glands"], "checkpointing": False}, DSFSegmenter),
    "dsf-nuclei": ({"group": "C8", "width": 1.0, **_OUTPUTS["nuclei"], "checkpointing": False}, DSFSegmenter),
    "p4m-tumour": ({"group": "D4", "width": 1.0, **_OUTPUTS["tumour"]}, P4MDenseNet),
    "sfcnn-digits": ({"group": "C16", "width": 1.0, **_OUTPUTS["digits"], "dropout": 0.3}, SFCNN),
}
for _family in budget.FAMILIES:
    _symmetry: dict[str, Any] = {"cnn": {}, "hnet": {"max_frequency": 1}}.get(_family, {"group": "C8"})
    for _task, _outputs in _OUTPUTS.items():
        _centre: dict[str, Any] = {"centre": 1.0} if _task == "tumour" else {}
        _MODELS[f"{_family}-{_task}"] = ({**_symmetry, "width": 1.0, **_outputs, **_centre}, partial(_comparison, _family, _task))
