"""VF-CNN layers (Marcos et al. 2017), for the paper's comparison: vector fields of the strongest orientation.

A vector map is (N, C, 2, H, W): for each field the x (right) and y (up) component of an arrow whose length is the strongest response of a
filter over its orientations, and whose direction is that orientation.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsfcnn.filters import draw_weights, rotated_basis
from dsfcnn.groups import Group, parse_group
from dsfcnn.layers.fixed import FixedTensors
from dsfcnn.layers.length import length
from dsfcnn.layers.shapes import expect_channels, expect_fields, expect_positive


class VectorConv2d(FixedTensors):
    """Ordinary filters in n orientations; the strongest response, if positive, becomes an arrow in its direction.

    (N, in_fields, 2, H, W) -> (N, out_fields, 2, H, W), or with ``lifts`` from images (N, in_fields, H, W). Between vector maps a filter
    is itself a vector field, two numbers per pixel; turning or mirroring it does so to its arrows too.
    """

    moved: Tensor  # G L K K
    directions: Tensor  # G 2
    turns: Tensor  # G 2 2: to, from; what each element does to an arrow

    def __init__(self, in_fields: int, out_fields: int, kernel_size: int = 7, *, group: str | Group = "C8", lifts: bool = False):
        super().__init__()
        expect_positive(in_fields=in_fields, out_fields=out_fields)
        self.group = parse_group(group)
        self.in_fields, self.out_fields, self.kernel_size, self.lifts = in_fields, out_fields, kernel_size, lifts
        live = len(rotated_basis(kernel_size, self.group).spread)
        self.weight = nn.Parameter(torch.empty(out_fields, in_fields, 1 if lifts else 2, live))
        self.register_fixed(like=self.weight)
        self.reset_parameters()

    def fixed(self) -> dict[str, Tensor]:
        elements = range(self.group.size)
        angles = torch.tensor([self.group.angle(element) for element in elements], dtype=torch.float64)
        signs = torch.tensor([-1.0 if self.group.mirrors(element) else 1.0 for element in elements], dtype=torch.float64)
        cosine, sine = angles.cos(), angles.sin()
        return {
            "moved": rotated_basis(self.kernel_size, self.group).moved,
            "directions": torch.stack((cosine, sine), dim=1),
            "turns": torch.stack((torch.stack((cosine, -signs * sine), 1), torch.stack((sine, signs * cosine), 1)), 1),
        }

    def reset_parameters(self) -> None:
        draw_weights(self.weight, rotated_basis(self.kernel_size, self.group))

    def paper_count(self) -> int:
        """Every pixel of the square, masked or not."""
        return self.weight[..., 0].numel() * self.kernel_size**2

    def kernel(self) -> Tensor:
        """(out_fields G, planes read, K, K)."""
        if self.lifts:
            bank = torch.einsum("oicl,tlhw->otichw", self.weight, self.moved)
        else:
            bank = torch.einsum("oicl,tdc,tlhw->otidhw", self.weight, self.turns, self.moved)
        return bank.flatten(2, 3).flatten(0, 1)

    def forward(self, x: Tensor) -> Tensor:
        if self.lifts:
            expect_channels(x, self.in_fields, "VectorConv2d")
        else:
            expect_fields(x, self.in_fields, 2, "VectorConv2d")
            x = x.flatten(1, 2)
        responses = F.conv2d(x, self.kernel(), padding=self.kernel_size // 2)
        return strongest_arrow(responses, self.directions)

    def plain(self) -> nn.Module:
        return PlainVectorConv(self.kernel(), self.directions)

    def extra_repr(self) -> str:
        return f"{self.in_fields}, {self.out_fields}, kernel_size={self.kernel_size}, group={self.group}"


def strongest_arrow(responses: Tensor, directions: Tensor) -> Tensor:
    """(N, C G, H, W), (G, 2) -> (N, C, 2, H, W)."""
    length, element = responses.unflatten(1, (-1, len(directions))).max(dim=2)
    return torch.stack([length.relu() * component[element] for component in directions.unbind(1)], dim=2)


class PlainVectorConv(nn.Module):
    """VectorConv2d with its filters written out."""

    directions: Tensor

    def __init__(self, kernel: Tensor, directions: Tensor):
        super().__init__()
        self.weight = nn.Parameter(kernel.detach().clone())
        self.register_buffer("directions", directions.clone())

    def forward(self, x: Tensor) -> Tensor:
        planes = x.flatten(1, 2) if x.dim() == 5 else x
        return strongest_arrow(F.conv2d(planes, self.weight, padding=self.weight.shape[-1] // 2), self.directions)


class VectorNorm(nn.Module):
    """Batch norm of vector maps: divides each field by its root-mean-square length and scales it; no shift, so directions stay.

    (N, fields, 2, H, W) -> the same. The small number is added to the mean square, inside the root: the gradient stays finite for a map
    of zeros.
    """

    mean_square: Tensor

    def __init__(self, fields: int, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(fields))
        self.register_buffer("mean_square", torch.ones(fields))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            mean_square = self.batch_mean_square(x)
            with torch.no_grad():
                self.mean_square.lerp_(mean_square.to(self.mean_square), self.momentum)
        else:
            mean_square = self.mean_square
        scale = self.weight * (mean_square + self.eps).rsqrt()
        return x * scale[:, None, None, None]

    def batch_mean_square(self, x: Tensor) -> Tensor:
        """Mean of the squared lengths of every field's arrows."""
        return x.square().sum(2).mean((0, 2, 3))


class VectorLength(nn.Module):
    """Invariant maps: the lengths of the arrows. (N, C, 2, H, W) -> (N, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return length(x, dim=2).to(x.dtype)
