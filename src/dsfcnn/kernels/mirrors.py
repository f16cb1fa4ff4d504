"""A layer of D_n as a layer of C_n with twice as many fields, which is what the kernel computes.

A field over D_n is two fields over C_n, one of the turns and one of the mirrored turns: the same numbers in the same places. In Eq. (18)
an input that is not mirrored meets the weights of offset ``phi^-1 theta = (t - p, mirrored or not)``, as under C_n; a mirrored one meets
those of ``(p - t, the other way round)``, turned backwards and conjugated, since a mirror conjugates the weights of atoms.
"""

from functools import cache

import torch
from torch import Tensor

from dsfcnn.basis import sample_atoms
from dsfcnn.basis.context import on_cpu
from dsfcnn.kernels.calls import Activation


@cache
@on_cpu
def _conjugate(kernel_size: int) -> Tensor:
    """(L,): 1 for the real part of each atom's weight, -1 for the imaginary parts after them."""
    frequency = sample_atoms(kernel_size).frequency
    return torch.cat((torch.ones(len(frequency)), -torch.ones(int((frequency > 0).sum()))))


def cyclic_weight(weight: Tensor, kernel_size: int) -> Tensor:
    """(out, in, 2 n, L) of D_n -> (2 out, 2 in, n, L) of C_n."""
    out, fields, size, live = weight.shape
    turns = size // 2
    upright = weight.unflatten(2, (2, turns))  # out, in, mirrored or not, turn, L
    backwards = upright.roll(-1, 3).flip(2, 3)  # weights of turn -t, mirrored where those were not
    both = torch.stack((upright, backwards * _conjugate(kernel_size)), dim=2)  # out, in, input mirrored, output mirrored, turn, L
    return both.permute(0, 3, 1, 2, 4, 5).reshape(2 * out, 2 * fields, turns, live)


def cyclic_fields(x: Tensor) -> Tensor:
    """(N, C, 2 n, H, W) -> (N, 2 C, n, H, W), a view where memory allows."""
    return x.unflatten(2, (2, -1)).flatten(1, 2)


def dihedral_fields(x: Tensor) -> Tensor:
    """Back from there."""
    return x.unflatten(1, (-1, 2)).flatten(2, 3)


def cyclic_activation(activation: Activation) -> Activation:
    """The two fields of each field are read alike."""
    return Activation(*(number.repeat_interleave(2) for number in activation))
