"""Turned images, and test-time turning: the mean of a network's answers over turned copies of its input.

Averaging makes any network's answer turn with its input, at the price of one pass for every copy; it leaves what the network computes
inside as it is. The paper names it (test-time augmentation) as the other way to steady predictions.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsfcnn.errors import UsageError

_LEAST = 1e-12  # probability whose logarithm is still a number


def turn(maps: Tensor, degrees: float, size: tuple[int, int] | None = None) -> Tensor:
    """Planes (..., H, W) turned counter-clockwise about their centre, and cut or extended to ``size`` about it.

    Multiples of 90 degrees move pixels onto pixels, so height and width change places; other angles are bilinear and keep the size. What
    comes in from outside is the mirror image of what is inside.

    >>> turn(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 90)
    tensor([[[2., 4.], [1., 3.]]])
    """
    if degrees % 90 == 0:
        turned = torch.rot90(maps, round(degrees / 90) % 4, dims=(-2, -1))
        if size is None or tuple(turned.shape[-2:]) == tuple(size):
            return turned
        if all(wanted <= there and (there - wanted) % 2 == 0 for wanted, there in zip(size, turned.shape[-2:])):
            top, left = ((there - wanted) // 2 for wanted, there in zip(size, turned.shape[-2:]))
            return turned[..., top : top + size[0], left : left + size[1]]
    height, width = maps.shape[-2:]
    kind = torch.promote_types(maps.dtype, torch.float32)  # half precision cannot tell the pixels of a large map apart
    down, right = (torch.arange(n, dtype=kind, device=maps.device) - (n - 1) / 2 for n in size or (height, width))
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # What is read at an angle of -t appears turned by t; rows point down. Offsets from the centre, in halves of a side.
    x = (cosine * right[None, :] - sine * down[:, None]) * (2 / width)
    y = (sine * right[None, :] + cosine * down[:, None]) * (2 / height)
    planes = maps.to(kind).reshape(1, -1, height, width)
    read = F.grid_sample(planes, torch.stack((x, y), dim=-1)[None], mode="bilinear", padding_mode="reflection", align_corners=False)
    return read.reshape(*maps.shape[:-2], *read.shape[-2:]).to(maps.dtype)


def probabilities(outputs: Any) -> Any:
    """Softmax over the channels or classes of logits: of a tensor, or of each head of a dict."""
    if isinstance(outputs, Tensor):
        return outputs.softmax(dim=1)
    return {head: logits.softmax(dim=1) for head, logits in outputs.items()}


class Turned:
    """A network's mean probabilities over ``turns`` turned copies of its input: (N, C, H, W) -> as the network, softmax taken.

    Maps are turned back before they are averaged. Quarter turns are exact, for every height and width; for other angles a copy is as large
    as the image's diagonal, with mirrored surroundings, so that no corner is lost.
    """

    def __init__(self, model: Callable[[Tensor], Any], turns: int = 4):
        if turns < 1:
            raise UsageError(f"turns must be 1 or more but is {turns}; 4 is exact")
        self.model, self.turns = model, turns

    @property
    def passes(self) -> int:
        """What it costs: passes through the network for one answer."""
        return self.turns

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Any:
        first = probabilities(self.model(images))
        total = _by_head(first)
        maps = any(output.dim() >= 4 for output in total.values())  # classes do not turn, so their copy may be as large as the image
        for number in range(1, self.turns):
            degrees = 360 * number / self.turns
            frame = (math.ceil(math.hypot(*images.shape[-2:])),) * 2 if maps and degrees % 90 else None
            found = probabilities(self.model(turn(images, degrees, frame)))
            for head, output in _by_head(found).items():
                size = total[head].shape[-2], total[head].shape[-1]
                total[head] = total[head] + (turn(output, -degrees, size) if output.dim() >= 4 else output)
        means = {head: output / self.turns for head, output in total.items()}
        return means[""] if isinstance(first, Tensor) else means


def _by_head(outputs: Any) -> dict[str, Tensor]:
    return {"": outputs} if isinstance(outputs, Tensor) else dict(outputs)


def turned(model: Callable[[Tensor], Any], turns: int = 4) -> Turned:
    """Test-time turning of any model that gives logits, with 4 quarter turns (exact) or as many steps as wanted.

    >>> cost = turned(lambda images: images.mean((-2, -1)), turns=4).passes
    >>> cost
    4
    """
    return Turned(model, turns)


class TurnedLogits(nn.Module):
    """A model with test-time turning, as a model: logarithms of the mean probabilities, of which softmax makes these again."""

    def __init__(self, model: nn.Module, turns: int = 4):
        super().__init__()
        self.model, self.turns = model, turns

    def forward(self, images: Tensor) -> Any:
        found = turned(self.model, self.turns)(images)
        if isinstance(found, Tensor):
            return found.clamp(min=_LEAST).log()
        return {head: maps.clamp(min=_LEAST).log() for head, maps in found.items()}
