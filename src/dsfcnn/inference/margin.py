"""How far a network looks: the context that a tile needs, measured.

The theoretical receptive field of dsf-nuclei is about 1,150 pixels each way; what matters is far smaller, and differs from model to model.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from dsfcnn.errors import UsageError
from dsfcnn.files import atomic_write
from dsfcnn.inference.network import Network, TorchNetwork, probabilities_of
from dsfcnn.inference.tiles import ALIGNMENT
from dsfcnn.models import load_model, read_config

TOLERANCE = 1e-3  # of a probability; far below what moves an outline
_SIDES = (512, 1024)  # pixels of an image; the larger one only for a network that looks further than the smaller one shows
_BEYOND = 64  # pixels past the margin, in which nothing may differ any more


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
        tolerance: largest difference of any probability; a tenth of it is aimed at, since other images show other things.

    Raises:
        UsageError: the network looks further than 1,024 pixels show, which is 448.
    """
    return max((_margin(network, image, tolerance / 10) for image in images), default=0)


def _margin(network: Network, image: np.ndarray, tolerance: float) -> int:
    for side in _SIDES:
        change = _change_by_distance(network, _cut(image, side))
        reach = int(np.max(np.nonzero(change >= tolerance)[0] + 1, initial=0))
        margin = -(-reach // ALIGNMENT) * ALIGNMENT
        if margin <= side // 2 - _BEYOND:
            return margin
    raise UsageError(
        f"the network looks further than {margin - ALIGNMENT} pixels; tiles would not have the probabilities of the whole image"
    )


def _change_by_distance(network: Network, image: np.ndarray) -> np.ndarray:
    """The largest change of any probability when a half of the image is cut off, by the distance from the cut: all along it, both ways."""
    half = image.shape[0] // 2
    whole = probabilities_of(network, image)
    changes = []
    for kept, across in ((np.s_[:, half:], 1), (np.s_[half:, :], 2)):
        part = probabilities_of(network, image[kept])
        changes += [np.abs(values - whole[head][:, *kept]).max((0, across)) for head, values in part.items()]
    return np.max(changes, axis=0)


def _cut(image: np.ndarray, side: int) -> np.ndarray:
    """The middle of an image, continued by its mirror image where it is smaller than that."""
    missing = [max(0, side - length) for length in image.shape[:2]]
    image = np.pad(image, [(total // 2, total - total // 2) for total in missing] + [(0, 0)], mode="symmetric")
    top, left = ((length - side) // 2 for length in image.shape[:2])
    return image[top : top + side, left : left + side]
