"""How far a network looks: the context that a tile needs, measured.

The theoretical receptive field of dsf-nuclei is about 1,150 pixels each way; what matters is far smaller, and differs from model to model.
"""

from collections.abc import Sequence

import numpy as np

from dsfcnn.errors import UsageError
from dsfcnn.inference.network import Network, probabilities_of
from dsfcnn.inference.tiles import ALIGNMENT, Box

TOLERANCE = 1e-3  # of a probability; far below what moves an outline
_CORE = 256  # pixels a side of the tile whose probabilities are compared; its border, where they differ most, is the sample


def measure_margin(network: Network, images: Sequence[np.ndarray], *, tolerance: float = TOLERANCE) -> int:
    """The smallest margin, a multiple of 16 pixels, with which tiles have the probabilities of the whole image.

    Args:
        network: of a segmentation model.
        images: uint8 (H, W, 3) at the network's resolution, of the tissue that it is for; 1,024 pixels a side show margins up to 368.
        tolerance: largest difference of any probability; a third of it is aimed at, since the images are a sample.

    Raises:
        UsageError: the images are too small to tell.
    """
    return max(_margin(network, image, tolerance) for image in images)


def _margin(network: Network, image: np.ndarray, tolerance: float) -> int:
    height, width = (side // ALIGNMENT * ALIGNMENT for side in image.shape[:2])
    whole = Box(0, 0, width, height)
    left, top = ((side - _CORE) // 2 // ALIGNMENT * ALIGNMENT for side in (width, height))
    core = Box(left, top, left + _CORE, top + _CORE)
    wanted = probabilities_of(network, image[:height, :width])
    needed = 0
    # From the largest down: the difference need not shrink evenly, and the margin has to be safe from here on.
    for margin in range(min(left, top) - ALIGNMENT, -1, -ALIGNMENT):
        seen = core.grown(margin).within(whole)
        found = probabilities_of(network, image[seen.slices(whole)])
        worst = max(
            np.abs(values[(slice(None), *core.slices(seen))] - wanted[head][(slice(None), *core.slices(whole))]).max()
            for head, values in found.items()
        )
        if worst >= tolerance / 3:
            needed = margin + ALIGNMENT
            break
    if min(left, top) - ALIGNMENT < max(needed, ALIGNMENT):
        raise UsageError(
            f"an image of {image.shape[1]} x {image.shape[0]} pixels does not show how far the network looks; give larger ones"
        )
    return needed
