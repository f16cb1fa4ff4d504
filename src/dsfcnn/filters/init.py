"""How large the first weights are: so that the signal keeps its variance from layer to layer."""

import math

import torch
from torch import Tensor

from dsfcnn.filters.bank import FilterBasis

# Share of a map's energy that is its mean. Right after a ReLU on symmetric noise it is 1 / pi; with depth it goes to 1, since smooth
# filters pass the mean best. Measured over ten layers (kernel sizes 3 to 9, C1 to C12, 6 to 32 fields, white and smooth inputs), 0.6
# keeps the variance best.
_MEAN_SHARE = 0.6


def weight_deviation(basis: FilterBasis, inputs: int) -> Tensor:
    r"""Standard deviation of each weight, (L,), for filters that read ``inputs`` planes and feed a ReLU.

    He's rule asks for :math:`2 / (\text{inputs} \cdot g)` with g the expected energy gain of one filter. For white noise g is the filter's
    squared norm. Feature maps are not white: they have a mean, and steerable filters, being smooth, answer it and slow
    variation 6 to 10 times more strongly than white noise. Scaled for white noise, ten 7x7 layers would multiply the variance by
    a million. So g is taken for a map whose mean holds a fixed share of its energy, and whose rest has the spectrum that filters
    of this kind give to noise.
    """
    power = _expected_power(basis)
    gain = _MEAN_SHARE * power[0, 0] + (1 - _MEAN_SHARE) * power.square().sum() / power.sum()
    return basis.spread * math.sqrt(2 / (inputs * gain.item()))


def _expected_power(basis: FilterBasis) -> Tensor:
    """E|F(omega)|^2 of filters with weights of deviation ``spread``, averaged over orientations, on a grid of spatial frequencies."""
    resolution = 4 * basis.moved.shape[-1]
    spectra = torch.fft.fft2(basis.moved, s=(resolution, resolution)).abs().square()  # G L
    return (spectra * basis.spread.square()[:, None, None]).sum(1).mean(0)
