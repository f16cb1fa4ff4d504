"""How exactly do the networks turn with their input?

A network is equivariant when turning the image turns the answer and changes nothing else. Each row of the table turns two images, compares
the network's answer for the turned images with its turned answer for the upright ones, and prints the relative difference: 0 is exact,
1e-2 is one part in a hundred, about 1 is no relation at all. Quarter turns move pixels onto pixels, so only rounding remains (about 1e-7).
At 45 degrees pixels fall between pixels, and filters and pooling leave a small error.

    python benchmarks/equivariance.py             ten sets of random weights
    python benchmarks/equivariance.py --seeds 1   a first look
"""

import argparse
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor, nn

from dsfcnn.layers import AntialiasedPool, GBatchNorm, GConv2d, GPool, LiftConv2d, MaxPool
from dsfcnn.testing import equivariance_error

GROUP, ORIENTATIONS = "C8", 8
FIELDS, KERNEL = 6, 7
SIDE, BLUR = 128, 2.0  # pixels


def smooth_noise(count: int, seed: int) -> Tensor:
    """Random images (count, 3, SIDE, SIDE) without detail finer than a few pixels, of unit variance."""
    noise = np.random.default_rng(seed).standard_normal((count, 3, SIDE, SIDE))
    smooth = ndimage.gaussian_filter(noise, sigma=(0, 0, BLUR, BLUR), mode="wrap")
    return torch.tensor(smooth / smooth.std(axis=(-2, -1), keepdims=True), dtype=torch.float32)


def input_layer() -> nn.Module:
    return LiftConv2d(3, FIELDS, KERNEL, group=GROUP)


def hidden_layer() -> nn.Module:
    return GConv2d(FIELDS, FIELDS, KERNEL, group=GROUP)


def two_layers() -> nn.Module:
    return nn.Sequential(input_layer(), nn.ReLU(), hidden_layer())


def four_layers(pool: type[nn.Module]) -> nn.Module:
    """Four layers, the first two followed by pooling; the maximum over orientations at the end leaves ordinary maps."""
    convolutions = [input_layer(), hidden_layer(), hidden_layer(), hidden_layer()]
    blocks = [nn.Sequential(convolution, GBatchNorm(FIELDS), nn.ReLU()) for convolution in convolutions]
    return with_statistics(nn.Sequential(blocks[0], pool(), blocks[1], pool(), *blocks[2:], GPool()))


def four_plain_layers() -> nn.Module:
    """The same depth and width in ordinary convolutions, which know nothing of turning."""
    width = FIELDS * ORIENTATIONS
    blocks = [
        nn.Sequential(nn.Conv2d(channels, width, KERNEL, padding=KERNEL // 2, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        for channels in (3, width, width, width)
    ]
    return with_statistics(nn.Sequential(blocks[0], nn.MaxPool2d(2), blocks[1], nn.MaxPool2d(2), *blocks[2:]))


def with_statistics(network: nn.Module) -> nn.Module:
    """Batch norms that have seen three batches, as at the start of training: a quarter of the way from 0 and 1 to the true statistics."""
    network.train()
    with torch.no_grad():
        for seed in (1, 2, 3):
            network(smooth_noise(4, seed))
    return network.eval()


class Row(NamedTuple):
    name: str
    build: Callable[[], nn.Module]
    goal: float | None  # error at 45 degrees that this package sets itself
    escnn: float | None  # the same with escnn 1.0.11 and its own initial weights, mean of three seeds; its pooling with windows of 2


ROWS = [
    Row("input layer", input_layer, 1.0e-2, 1.26e-2),
    Row("input layer, ReLU, hidden layer", two_layers, 1.6e-2, 2.31e-2),
    Row("four layers, MaxPool", lambda: four_layers(MaxPool), 7e-2, 9.0e-2),
    Row("four layers, AntialiasedPool", lambda: four_layers(AntialiasedPool), 4e-2, 6.3e-2),
    Row("four ordinary layers, no group", four_plain_layers, None, None),
]


def mean_errors(build: Callable[[], nn.Module], images: Tensor, seeds: int) -> dict[float | str, float]:
    """Errors by angle, averaged over networks with different random weights."""
    runs = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        runs.append(equivariance_error(build(), images, group=GROUP, angles=(45, 90)))
    return {angle: sum(run[angle] for run in runs) / seeds for angle in runs[0]}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="sets of random weights to average over (default: 10)")
    seeds = parser.parse_args(arguments).seeds
    if seeds < 1:
        parser.error(f"--seeds must be 1 or more but is {seeds}")

    weights = "one set of random weights" if seeds == 1 else f"mean of {seeds} sets of random weights"
    print(f"Does turning the image only turn the answer? Relative difference, 0 is exact; {weights}.")
    print(f"{GROUP}, {FIELDS} fields, {KERNEL}x{KERNEL} filters, two smooth random images of {SIDE}x{SIDE} pixels.\n")
    print(f"{'network':<34}{'45 degrees':>12}{'90 degrees':>12}{'goal, 45':>12}{'escnn, 45':>12}")
    images = smooth_noise(2, seed=0)
    for row in ROWS:
        errors = mean_errors(row.build, images, seeds)
        known = [f"{figure:.2e}" if figure else "-" for figure in (row.goal, row.escnn)]
        print(f"{row.name:<34}{errors[45]:>12.2e}{errors[90]:>12.2e}{known[0]:>12}{known[1]:>12}", flush=True)


if __name__ == "__main__":
    main()
