"""Memory of large maps is kept for the next ones, until it is given back."""

import subprocess
import sys

PROGRAM = """
import numpy as np
from dsfcnn.kernels.memory import give_back_memory, keep_memory

def resident():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * 4096 // 2**20

keep_memory()
maps = [np.ones(2**23) for _ in range(4)]  # 64 MB each
used = resident()
del maps[:3]  # the last one lies above them: the heap cannot shrink from its end
kept = resident()
give_back_memory()
print(used - kept, kept - resident())
"""


def test_free_maps_are_kept_and_then_given_back():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    by_deleting, by_giving_back = map(int, done.stdout.split())
    assert by_deleting < 10
    assert by_giving_back > 180
