"""Memory of maps is kept for the next ones, until it is given back."""

import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np
from dsfcnn.kernels.memory import give_back_memory, {keep}

def resident():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * 4096 // 2**20

{keep}()
maps = [np.ones(2**17 * {megabytes}) for _ in range(4)]
used = resident()
del maps[:3]  # the last one lies above them: the heap cannot shrink from its end
kept = resident()
give_back_memory()
print(used - kept, kept - resident())
"""


@pytest.mark.parametrize(
    ("keep", "megabytes", "stays"), [("keep_memory", 64, True), ("keep_small_memory", 16, True), ("keep_small_memory", 64, False)]
)
def test_free_maps_are_kept_and_then_given_back(keep, megabytes, stays):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(keep=keep, megabytes=megabytes)], capture_output=True, text=True, check=True
    )
    by_deleting, by_giving_back = map(int, done.stdout.split())
    few, most = 10, 3 * megabytes - 10
    assert (by_deleting < few and by_giving_back > most) if stays else (by_deleting > most and by_giving_back < few)
