"""What every group supplies: its size, its composition table, how it steers atoms and how it moves points."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Group(ABC):
    """A finite group of turns of the plane, with or without mirrors. Its elements are the integers 0 .. size - 1.

    An element first mirrors the plane in the horizontal axis, if ``mirrors(element)``, and then turns it counter-clockwise by
    ``angle(element)``. Element 0 is the identity. A subclass says how many elements there are, what each does and how two
    compose; everything a layer needs follows from that.
    """

    orientations: int  # n, the number of rotations

    @property
    @abstractmethod
    def name(self) -> str:
        """As written by users: C8, D4."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of elements, G."""

    @abstractmethod
    def compose(self, first: int, second: int) -> int:
        """The element that does ``second`` and then ``first``, as matrices multiply."""

    @abstractmethod
    def mirrors(self, element: int) -> bool:
        """Whether the element turns the plane over."""

    def angle(self, element: int) -> float:
        """Radians of the element's turn, counter-clockwise."""
        return 2 * math.pi * (element % self.orientations) / self.orientations

    def degrees(self, element: int) -> float:
        return 360 * (element % self.orientations) / self.orientations

    def inverse(self, element: int) -> int:
        """A mirror followed by a turn undoes itself; a turn is undone by the opposite one."""
        return element if self.mirrors(element) else -element % self.orientations

    def is_exact(self, element: int) -> bool:
        """Whether the element maps the pixel grid onto itself: a multiple of 90 degrees, mirrored or not."""
        return 4 * (element % self.orientations) % self.orientations == 0

    def offsets(self) -> Tensor:
        """(G, G): the element phi^-1 theta for each theta (row) and phi (column); for C_n, theta - phi of Eq. (18)."""
        rows = [[self.compose(self.inverse(phi), theta) for phi in range(self.size)] for theta in range(self.size)]
        return torch.tensor(rows)

    def steer(self, atoms: Tensor, frequency: Tensor) -> Tensor:
        r"""Every atom moved by every element: (A, K, K) complex -> (G, A, K, K, 2) real.

        Turning by :math:`\theta` multiplies the weight of a frequency-k atom by :math:`e^{-ik\theta}` (paper Eq. 14); a
        mirror conjugates it. The last axis holds what the real and the imaginary part of the weight contribute, so the
        moved filter :math:`\mathrm{Re}(w e^{-ik\theta}\psi)` is ``(weight * steered).sum()`` over atoms and parts.
        """
        angles = torch.tensor([self.angle(element) for element in range(self.size)], dtype=torch.float64)
        phase = torch.polar(torch.ones(()).double(), -angles[:, None] * frequency)  # G A
        turned = phase[:, :, None, None] * atoms  # G A K K
        mirrored = torch.tensor([self.mirrors(element) for element in range(self.size)])[:, None, None, None]
        return torch.stack((turned.real, torch.where(mirrored, turned.imag, -turned.imag)), dim=-1)

    def move(self, points: Tensor, element: int) -> Tensor:
        """Points of the plane, as complex numbers, carried by the element."""
        turn = complex(math.cos(self.angle(element)), math.sin(self.angle(element)))
        return turn * (points.conj().resolve_conj() if self.mirrors(element) else points)

    def __str__(self) -> str:
        return self.name
