"""Ordinary filters, one weight per pixel, turned by bilinear interpolation: the paper's standard G-CNN."""

from functools import cache

import torch
from torch import Tensor

from dsfcnn.basis.atoms import pixel_grid
from dsfcnn.basis.context import on_cpu
from dsfcnn.basis.rings import check_kernel_size
from dsfcnn.filters.bank import FilterBasis
from dsfcnn.filters.init import expected_gain
from dsfcnn.groups import Group


@cache
@on_cpu
def rotated_basis(kernel_size: int, group: Group) -> FilterBasis:
    """Weights of an ordinary filter: its pixels, row by row.

    Groups whose every element maps the grid onto itself (C1, C2, C4, D1, D2, D4) use the whole square. The others keep to the
    disc of radius K // 2 + 0.5, as the paper does for C8 and C12: corners would turn out of the square. Pixels outside the disc
    are counted by the paper and not stored here.
    """
    check_kernel_size(kernel_size)
    points = pixel_grid(kernel_size)
    exact = all(group.is_exact(element) for element in range(group.size))
    inside = torch.ones(points.shape, dtype=torch.bool) if exact else points.abs() <= kernel_size // 2 + 0.5
    taps = points[inside]  # L
    moved = torch.stack([_turned_pictures(points, taps, group, element) for element in range(group.size)])
    moved, spread = moved * inside, torch.ones(len(taps)).double()
    return FilterBasis(moved, spread, expected_gain(moved, spread), paper_count=kernel_size**2)


def _turned_pictures(points: Tensor, taps: Tensor, group: Group, element: int) -> Tensor:
    """A unit weight at each tap, moved by the element: (K, K), (L,) -> (L, K, K).

    The moved filter at u is the unmoved one at g^-1 u, read between its four nearest taps with weights that fall off linearly.
    """
    apart = group.move(points, group.inverse(element)) - taps[:, None, None]
    return (1 - apart.real.abs()).clamp(min=0) * (1 - apart.imag.abs()).clamp(min=0)
