"""Rings: the radial profiles of the atoms, and how fast an atom on each ring may oscillate."""

from numbers import Integral

import torch
from torch import Tensor

from dsfcnn.errors import KernelSizeError

# Highest frequency on rings 0, 1, 2, ... of each kernel size. 7x7 is the paper's (section III-H), 5x5 and 9x9 are those of
# the authors' code, 3x3 and 11x11 follow them: a ring of radius j has about 2 pi j pixels, and past these limits they alias.
_LIMITS = {1: (0,), 3: (0, 2), 5: (0, 2, 2), 7: (0, 2, 3, 2), 9: (0, 3, 4, 4, 3)}

# Ring widths in pixels, from the authors' code: the paper gives no value. The outermost ring is narrower, so that the
# square's edge cuts little of it off; with 0.6 there, the error of a layer at 45 degrees grows from 1 % to 4 %.
_WIDTH, _OUTER_WIDTH = 0.6, 0.4


def check_kernel_size(kernel_size: int) -> None:
    """Accept 1, 3, 5, ...; refuse the rest with the reason.

    >>> check_kernel_size(4)
    Traceback (most recent call last):
    ...
    dsfcnn.errors.KernelSizeError: kernel_size 4 has no centre pixel to turn about; use an odd size such as 3 or 5
    """
    if not isinstance(kernel_size, Integral) or isinstance(kernel_size, bool) or kernel_size < 1:
        raise KernelSizeError(f"kernel_size must be a positive odd integer but is {kernel_size!r}; use 3, 5, 7, ...")
    if kernel_size % 2 == 0:
        raise KernelSizeError(
            f"kernel_size {kernel_size} has no centre pixel to turn about; use an odd size such as {kernel_size - 1} or {kernel_size + 1}"
        )


def frequency_limits(kernel_size: int) -> tuple[int, ...]:
    """Highest angular frequency k on each ring j = 0, 1, ..., K // 2.

    >>> frequency_limits(7)
    (0, 2, 3, 2)
    >>> frequency_limits(13)
    (0, 3, 4, 4, 4, 4, 3)
    """
    check_kernel_size(kernel_size)
    if kernel_size in _LIMITS:
        return _LIMITS[kernel_size]
    rings = kernel_size // 2 + 1
    return (0, 3, *[4] * (rings - 3), 3)


def ring_widths(kernel_size: int) -> tuple[float, ...]:
    """Width (standard deviation, pixels) of each ring.

    >>> ring_widths(7)
    (0.6, 0.6, 0.6, 0.4)
    """
    check_kernel_size(kernel_size)
    outer = kernel_size // 2
    return (*[_WIDTH] * outer, _OUTER_WIDTH)


def radial_profile(radius: Tensor, ring: int, width: float) -> Tensor:
    r"""Gaussian ring, paper Eq. (11): :math:`\tau_j(r) = \exp(-|r - j|^2 / 2\sigma^2)`.

    Args:
        radius: distance :math:`r` from the filter centre in pixels, any shape.
        ring: index :math:`j`; the profile peaks where ``radius == ring``.
        width: :math:`\sigma` in pixels.

    >>> radial_profile(torch.tensor([2.0, 3.0]), ring=2, width=0.6)
    tensor([1.0000, 0.2494])
    """
    return torch.exp(-((radius - ring) ** 2) / (2 * width**2))
