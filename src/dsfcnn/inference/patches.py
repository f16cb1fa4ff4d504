"""Models that give a class for a patch, on a slide: one answer for every cell of 32 x 32 pixels, each from the 96 x 96 around it.

A label of PatchCamelyon speaks of the central 32 x 32 pixels of its 96 x 96, so cells lie side by side and their patches overlap.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dsfcnn.errors import DataError
from dsfcnn.inference.heatmap import CELL, write_heatmap, write_tiles
from dsfcnn.inference.objects import Classification as Kind
from dsfcnn.inference.overlay import mark_unreadable, picture_of, write_heat_overlay
from dsfcnn.inference.results import Damaged
from dsfcnn.inference.state import State
from dsfcnn.inference.tiles import Box, Grid, Tile, make_grid
from dsfcnn.slides import Slide
from dsfcnn.tasks.task import Task

if TYPE_CHECKING:
    from dsfcnn.inference.network import Network

_AROUND = 32  # pixels of a patch beyond its cell on each side: 96 = 32 + 2 * 32
_TILE = 16 * CELL  # pixels; 256 patches
_BATCH = 32  # patches at a time: the widest maps of dsf-tumour are then 94 MB
_COLOURS = ("#7f7f7f", "#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#bcbd22", "#17becf")

Wanted = Callable[[tuple[float, float, float, float]], bool]  # whether x, y, width, height on level 0 is to be looked at


def patch_grid(slide: Slide, mpp: float) -> Grid:
    """Tiles of 16 x 16 cells."""
    return make_grid(slide.width, slide.height, slide.mpp, mpp, tile=_TILE, margin=_AROUND)


def patch_box(grid: Grid, tile: Tile) -> Box:
    """Pixels of all patches of a tile."""
    core = grid.core(tile)
    right, bottom = core.left + _cells(core.width) * CELL, core.top + _cells(core.height) * CELL
    return Box(core.left, core.top, right, bottom).grown(_AROUND)


def tile_classes(network: "Network", grid: Grid, tile: Tile, picture: np.ndarray, damaged: np.ndarray | None, wanted: Wanted) -> np.ndarray:
    """Probabilities float32 (rows, columns, classes) of a tile's cells; NaN for those not looked at or damaged."""
    from dsfcnn.inference.network import class_probabilities

    core, side = grid.core(tile), CELL + 2 * _AROUND
    places = []
    for row, column in np.ndindex(_cells(core.height), _cells(core.width)):
        cell = Box(core.left + column * CELL, core.top + row * CELL, core.left + (column + 1) * CELL, core.top + (row + 1) * CELL)
        part = cell.slices(patch_box(grid, tile))
        if wanted(grid.level0(cell.within(grid.whole))) and not (damaged is not None and damaged[part].any()):
            places.append((row, column))
    patches = [picture[row * CELL : row * CELL + side, column * CELL : column * CELL + side] for row, column in places]
    found = [class_probabilities(network, np.stack(patches[start : start + _BATCH])) for start in range(0, len(patches), _BATCH)]
    if not all(np.isfinite(chances).all() for chances in found):  # they would look like cells that nobody looked at
        raise DataError(f"the network gave numbers that are not finite at {tuple(core)}; its weights are damaged, get the model again")
    classes = found[0].shape[1] if found else 1
    cells = np.full((_cells(core.height), _cells(core.width), classes), np.nan, np.float32)
    for (row, column), values in zip(places, np.concatenate(found) if found else []):
        cells[row, column] = values
    return cells


def _cells(length: int) -> int:
    return -(-length // CELL)


def write_classes(
    folder: Path,
    state: State,
    grid: Grid,
    tiles: list[Tile],
    slide: Slide,
    config: dict[str, Any],
    task: Task,
    slide_id: str,
    damaged: Damaged,
) -> dict[str, int]:
    """Heat map (one for each class but the first), tiles for QuPath and overlay."""
    kinds = class_kinds(config, task)
    cells = np.full((_cells(grid.height), _cells(grid.width), len(kinds)), np.nan, np.float32)
    for tile in tiles:
        found = state.tile(tile)
        assert found is not None
        part, core = found["stored"], grid.core(tile)
        if part.shape[2] == len(kinds):  # else not a cell of it was looked at
            row, column = core.top // CELL, core.left // CELL
            cells[row : row + part.shape[0], column : column + part.shape[1]] = part
    gz = not slide.is_image
    name = f"{task.name}.geojson.gz" if gz else f"{task.name}.geojson"
    shape = (grid.height, grid.width)
    count = write_tiles(folder / name, cells, kinds, shape, gz, slide_id=slide_id, scale=grid.scale, offset=slide.bounds)
    for number, kind in enumerate(kinds[1:], 1):
        heat = "probability.tif" if len(kinds) == 2 else f"probability-{number}-{''.join(c for c in kind.name if c.isalnum())}.tif"
        write_heatmap(folder / heat, cells[..., number], grid.mpp)
    picture, scale = picture_of(slide)
    mark_unreadable(picture, damaged, scale)
    write_heat_overlay(folder / "overlay.png", picture, cells[..., 1], CELL * grid.scale / scale, kinds[1])
    return {"objects": count}


def class_kinds(config: dict[str, Any], task: Task) -> list[Kind]:
    """Names and colours of the classes: as the model says, or the task."""
    stated = config.get("classes")
    if stated:
        return [Kind(str(one["name"]), str(one["color"])) for one in stated]
    names = next(iter(task.heads.values()))
    return [Kind(name.capitalize(), _COLOURS[number % len(_COLOURS)]) for number, name in enumerate(names)]
