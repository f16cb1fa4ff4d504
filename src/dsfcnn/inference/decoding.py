"""Tiles are decoded in other processes while the network works on the next ones. Nothing here imports torch."""

import multiprocessing
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType
from typing import Self

from dsfcnn.errors import DsfcnnError
from dsfcnn.inference.follow import follow_parent
from dsfcnn.inference.state import State
from dsfcnn.inference.stitch import find_objects, gather, stored_channels
from dsfcnn.inference.tiles import Grid, Tile
from dsfcnn.tasks.task import Segmentation

_RETRIES = 2  # after the death of a worker, each time with half as many


def decode_tile(results: Path, task: Segmentation, grid: Grid, tile: Tile) -> None:
    """Objects of a tile, from the probabilities in the state folder into the state folder."""
    state = State(results)

    def stored(place: Tile):  # type: ignore[no-untyped-def]
        found = state.tile(place)
        return None if found is None else found["stored"]

    state.save_objects(tile, find_objects(task, grid, tile, gather(stored, grid, tile, len(stored_channels(task)))))


class Decoding:
    """Decodes every wanted tile once its neighbours have their probabilities; in this process when ``workers`` is 0."""

    def __init__(self, results: Path, task: Segmentation, grid: Grid, wanted: Iterable[Tile], workers: int):
        self._arguments = results, task, grid
        self._state = State(results)
        self._wanted = set(wanted)
        self._waiting = {tile for tile in self._wanted if not self._state.has_objects(tile)}
        self._done = {tile for tile in self._wanted if self._state.has_tile(tile)}
        self._workers, self._deaths = workers, 0
        self._pool: ProcessPoolExecutor | None = None
        self._running: dict[Future[None], Tile] = {}

    def __enter__(self) -> Self:
        self._submit(self._waiting)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._pool is not None:
            processes = list(getattr(self._pool, "_processes", None) or {}).copy()
            children = [one for one in multiprocessing.active_children() if one.pid in processes]
            self._pool.shutdown(wait=False, cancel_futures=True)
            if kind is not None:
                for child in children:
                    child.terminate()

    def has_probabilities(self, tile: Tile) -> None:
        """A tile is ready; decode what waited for it."""
        self._done.add(tile)
        self._submit([near for near in self._arguments[2].around(tile) if near in self._waiting])
        self._collect(block=False)

    def finish(self) -> None:
        """Wait for the rest."""
        while self._running:
            self._collect(block=True)
        assert not self._waiting, "tiles without probabilities"

    def _submit(self, tiles: Iterable[Tile]) -> None:
        grid = self._arguments[2]
        for tile in sorted(tiles):
            if any(near in self._wanted and near not in self._done for near in grid.around(tile)):
                continue
            self._waiting.discard(tile)
            self._start(tile)

    def _start(self, tile: Tile) -> None:
        if self._pool is None and self._workers:
            context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
            try:
                self._pool = ProcessPoolExecutor(self._workers, context, initializer=follow_parent)
            except OSError:  # no /dev/shm, through which processes talk to each other
                self._workers = 0
        if self._pool is None:
            decode_tile(*self._arguments, tile)
            return
        try:
            self._running[self._pool.submit(decode_tile, *self._arguments, tile)] = tile
        except BrokenProcessPool:
            self._restart([tile])

    def _collect(self, block: bool) -> None:
        done = wait(self._running, timeout=None if block else 0, return_when=FIRST_COMPLETED).done
        for future in done:
            tile = self._running.pop(future, None)
            if tile is None:
                continue  # its pool broke while another result was looked at
            try:
                future.result()
            except BrokenProcessPool:
                self._restart([tile])

    def _restart(self, tiles: list[Tile]) -> None:
        """A worker died, often for want of memory: try what was under way again, with fewer."""
        lost = sorted({*tiles, *self._running.values()})
        self._running.clear()
        self._deaths += 1
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        if self._deaths > _RETRIES:
            raise DsfcnnError(f"tile {tuple(lost[0])}: a worker died over it three times; free some memory and run again with --resume")
        self._workers = max(1, self._workers // 2)
        for tile in lost:
            if not self._state.has_objects(tile):
                self._start(tile)
