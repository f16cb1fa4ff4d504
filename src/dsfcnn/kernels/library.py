"""The compiled kernel: found, checked and loaded when it is first needed."""

import ctypes
import os
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple


class Library(NamedTuple):
    """The functions of gconv.c, or why there are none."""

    functions: ctypes.CDLL | None
    reason: str  # in a user's words, after "dense convolutions, because"; empty if there are functions


@cache
def load() -> Library:
    """Nothing is raised here: without the library every layer is computed densely."""
    folder = Path(__file__).parent
    files = [folder / f"_gconv{suffix}" for suffix in EXTENSION_SUFFIXES if (folder / f"_gconv{suffix}").exists()]
    if not files:
        return Library(None, "the kernel was not built; install a C compiler such as gcc and install dsfcnn again")
    try:
        functions = ctypes.CDLL(str(files[0]))
    except OSError as error:
        return Library(None, f"the kernel cannot be loaded ({error}); install dsfcnn again")
    if not functions.dsfcnn_supported():
        return Library(None, "this processor lacks AVX2 or FMA")
    declare(functions)
    functions.dsfcnn_use_openmp(_openmp_of_torch())
    return Library(functions, "")


def declare(functions: ctypes.CDLL) -> None:
    """What the function of every convolution takes and returns."""
    functions.dsfcnn_gconv.restype, functions.dsfcnn_gconv.argtypes = ctypes.c_int, [ctypes.c_void_p]


def _openmp_of_torch() -> ctypes.c_void_p:
    """The function by which torch's own threads are given work, or a null pointer."""
    try:
        runtime = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)  # only if torch has loaded it already
        return ctypes.cast(runtime.GOMP_parallel, ctypes.c_void_p)
    except (OSError, AttributeError):
        return ctypes.c_void_p(None)
