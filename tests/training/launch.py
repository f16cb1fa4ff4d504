"""Training in processes of its own that have torch already: many short runs, some of which come to grief at a chosen moment."""

import errno
import multiprocessing
import os
import signal
import socket
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

_SERVER = multiprocessing.get_context("forkserver")  # its children have run nothing yet: no threads, no random state
_SERVER.set_forkserver_preload(
    [
        "dsfcnn.training.run",
        "dsfcnn.cli.main",
        "matplotlib.backends.backend_agg",
        "tensorboard.summary.writer",
        "torch._dynamo",  # which torch loads with the first optimiser, and takes its time
    ]
)


@dataclass
class Done:
    code: int
    said: str  # stderr


class Started:
    def __init__(self, log, arguments, mishaps=(), environment=None):
        self.log = Path(log)
        self.process = _SERVER.Process(target=_run, args=([str(a) for a in arguments], str(log), mishaps, environment or {}))
        self.process.start()

    def wait(self, seconds=120):
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"still at work after {seconds} s; it said {self.log.read_text()!r}"
        return Done(self.process.exitcode, self.log.read_text())


def _run(arguments, log, mishaps, environment):
    stream = open(log, "w", buffering=1)  # noqa: SIM115 - as long as the process
    os.dup2(stream.fileno(), 2)
    sys.stderr = stream
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    os.environ.update(environment)
    multiprocessing.set_start_method("fork", force=True)  # as in a run from the command line: workers see when it is killed
    import torch

    torch.set_num_threads(1)
    for mishap in mishaps:
        mishap()
    from dsfcnn.cli.main import main

    main(arguments)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _at_fsync(number, happen):
    """Files and their folders are brought to disk in turns: odd numbers lie between a temporary file and its final name."""
    count, real = [0], os.fsync

    def fsync(descriptor):
        count[0] += 1
        if count[0] == number:
            happen()
        real(descriptor)

    os.fsync = fsync


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def _no_room():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def killed_at_fsync(number):
    return partial(_at_fsync, number, _die)


def disk_full_at_fsync(number):
    return partial(_at_fsync, number, _no_room)


def _at_step(number, happen):
    from dsfcnn.training import loop

    real = loop.learning_rate

    def learning_rate(config, step):
        if step == number:
            happen()
        return real(config, step)

    loop.learning_rate = learning_rate


def _send(signals):
    for number in signals:
        os.kill(os.getpid(), number)


def signal_at_step(number, *signals):
    return partial(_at_step, number, partial(_send, signals))


def _worker_dies(number):
    from dsfcnn.training.loop import Prepare

    parent, real, count = os.getpid(), Prepare.__call__, [0]

    def prepare(self, samples):
        count[0] += 1
        if os.getpid() != parent and count[0] == number:
            _die()
        return real(self, samples)

    Prepare.__call__ = prepare


def worker_killed_at_batch(number):
    return partial(_worker_dies, number)


def _nan(number):
    from dsfcnn.training import loop

    real, count = loop._loss, [0]

    def loss(*arguments):
        count[0] += 1
        return real(*arguments) * (float("nan") if count[0] == number + 1 else 1)

    loop._loss = loss


def nan_at_step(number):
    return partial(_nan, number)
