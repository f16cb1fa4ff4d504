"""How far a network looks: the context that a tile needs, measured.

The theoretical receptive field of dsf-nuclei is about 1,150 pixels each way; what matters is far smaller, and differs from model to model.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from dsfcnn.errors import UsageError
from dsfcnn.files import atomic_write
from dsfcnn.inference.network import Network, TorchNetwork, probabilities_of
from dsfcnn.inference.tiles import ALIGNMENT, Box
from dsfcnn.models import load_model, read_config

TOLERANCE = 1e-3  # of a probability; far below what moves an outline
_CORE = 128  # pixels a side of the tile whose probabilities are compared; its border, where they differ most, is the sample
_SIDES = (512, 1024)  # pixels of an image; the larger one only for a network that looks further than the smaller one shows


def note_margin(folder: Path, images: Iterable[np.ndarray]) -> int:
    """Measure the margin of the model in a folder, and write it into its config.json."""
    margin = measure_margin(TorchNetwork(load_model(folder)), list(images))
    config = {**read_config(folder), "tile_margin": margin}
    with atomic_write(folder / "config.json") as stream:
        stream.write(json.dumps(config, indent=2).encode() + b"\n")
    return margin


def measure_margin(network: Network, images: Sequence[np.ndarray], *, tolerance: float = TOLERANCE) -> int:
    """The smallest margin, a multiple of 16 pixels, with which tiles have the probabilities of the whole image.

    Args:
        network: of a segmentation model.
        images: uint8 (H, W, 3) at the network's resolution, of the tissue that it is for; small ones are continued by their mirror image.
        tolerance: largest difference of any probability; a third of it is aimed at, since the images are a sample.

    Raises:
        UsageError: the network looks further than 1,024 pixels show, which is 432.
    """
    needed = 0
    for image in images:
        needed = _margin(network, image, needed, tolerance / 3)
    return needed


def _margin(network: Network, image: np.ndarray, least: int, tolerance: float) -> int:
    """Not below ``least``, which other images have shown to be needed."""
    for side in _SIDES:
        most = (side - _CORE) // 2 // ALIGNMENT * ALIGNMENT - ALIGNMENT
        if least <= most:
            agrees = _Comparison(network, _cut(image, side), tolerance)
            if agrees(most):
                margins = range(least, most, ALIGNMENT)
                return (*margins, most)[bisect_left(margins, True, key=agrees)]
    raise UsageError(f"the network looks further than {most} pixels; tiles would not have the probabilities of the whole image")


def _cut(image: np.ndarray, side: int) -> np.ndarray:
    """The middle of an image, continued by its mirror image where it is smaller than that."""
    missing = [max(0, side - length) for length in image.shape[:2]]
    image = np.pad(image, [(total // 2, total - total // 2) for total in missing] + [(0, 0)], mode="symmetric")
    top, left = ((length - side) // 2 for length in image.shape[:2])
    return image[top : top + side, left : left + side]


class _Comparison:
    """Whether the tile in the middle of an image has the probabilities of the whole, given so much context."""

    def __init__(self, network: Network, image: np.ndarray, tolerance: float):
        self.network, self.image, self.tolerance = network, image, tolerance
        side = image.shape[0]
        start = (side - _CORE) // 2 // ALIGNMENT * ALIGNMENT
        self.whole, self.core = Box(0, 0, side, side), Box(start, start, start + _CORE, start + _CORE)
        self.wanted = probabilities_of(network, image, self.core)

    def __call__(self, margin: int) -> bool:
        seen = self.core.grown(margin).within(self.whole)
        found = probabilities_of(self.network, self.image[seen.slices(self.whole)], self.core.counted_from(seen))
        return all(np.abs(values - self.wanted[head]).max() < self.tolerance for head, values in found.items())
