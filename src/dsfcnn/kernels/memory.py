"""How the process gets memory for large maps."""

import ctypes
import sys
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of mallopt in glibc's malloc.h


def keep_memory() -> bool:
    """Reuse the memory of large tensors instead of giving it back to the system after each operation; False where that cannot be set.

    glibc asks the system for every block above 32 MB anew, and the system clears it page by page before the first use: a pass over memory
    for nothing, at every layer. The process then keeps the most memory that it ever needed, so this is for programs that own
    their process, as the commands of dsfcnn do; a library must not decide it for its user.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    return bool(mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, 2**31 - 1))


def give_back_memory() -> None:
    """What the process has kept and does not use goes back to the system: holes between large maps would add up."""
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
