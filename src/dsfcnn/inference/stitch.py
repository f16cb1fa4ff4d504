"""From a slide to the probabilities of its tiles, and from those to the objects of a tile.

Probabilities are kept as bytes, p -> round(255 p), without each head's background, which is the rest to 1. A tile holds those of its own
pixels only; the network saw a margin around them, so tiles meet without a seam. Objects of a tile are decoded on its pixels and a belt of
its neighbours', put together from their tiles: no pixel goes through the network twice for the sake of decoding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from dsfcnn.errors import DataError, UnreadableRegion
from dsfcnn.inference.tiles import Box, Grid, Tile
from dsfcnn.slides import Slide
from dsfcnn.slides.slide import blocks
from dsfcnn.tasks.task import Segmentation

if TYPE_CHECKING:
    from dsfcnn.inference.network import Network

RETRY = 64  # side in network pixels of the pieces that are tried one by one where a tile cannot be read

# Probabilities of a tile, uint8 (channels, height, width) of its own pixels; None where the network did not look.
Store = Callable[[Tile], np.ndarray | None]


@dataclass(frozen=True)
class TileObjects:
    """Objects of a tile as it sees them.

    Args:
        box: decode pixels that ``labels`` covers, the tile's own and a belt around them.
        labels: int32, ids 1, 2, ...
        area: by id (index 0 is background), decode pixels of the object wherever the tile sees it.
        probability: uint8, of being part of an object, on the pixels of ``labels``.
    """

    box: Box
    labels: np.ndarray
    area: np.ndarray
    probability: np.ndarray


def stored_channels(task: Segmentation) -> list[tuple[str, int]]:
    """Head and channel of what is kept of a task's probabilities.

    >>> from dsfcnn.tasks import get
    >>> stored_channels(get("nuclei"))
    [('object', 1), ('marker', 0), ('marker', 1)]
    """
    return [(head, number) for head, names in task.heads.items() for number, name in enumerate(names) if name != "background"]


def to_bytes(task: Segmentation, probabilities: dict[str, np.ndarray]) -> np.ndarray:
    """Probabilities by head (C, H, W) as bytes (channels, H, W)."""
    return np.stack([np.rint(probabilities[head][number] * 255).astype(np.uint8) for head, number in stored_channels(task)])


def from_bytes(task: Segmentation, stored: np.ndarray, factor: int) -> dict[str, Any]:
    """Probabilities of every head and channel, ``factor`` times as fine by bilinear interpolation."""
    size = stored.shape[1] * factor, stored.shape[2] * factor
    heads: dict[str, Any] = {head: np.zeros((len(names), *size), np.float32) for head, names in task.heads.items()}
    for (head, number), plane in zip(stored_channels(task), stored):
        rest = heads[head][task.heads[head].index("background")]
        heads[head][number] = _finer(plane, factor)
        rest += heads[head][number]
    for head, names in task.heads.items():
        rest = heads[head][names.index("background")]
        np.clip(np.subtract(1, rest, out=rest), 0, 1, out=rest)
    return heads


def _finer(plane: np.ndarray, factor: int) -> np.ndarray:
    floats = plane.astype(np.float32) / np.float32(255)
    if factor == 1:
        return floats
    return np.asarray(Image.fromarray(floats).resize((plane.shape[1] * factor, plane.shape[0] * factor), Image.Resampling.BILINEAR))


def read_box(slide: Slide, grid: Grid, box: Box) -> tuple[np.ndarray, np.ndarray | None]:
    """Pixels at the network's resolution, mirrored beyond the slide's edge, and which of them are damaged (white), if any are."""
    try:
        return _read(slide, grid, box), None
    except UnreadableRegion:
        picture, damaged = np.full((box.height, box.width, 3), 255, np.uint8), np.zeros((box.height, box.width), bool)
    for left, top in blocks(box.left, box.top, box.width, box.height, RETRY):
        piece = Box(left, top, left + RETRY, top + RETRY).within(box)
        try:
            picture[piece.slices(box)] = _read(slide, grid, piece)
        except UnreadableRegion:
            damaged[piece.slices(box)] = True
    return picture, damaged


def _read(slide: Slide, grid: Grid, box: Box) -> np.ndarray:
    x, y, _, _ = grid.level0(box)
    return slide.read(x, y, box.width, box.height, grid.mpp, mirror=True)


def tile_probabilities(
    network: "Network", task: Segmentation, grid: Grid, tile: Tile, image: np.ndarray, damaged: np.ndarray | None = None
) -> np.ndarray:
    """Bytes (channels, height, width) of a tile's own pixels from the picture of all that it sees; 0 where that is damaged."""
    from dsfcnn.inference.network import probabilities_of

    seen, core = grid.seen(tile), grid.core(tile)
    found = probabilities_of(network, image, core.counted_from(seen))
    for head, values in found.items():
        if not np.isfinite(values).all():
            raise DataError(
                f"{head}: the network gave numbers that are not finite at {tuple(core)}; its weights are damaged, get the model again"
            )
    stored = to_bytes(task, found)
    if damaged is not None:
        stored[:, damaged[core.slices(seen)]] = 0
    return stored


def gather(store: Store, grid: Grid, tile: Tile, channels: int) -> np.ndarray:
    """Bytes of a tile's window, put together from its own tile and its neighbours'; 0 where the network did not look."""
    window = grid.window(tile)
    gathered = np.zeros((channels, window.height, window.width), np.uint8)
    for other in grid.around(tile):
        part = grid.core(other).within(window)
        if part.area and (stored := store(other)) is not None:
            gathered[(slice(None), *part.slices(window))] = stored[(slice(None), *part.slices(grid.core(other)))]
    return gathered


def find_objects(task: Segmentation, grid: Grid, tile: Tile, stored: np.ndarray) -> TileObjects:
    """Decode a tile's window from its gathered bytes."""
    probabilities = from_bytes(task, stored, grid.factor)
    labels = task.decode(probabilities, grid.decode_mpp)
    window, box = grid.window(tile).times(grid.factor), grid.kept(tile)
    cut = box.within(window).slices(window)
    first = next(iter(task.heads))  # "object"
    background = task.heads[first].index("background")
    probability = np.rint((1 - probabilities[first][background][cut]) * 255).astype(np.uint8)
    return TileObjects(box.within(window), labels[cut], np.bincount(labels.ravel()), probability)
