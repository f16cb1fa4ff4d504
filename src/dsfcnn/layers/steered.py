"""What LiftConv2d and GConv2d share: weights, the fixed pictures that they weigh, and the way to a plain convolution."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import torch
from torch import Tensor, nn

from dsfcnn.errors import UsageError
from dsfcnn.filters import FilterBasis, draw_pairs, draw_weights, rotated_basis, steerable_basis
from dsfcnn.groups import Group, parse_group
from dsfcnn.layers.fixed import FixedTensors

FilterKind = Literal["steerable", "rotated"]
_BASES = {"steerable": steerable_basis, "rotated": rotated_basis}


_independent: ContextVar[bool] = ContextVar("independent", default=False)


@contextmanager
def independent_weights() -> Iterator[None]:
    """Layers made inside draw their first weights without the pairs by which a layer keeps the signal on its own (filters/init.py).

    For networks whose batch norms keep it anyway. That pairs learn more slowly there is a suspicion, not a finding: on drawn nuclei
    (configs/smoke.yaml with steps=120, one seed) the mean loss of steps 61 to 120 was 1.33 with pairs and 1.16 with the earlier
    independent rule, which also had another spread and gain; independent weights of the present spread were not compared.
    """
    token = _independent.set(True)
    try:
        yield
    finally:
        _independent.reset(token)


class SteeredConv(FixedTensors):
    """A convolution whose filters are moved by every element of a group; subclasses say how, Eq. (18) or (19).

    Args:
        readers: planes that one output reads: (in_channels,) or (in_fields, G).
        out_fields: fields written, each with its G orientations.
        kernel_size: odd.
        group: name such as "C8" or "D4".
        filters: "steerable", or "rotated" for ordinary filters turned by bilinear interpolation.
        bias: one number per field, shared by its orientations.
    """

    moved: Tensor  # G L K K
    bias: nn.Parameter | None

    def __init__(self, readers: tuple[int, ...], out_fields: int, kernel_size: int, group: str | Group, filters: FilterKind, bias: bool):
        super().__init__()
        if filters not in _BASES:
            raise UsageError(f"no filters of kind {filters!r}; use 'steerable' or 'rotated'")
        self.group = parse_group(group)
        self.out_fields, self.kernel_size, self.filters = out_fields, kernel_size, filters
        basis = self.basis()
        self.weight = nn.Parameter(torch.empty(out_fields, *readers, len(basis.spread)))
        self.register_parameter("bias", nn.Parameter(torch.empty(out_fields)) if bias else None)
        self.register_fixed(like=self.weight)
        self.reset_parameters()

    def basis(self) -> FilterBasis:
        return _BASES[self.filters](self.kernel_size, self.group)

    def fixed(self) -> dict[str, Tensor]:
        return {"moved": self.basis().moved}

    def reset_parameters(self) -> None:
        """Draw new weights, of the size that keeps the signal's variance."""
        (draw_weights if _independent.get() else draw_pairs)(self.weight, self.basis())
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def paper_count(self) -> int:
        """Parameters as the paper counts them: two reals for every complex weight, every pixel of an ordinary filter."""
        basis = self.basis()
        dead = basis.paper_count - len(basis.spread)
        return sum(p.numel() for p in self.parameters()) + dead * self.weight[..., 0].numel()

    def kernel(self) -> Tensor:
        """The filters written out for conv2d: (out_fields G, planes read, K, K)."""
        raise NotImplementedError

    def plane_bias(self) -> Tensor | None:
        return None if self.bias is None else self.bias.repeat_interleave(self.group.size)

    def plain(self) -> "PlainFieldConv":
        """The same function as an ordinary convolution, with the filters as they are now."""
        return PlainFieldConv(self.kernel(), self.plane_bias(), self.group.size)

    def extra_repr(self) -> str:
        return f"{self.out_fields}, kernel_size={self.kernel_size}, group={self.group}, filters={self.filters}"


class PlainFieldConv(nn.Module):
    """A G-convolution with its filters written out: an ordinary Conv2d between the planes of the fields."""

    def __init__(self, kernel: Tensor, bias: Tensor | None, size: int):
        super().__init__()
        outputs, inputs, kernel_size, _ = kernel.shape
        self.size = size
        with torch.device("meta"):  # the weights come from outside: draw none
            self.conv = nn.Conv2d(inputs, outputs, kernel_size, padding=kernel_size // 2, bias=bias is not None)
        self.conv.weight = nn.Parameter(kernel.detach().clone())
        if bias is not None:
            self.conv.bias = nn.Parameter(bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x.flatten(1, 2) if x.dim() == 5 else x)
        # Not unflatten: the exporter to ONNX would take height and width for constants from there on.
        return y.reshape(y.shape[0], self.conv.out_channels // self.size, self.size, *y.shape[-2:])
