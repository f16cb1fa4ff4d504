"""From weights to filters in every orientation: steerable ones (Eqs. 18, 19) and ordinary ones turned by interpolation."""

from dsfcnn.filters.bank import FilterBasis, hidden_bank, lifting_bank
from dsfcnn.filters.init import draw_pairs, draw_weights
from dsfcnn.filters.rotated import rotated_basis
from dsfcnn.filters.steerable import steerable_basis

__all__ = [
    "FilterBasis",
    "draw_pairs",
    "draw_weights",
    "hidden_bank",
    "lifting_bank",
    "rotated_basis",
    "steerable_basis",
]
