"""Rotation-equivariant CNNs for histology: steerable group convolutions, DSF-CNN and its tools.

The names below are loaded when first used, so that ``import dsfcnn`` and ``dsfcnn --help`` need no torch.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

try:
    __version__ = version("dsfcnn")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"

_MODULES = ("basis", "data", "errors", "filters", "groups", "layers", "models", "tasks", "testing")
_NAMES = {
    "create": "dsfcnn.models",
    "fold": "dsfcnn.layers.fold",
    "load": "dsfcnn.inference.predictor",
    "load_model": "dsfcnn.models",
    "metrics": "dsfcnn.tasks",
    "save_model": "dsfcnn.models",
    "set_backend": "dsfcnn.kernels",
}

__all__ = ["__version__", *_MODULES, *_NAMES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"dsfcnn.{name}")
    if name in _NAMES:
        value = getattr(import_module(_NAMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'dsfcnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
