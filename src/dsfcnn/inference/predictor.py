"""A trained model that takes images as they are: any size, any resolution.

The image is brought to the model's resolution, the network gives probabilities there, and objects are decoded on a grid as fine as the
finer of image and task (a network that sees at 0.5 um/px still outlines nuclei at 0.25), then put on the image's own pixels.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dsfcnn import tasks
from dsfcnn.errors import DataError, UsageError
from dsfcnn.inference.merge import Found, Merger
from dsfcnn.inference.network import ALIGNMENT, Network, TorchNetwork, class_probabilities, find_device
from dsfcnn.inference.stitch import find_objects, gather, read_box, stored_channels, tile_probabilities
from dsfcnn.inference.tiles import Grid, Tile, make_grid
from dsfcnn.models import find_model, load_model, read_config
from dsfcnn.slides import Slide
from dsfcnn.slides.resolution import check_mpp
from dsfcnn.slides.slide import Facts, Level
from dsfcnn.tasks.task import Classification, Segmentation, with_settings

MARGIN = 448  # network pixels, where a model does not state its own: the largest that measure_margin finds
OVERLAPS = {"nuclei": 48.0, "glands": 64.0}  # um around a tile where objects are decoded: a clump of nuclei; half a gland
# Network pixels of mirrored tissue around a picture, so that its edge is not the edge of what the network sees. The authors' tiling mirrors
# 72 (a window of 256 of which 112 are kept).
BORDER = 64
_MOST_DECODED = 2560  # decode pixels a side of a tile: a worker then takes about 400 MB
_FINEST = 8  # decode pixels per network pixel at most; finer than that outlines are only smoother, not truer


class Predictor:
    """A model with what is known of it. Made by ``dsfcnn.load``.

    Attributes:
        network: the network as a function.
        config: of the model folder.
        task: what the outputs mean.
        mpp: the resolution the network sees, microns per pixel.
        margin: pixels around a tile that the network needs to see.
    """

    def __init__(self, network: Network, config: dict[str, Any]):
        self.network, self.config = network, config
        mpp = config.get("mpp")
        try:
            self.task = with_settings(tasks.get(config["task"]), config.get("decode"))
            self.mpp = self.task.mpp if mpp is None else check_mpp(mpp, "mpp")
        except UsageError as error:  # of whoever made the model
            raise DataError(f"config of the model: {error}") from error
        margin = config.get("tile_margin")
        self.margin = MARGIN if margin is None else int(margin)

    def segment(self, image: np.ndarray, mpp: float | None = None, *, tile: int | None = None) -> np.ndarray:
        """Objects of an image.

        Args:
            image: uint8 RGB (H, W, 3) of any size.
            mpp: microns per pixel of the image; the model's own by default.
            tile: network pixels a side that go through the network at once; as many as fit into about 1 GB by default.

        Returns:
            int32 (H, W): 0 background, 1, 2, ... objects.
        """
        task = self.segmentation()
        slide = as_slide(image, self.mpp if mpp is None else check_mpp(mpp, "mpp"))
        grid = self.grid(slide, tile=tile)
        stored: dict[Tile, np.ndarray] = {}
        for place in grid.tiles():
            picture, _ = read_box(slide, grid, grid.seen(place))
            stored[place] = tile_probabilities(self.network, task, grid, place, picture)
        return on_image(merged(task, grid, stored), grid, slide.width, slide.height)

    def classify(self, image: np.ndarray, mpp: float | None = None) -> np.ndarray:
        """Probabilities (classes,) of an image, uint8 RGB (H, W, 3), or (H, W) and (H, W, 1) for digits; ``mpp`` as in ``segment``."""
        if not isinstance(self.task, Classification):
            raise UsageError(f"a model of {self.task.name} finds objects and knows no classes of images; use segment")
        if self.task.name == "digits":
            return class_probabilities(self.network, _checked(image, channels=1)[None])[0]
        slide = as_slide(image, self.mpp if mpp is None else check_mpp(mpp, "mpp"))
        grid = make_grid(slide.width, slide.height, slide.mpp, self.mpp, tile=ALIGNMENT, margin=0)
        picture, _ = read_box(slide, grid, grid.whole)
        padding = [(0, -side % ALIGNMENT) for side in picture.shape[:2]]
        return class_probabilities(self.network, np.pad(picture, [*padding, (0, 0)], mode="symmetric")[None])[0]

    def segmentation(self) -> Segmentation:
        if not isinstance(self.task, Segmentation):
            raise UsageError(f"a model of {self.task.name} gives a class for an image and finds no objects; use classify")
        return self.task

    def grid(self, slide: Slide, mpp: float | None = None, tile: int | None = None) -> Grid:
        """How this model looks at a slide: ``mpp`` is the resolution the network sees, the model's own by default."""
        mpp = self.mpp if mpp is None else mpp
        # Beyond the task's own resolution only a picture is decoded finer, to be outlined on its own pixels; a slide's objects need not be.
        finest = min(slide.mpp, self.task.mpp) if slide.is_image else self.task.mpp
        decode_mpp = max(finest, mpp / _FINEST)
        if tile is None:
            tile = min(self.network.largest_tile(self.margin), int(_MOST_DECODED * decode_mpp / mpp) // ALIGNMENT * ALIGNMENT)
        return make_grid(
            slide.width,
            slide.height,
            slide.mpp,
            mpp,
            tile=tile,
            margin=self.margin,
            overlap_um=OVERLAPS.get(self.task.name, 0.0),
            decode_mpp=decode_mpp,
            border=BORDER,
        )


def merged(task: Segmentation, grid: Grid, stored: dict[Tile, np.ndarray]) -> Iterator[Found]:
    """All objects, from the bytes of all tiles."""
    merger = Merger(grid)
    for place in grid.tiles():
        yield from merger.add(place, find_objects(task, grid, place, gather(stored.get, grid, place, len(stored_channels(task)))))
    yield from merger.finish()


def on_image(objects: Iterator[Found], grid: Grid, width: int, height: int) -> np.ndarray:
    """Objects as an instance map on the image's own pixels: every pixel has the object in which its centre lies."""
    whole = grid.whole.times(grid.factor)
    labels = np.zeros((whole.height, whole.width), np.int32)
    for number, found in enumerate(objects, 1):
        labels[found.box.slices(whole)][found.mask] = number
    step = grid.factor / grid.scale  # decode pixels per image pixel
    if math.isclose(step, 1):
        return np.ascontiguousarray(labels[:height, :width])
    rows, columns = (
        np.minimum(((np.arange(size) + 0.5) * step).astype(int), most - 1) for size, most in zip((height, width), labels.shape)
    )
    return labels[rows[:, None], columns]


class _Pixels:
    """An array as a slide of one level."""

    name = "pillow"  # as of any other plain image

    def __init__(self, image: np.ndarray):
        self._image = image
        self.facts = Facts(levels=(Level(image.shape[1], image.shape[0], 1.0),), vendor="image")

    def pixels(self, level: int, x: int, y: int, width: int, height: int) -> np.ndarray:
        return self._image[y : y + height, x : x + width]

    def close(self) -> None:
        pass


def as_slide(image: np.ndarray, mpp: float) -> Slide:
    """An image in memory, to be read like a slide."""
    pixels = _Pixels(_checked(image, channels=3))
    return Slide(Path("array"), mpp, "given", lambda: pixels, pixels)


def _checked(image: np.ndarray, channels: int) -> np.ndarray:
    array = np.asarray(image)
    if channels == 1 and array.ndim == 2:
        array = array[..., None]
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != channels or array.size == 0:
        raise DataError(f"image: expected uint8 (H, W, {channels}) but got {array.dtype} {array.shape}; convert it first")
    return array


def load(model: str | Path, device: str = "auto") -> Predictor:
    """The predictor of a shipped model by its name, of a model folder, or of a model exported to ONNX.

    Args:
        device: "cpu", "cuda:0" or another GPU; "auto" takes a GPU where torch can use one. An ONNX file runs on the processor.

    Raises:
        UsageError: no model of that name, and no such folder; or no such device.
    """
    path, place = find_model(model), find_device(device)
    if path.suffix.lower() == ".onnx" and path.is_file():
        from dsfcnn.inference.export import load_onnx

        if device not in ("auto", "cpu"):
            raise UsageError(f"--device {device}: an ONNX file runs on the processor; leave the option away, or give the model folder")
        predictor = Predictor(*load_onnx(path))
    else:
        predictor = Predictor(TorchNetwork(load_model(path), place), read_config(path))
    _expect_outputs(predictor)
    return predictor


def _expect_outputs(predictor: Predictor) -> None:
    """A network whose outputs mean something else than the task's would give results that look right."""
    task, config = predictor.task, predictor.config
    needed: Any
    if isinstance(task, Segmentation):
        key, needed = "heads", {head: len(channels) for head, channels in task.heads.items()}
    else:
        key, needed = "classes", len(config.get("classes") or task.heads["class"])
    given = config["architecture"].get(key)
    if given != needed:
        raise DataError(f"config of the model: {task.name} needs {key} = {needed} but the network has {given}; get the model again")
