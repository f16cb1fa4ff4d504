"""Batches for training, prepared in other processes; the only part of ``data`` that needs torch.

Batch number s of a training is made of the cuts at the places s * batch, s * batch + 1, ... of all epochs one after the other. So the
number of processes changes nothing, a training goes on at any step, and the processes live on from epoch to epoch with what they decoded.
"""

import atexit
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from dsfcnn.data.crops import Crops
from dsfcnn.data.sample import Sample
from dsfcnn.errors import DsfcnnError


def load_batches(
    crops: Crops,
    batch: int,
    steps: range,
    *,
    workers: int = 0,
    prepare: Callable[[list[Sample]], Any] | None = None,
    share: tuple[int, int] = (0, 1),
) -> Iterator[Any]:
    """The batches ``steps`` in order, each as ``prepare`` returns it (default: the list of samples).

    ``share`` (number, of how many) takes one part of every batch, for one of several processes that train together.

    ``prepare`` runs in the worker; arrays of numpy travel through a pipe and need no shared memory. A damaged file raises its own error
    here, not a traceback of another process.
    """
    import torch
    from torch.utils.data import DataLoader

    source = _Steps(crops, batch, prepare or list, share)
    # A generator of its own: torch's loader draws a seed when it starts, and must not take it from that of the training.
    own = torch.Generator().manual_seed(0)
    options = {"num_workers": workers, "generator": own, "worker_init_fn": _leave_signals if workers else None}
    loader = DataLoader(source, batch_size=None, sampler=steps, **options)  # type: ignore[arg-type,var-annotated]
    before, others = signal.getsignal(signal.SIGCHLD), multiprocessing.active_children()
    feed = iter(loader)
    end = partial(_kill, [child for child in multiprocessing.active_children() if child not in others])
    atexit.register(end)  # for a program that ends early: Python itself would wait for them after a SIGTERM, which they ignore
    if workers and threading.current_thread() is threading.main_thread():
        # torch's handler raises wherever the program is when a worker dies; the loader notices by itself when it waits for that worker.
        signal.signal(signal.SIGCHLD, before or signal.SIG_DFL)
    try:
        for found in feed:
            if isinstance(found, _Failure):
                raise found.error
            yield found.value
    finally:
        del feed  # torch ends the processes now, even where an error's traceback keeps this frame
        atexit.unregister(end)


def _kill(workers: list[Any]) -> None:
    for worker in workers:
        worker.kill()


def _leave_signals(worker: int) -> None:
    """A signal to all processes of a run is for its first one, which saves and then ends the others."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@dataclass
class _Made:
    """Kept from torch's collation, which would turn arrays into tensors."""

    value: Any


@dataclass
class _Failure:
    error: DsfcnnError


class _Steps:
    """What torch's loader asks for step by step."""

    def __init__(self, crops: Crops, batch: int, prepare: Callable[[list[Sample]], Any], share: tuple[int, int]):
        self.crops, self.batch, self.prepare = crops, batch, prepare
        number, of = share
        self.mine = range(batch * number // of, batch * (number + 1) // of)

    def __getitem__(self, step: int) -> _Made | _Failure:
        try:
            places = (divmod(step * self.batch + i, len(self.crops)) for i in self.mine)
            return _Made(self.prepare([self.crops.draw(epoch, index) for epoch, index in places]))
        except DsfcnnError as error:
            return _Failure(error)
