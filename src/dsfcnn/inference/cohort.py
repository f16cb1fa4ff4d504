"""Tiles computed by the workers of a Dask cluster. Workers and this process share the folders of inputs, model and results.

A worker keeps model and slide open from tile to tile. When one dies, Dask gives its tiles to another; what it had saved is there already.
Decoding, merging and writing stay in this process, so the results are those of a plain run, byte for byte on equal processors.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsfcnn.errors import DsfcnnError, MissingInputError, UsageError
from dsfcnn.inference.tiles import Tile

if TYPE_CHECKING:
    from distributed import Client

    from dsfcnn.inference.job import Job

_TIMEOUT = 30  # seconds to reach the scheduler
_one_at_a_time = threading.Lock()  # a slide is for one thread, and so is the memory meant for the network


class Cluster:
    """Workers that compute tiles of jobs with one model."""

    def __init__(self, client: "Client", model: Path, device: str, backend: str):
        self.client, self.model, self.device, self.backend = client, model.resolve(), device, backend

    def compute(self, job: "Job", tiles: list[Tile]) -> Iterator[Tile]:
        """Tiles as they are finished, in any order."""
        import torch
        from distributed import as_completed

        source = job.source._replace(path=job.source.path.resolve())
        known = (self.model, source, job.out.resolve(), job.options, job.model, self.device, self.backend, torch.get_num_threads())
        futures = {self.client.submit(compute_tile, known, tile, pure=False, retries=2): tile for tile in tiles}
        try:
            for future in as_completed(list(futures)):
                error = future.exception()
                if isinstance(error, DsfcnnError):
                    raise error
                if error is not None:
                    raise DsfcnnError(
                        f"tile {tuple(futures[future])}: {error}; see the log of the workers, and go on with --resume"
                    ) from error
                yield futures[future]
        finally:
            self.client.cancel(list(futures))


def compute_tile(known: tuple[Any, ...], tile: Tile) -> None:
    """In a worker."""
    with _one_at_a_time:
        _job(*known).compute_alone(Tile(*tile))


@lru_cache(maxsize=1)
def _job(model: Path, source: Any, out: Path, options: Any, digest: str, device: str, backend: str, threads: int) -> "Job":
    import torch

    from dsfcnn.inference.job import Job, model_hash
    from dsfcnn.inference.predictor import load
    from dsfcnn.kernels import set_backend
    from dsfcnn.kernels.memory import keep_small_memory

    if model_hash(model) != digest:
        raise UsageError(f"{model}: another model than this run began with; give all workers the same folders")
    keep_small_memory()
    set_backend(backend)
    torch.set_num_threads(threads)
    return Job(load(model, device), source, out, options, digest)


@contextmanager
def connect(address: str | None, model: Path, device: str, backend: str, workers: int) -> Iterator[Cluster | None]:
    """The cluster at an address, "local" for one of processes here; None without an address."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise UsageError("--scheduler needs Dask; get it with: pip install 'dsfcnn[dask]'") from error
    if address == "local":
        with (
            LocalCluster(n_workers=max(1, workers), threads_per_worker=1, dashboard_address=None, processes=True) as local,
            Client(local) as client,
        ):
            yield Cluster(client, model, device, backend)
        return
    try:
        client = Client(address, timeout=_TIMEOUT)
    except (OSError, ValueError, TimeoutError) as error:
        raise MissingInputError(
            f"{address}: no Dask scheduler answers there; start one with 'dask scheduler' and give its address"
        ) from error
    with client:
        yield Cluster(client, model, device, backend)
