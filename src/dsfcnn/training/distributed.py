"""Several processes that train one model: ``torchrun ... -m dsfcnn train ...``.

Each takes its part of every batch. Gradients are averaged by DistributedDataParallel; sums that are divided afterwards (Dice) and, by
choice, the statistics of batch norms are taken over all processes, so that the same batch gives the same losses on one process
and on several. torch's own SyncBatchNorm does not run on a CPU.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel

from dsfcnn.errors import DsfcnnError, UsageError
from dsfcnn.layers import GBatchNorm
from dsfcnn.layers.joined import Joined
from dsfcnn.layers.norm import take_note
from dsfcnn.layers.vector import VectorNorm

_PATIENCE = timedelta(hours=2)  # the others wait while the first one validates


class Processes:
    """The processes of a run; of one alone, every method is free."""

    def __init__(self) -> None:
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        self.number = int(os.environ.get("RANK", "0"))

    @property
    def first(self) -> bool:
        """Whether this one validates, writes and speaks."""
        return self.number == 0

    @contextmanager
    def together(self) -> Iterator[None]:
        if self.count == 1:
            yield
            return
        dist.init_process_group("gloo", timeout=_PATIENCE)
        try:
            yield
        except RuntimeError as error:
            if not any(word in str(error).lower() for word in ("peer", "connection", "timed out", "gloo")):
                raise
            raise DsfcnnError("another process of this run has ended; start all again with --resume") from error
        finally:
            dist.destroy_process_group()

    def wrap(self, model: nn.Module, synchronised: bool) -> nn.Module:
        """The model as it is trained."""
        if self.count == 1:
            return model
        if synchronised:
            synchronise(model)
        return DistributedDataParallel(model)

    def share(self, batch: int) -> tuple[int, int]:
        if batch % self.count:
            raise UsageError(f"batch: {batch} crops do not divide among {self.count} processes; use a multiple of {self.count}")
        return self.number, self.count

    def sum(self, values: Tensor) -> Tensor:
        """Over all processes, with a gradient."""
        return values if self.count == 1 else all_reduce(values)

    def mean(self, value: float) -> float:
        if self.count == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(total)
        return total.item() / self.count

    def any(self, flag: bool) -> bool:
        """Whether one of them says so: all must stop at the same step."""
        return self.mean(float(flag)) > 0

    def wait(self) -> None:
        if self.count > 1:
            dist.barrier()


def synchronise(model: nn.Module) -> None:
    """Batch norms of the model take their statistics over all processes."""
    for module in model.modules():
        if type(module) is GBatchNorm:
            module.__class__ = _SyncedGBatchNorm
        elif type(module) is nn.BatchNorm2d:
            module.__class__ = _SyncedBatchNorm2d
        elif type(module) is VectorNorm:
            module.__class__ = _SyncedVectorNorm


def _over_processes(mean: Tensor, variance: Tensor, numbers: int) -> tuple[Tensor, Tensor, int]:
    """Moments of the fields of all processes, which have equally many numbers each."""
    count = dist.get_world_size()
    means = mean.double()  # the difference of squares below must not lose the digits of a small variance
    both = all_reduce(torch.stack((means, variance.double() + means.square()))) / count
    return both[0].to(mean.dtype), (both[1] - both[0].square()).to(variance.dtype), numbers * count


class _Synced(nn.modules.batchnorm._BatchNorm):
    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        axes = [axis for axis in range(input.dim()) if axis != 1]
        variance, mean = torch.var_mean(input, axes, correction=0)
        mean, variance, numbers = _over_processes(mean, variance, input.numel() // input.shape[1])
        take_note(self, mean.detach(), variance.detach(), numbers)
        scale = (variance + self.eps).rsqrt() * self.weight
        shape = [1, -1] + [1] * (input.dim() - 2)
        return input * scale.view(shape) + (self.bias - mean * scale).view(shape)


class _SyncedBatchNorm2d(_Synced, nn.BatchNorm2d):
    pass


class _SyncedGBatchNorm(_Synced, GBatchNorm):
    def batch_moments(self, maps: Joined) -> tuple[Tensor, Tensor, int]:
        return _over_processes(*maps.moments(), maps.numbers())


class _SyncedVectorNorm(VectorNorm):
    def batch_mean_square(self, x: Tensor) -> Tensor:
        return all_reduce(super().batch_mean_square(x)) / dist.get_world_size()
