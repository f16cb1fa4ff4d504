"""The automatic choice between dense and spectral convolutions: fits the cost model of kernels/backend.py, and says what it loses.

    python benchmarks/cost_model.py [--rounds 7] [--threads 1 2] [--seed 0]

Layers of random shapes, most of them small, where the choice is not plain, are timed both ways, in turns, forward and with the backward
pass. Prints constants fitted to half of the shapes at the first number of threads, and then judges the choice by them on the other half and
on all shapes at the other numbers of threads; with --as-is, by the constants that the package has. What is judged: the time of the
chosen way over that of the better one. Run it on a quiet machine.
"""

import argparse
import random
import time
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import nnls

import dsfcnn
from dsfcnn.kernels import backend, bank
from dsfcnn.kernels.memory import keep_memory
from dsfcnn.layers import GConv2d

WAYS = ("dense", "spectral")


class Case(NamedTuple):
    images: int
    fields: int
    out: int
    kernel_size: int
    n: int
    height: int
    width: int
    training: bool


def cases(count: int, seed: int) -> Iterator[Case]:
    """Shapes whose dense convolution takes up to about 50 ms."""
    draw = random.Random(seed)
    found = 0
    while found < count:
        side = round(2 ** draw.uniform(0, 7))
        case = Case(
            draw.choice((1, 1, 2, 8)),
            round(2 ** draw.uniform(0, 5)),
            round(2 ** draw.uniform(0, 5)),
            draw.choice(bank.KERNEL_SIZES),
            draw.choice((2, 4, 4, 6, 8, 8, 12, 16)),
            side,
            max(1, round(side * 2 ** draw.uniform(-1, 1))),
            bool(found % 2),
        )
        if case.images * case.height * case.width * case.fields * case.out * (case.n * case.kernel_size) ** 2 < 1e9:
            found += 1
            yield case


def measure(case: Case, rounds: int) -> dict[str, float]:
    """Median seconds of both ways."""
    layer = GConv2d(case.fields, case.out, case.kernel_size, group=f"C{case.n}")
    x = torch.randn(case.images, case.fields, case.n, case.height, case.width, requires_grad=case.training)
    gradient = torch.randn(case.images, case.out, case.n, case.height, case.width)

    def run() -> None:
        with torch.set_grad_enabled(case.training):
            y = layer(x)
        if case.training:
            torch.autograd.grad(y, (x, layer.weight), gradient)

    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds + 2):
        for way in WAYS:
            dsfcnn.set_backend(way)
            start = time.perf_counter()
            run()
            times[way].append(time.perf_counter() - start)
    return {way: median(found[2:]) for way, found in times.items()}


def fit(found: list[tuple[Case, dict[str, float]]], way: str, training: bool) -> np.ndarray:
    """Constants that are not negative, with the least squares of relative errors."""
    rows = [(case, seconds[way]) for case, seconds in found if case.training == training]
    work = np.array([backend.work(way, case[:-1]) for case, _ in rows])
    seconds = np.array([taken for _, taken in rows])
    return nnls(work / seconds[:, None], np.ones(len(rows)))[0]


def judge(found: list[tuple[Case, dict[str, float]]], what: str, show: int) -> None:
    losses = []
    for case, seconds in found:
        chosen = backend.faster(case[:-1], case.training)
        losses.append((seconds[chosen] / min(seconds.values()) - 1, seconds["dense"] / seconds["spectral"], case))
    losses.sort(reverse=True)
    wrong = [loss for loss, _, _ in losses if loss > 0]
    above = [loss for loss in wrong if loss > 0.05]
    print(f"{what}: {len(wrong)} of {len(losses)} choices not the better one, {len(above)} of them more than 5 % slower")
    for loss, ratio, case in losses[:show]:
        if loss > 0:
            print(f"  {100 * loss:5.1f} % slower, dense / spectral {ratio:.2f}: {case}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--as-is", action="store_true", help="fit nothing")
    parser.add_argument("--show", type=int, default=8, help="worst choices to print")
    options = parser.parse_args()
    keep_memory()
    for number, threads in enumerate(options.threads):
        torch.set_num_threads(threads)
        found = [(case, measure(case, options.rounds)) for case in cases(options.cases, options.seed)]
        if number == 0 and not options.as_is:
            half = len(found) // 2
            for way in WAYS:
                for training in (False, True):
                    backend.NANOSECONDS[way, training] = tuple(float(f"{1e9 * value:.3g}") for value in fit(found[:half], way, training))
                    print(f"    {(way, training)}: {backend.NANOSECONDS[way, training]},")
            judge(found[half:], f"{threads} thread(s), shapes not used for fitting", options.show)
        else:
            judge(found, f"{threads} thread(s)", options.show)


if __name__ == "__main__":
    main()
