"""The configuration of a training run: read from YAML, checked, and kept with everything that the run writes."""

import difflib
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from dsfcnn.data import Augment
from dsfcnn.errors import MissingInputError, UsageError
from dsfcnn.tasks import get
from dsfcnn.tasks.task import with_settings

_LARGEST, _DEEPEST = 1 << 20, 50  # bytes and levels of a configuration file
PLACES = {"data", "split_file", "init", "cache"}  # settings that are paths
_TEXTS = PLACES | {"train_split", "valid_split", "licence"}  # names and sentences
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(gt=0, le=1e3, allow_inf_nan=False)]  # far above any that learns; 1e38 leaves the range of float32
Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())


class TrainConfig(_Settings):
    """One training run."""

    task: Literal["tumour", "glands", "nuclei", "digits"]
    model: str  # a name of `dsfcnn models`
    group: str | None = None  # such as C8; None for cnn and hnet
    width: Positive = 1.0  # factor on every layer's number of fields
    options: dict[str, Any] = {}  # further options of the model, such as dropout or checkpointing
    init: str | None = None  # a model folder, or a shipped model, to start from instead of new weights

    data: str | None = None  # folder; None for drawn data
    format: str = "auto"  # of the folder, or synthetic-nuclei and the like
    data_mpp: Positive | None = None  # microns per pixel of the images, where their format does not say
    split_file: str | None = None  # divides a folder that has no splits
    train_split: str = "train"
    valid_split: str | None = None  # None: images held out of the training split
    held_out: Annotated[int, Field(ge=0)] | list[str] = 0  # how many (chosen by the seed), or the names of their files
    final_fit: bool = False  # learn from the validation images too: nothing is validated, the last weights are the model
    cache: str | None = None  # folder for what takes long to make from the data
    images: Annotated[int, Field(gt=0)] | None = None  # train on so many images only, chosen by the seed

    mpp: Positive | None = None  # resolution to learn at; None is the task's own
    crop: Annotated[int, Field(gt=0)] = 256  # side of a training crop, pixels
    per_epoch: Annotated[int, Field(gt=0)] | None = None  # crops that make an epoch; None: one of each image
    augment: dict[str, Any] | None = {}  # strengths of dsfcnn.data.Augment; null turns all off

    steps: Annotated[int, Field(gt=0, lt=10**8)]  # checkpoints are numbered in eight digits
    batch: Annotated[int, Field(gt=0)] = 8  # crops of a step, over all processes
    optimiser: Literal["adam", "adamw"] = "adam"
    learning_rate: Rate = 1e-3
    weight_decay: Annotated[float, Field(ge=0, le=1e3, allow_inf_nan=False)] = 0.0
    schedule: Literal["steps", "cosine", "one-cycle"] = "steps"
    milestones: dict[Annotated[int, Field(ge=0)], Rate] = {}  # "steps": learning rate from this step on
    warm_up: Share = 0.3  # "one-cycle": part of the steps in which the rate rises
    last_rate: Share = 1e-3  # "cosine", "one-cycle": where they end, as a part of the highest rate
    clip: Positive | None = None  # largest norm of the gradient
    average: Share = 0.0  # decay of the exponential moving average of the weights, e.g. 0.99; 0: none
    statistics: Annotated[int, Field(gt=0)] = 20  # batches from which the batch norms of averaged weights learn before a validation
    class_weights: list[Positive] | None = None  # classification: factors on the classes' cross-entropy
    penalty: bool | Literal["seams"] = True  # nuclei: weigh gaps between neighbours; seams: glands too, and also where they touch
    precision: Literal["float32", "bfloat16", "float64"] = "float32"

    validate_every: Annotated[int, Field(gt=0)] = 100  # steps
    checkpoint_every: Annotated[int, Field(gt=0)] = 100  # steps
    select: str | None = None  # the metric by which the best model is chosen; None is the task's first
    decode: dict[str, Any] = {}  # settings of decoding, such as marker_threshold
    workers: Annotated[int, Field(ge=0)] = 1  # processes that prepare batches
    synchronise: bool = True  # batch norm over all processes of a distributed run
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    licence: str = "not stated"  # of the data, for the model card

    @field_validator("held_out", mode="before")
    @classmethod
    def _may_be_one_name(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else [str(name) for name in value] if isinstance(value, list) else value

    @field_validator("augment")
    @classmethod
    def _is_augment(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            _expect_like(Augment(), value)
            Augment(**value)
        return value

    @field_validator("options")
    @classmethod
    def _are_further_options(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if name in ("name", "group", "width", "classes", "heads"):
                raise ValueError(f"{name!r} is none of them; the model, group, width and task are settings of their own")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> "TrainConfig":
        if self.model.rpartition("-")[2] != self.task:
            raise ValueError(f"model: {self.model!r} is not for the task {self.task}; use one whose name ends in -{self.task}")
        for key in ("data", "data_mpp", "split_file"):
            if self.format.startswith("synthetic-") and getattr(self, key) is not None:
                raise ValueError(f"{key}: the format {self.format} draws its images; leave {key} away, or give another format")
        if self.milestones and self.schedule != "steps":
            raise ValueError(
                f"milestones: the schedule {self.schedule} has none; leave them away (milestones={{}}), or give schedule: steps"
            )
        task = get(self.task)
        try:
            _expect_like(getattr(task, "settings", None), self.decode)
            with_settings(task, self.decode)
        except (ValueError, UsageError) as error:
            raise ValueError(f"decode: {error}") from None
        classes = task.heads.get("class", ())
        if self.class_weights is not None and len(self.class_weights) != len(classes):
            advice = f"give one for each of {', '.join(classes)}" if classes else f"{self.task} has no classes, leave them out"
            raise ValueError(f"class_weights: {len(self.class_weights)} weights; {advice}")
        return self

    def augmentation(self) -> Augment | None:
        if self.augment is None:
            return None
        return replace(Augment.digits() if self.task == "digits" else Augment(), **self.augment)

    def architecture(self) -> dict[str, Any]:
        """Arguments of ``dsfcnn.create``."""
        return {"name": self.model, **({} if self.group is None else {"group": self.group}), "width": self.width, **self.options}


def read_config(path: Path, changes: list[str]) -> TrainConfig:
    """The configuration in a YAML file, with ``key=value`` changes on top; ``a.b=value`` reaches into a group of settings."""
    settings = parse(_read(path), str(path))
    if not isinstance(settings, dict):
        raise UsageError(f"{path}: no settings; write lines such as 'batch: 8'")
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise UsageError(f"{change!r} changes nothing; write key=value")
        place = settings
        *groups, last = key.split(".")
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                raise UsageError(f"{key}: {group!r} is no group of settings; give it as a whole")
        place[int(last) if last.isdecimal() else last] = parse_change(key, value)
    return check(settings, str(path))


def parse_change(key: str, value: str) -> Any:
    """The value of ``key=value``: YAML, but names and sentences as they are, so that ``data=cohort #2`` means the folder of this name.

    >>> parse_change("data", "cohort #2"), parse_change("data", "null"), parse_change("batch", "8")
    ('cohort #2', None, 8)
    """
    if key in _TEXTS:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{key}: a name that is not UTF-8; give it another, or a link to it") from None
        return None if value in ("", "null") else value
    return parse(value.encode("utf-8", "surrogateescape"), key)


def check(settings: Any, where: str) -> TrainConfig:
    for key, value in _numbers(settings, ""):
        if not math.isfinite(value):
            raise UsageError(f"{where}: {key} is {value}; give a finite number")
    try:
        return TrainConfig.model_validate(settings)
    except ValidationError as error:
        raise UsageError(f"{where}: {_sentence(error.errors()[0])}") from None


def _numbers(value: Any, key: str) -> Iterator[tuple[str, float]]:
    """Every float with the path to it."""
    if isinstance(value, float):
        yield key.removeprefix("."), value
    parts: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from _numbers(part, f"{key}.{name}")


def _expect_like(defaults: Any, changes: dict[str, Any]) -> None:
    """Changes of a group of settings have names and types that the ``defaults`` (a dataclass, or None for no settings) have."""
    known = {} if defaults is None else {field.name: getattr(defaults, field.name) for field in fields(defaults)}
    for name, value in changes.items():
        if name not in known:
            raise ValueError(_unknown(name, known))
        default = known[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number if isinstance(default, float) else type(value) is type(default)):
            raise ValueError(f"{name} is {_short(value)}; give a {type(default).__name__} such as {default!r}")


def _unknown(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(key), known, n=1)
    return f"no setting {_short(key)}; " + (f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(known) or 'none'}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _sentence(problem: Any) -> str:
    # Parts of the place such as "constrained-int" say which of two types was tried, not where.
    key = ".".join(str(part) for part in problem["loc"] if re.fullmatch(r"\w+", str(part)))
    if problem["type"] == "extra_forbidden":
        return _unknown(str(problem["loc"][-1]), TrainConfig.model_fields)
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        return f"{key!r} is missing; every run needs it"
    if problem["type"] == "value_error":  # one of ours, with its own advice
        return f"{key}: {message}" if key else message
    return f"{key} is {_short(problem['input'])}; {message[0].lower() + message[1:]}"


def _read(path: Path) -> bytes:
    if not path.is_file():
        what = "not a regular file" if path.exists() else "no such file"
        raise MissingInputError(f"{path}: {what}; give a configuration such as configs/nuclei-small.yaml")
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
    except OSError as error:
        raise MissingInputError(f"{path}: {error.strerror}; give a readable configuration") from error
    if len(content) > _LARGEST:
        raise UsageError(f"{path}: more than 1 MB; this is no configuration")
    return content


class _Loader(yaml.SafeLoader):
    """Plain values only: no tags, no aliases, no key twice, not too deep."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias (*name); write the value out")
        if getattr(self.peek_event(), "tag", None) is not None:
            raise yaml.YAMLError(f"a tag ({self.peek_event().tag}); write plain values")
        self.depth += 1
        if self.depth > _DEEPEST:
            raise yaml.YAMLError(f"more than {_DEEPEST} levels; write it flatter")
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for name, _ in node.value:
            key = self.construct_object(name, deep=True)
            if key in seen:
                raise yaml.YAMLError(f"the key {_short(key)} occurs twice; keep one")
            seen.add(key)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes what the loader would take for a number."""


# YAML 1.1 takes 1e-3 for text, as it has no point.
for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789"))


def written(config: TrainConfig) -> bytes:
    """YAML that reads as the same configuration."""
    return yaml.dump(config.model_dump(), Dumper=_Dumper, sort_keys=False).encode()


def parse(content: bytes, where: str) -> Any:
    """YAML to plain values."""
    try:
        return _Loader(content.decode("utf-8")).get_single_data()
    except UnicodeDecodeError:
        raise UsageError(f"{where}: not UTF-8; save it as UTF-8 text") from None
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        text = " ".join(str(getattr(error, "problem", None) or error).split())
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        has_advice = isinstance(error, yaml.YAMLError) and ";" in text
        raise UsageError(f"{where}: {text}{line}" + ("" if has_advice else "; write plain YAML")) from None
