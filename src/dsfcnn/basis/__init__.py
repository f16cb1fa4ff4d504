"""The fixed functions that steerable filters are made of: Gaussian rings times circular harmonics (paper Eqs. 2-12)."""

from dsfcnn.basis.atoms import Atoms, sample_atoms
from dsfcnn.basis.rings import frequency_limits, radial_profile, ring_widths

__all__ = ["Atoms", "frequency_limits", "radial_profile", "ring_widths", "sample_atoms"]
