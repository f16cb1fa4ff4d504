"""The spectral G-convolution beside the dense one, for every layer of a model: time of dense over time of spectral.

    python benchmarks/gconv.py [--model dsf-nuclei] [--side 256] [--batch 1] [--threads 1 2] [--rounds 7]

Both are timed in turns in one process that keeps its memory (dsfcnn.kernels.memory), as the commands do, weights included: dense writes
its filters out, spectral packs its matrices. A layer is called once before it is timed, and a short one again and again for some
milliseconds, as the layers of a network follow one another: right after the other way's calls it would find caches cold and threads
asleep. Each round goes through all layers, for what a host does beside lasts for seconds or minutes: so it falls on some rounds of every
layer, not on all rounds of some. A ratio is the median of the rounds' own, with their quartiles; the sum is over all layers of the model,
each with its median times and counted as often as it occurs. Run it on a quiet machine.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from statistics import median, quantiles
from typing import NamedTuple

import torch
from torch import Tensor

import dsfcnn
from dsfcnn.kernels import backend
from dsfcnn.kernels.memory import keep_memory
from dsfcnn.layers import GConv2d

Shape = tuple[int, int, int, int, int, int]  # fields read, written, kernel size, orientations, height, width


def layer_shapes(name: str, side: int, **options: str) -> Counter[Shape]:
    """Shapes of all hidden layers that an image of this size meets, and how often."""
    model = dsfcnn.create(name, **options).eval()
    shapes: Counter[Shape] = Counter()

    def note(layer: GConv2d, inputs: tuple[Tensor]) -> None:
        shapes[layer.in_fields, layer.out_fields, layer.kernel_size, layer.group.size, *inputs[0].shape[-2:]] += 1

    for module in model.modules():
        if isinstance(module, GConv2d):
            module.register_forward_pre_hook(note)
    with torch.no_grad():
        model(torch.zeros(1, 1 if name.endswith("digits") else 3, side, side))
    return shapes


STREAK = 0.02  # seconds


def time_of(run: Callable[[], object]) -> float:
    """Seconds of one call, as a mean over calls in a row, after one that is not counted."""
    run()
    start, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - start < STREAK:
        run()
        count += 1
    return (time.perf_counter() - start) / count


class Times(NamedTuple):
    """Seconds of every round."""

    dense: list[float]
    spectral: list[float]

    def medians(self) -> tuple[float, float]:
        return median(self.dense), median(self.spectral)

    def ratios(self) -> list[float]:
        """Quartiles of dense over spectral, round by round."""
        return quantiles([dense / ours for dense, ours in zip(self.dense, self.spectral)], n=4, method="inclusive")

    def __str__(self) -> str:
        lower, middle, upper = self.ratios()
        return f"{middle:.2f} ({lower:.2f} to {upper:.2f})"


def time_round(shape: Shape, batch: int, training: bool, times: Times) -> None:
    """Dense and spectral, once each."""
    fields, out, kernel_size, n, height, width = shape
    layer = GConv2d(fields, out, kernel_size, group=f"C{n}")
    x = torch.randn(batch, fields, n, height, width, requires_grad=training)
    gradient = torch.randn(batch, out, n, height, width)

    def run() -> None:
        with torch.set_grad_enabled(training):
            y = layer(x)
        if training:
            torch.autograd.grad(y, (x, layer.weight), gradient)

    for name, found in times._asdict().items():
        backend.set_backend(name)
        found.append(time_of(run))


def measure(shapes: list[Shape], batch: int, rounds: int) -> dict[Shape, tuple[Times, Times]]:
    """For every layer, forward and with the backward pass."""
    found = {shape: (Times([], []), Times([], [])) for shape in shapes}
    for number in range(rounds):
        for place, (shape, both) in enumerate(found.items(), 1):
            print(f"\rround {number + 1} of {rounds}, layer {place} of {len(found)} ", end="", file=sys.stderr, flush=True)
            for training, times in enumerate(both):
                time_round(shape, batch, bool(training), times)
    print(file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="dsf-nuclei")
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    keep_memory()
    shapes = layer_shapes(options.model, options.side)
    for threads in options.threads:
        torch.set_num_threads(threads)
        measured = measure(sorted(shapes, key=lambda shape: (-shape[4], shape)), options.batch, options.rounds)
        print(f"{options.model}, {options.batch} x {options.side}x{options.side}, {threads} thread(s): dense / spectral")
        print(f"{'kernel, fields, pixels':<32}{'layers':>8}  {'forward':<24}{'with backward':<24}{'cost model':>10}")
        totals, weakest = [0.0] * 4, [float("inf")] * 2
        for shape, found in measured.items():
            fields, out, kernel_size, n, height, width = shape
            count = shapes[shape]
            totals = [total + count * s for total, s in zip(totals, (*found[0].medians(), *found[1].medians()))]
            weakest = [min(least, times.ratios()[1]) for least, times in zip(weakest, found)]
            name = f"{kernel_size}x{kernel_size}, {fields} -> {out}, {height}x{width}"
            modelled = (options.batch, fields, out, kernel_size, n, height, width)
            estimate = backend.estimate("dense", modelled, False) / backend.estimate("spectral", modelled, False)
            print(f"{name:<32}{count:>8}  {found[0]!s:<24}{found[1]!s:<24}{estimate:>10.2f}", flush=True)
        print(f"{'all layers':<32}{sum(shapes.values()):>8}  {totals[0] / totals[1]:<24.2f}{totals[2] / totals[3]:<24.2f}")
        print(f"{'weakest':<32}{'':>8}  {weakest[0]:<24.2f}{weakest[1]:<24.2f}\n", flush=True)


if __name__ == "__main__":
    main()
