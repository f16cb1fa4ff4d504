"""G-dense-blocks: each unit reads everything before it and adds a few fields."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dsfcnn.groups import Group
from dsfcnn.layers.gconv import GConv2d
from dsfcnn.layers.joined import Joined
from dsfcnn.layers.norm import GBatchNorm
from dsfcnn.layers.sequential import FieldSequential, as_made
from dsfcnn.layers.shapes import expect_positive
from dsfcnn.layers.steered import FilterKind


class _Body(FieldSequential):
    """The layers of a unit, or those that close a block.

    With ``checkpointing``, what lies between the maps and the output is not kept for the backward pass but computed again there: the joined
    map and every step after it, which make up most of a dense network's memory.
    """

    checkpointing = False

    def read(self, joined: Joined) -> Tensor:
        if self.checkpointing and self.training and torch.is_grad_enabled():
            again = super().read
            return checkpoint(lambda *maps: again(Joined(maps)), *joined.maps, use_reentrant=False, context_fn=self._contexts)
        return super().read(joined)

    def _contexts(self) -> tuple[AbstractContextManager, AbstractContextManager]:
        return nullcontext(), _StatisticsKept(self)


class _StatisticsKept(AbstractContextManager):
    """Batch norms inside take no note of what passes: a batch that is computed again must not count twice.

    May be entered again and again, as by several backward passes over one graph.
    """

    def __init__(self, module: nn.Module):
        self.norms = [norm for norm in module.modules() if isinstance(norm, nn.BatchNorm3d)]
        self.kept: list[tuple[float | None, Tensor | None]] = []

    def __enter__(self) -> None:
        self.kept = [(norm.momentum, norm.num_batches_tracked) for norm in self.norms]
        for norm in self.norms:
            norm.momentum = 0.0
            norm.num_batches_tracked = None if norm.num_batches_tracked is None else norm.num_batches_tracked.clone()

    def __exit__(self, *exception: object) -> None:
        for norm, (momentum, count) in zip(self.norms, self.kept):
            norm.momentum, norm.num_batches_tracked = momentum, count


class GDenseUnit(nn.Module):
    """One unit of a G-dense-block: 7x7 to 14 fields, 5x5 to 6, joined to its input.

    (N, in_fields, G, H, W) -> (N, in_fields + growth, G, H, W). Batch norm and ReLU come before each convolution; what a unit adds
    is linear.
    """

    def __init__(self, in_fields: int, *, group: str | Group = "C8", middle: int = 14, growth: int = 6, filters: FilterKind = "steerable"):
        super().__init__()
        self.body = _Body(
            GBatchNorm(in_fields),
            nn.ReLU(),
            GConv2d(in_fields, middle, kernel_size=7, group=group, filters=filters),
            GBatchNorm(middle),
            nn.ReLU(),
            GConv2d(middle, growth, kernel_size=5, group=group, filters=filters),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, self.body(x)), dim=1)


class GDenseBlock(nn.Module):
    """G-dense-block of the paper: dense units, then batch norm, ReLU and a closing 5x5 G-convolution.

    (N, in_fields, G, H, W) -> (N, out_fields, G, H, W).

    Args:
        in_fields: fields read.
        units: number of dense units; each adds ``growth`` fields.
        group: name such as "C8".
        out_fields: fields of the closing convolution; by default all that the units made, in_fields + units * growth.
        middle, growth: fields after the 7x7 and the 5x5 convolution of a unit (paper: 14 and 6).
        checkpointing: in training, keep only what each unit adds and compute the rest again in the backward pass.
    """

    def __init__(
        self,
        in_fields: int,
        units: int,
        *,
        group: str | Group = "C8",
        out_fields: int | None = None,
        middle: int = 14,
        growth: int = 6,
        filters: FilterKind = "steerable",
        checkpointing: bool = False,
    ):
        super().__init__()
        expect_positive(in_fields=in_fields, units=units, middle=middle, growth=growth)
        made = in_fields + units * growth
        dense = [GDenseUnit(in_fields + unit * growth, group=group, middle=middle, growth=growth, filters=filters) for unit in range(units)]
        self.units = nn.ModuleList(dense)
        self.closing = _Body(
            GBatchNorm(made),
            nn.ReLU(),
            GConv2d(made, made if out_fields is None else out_fields, kernel_size=5, group=group, filters=filters),
        )
        for joined in (*(unit.body for unit in dense), self.closing):
            joined.checkpointing = checkpointing

    def forward(self, x: Tensor) -> Tensor:
        joined = Joined([x])
        for unit in self.units:
            if isinstance(unit, GDenseUnit) and as_made(unit, GDenseUnit) and isinstance(unit.body, _Body) and as_made(unit.body, _Body):
                joined.add(unit.body.read(joined))
            else:
                joined = Joined([unit(joined.tensor())])
        return self.closing.read(joined) if as_made(self.closing, _Body) else self.closing(joined.tensor())
