"""The training loop: plain PyTorch, to be read in a minute."""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dsfcnn.data import Crops, Dataset, Sample, load_batches
from dsfcnn.errors import DataError
from dsfcnn.models import create, load_model
from dsfcnn.tasks import Task, get
from dsfcnn.training.config import TrainConfig
from dsfcnn.training.distributed import Processes
from dsfcnn.training.evaluation import to_tensor
from dsfcnn.training.schedule import learning_rate
from dsfcnn.training.state import State

_DTYPES = {"float32": torch.float32, "bfloat16": torch.float32, "float64": torch.float64}  # of the weights


@dataclass(frozen=True)
class Batch:
    """What a worker prepares: arrays that travel between processes."""

    images: np.ndarray  # uint8 (N, H, W, C)
    targets: Any  # labels (N,), or per head a map of classes (N, H, W), and weights
    sources: list[str]


@dataclass(frozen=True)
class Prepare:
    """From samples to a batch, in the worker."""

    task: str
    mpp: float
    penalty: bool

    def __call__(self, samples: list[Sample]) -> Batch:
        task = get(self.task)
        images = np.stack([sample.image for sample in samples])
        sources = [sample.source for sample in samples]
        if samples[0].instances is None:
            return Batch(images, np.array([task.targets(sample.label) for sample in samples]), sources)
        drawn = [task.targets(sample.instances, self.mpp) for sample in samples]
        targets = {head: np.stack([maps[head] for maps in drawn]) for head in drawn[0]}
        if "weight" in targets and not self.penalty:
            targets["weight"] = np.ones_like(targets["weight"])
        return Batch(images, targets, sources)


def start(config: TrainConfig) -> State:
    """New weights (or those of another model), and an optimiser that has seen nothing."""
    torch.manual_seed(config.seed)
    model = create(**config.architecture())
    if config.init is not None:
        model.load_state_dict(load_model(config.init).state_dict())
    model = model.to(_DTYPES[config.precision]).train()
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimiser]
    optimiser = kind(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    averaged = copy.deepcopy(model).eval().requires_grad_(False) if config.average else None
    return State(model, optimiser, averaged)


def batches(config: TrainConfig, images: Dataset, mpp: float, steps: range, share: tuple[int, int] = (0, 1)) -> Iterator[Batch]:
    crops = Crops(images, config.crop, mpp, config.per_epoch, config.augmentation(), config.seed)
    prepare = Prepare(config.task, mpp, config.penalty)
    return load_batches(crops, config.batch, steps, workers=config.workers, prepare=prepare, share=share)


def steps(state: State, config: TrainConfig, task: Task, feed: Iterator[Batch], model: nn.Module, processes: Processes) -> Iterator[float]:
    """One step of training per item: its loss. ``model`` is the state's, or a wrapper that trains it together with other processes."""
    for batch in feed:
        for group in state.optimiser.param_groups:
            group["lr"] = learning_rate(config, state.step)
        images, targets = tensors(batch, config)
        with _precision(config):
            loss = _loss(task, model(images), targets, config, processes.sum)
        value = processes.mean(loss.item())
        if not np.isfinite(value):
            files = ", ".join(batch.sources)
            raise DataError(f"step {state.step}: the loss is {value} on {files}; lower learning_rate or set clip, and use --resume")
        state.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        if config.clip is not None:
            nn.utils.clip_grad_norm_(state.model.parameters(), config.clip)
        state.optimiser.step()
        if state.averaged is not None:
            _average(state.averaged, state.model, config.average, state.step)
        state.step += 1
        state.losses.append(value)
        yield value


def tensors(batch: Batch, config: TrainConfig) -> tuple[Tensor, Any]:
    images = to_tensor(batch.images).to(_DTYPES[config.precision])
    if isinstance(batch.targets, dict):
        return images, {head: torch.from_numpy(maps) for head, maps in batch.targets.items()}
    return images, torch.from_numpy(batch.targets)


def _precision(config: TrainConfig) -> AbstractContextManager:
    return torch.autocast("cpu", torch.bfloat16) if config.precision == "bfloat16" else nullcontext()


def _loss(task: Task, outputs: Any, targets: Any, config: TrainConfig, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    if config.class_weights is not None:
        weights = torch.tensor(config.class_weights, dtype=outputs.dtype)
        return nn.functional.cross_entropy(outputs, targets, weights)
    return task.loss(outputs, targets, reduce)


@torch.no_grad()
def _average(averaged: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """Weights by a moving average, shorter in the beginning, when the first weights still mean nothing; statistics as they are."""
    decay = min(decay, (step + 1) / (step + 10))
    for weight, new in zip(averaged.parameters(), model.parameters()):
        weight.lerp_(new, 1 - decay)
    for statistic, now in zip(averaged.buffers(), model.buffers()):
        statistic.copy_(now)
