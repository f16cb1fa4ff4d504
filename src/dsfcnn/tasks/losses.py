r"""What training minimises; the only file of the tasks that needs torch.

Nuclei, with the authors' terms, all of weight 1:

.. math::
    L = \overline{\mathrm{CE}(object)} + \overline{w \, \mathrm{CE}(marker)} + D(background) + D(nucleus) + D(marker) + D(contour)

Bars are means over all pixels of the batch and :math:`w` is the penalty map. The first two Dice terms are of the object head, the others of
the marker head. The Dice loss of a channel is :math:`D = 1 - (2 \sum p t + s) / (\sum p + \sum t + s)` with sums over all pixels of
the batch, softmax probabilities :math:`p`, targets :math:`t` of 0 and 1, and :math:`s = 10^{-3}`.

Glands, tumour and digits: mean cross-entropy.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

SMOOTH = 1e-3  # s above: the authors' value


def cross_entropy(logits: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean of :math:`-w \\log p_{target}`. Logits (N, C, ...), classes (N, ...), weights (N, ...)."""
    loss = F.cross_entropy(logits, target.long(), reduction="none")
    return (loss if weight is None else loss * weight.to(loss.dtype)).mean()


def dice_sums(logits: Tensor, target: Tensor) -> Tensor:
    """Per channel :math:`\\sum p t` and :math:`\\sum p + \\sum t` over the batch: (N, C, H, W), (N, H, W) -> (2, C).

    The sums of several processes may be added before :func:`dice_loss`, which then is that of the whole batch.
    """
    probability = logits.float().softmax(1) if logits.dtype in (torch.float16, torch.bfloat16) else logits.softmax(1)
    truth = F.one_hot(target.long(), logits.shape[1]).movedim(-1, 1).to(probability.dtype)
    pixels = (0, 2, 3)
    return torch.stack([(probability * truth).sum(pixels), probability.sum(pixels) + truth.sum(pixels)])


def dice_loss(sums: Tensor) -> Tensor:
    """Dice loss of each channel from its two sums: (2, C) -> (C,).

    >>> dice_loss(torch.tensor([[3.0, 0.0], [6.0, 2.0]])).round(decimals=3).abs().tolist()
    [0.0, 1.0]
    """
    shared, total = sums
    return 1 - (2 * shared + SMOOTH) / (total + SMOOTH)


def nuclei_loss(outputs: dict[str, Tensor], targets: dict[str, Tensor], reduce: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """The sum of the six terms above; ``reduce`` adds the Dice sums over processes where several share a batch."""
    entropy = cross_entropy(outputs["object"], targets["object"]) + cross_entropy(outputs["marker"], targets["marker"], targets["weight"])
    objects, markers = (dice_sums(outputs[head], targets[head]) for head in ("object", "marker"))
    if reduce is not None:
        objects, markers = reduce(objects), reduce(markers)
    return entropy + dice_loss(objects).sum() + dice_loss(markers)[:2].sum()  # the marker head's third channel is background
