"""Tumour: probabilities of square patches as a heat map and as tiles for QuPath.

A grid has one cell for CELL x CELL analysed pixels, from the slide's upper left corner: a label of PCam speaks of the central 32 x 32
pixels of a patch, at 0.97 microns per pixel.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dsfcnn.inference.geojson import GeoJsonWriter
from dsfcnn.inference.measure import PROBABILITY
from dsfcnn.inference.objects import Classification, Instance
from dsfcnn.inference.rasters import array_tiles, in_bytes, write_probability
from dsfcnn.inference.table import MeasurementsWriter

CELL = 32  # analysed pixels


def write_heatmap(path: str | Path, grid: NDArray[np.floating], mpp: float) -> None:
    """The probability of one class as a pyramid, one pixel for each cell.

    Args:
        grid: (rows, columns), 0 to 1, NaN where nothing was analysed, which is written as 0.
        mpp: microns per analysed pixel.
    """
    write_probability(path, array_tiles(in_bytes(grid)), grid.shape[:2], mpp * CELL)


def write_tiles(
    path: str | Path,
    grid: NDArray[np.floating],
    classes: list[Classification],
    shape: tuple[int, int],
    gz: bool = False,
    *,
    slide_id: str,
    scale: float = 1.0,
    offset: tuple[float, float] = (0, 0),
) -> int:
    """Every analysed cell as a tile of its most probable class, with the probabilities of all; returns how many.

    ``measurements.csv`` beside the file has a line for each.

    Args:
        grid: (rows, columns, classes), NaN where nothing was analysed.
        shape: (height, width) of the analysed pixels; tiles end there.
        scale, offset: as for :class:`~dsfcnn.inference.geojson.GeoJsonWriter`.
    """
    names = [f"{PROBABILITY} {one.name}" for one in classes]
    with (
        GeoJsonWriter(path, "tile", classes[0], gz, slide_id=slide_id, scale=scale, offset=offset) as writer,
        MeasurementsWriter(Path(path).parent / "measurements.csv", scale=scale, offset=offset, names=names) as table,
    ):
        for row, column in np.argwhere(np.isfinite(grid).all(2)).tolist():
            chances = grid[row, column].tolist()
            size = min(CELL, shape[0] - row * CELL), min(CELL, shape[1] - column * CELL)
            best = int(np.argmax(chances))
            cell = Instance(column * CELL, row * CELL, np.ones(size, bool), chances[best], dict(zip(names, chances)))
            table.write(cell, writer.write(cell, classes[best]), classes[best].name)
        return writer.count
