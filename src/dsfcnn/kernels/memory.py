"""How the process gets memory for large maps."""

import ctypes
import sys
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # of mallopt in glibc's malloc.h
_LARGEST_THRESHOLD = 2**25  # bytes that glibc allows at most


def keep_memory() -> bool:
    """Reuse the memory of large tensors instead of giving it back to the system after each operation; False where that cannot be set.

    glibc asks the system for every block above 32 MB anew, and the system clears it page by page before the first use: a pass over memory
    for nothing, at every layer. The process then keeps the most memory that it ever needed, so this is for programs that own
    their process, as the commands of dsfcnn do; a library must not decide it for its user.
    """
    return _set((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1))


def keep_small_memory() -> bool:
    """As ``keep_memory``, for tensors up to 32 MB; larger ones go back to the system at once and leave no holes between each other.

    A prediction then needs a third less memory and some 6 % more time (docs/performance.md).
    """
    return _set((_MMAP_THRESHOLD, _LARGEST_THRESHOLD), (_TRIM_THRESHOLD, 2**31 - 1))


def _set(*settings: tuple[int, int]) -> bool:
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    return all(mallopt(name, value) for name, value in settings)


def give_back_memory() -> None:
    """What the process has kept and does not use goes back to the system: holes between large maps would add up."""
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
