"""The fast G-convolution: its generator and C source, its loader, and the choice between it and the dense one."""

from dsfcnn.kernels.backend import get_backend, reads_fields, runs_spectral, set_backend
from dsfcnn.kernels.calls import Activation
from dsfcnn.kernels.spectral import activate, field_moments, max_pool, spectral_gconv

__all__ = [
    "Activation",
    "activate",
    "field_moments",
    "get_backend",
    "max_pool",
    "reads_fields",
    "runs_spectral",
    "set_backend",
    "spectral_gconv",
]
