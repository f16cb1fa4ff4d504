"""Several maps read as one."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dsfcnn.kernels import field_moments


class Joined:
    """Maps (N, C, G, H, W) as if they were joined along their fields, with the moments of each computed once, however many norms ask.

    ``own`` says that nobody else reads them any more, so that they may be written over.
    """

    def __init__(self, maps: Sequence[Tensor], own: bool = False):
        self.maps, self.own = list(maps), own
        self._moments: list[tuple[Tensor, Tensor]] = []

    def add(self, more: Tensor) -> None:
        self.maps.append(more)

    def tensor(self) -> Tensor:
        return torch.cat(self.maps, dim=1) if len(self.maps) > 1 else self.maps[0]

    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of every field."""
        self._moments += [field_moments(x) for x in self.maps[len(self._moments) :]]
        means, variances = zip(*self._moments)
        return torch.cat(means), torch.cat(variances)

    def numbers(self) -> int:
        """How many numbers each field has."""
        return self.maps[0].numel() // self.maps[0].shape[1]

    def fit(self, fields: int, size: int | None = None) -> bool:
        """Whether these are maps with so many fields in all (and orientations), alike in everything else."""
        if not all(isinstance(x, Tensor) and x.dim() == 5 for x in self.maps):  # a tracer passes stand-ins
            return False
        shapes = {(x.shape[0], *x.shape[2:]) for x in self.maps}
        return len(shapes) == 1 and sum(x.shape[1] for x in self.maps) == fields and size in (None, self.maps[0].shape[2])
