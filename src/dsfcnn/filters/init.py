"""How large the first weights are: so that the signal keeps its variance from layer to layer."""

import torch
from torch import Tensor

# Share of a map's energy that is its mean. Right after a ReLU on symmetric noise it is 1 / pi; with depth it goes to 1, since smooth
# filters pass the mean best. Chosen between: over ten layers of 3x3 to 9x9 filters, smooth input then ends at 0.1 to 6 times its second
# moment, white noise at 0.03 to 0.9 (tests/filters/test_init.py).
_MEAN_SHARE = 0.55


def expected_gain(moved: Tensor, spread: Tensor) -> float:
    r"""Energy that a filter with weights of deviation ``spread`` makes of a feature map of unit energy, on average.

    He's rule then asks for weights of variance :math:`2 / (\text{planes read} \cdot \text{gain})` before a ReLU. For white noise the gain
    is the filter's squared norm. Feature maps are not white: they have a mean, and steerable filters, being smooth, answer it and slow
    variation 6 to 10 times more strongly than white noise. Scaled for white noise, ten 7x7 layers would multiply the variance by a
    million. So the gain is taken for a map whose mean holds a fixed share of its energy, and whose rest has the spectrum that such
    filters give to noise.
    """
    power = _expected_power(moved, spread)
    return (_MEAN_SHARE * power[0, 0] + (1 - _MEAN_SHARE) * power.square().sum() / power.sum()).item()


def _expected_power(moved: Tensor, spread: Tensor) -> Tensor:
    """E|F(omega)|^2 of random filters, averaged over orientations, on a grid of spatial frequencies."""
    resolution = 4 * moved.shape[-1]
    spectra = torch.fft.fft2(moved, s=(resolution, resolution)).abs().square()  # G L
    return (spectra * spread.square()[:, None, None]).sum(1).mean(0)
