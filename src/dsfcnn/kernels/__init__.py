"""The fast G-convolution: its generator and C source, its loader, and the choice between it and the dense one."""

from dsfcnn.kernels.backend import get_backend, runs_spectral, set_backend
from dsfcnn.kernels.spectral import spectral_gconv

__all__ = ["get_backend", "runs_spectral", "set_backend", "spectral_gconv"]
