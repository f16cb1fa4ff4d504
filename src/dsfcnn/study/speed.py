"""How fast a model is on this machine, by each way of computing its G-convolutions."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dsfcnn.kernels import get_backend, set_backend
from dsfcnn.models import create

# (images, side) in prediction and in training: what the paper trains with, or as much of it as fits a short trial.
SIZES = {"tumour": ((32, 96), (32, 96)), "glands": ((1, 512), (2, 256)), "nuclei": ((1, 512), (2, 256)), "digits": ((64, 28), (64, 28))}


class Speed(NamedTuple):
    model: str
    backend: str
    seconds_per_megapixel: float  # prediction
    steps_per_second: float  # training: forward, loss, backward, Adam
    batch: int
    side: int


def batch_of(name: str, training: bool) -> Tensor:
    """Random images of a model's task."""
    task = name.rpartition("-")[2]
    images, side = SIZES[task][training]
    return torch.rand(images, 1 if task == "digits" else 3, side, side)


def prediction(model: nn.Module, images: Tensor) -> Callable[[], None]:
    model.eval()

    @torch.inference_mode()
    def run() -> None:
        model(images)

    return run


def training_step(model: nn.Module, images: Tensor) -> Callable[[], None]:
    """A whole step: forward, cross-entropy, backward, Adam."""
    optimiser = torch.optim.Adam(model.parameters())
    model.train()

    def run() -> None:
        outputs = model(images)
        loss = torch.zeros(())
        for logits in outputs.values() if isinstance(outputs, dict) else [outputs]:
            labels = torch.zeros(logits.shape[0], *logits.shape[2:], dtype=torch.long)
            loss = loss + nn.functional.cross_entropy(logits, labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return run


@contextmanager
def backend(name: str) -> Iterator[None]:
    before = get_backend()
    set_backend(name)
    try:
        yield
    finally:
        set_backend(before)


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(name: str, backend_name: str, options: dict[str, Any], rounds: int = 3) -> Speed:
    """The shortest of a few rounds, after one that fills caches."""
    model = create(name, **options)
    times, images = [], [batch_of(name, training) for training in (False, True)]
    with backend(backend_name):
        for run in (prediction(model, images[0]), training_step(model, images[1])):
            run()
            times.append(min(seconds(run) for _ in range(rounds)))
    pixels = images[0].shape[0] * images[0].shape[2] * images[0].shape[3]
    return Speed(name, backend_name, times[0] / pixels * 1e6, 1 / times[1], images[1].shape[0], images[1].shape[2])
