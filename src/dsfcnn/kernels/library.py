"""The compiled kernel: found, checked and loaded when it is first needed."""

import ctypes
import os
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

NAMES = ("_gconv_avx512", "_gconv")  # built from the same files, the faster one first


class Library(NamedTuple):
    """The functions of gconv.c, or why there are none."""

    functions: ctypes.CDLL | None
    reason: str  # in a user's words, after "dense convolutions, because"; empty if there are functions


@cache
def load() -> Library:
    """Nothing is raised here: without the library every layer is computed densely."""
    found = Library(None, "the kernel was not built; install a C compiler such as gcc and install dsfcnn again")
    for file in built():
        try:
            functions = ctypes.CDLL(str(file))
        except OSError as error:
            found = Library(None, f"the kernel cannot be loaded ({error}); install dsfcnn again")
            continue
        if functions.dsfcnn_supported():
            declare(functions)
            return Library(functions, "")
        found = Library(None, "this processor lacks AVX2 or FMA")
    return found


def built() -> list[Path]:
    """The files of the kernel that are there, in the order in which they are tried."""
    places = [Path(__file__).parent / f"{name}{suffix}" for name in NAMES for suffix in EXTENSION_SUFFIXES]
    return [place for place in places if place.exists()]


def declare(functions: ctypes.CDLL) -> None:
    """What the function of every convolution takes and returns, and whose threads it shares."""
    functions.dsfcnn_gconv.restype, functions.dsfcnn_gconv.argtypes = ctypes.c_int, [ctypes.c_void_p]
    functions.dsfcnn_use_openmp(*_openmp_of_torch())


def _openmp_of_torch() -> list[ctypes.c_void_p]:
    """The functions by which torch's own threads are given work and know their numbers, or null pointers."""
    try:
        runtime = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)  # only if torch has loaded it already
        return [ctypes.cast(function, ctypes.c_void_p) for function in (runtime.GOMP_parallel, runtime.omp_get_thread_num)]
    except (OSError, AttributeError):
        return [ctypes.c_void_p(None)] * 2
