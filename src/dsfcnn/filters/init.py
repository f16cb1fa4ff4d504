"""The first weights: drawn so that the signal keeps its variance from layer to layer, with every single draw."""

import math

import torch
from torch import Tensor, nn

from dsfcnn.filters.bank import FilterBasis

# Layers without normalisation after which white noise and constant maps end equally far from where they began, one below and one above.
_DEPTH = 10


def expected_gain(moved: Tensor, spread: Tensor) -> float:
    r"""Energy that filters with weights of deviation ``spread`` make of a map of unit energy.

    He's rule then asks for weights of variance :math:`2 / (\text{planes read} \cdot \text{gain})` before a ReLU.

    A constant map gives :math:`P_0 = \sum_l s_l^2 (\sum_u \psi_l(u))^2`. White noise gives
    :math:`P_1 = \sum_l s_l^2 \sum_u \psi_l(u)^2`, which is :math:`\rho = P_0 / P_1` times less: 4 to 8 for steerable filters, 1 to 1.3 for
    ordinary ones. No size of weights suits both. With gain :math:`P_0` constant maps keep their energy but for the zeros around them; white
    noise loses a factor :math:`\rho` in the first layer and some more, until ReLUs have turned the rest into a mean. After ten layers on
    maps of 32 pixels, 1 lies midway between the two (as a ratio) if energy grows by about :math:`2 \rho^{3/4}` over the ten: measured for
    3x3 to 11x11 filters of both kinds. So the gain is :math:`P_0 / (2 \rho^{3/4})^{1/10}`.
    """
    energy = spread.square()
    constant = (moved.sum((-2, -1)).square() @ energy).mean().item()
    white = (moved.square().sum((-2, -1)) @ energy).mean().item()
    return constant / (2 * (constant / white) ** 0.75) ** (1 / _DEPTH)


def _deviation(weight: Tensor, basis: FilterBasis) -> Tensor:
    """Standard deviation of the weights (out, planes read..., L) by He's rule: (L,)."""
    return basis.spread * math.sqrt(2 / (weight[0, ..., 0].numel() * basis.gain))


def draw_weights(weight: Tensor, basis: FilterBasis) -> None:
    """Fill (out, planes read..., L) with independent weights."""
    if weight.is_meta:  # nothing to fill, and drawing there is slow
        return
    with torch.no_grad():
        weight.normal_().mul_(_deviation(weight, basis).to(weight))


def draw_pairs(weight: Tensor, basis: FilterBasis) -> None:
    r"""Fill (out, in, L) or (out, in, G, L) with weights of that size that keep the signal in every draw, not only on average.

    With independent weights the energy after a ReLU depends on how much of it happens to be positive, and on how long the few columns are
    that a mean passes through: ten layers of 8 fields scatter over a factor of 1000. Three measures leave hardly any scatter:

    - Output fields come in pairs of opposite weights. A ReLU then splits y into :math:`y^+` and :math:`y^-`, and
      :math:`|y^+|^2 + |y^-|^2 = |y|^2` whatever the signs.
    - A layer on fields reads every other pair as :math:`y^+ - y^- = y`, and those between as :math:`y^+ + y^- = |y|`. Either has the energy
      of y. The first passes on signs, the second turns noise into a mean, as ReLUs do.
    - From pair to pair, the answers to a constant map form an orthogonal matrix, so that a mean keeps its length. Apart from this condition
      weights are normal.

    An odd number of fields leaves one without partner: of 20 draws, 9 of 5 fields, 7 of 7 and 3 of 9 still end beyond a factor of 10, none
    of 13. The two of a pair answer at different places, so that training parts them from its first step. Balduzzi et al. (2017) start with
    :math:`y^+ - y^-` alone; smooth filters would then wipe out noise.
    """
    if weight.is_meta:
        return
    outputs, inputs = weight.shape[:2]
    reads_fields = weight.dim() == 4
    pairs = (-(-outputs // 2), -(-inputs // 2) if reads_fields else inputs)
    with torch.no_grad():
        drawn = torch.randn(*pairs, *weight.shape[2:], device=weight.device, dtype=torch.promote_types(weight.dtype, torch.float32))
        scale = _deviation(weight, basis).to(drawn)
        drawn = _with_orthogonal_answers(drawn * scale, scale, basis.moved.sum((-2, -1)).mean(0).to(drawn))
        if reads_fields:
            sign = torch.ones_like(drawn)
            sign[:, ::2] = -1
            drawn = torch.stack((drawn, sign * drawn), dim=2).flatten(1, 2)[:, :inputs]
        weight.copy_(torch.stack((drawn, -drawn), dim=1).flatten(0, 1)[:outputs])


def _with_orthogonal_answers(drawn: Tensor, scale: Tensor, answers: Tensor) -> Tensor:
    """Normal weights (out, in, ..., L) of deviation ``scale`` under the condition that what they make of a constant map,
    the (out, in) sums of ``drawn * answers``, is an orthogonal matrix times what keeps its mean square.
    """
    free = drawn[0, 0].numel() // len(scale)  # weights per picture: 1, or the order of the group
    variance = free * (scale * answers).square().sum()  # of one sum
    wanted = nn.init.orthogonal_(torch.empty_like(drawn.flatten(2)[..., 0])) * (variance * max(drawn.shape[:2])).sqrt()
    missing = wanted - (drawn * answers).flatten(2).sum(-1)
    return drawn + missing.view(*missing.shape, *[1] * (drawn.dim() - 2)) * (scale.square() * answers / variance)
