"""Times of two layers taken in turns, so that slow drifts of the machine fall on both alike.

Taking turns does not help against another program that keeps the processors busy: a layer made of several short parallel steps waits for
the slowest thread after each, and loses more than one long convolution does. So the share of the processors that the
yardstick got is measured too, and figures taken with a small share should not be believed.
"""

import time
from collections.abc import Callable
from statistics import median, quantiles
from typing import Any

import torch
from torch import Tensor, nn

ORIENTATIONS, KERNEL = 8, 7  # C8, 7x7
BATCH, SIDE = 4, 64
_LEAST_SECONDS = 6.0  # small layers take more rounds: a short time is a noisy one


def compare(candidate: Callable[[], float], yardstick: Callable[[], float], rounds: int) -> dict[str, Any]:
    """Ratio of two times, each measured once a round, by turns first and second.

    Returns the median and quartiles (lower, upper) of the ratios of all rounds, the ratio of the two shortest times (best), the median
    milliseconds of each, the share of its threads' processors that the yardstick got (1 on a quiet machine), and the milliseconds of
    every round, from which all of it can be computed again.
    """
    busy = [0.0, 0.0]  # seconds of processor and of clock in the yardstick

    def watched() -> float:
        clock, processor = time.perf_counter(), time.process_time()
        seconds = yardstick()
        busy[0] += time.process_time() - processor
        busy[1] += time.perf_counter() - clock
        return seconds

    candidate(), yardstick()  # the first call sets up the convolution's plan
    times: list[tuple[float, float]] = []
    start = time.perf_counter()
    while len(times) < rounds or time.perf_counter() - start < _LEAST_SECONDS:
        if len(times) % 2:
            second = watched()
            times.append((candidate(), second))
        else:
            first = candidate()
            times.append((first, watched()))
    ratios = [ours / theirs for ours, theirs in times]
    lower, _, upper = quantiles(ratios, n=4, method="inclusive")
    candidate_times, yardstick_times = zip(*times)
    return {
        "median": median(ratios),
        "lower": lower,
        "upper": upper,
        "best": min(candidate_times) / min(yardstick_times),
        "candidate_ms": 1e3 * median(candidate_times),
        "yardstick_ms": 1e3 * median(yardstick_times),
        "share": busy[0] / (busy[1] * torch.get_num_threads()),
        "rounds": len(times),
        "all_ms": [[round(1e3 * seconds, 3) for seconds in pair] for pair in times],
    }


def ratios_to_plain(layer: nn.Module, fields: int, rounds: int) -> dict[str, dict[str, Any]]:
    """A layer against an ordinary Conv2d between as many planes.

    Both read and write planes (BATCH, fields * ORIENTATIONS, SIDE, SIDE). "forward" is evaluation without gradients, "training"
    is forward and backward, with gradients to the input and the weights.
    """
    planes = fields * ORIENTATIONS
    plain = nn.Conv2d(planes, planes, KERNEL, padding=KERNEL // 2, bias=False)
    x, gradient = torch.randn(2, BATCH, planes, SIDE, SIDE)
    ways = {"forward": time_forward, "training": time_training}
    return {
        way: compare(lambda take=take: take(layer, x, gradient), lambda take=take: take(plain, x, gradient), rounds)
        for way, take in ways.items()
    }


def time_forward(layer: nn.Module, x: Tensor, gradient: Tensor) -> float:
    layer.eval()
    with torch.no_grad():
        start = time.perf_counter()
        layer(x)
        return time.perf_counter() - start


def time_training(layer: nn.Module, x: Tensor, gradient: Tensor) -> float:
    layer.train()
    layer.zero_grad(set_to_none=True)
    x = x.detach().requires_grad_()
    start = time.perf_counter()
    layer(x).backward(gradient)
    return time.perf_counter() - start


def build_seconds(build: Callable[[], nn.Module]) -> dict[str, float]:
    """Time of the first call, which fills caches, and the shortest of three more."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        build()
        times.append(time.perf_counter() - start)
    return {"first": times[0], "again": min(times[1:])}


def saved_bytes(layer: nn.Module) -> dict[str, int]:
    """What a checkpoint holds for the layer, and how much of it are weights that learn."""
    return {"state": size_in_bytes(layer.state_dict().values()), "weights": size_in_bytes(layer.parameters())}


def size_in_bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
