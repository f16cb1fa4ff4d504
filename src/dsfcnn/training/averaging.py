"""The moving average of a model's weights, which is what is validated and kept.

Batch norms of averaged weights need statistics of their own: those of the weights in training, a short memory of the last few batches, fit
them badly while the learning rate is high, and cost nuclei 0.02 of PQ and 0.03 of binary Dice in the middle of a run.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn


@torch.no_grad()
def follow(averaged: nn.Module, model: nn.Module, decay: float, step: int) -> None:
    """One step of the average; it is shorter in the beginning, when the first weights still mean nothing."""
    decay = min(decay, (step + 1) / (step + 10))
    for weight, new in zip(averaged.parameters(), model.parameters()):
        weight.lerp_(new, 1 - decay)


@torch.no_grad()
def settle(averaged: nn.Module, batches: Iterable[Tensor]) -> None:
    """Statistics of the averaged model's batch norms: the mean over ``batches`` of images. Nothing else is in training, dropout neither.

    What earlier batches left has no part in it, their number neither: a run that was stopped meanwhile does this again.
    """
    norms: list[Any] = [module for module in averaged.modules() if hasattr(module, "momentum")]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
        if hasattr(norm, "num_batches_tracked"):
            norm.num_batches_tracked.zero_()
    try:
        for number, images in enumerate(batches):
            for norm in norms:
                norm.momentum = 1 / (number + 1)
            averaged(images)
    finally:
        for norm, momentum in zip(norms, momenta):
            norm.momentum = momentum
            norm.eval()
