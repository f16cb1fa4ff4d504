"""Atoms: rings times circular harmonics, sampled on the pixel grid."""

from typing import NamedTuple

import torch
from torch import Tensor

from dsfcnn.basis.context import on_cpu
from dsfcnn.basis.rings import check_kernel_size, frequency_limits, radial_profile, ring_widths


class Atoms(NamedTuple):
    """The atoms of one kernel size. A atoms in all, ordered by ring, then by frequency."""

    values: Tensor  # A K K, complex128
    ring: Tensor  # A, j of each atom
    frequency: Tensor  # A, k of each atom


def pixel_grid(kernel_size: int) -> Tensor:
    """Pixel centres as complex numbers x + iy, (K, K): x to the right, y up, zero at the centre pixel.

    >>> pixel_grid(3)[0]
    tensor([-1.+1.j,  0.+1.j,  1.+1.j], dtype=torch.complex128)
    """
    half = kernel_size // 2
    axis = torch.arange(-half, half + 1, dtype=torch.float64)
    return torch.complex(axis.expand(kernel_size, -1), -axis[:, None].expand(-1, kernel_size))


@on_cpu
def sample_atoms(kernel_size: int) -> Atoms:
    r"""Atoms of paper Eq. (12), :math:`\psi_{jk}(u) = \tau_j(|u|) e^{ik \arg u}`, at every pixel of a K x K square.

    Each atom has unit norm. For k > 0 the centre pixel is zero: the angle has no meaning there, and any other value would
    not turn with the rest (the authors' code keeps one, and is off by 4 to 10 % at 90 degrees for it).

    >>> atoms = sample_atoms(7)
    >>> list(zip(atoms.ring.tolist(), atoms.frequency.tolist()))[:5]
    [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]
    """
    check_kernel_size(kernel_size)
    points = pixel_grid(kernel_size)
    values, rings, frequencies = [], [], []
    for ring, (limit, width) in enumerate(zip(frequency_limits(kernel_size), ring_widths(kernel_size))):
        profile = radial_profile(points.abs(), ring, width)
        for frequency in range(limit + 1):
            atom = torch.polar(profile, frequency * points.angle())
            if frequency > 0:
                atom[kernel_size // 2, kernel_size // 2] = 0
            values.append(atom / torch.linalg.vector_norm(atom))
            rings.append(ring)
            frequencies.append(frequency)
    return Atoms(torch.stack(values), torch.tensor(rings), torch.tensor(frequencies))
