"""Decoding beside the network: a worker that dies is replaced, and one that always dies ends the run with the tile's name."""

import os
import signal

import numpy as np

from dsfcnn.errors import DsfcnnError
from dsfcnn.inference.decoding import Decoding
from dsfcnn.inference.state import State
from dsfcnn.inference.tiles import make_grid
from dsfcnn.tasks.nuclei import Nuclei

GRID = make_grid(96, 32, 0.25, 0.25, tile=32, margin=0, overlap_um=2)


class Deadly(Nuclei):
    """Kills the process that decodes, as the kernel does to one that takes too much memory, as often as there are files in a folder."""

    def __init__(self, deaths):
        self.deaths = deaths

    def find(self, probabilities, mpp, settings):
        for path in self.deaths.iterdir():
            path.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().find(probabilities, mpp, settings)


def decode(folder, deaths, workers):
    left, state = folder / "deaths", State(folder / "a")
    left.mkdir(parents=True)
    state.folder.mkdir(parents=True)
    for number in range(deaths):
        (left / str(number)).touch()
    random = np.random.default_rng(0)
    tiles = list(GRID.tiles())
    for tile in tiles:
        state.save_tile(tile, stored=random.integers(0, 256, (3, 32, 32), np.uint8), damaged=np.zeros((0, 0), bool))
    with Decoding(folder / "a", Deadly(left), GRID, tiles, workers) as decoding:
        decoding.finish()
    return {path.name: path.read_bytes() for path in state.folder.glob("objects-*")}


def test_a_dead_worker_is_replaced_and_the_result_is_the_same(tmp_path):
    wanted = decode(tmp_path / "alone", 0, workers=0)
    assert len(wanted) == 3
    assert decode(tmp_path / "two", 2, workers=2) == wanted


def test_workers_that_always_die_end_the_run(tmp_path, refused):
    with refused(DsfcnnError, "--resume"):
        decode(tmp_path, 3, workers=1)
