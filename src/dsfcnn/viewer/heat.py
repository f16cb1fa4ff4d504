"""A probability map on the pixels of a result. At its rim the nearest probability goes on, where a slide would be white."""

import math
import threading
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dsfcnn.inference.heatmap import CELL
from dsfcnn.slides.open import open_reader
from dsfcnn.viewer.folder import Record
from dsfcnn.viewer.pyramid import Square


class HeatMap:
    """Threads take turns."""

    def __init__(self, path: Path, record: Record):
        self._reader = open_reader(path)
        self._lock = threading.Lock()
        step = record.settings.mpp / record.settings.slide_mpp
        across = self._reader.facts.levels[0].width

        def misfit(ratio: float) -> float:
            return abs(math.log(ratio * across / record.input.width))

        self.ratio = min((step, step * CELL), key=misfit)  # pixels of the result to one of the map: one analysed pixel, or a cell of them
        self.cells = self.ratio > step

    def read(self, square: Square) -> NDArray[np.uint8]:
        """(height, width) of 0 to 255; cells stay squares."""
        step = square.scale / self.ratio
        number, level = max(
            ((number, level) for number, level in enumerate(self._reader.facts.levels) if level.downsample <= max(step, 1)),
            key=lambda pair: pair[1].downsample,
        )
        scale = self.ratio * level.downsample
        left, top, right, bottom = square.left / scale, square.top / scale, square.right / scale, square.bottom / scale
        around = math.ceil(max(step / level.downsample, 1)) + 1  # as far as the filter reaches
        x0, x1 = math.floor(left) - around, math.ceil(right) + around
        y0, y1 = math.floor(top) - around, math.ceil(bottom) + around
        columns, rows = np.clip(np.arange(x0, x1), 0, level.width - 1), np.clip(np.arange(y0, y1), 0, level.height - 1)
        with self._lock:
            known = self._reader.pixels(
                number, int(columns[0]), int(rows[0]), int(columns[-1] - columns[0]) + 1, int(rows[-1] - rows[0]) + 1
            )
        window = Image.fromarray(np.ascontiguousarray(known[..., 0][np.ix_(rows - rows[0], columns - columns[0])]))
        kind = Image.Resampling.NEAREST if self.cells and step < 1 else Image.Resampling.BILINEAR
        return np.asarray(window.resize((square.width, square.height), kind, (left - x0, top - y0, right - x0, bottom - y0)))

    def close(self) -> None:
        with self._lock:
            self._reader.close()
