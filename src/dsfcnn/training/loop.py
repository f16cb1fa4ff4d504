"""The training loop: plain PyTorch, to be read in a minute."""

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from dsfcnn.data import Crops, Dataset, Sample, load_batches
from dsfcnn.errors import DataError, UsageError
from dsfcnn.models import create, find_model, load_model
from dsfcnn.tasks import Task, get
from dsfcnn.tasks.task import Segmentation
from dsfcnn.training.averaging import follow
from dsfcnn.training.config import TrainConfig
from dsfcnn.training.distributed import Processes
from dsfcnn.training.evaluation import to_tensor
from dsfcnn.training.schedule import learning_rate
from dsfcnn.training.state import State

_WITHOUT_WEIGHTS = {"dropout", "centre", "checkpointing", "classes", "heads"}  # or of which their shapes tell
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
    penalty: bool | Literal["seams"]

    def __call__(self, samples: list[Sample]) -> Batch:
        task = get(self.task)
        images = np.stack([sample.image for sample in samples])
        sources = [sample.source for sample in samples]
        if not isinstance(task, Segmentation):
            return Batch(images, np.array([task.targets(sample.label) for sample in samples]), sources)
        truths: list[Any] = [sample.instances for sample in samples]
        drawn = [task.targets(truth, self.mpp, seams=self.penalty == "seams") for truth in truths]
        targets = {head: np.stack([maps[head] for maps in drawn]) for head in drawn[0]}
        if "weight" in targets and not self.penalty:
            targets["weight"] = np.ones_like(targets["weight"])
        return Batch(images, targets, sources)


def start(config: TrainConfig) -> State:
    """New weights (or those of another model), and an optimiser that has seen nothing."""
    torch.manual_seed(config.seed)
    try:
        model = create(**config.architecture())
    except UsageError as error:
        raise UsageError(f"model, group, width or options: {error}") from None
    if config.init is not None:
        _start_from(model, config.init)
    model = model.to(_DTYPES[config.precision]).train()
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimiser]
    optimiser = kind(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    averaged = copy.deepcopy(model).eval().requires_grad_(False) if config.average else None
    return State(model, optimiser, averaged)


def _start_from(model: nn.Module, folder: str) -> None:
    source: Any = load_model(find_model(folder))
    for name, expected in model.architecture.items():  # type: ignore[union-attr, operator]
        if name not in _WITHOUT_WEIGHTS and source.architecture.get(name) != expected:
            found = source.architecture.get(name)
            raise DataError(f"init: {folder} has another architecture ({name}: expected {expected}, found {found}); give one that fits")
    given, wanted = source.state_dict(), model.state_dict()
    for name in [*wanted, *given]:
        found, expected = (tuple(state[name].shape) if name in state else "nothing" for state in (given, wanted))
        if found != expected:
            raise DataError(f"init: {folder} has another architecture ({name}: expected {expected}, found {found}); give one that fits")
    model.load_state_dict(given)


def batches(config: TrainConfig, images: Dataset, mpp: float, steps: range, share: tuple[int, int] = (0, 1)) -> Iterator[Batch]:
    crops = Crops(images, config.crop, mpp, config.per_epoch, config.augmentation(), config.seed)
    prepare = Prepare(config.task, mpp, config.penalty)
    workers = config.workers
    while steps:
        try:
            for batch in load_batches(crops, config.batch, steps, workers=workers, prepare=prepare, share=share):
                steps = steps[1:]
                yield batch
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            workers //= 2  # one was killed, most often for want of memory: the same batch again with fewer, at last with none


def steps(state: State, config: TrainConfig, task: Task, feed: Iterator[Batch], model: nn.Module, processes: Processes) -> Iterator[float]:
    """One step of training per item: its loss. ``model`` is the state's, or a wrapper that trains it together with other processes."""
    for batch in feed:
        for group in state.optimiser.param_groups:
            group["lr"] = learning_rate(config, state.step)
        images, targets = tensors(batch, config)
        with precision(config):
            loss = _loss(task, _outputs(model, images), targets, config, processes)
        value = processes.mean(loss.item())
        _expect_finite(value, "loss", state, batch)
        state.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        gradients = [weight.grad for weight in state.model.parameters() if weight.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        _expect_finite(norm.item(), "gradient's norm", state, batch)
        if config.clip is not None:
            nn.utils.clip_grads_with_norm_(state.model.parameters(), config.clip, norm)
        state.optimiser.step()
        if state.averaged is not None:
            follow(state.averaged, state.model, config.average, state.step)
        state.step += 1
        state.losses.append(value)
        yield value


def _outputs(model: nn.Module, images: Tensor) -> Any:
    try:
        return model(images)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise UsageError("batch: of one crop, some batch norms see a single number, which has no variance; use 2 or more") from None


def _expect_finite(value: float, what: str, state: State, batch: Batch) -> None:
    """Before the weights are changed: what is not finite never gets into them."""
    if not np.isfinite(value):
        advice = "look at these images, lower learning_rate or set clip, and start again (init takes the best model so far)"
        raise DataError(f"step {state.step}: the {what} is {value} on {', '.join(batch.sources)}; {advice}")


def tensors(batch: Batch, config: TrainConfig) -> tuple[Tensor, Any]:
    images = to_tensor(batch.images).to(_DTYPES[config.precision])
    if isinstance(batch.targets, dict):
        return images, {head: torch.from_numpy(maps) for head, maps in batch.targets.items()}
    return images, torch.from_numpy(batch.targets)


def precision(config: TrainConfig) -> AbstractContextManager:
    return torch.autocast("cpu", torch.bfloat16) if config.precision == "bfloat16" else nullcontext()


def _loss(task: Task, outputs: Any, targets: Any, config: TrainConfig, processes: Processes) -> Tensor:
    if config.class_weights is None:
        return task.loss(outputs, targets, processes.sum)
    weights = torch.tensor(config.class_weights, dtype=outputs.dtype)
    entropy = nn.functional.cross_entropy(outputs, targets, weights, reduction="sum")
    return entropy * processes.count / processes.sum(weights[targets].sum())  # the mean over processes is that of the whole batch
