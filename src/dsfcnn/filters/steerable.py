"""Steerable filters: learned combinations of atoms, which turn exactly."""

from functools import cache

import torch

from dsfcnn.basis import sample_atoms
from dsfcnn.basis.context import on_cpu
from dsfcnn.filters.bank import FilterBasis
from dsfcnn.filters.init import expected_gain
from dsfcnn.groups import Group


@cache
@on_cpu
def steerable_basis(kernel_size: int, group: Group) -> FilterBasis:
    """Weights of a steerable filter: the real part of each atom's weight, then the imaginary parts of those with k > 0.

    The imaginary part of a frequency-0 weight multiplies a real atom and has no effect; it is counted by the paper and not
    stored here.
    """
    atoms = sample_atoms(kernel_size)
    steered = group.steer(atoms.values, atoms.frequency)  # G A K K 2
    oscillates = atoms.frequency > 0
    moved = torch.cat((steered[..., 0], steered[:, oscillates][..., 1]), dim=1)  # G L K K
    ring, frequency = (torch.cat((of, of[oscillates])).double() for of in (atoms.ring, atoms.frequency))
    # The finer an atom oscillates, the worse pixels hold it between quarter turns: start with less of it. Equal parts gave a four-layer
    # network 1.4 times the error at 45 degrees (five sets of weights). Outer rings have more pixels and so answer the mean of a map most,
    # compared to noise: with less of them, 11x11 filters answer it 8 and not 15 times more strongly, see expected_gain.
    spread = 1 / ((1 + ring) * (1 + frequency).sqrt())
    return FilterBasis(moved, spread, expected_gain(moved, spread), paper_count=2 * len(oscillates))
