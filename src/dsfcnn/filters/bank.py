"""The two filter banks of the paper, for any group and any kind of filter.

Both kinds of filter are linear in their weights: a filter moved by the group element g is ``sum_l weight[l] * moved[g, l]``,
with fixed pictures ``moved``. Steerable filters have one picture per atom and live part of its complex weight, ordinary
filters one per pixel. So one piece of code serves both.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class FilterBasis(NamedTuple):
    """What one weight of a filter adds to it, in every orientation."""

    moved: Tensor  # G L K K, float64
    spread: Tensor  # L, relative standard deviation of each weight at initialisation
    gain: float  # how much of a feature map's energy such a filter passes, see expected_gain in filters/init.py
    paper_count: int  # numbers per filter as the paper counts them: dead ones included


def lifting_bank(weight: Tensor, moved: Tensor) -> Tensor:
    r"""Input-layer filters, paper Eq. (19): :math:`\mathrm{Re}(\sum_{jk} w_{jk} e^{-ik\theta}\psi_{jk})` for each theta.

    (out, in, L), (G, L, K, K) -> (out G, in, K, K), ready for conv2d.
    """
    return torch.einsum("oil,tlhw->otihw", weight, moved).flatten(0, 1)


def hidden_bank(weight: Tensor, moved: Tensor, offsets: Tensor) -> Tensor:
    r"""Hidden-layer filters, paper Eq. (18): :math:`\mathrm{Re}(w_{jk(\theta-\varphi)} e^{-ik\varphi}\psi_{jk})`.

    Output orientation theta (t) reads input orientation phi (p) through the weights of the element phi^-1 theta, moved by phi.
    (out, in, G, L), (G, L, K, K), (G, G) -> (out G, in G, K, K), ready for conv2d.
    """
    size = offsets.shape[0]
    by_pair = weight.index_select(2, offsets.flatten()).unflatten(2, (size, size))  # o i t p l
    return torch.einsum("oitpl,plhw->otiphw", by_pair, moved).flatten(2, 3).flatten(0, 1)
