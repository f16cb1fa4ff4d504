"""From weights to filters in every orientation: steerable ones (Eqs. 18, 19) and ordinary ones turned by interpolation."""

from dsfcnn.filters.bank import FilterBasis, hidden_bank, lifting_bank
from dsfcnn.filters.init import weight_deviation
from dsfcnn.filters.rotated import rotated_basis
from dsfcnn.filters.steerable import steerable_basis

__all__ = [
    "FilterBasis",
    "hidden_bank",
    "lifting_bank",
    "rotated_basis",
    "steerable_basis",
    "weight_deviation",
]
