"""The network as a function from RGB pixels to probabilities, for every size of image.

Four poolings halve an image exactly when its sides are multiples of 16. An image is therefore mirrored beyond its right and lower edge up
to the next multiple, and the result is cut back. A tile whose corner lies on a multiple of 16 is then halved at the same places as the
whole image, which is what lets tiles meet without a seam.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import nn

from dsfcnn.errors import UsageError
from dsfcnn.inference.tiles import ALIGNMENT, Box
from dsfcnn.models.dsf import DSFSegmenter
from dsfcnn.models.heads import MapHead

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

_BYTES = 1.4e9  # for a tile's maps; all processes then take 1.6 GB (benchmarks/slide_memory.py)
# Full-size maps at the worst moment, measured where large ones go back to the system at once: 4.5 of steerable-nuclei, 2.0 to 2.7 of
# DSF-CNNs, which leave out the margin on the way up; and the picture, logits and probabilities in floats.
_MAPS_AT_ONCE, _MAPS_OF_A_PART, _BYTES_BESIDE = 5, 2.5, 40
_TILES = (256, 1536)  # pixels a side, at least and at most; more gains nothing


def find_device(wanted: str) -> str:
    """ "cpu" or "cuda:0", "cuda:1", ...; "auto" is the first GPU that torch can use, or else the processor.

    Raises:
        UsageError: no such device here.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = ["cpu", *(f"cuda:{number}" for number in range(count))]
    device = {"auto": devices[1 if count else 0], "cuda": "cuda:0"}.get(wanted, wanted)
    if device not in devices:
        what = "torch sees no such GPU here" if device.startswith("cuda") else "no such device"
        raise UsageError(f"--device {wanted}: {what}; give auto, {' or '.join(devices)}")
    return device


class Network(Protocol):
    """Logits of a batch: float32 (N, C, H, W) -> by head (N, channels, H, W), or (N, classes) under the name "class"."""

    device: str

    def logits(self, batch: np.ndarray, part: Box | None = None) -> dict[str, np.ndarray]:
        """Of all pixels, or of a part of them, for which a network may leave out what that does not depend on."""

    def largest_tile(self, margin: int) -> int:
        """Side of the largest tile whose maps, with the margin around it, stay within the memory meant for them."""


class TorchNetwork:
    """A model in evaluation, without gradients, by whatever backend is chosen (``dsfcnn.set_backend``); see ``find_device``."""

    def __init__(self, model: nn.Module, device: str = "cpu"):
        self.model, self.device = model.eval().to(device), device

    def logits(self, batch: np.ndarray, part: Box | None = None) -> dict[str, np.ndarray]:
        images = torch.from_numpy(batch).to(self.device)
        with torch.inference_mode():
            if part is not None and isinstance(self.model, DSFSegmenter):
                outputs = self.model(images, ((part.top, part.bottom), (part.left, part.right)))
                return {head: values.cpu().numpy() for head, values in outputs.items()}
            outputs = self.model(images)
            if not isinstance(outputs, dict):
                outputs = {"class": outputs}
            return cut_out({head: values.cpu().numpy() for head, values in outputs.items()}, part)

    def largest_tile(self, margin: int) -> int:
        return tile_for(self.planes(), margin, _MAPS_OF_A_PART if isinstance(self.model, DSFSegmenter) else _MAPS_AT_ONCE)

    def planes(self, with_heads: bool = False) -> int:
        """Most numbers per pixel that a layer puts out at the image's own size; in heads, which work on a few rows at a time, if asked."""
        most, size = 1, 2 * ALIGNMENT

        def look(module: nn.Module, inputs: object, output: object) -> None:
            nonlocal most
            if isinstance(output, torch.Tensor) and output.shape[-2:] == (size, size):
                most = max(most, output.numel() // size**2)

        inside = {part for head in self.model.modules() if isinstance(head, MapHead) for part in head.modules()}
        hooks = [module.register_forward_hook(look) for module in self.model.modules() if with_heads or module not in inside]
        try:
            self.logits(np.zeros((1, 3, size, size), np.float32))
        finally:
            for hook in hooks:
                hook.remove()
        return most


class OnnxNetwork:
    """An exported model, run by onnxruntime."""

    device = "cpu"

    def __init__(self, path: Path, session: "InferenceSession", planes: int):
        self.path, self.session, self.planes = path, session, planes
        self.heads = [output.name for output in session.get_outputs()]

    def logits(self, batch: np.ndarray, part: Box | None = None) -> dict[str, np.ndarray]:
        return cut_out(dict(zip(self.heads, self.session.run(None, {self.session.get_inputs()[0].name: batch}))), part)

    def largest_tile(self, margin: int) -> int:
        return tile_for(self.planes, margin)


def tile_for(planes: int, margin: int, maps: float = _MAPS_AT_ONCE) -> int:
    """Side of a tile for a network of so many planes at full size, of which it holds so many maps at once.

    >>> tile_for(planes=80, margin=128), tile_for(planes=8, margin=96)
    (656, 1536)
    """
    side = int((_BYTES / (4 * maps * planes + _BYTES_BESIDE)) ** 0.5) - 2 * margin
    return min(max(side // ALIGNMENT * ALIGNMENT, _TILES[0]), _TILES[1])


def cut_out(logits: dict[str, np.ndarray], part: Box | None) -> dict[str, np.ndarray]:
    """Of a part of the pixels alone."""
    return logits if part is None else {head: values[..., *part.slices(Box(0, 0, 0, 0))] for head, values in logits.items()}


def probabilities_of(network: Network, image: np.ndarray, part: Box | None = None) -> dict[str, np.ndarray]:
    """Softmax of every head, float32 (channels, H, W), for an image uint8 (H, W, 3) at the network's resolution, or for a part of it."""
    height, width = image.shape[:2]
    padded = np.pad(image, [(0, -height % ALIGNMENT), (0, -width % ALIGNMENT), (0, 0)], mode="symmetric")
    outputs = network.logits(as_batch(padded[None]), part or Box(0, 0, width, height))
    return {head: softmax(values[0]) for head, values in outputs.items()}


def class_probabilities(network: Network, patches: np.ndarray) -> np.ndarray:
    """Probabilities (N, classes) of patches uint8 (N, H, W, C) at the network's resolution."""
    (logits,) = network.logits(as_batch(patches)).values()
    return softmax(logits.T).T


def as_batch(images: np.ndarray) -> np.ndarray:
    """uint8 (N, H, W, C) -> float32 (N, C, H, W) in [0, 1], what every model was trained on."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).astype(np.float32) / np.float32(255)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Over the first axis; logits that are not finite give NaN, which decoding refuses."""
    shifted = np.exp(logits - logits.max(0, keepdims=True))
    return shifted / shifted.sum(0, keepdims=True)
