"""A training step: beside the same step on plain convolutions, and how much of it is neither forward nor backward.

    python benchmarks/train.py [--model dsf-nuclei] [--group C8] [--width 0.5] [--crop 160] [--batch 6] [--rounds 7] [--threads 2]

The plain network is the folded one (``dsfcnn.fold``): ordinary convolutions between as many planes as fields times orientations, with
all their weights to learn and no batch norms, which are merged into them; that is in its favour. Both take the same batch
by turns: forward, loss, backward, Adam. Then the training loop itself runs on drawn images, with workers, and the time that it spends
outside the network, its loss and the backward pass is told (waiting for a batch, tensors, checks, Adam, moving average).
"""

import argparse
import time
from collections.abc import Callable
from statistics import median, quantiles
from typing import Any

import torch
from torch import Tensor, nn

import dsfcnn
from dsfcnn.kernels.memory import keep_memory
from dsfcnn.tasks import get
from dsfcnn.training import loop
from dsfcnn.training.config import TrainConfig
from dsfcnn.training.distributed import Processes
from dsfcnn.training.images import open_images


def step(model: nn.Module, task: Any, images: Tensor, targets: Any) -> Callable[[], float]:
    weights = [tensor.requires_grad_() for tensor in model.parameters()]
    optimiser = torch.optim.Adam(weights)

    def run() -> float:
        start = time.perf_counter()
        loss = task.loss(model(images), targets)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        return time.perf_counter() - start

    return run


def beside_plain(config: TrainConfig, batch: loop.Batch, rounds: int) -> None:
    torch.manual_seed(0)
    task, model = get(config.task), dsfcnn.create(**config.architecture())
    images, targets = loop.tensors(batch, config)
    plain = dsfcnn.fold(model)
    ways = [step(model.train(), task, images, targets), step(plain, task, images, targets)]
    times = [[run() for run in ways] for _ in range(rounds + 1)][1:]
    ratios = [ours / theirs for ours, theirs in times]
    lower, _, upper = quantiles(ratios, n=4, method="inclusive")
    ours, theirs = (median(column) for column in zip(*times))
    counts = [sum(tensor.numel() for tensor in network.parameters()) for network in (model, plain)]
    print(f"weights: ours {counts[0]:,}, plain {counts[1]:,}")
    print(f"a step: ours {ours:.3f} s, plain {theirs:.3f} s; ours / plain {median(ratios):.2f} ({lower:.2f} to {upper:.2f})")


class Timed:
    """A callable, and the seconds spent in it."""

    def __init__(self, call: Callable[..., Any]):
        self.call, self.seconds = call, 0.0

    def __call__(self, *arguments: Any) -> Any:
        start = time.perf_counter()
        try:
            return self.call(*arguments)
        finally:
            self.seconds += time.perf_counter() - start


def outside(config: TrainConfig, images: Any, mpp: float, rounds: int) -> None:
    """The share of the loop's time that is neither forward (with the loss) nor backward."""
    state, task = loop.start(config), get(config.task)
    network, task.loss = Timed(state.model), Timed(task.loss)  # type: ignore[method-assign]
    backward = Tensor.backward
    timed_backward = Timed(backward)
    Tensor.backward = lambda loss: timed_backward(loss)  # type: ignore[assignment,method-assign] # a function, to be bound to the loss
    parts = (network, task.loss, timed_backward)
    feed = loop.batches(config, images, mpp, range(config.steps))
    steps = loop.steps(state, config, task, feed, network, Processes())  # type: ignore[arg-type]
    for _ in range(config.steps - rounds):  # until the workers have decoded their images
        next(steps)
    for part in parts:
        part.seconds = 0.0
    start = time.perf_counter()
    for _ in steps:
        pass
    whole = time.perf_counter() - start
    Tensor.backward = backward  # type: ignore[method-assign]
    inside = sum(part.seconds for part in parts)
    print(f"the loop: {whole / rounds:.3f} s a step, of which {100 * (1 - inside / whole):.1f} % outside forward and backward")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="dsf-nuclei")
    parser.add_argument("--group", default="C8")
    parser.add_argument("--width", type=float, default=0.5)
    parser.add_argument("--crop", type=int, default=160)
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_memory()
    task = options.model.rpartition("-")[2]
    config = TrainConfig(
        **{"task": task, "model": options.model, "group": options.group, "width": options.width, "crop": options.crop},
        **{"format": f"synthetic-{task}", "valid_split": "valid", "images": 2, "per_epoch": 100, "batch": options.batch},
        **{"steps": options.rounds + 3, "clip": 5.0, "average": 0.99, "workers": 1},
    )
    mpp = {"nuclei": 0.5}.get(task, get(task).mpp)
    images, _ = open_images(config)
    (batch,) = loop.batches(config, images, mpp, range(1))
    beside_plain(config, batch, options.rounds)
    outside(config, images, mpp, options.rounds)


if __name__ == "__main__":
    main()
