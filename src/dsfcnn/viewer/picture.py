"""An open slide, image or map on the pixels of a result; what cannot be read is a chequered grey field."""

import threading

import numpy as np
from numpy.typing import NDArray

from dsfcnn.errors import MissingInputError, UnreadableRegion
from dsfcnn.slides import Slide
from dsfcnn.viewer.pyramid import Square

_PIECE = 64  # pixels: side of what is tried by itself where a square cannot be read
_GREYS = (110, 170)  # as in overlay.png


class Picture:
    """Threads take turns.

    Args:
        ratio: pixels of the result to one of the slide's own: 1 for the slide itself, more for a smaller picture of it.
    """

    def __init__(self, slide: Slide, ratio: float = 1.0):
        self.slide, self.ratio = slide, ratio
        self._lock = threading.Lock()
        self._closed = False

    def read(self, square: Square) -> NDArray[np.uint8]:
        """uint8 (height, width, 3)."""
        with self._lock:
            if self._closed:
                raise MissingInputError("this slide was closed; load the page again")
            try:
                picture = self._part(square, 0, 0, square.width, square.height)
            except UnreadableRegion:
                picture = self._pieces(square)
        # A pixel that is only partly on the slide would be mixed with white, a bright line on the dark page.
        if square.right > self.slide.width * self.ratio and square.width > 1:
            picture[:, -1] = picture[:, -2]
        if square.bottom > self.slide.height * self.ratio and square.height > 1:
            picture[-1] = picture[-2]
        return picture

    def _pieces(self, square: Square) -> NDArray[np.uint8]:
        rows, columns = np.indices((square.height, square.width)) // (_PIECE // 8)
        picture = np.repeat(np.choose((rows + columns) % 2, _GREYS).astype(np.uint8)[..., None], 3, axis=2)
        for top in range(0, square.height, _PIECE):
            for left in range(0, square.width, _PIECE):
                width, height = min(_PIECE, square.width - left), min(_PIECE, square.height - top)
                try:
                    picture[top : top + height, left : left + width] = self._part(square, left, top, width, height)
                except UnreadableRegion:
                    continue
        return picture

    def _part(self, square: Square, left: int, top: int, width: int, height: int) -> NDArray[np.uint8]:
        x, y = (square.left + left * square.scale) / self.ratio, (square.top + top * square.scale) / self.ratio
        return self.slide.read(x, y, width, height, self.slide.mpp * square.scale / self.ratio)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self.slide.close()
