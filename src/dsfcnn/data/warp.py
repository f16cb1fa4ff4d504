"""Turn, flip and scale in one resampling: bilinear for images, nearest with a vote for labels, in fixed-point arithmetic.

An output pixel p (row, column, from the centre of the cut) reads the source at centre + M p with M = scale * turn * flip. Places are
integers in units of 2^-13 pixel and the four weights of a pixel are integers that add up to 2^13, so quarter turns are exact and results
do not depend on the machine. The three bytes of a pixel lie in one 64-bit integer, 21 bits apart, where 255 * 2^13 has room:
one multiplication weighs all channels.
"""

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from dsfcnn.data.augment import mirrored

_ONE = 1 << 13  # one pixel, and the sum of the four weights
_FIELD = 21  # bits a channel
_AROUND = 0.35  # pixels from the middle to the places that vote; as good as nine places in a trial on four images at 39, 45 and 51 degrees


@dataclass(frozen=True)
class View:
    """Where a cut of ``size`` x ``size`` pixels reads its source.

    Args:
        size: pixels along each side of the result.
        centre: (row, column) in the source, in pixels whose centres are at whole numbers.
        matrix: 2 x 2; a step of one pixel down (first column) or right (second column) in the result as a step in the source.
    """

    size: int
    centre: tuple[float, float]
    matrix: tuple[tuple[float, float], tuple[float, float]]

    @classmethod
    def turned(
        cls, size: int, centre: tuple[float, float], degrees: float = 0.0, scale: float = 1.0, flip: tuple[bool, bool] = (False, False)
    ) -> Self:
        """The source turned counter-clockwise on the screen and mirrored (up-down, left-right); ``scale`` source pixels make one."""
        cos, sin = exact_turn(degrees)
        down, right = (-scale if flip[0] else scale), (-scale if flip[1] else scale)
        # What is read at an angle of -t appears turned by t; rows point down.
        return cls(size, centre, ((cos * down, sin * right), (-sin * down, cos * right)))

    def coarser(self, factor: int) -> Self:
        """The same place in pixels that are so many times as large; ``factor`` divides the size."""
        (a, b), (c, d) = self.matrix
        return type(self)(self.size // factor, self.centre, ((factor * a, factor * b), (factor * c, factor * d)))

    def reach(self) -> tuple[float, float]:
        """How far from the centre the cut reads, down and to the right, in source pixels."""
        half = (self.size - 1) / 2
        return tuple(half * (abs(a) + abs(b)) for a, b in self.matrix)  # type: ignore[return-value]

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Row and column read by each pixel of the result, in 2^-13 pixel: int64 (size, size) each."""
        step = np.arange(self.size) - (self.size - 1) / 2
        rows, columns = (
            np.rint((centre + a * step) * _ONE).astype(np.int64)[:, None] + np.rint(b * step * _ONE).astype(np.int64)[None, :]
            for centre, (a, b) in zip(self.centre, self.matrix)
        )
        return rows, columns


def exact_turn(degrees: float) -> tuple[float, float]:
    """Cosine and sine, exactly 0 and 1 at quarter turns.

    >>> exact_turn(90), exact_turn(-180)
    ((0.0, 1.0), (-1.0, 0.0))
    """
    if degrees % 90 == 0:
        return ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))[int(degrees // 90) % 4]
    angle = np.deg2rad(degrees)
    return float(np.cos(angle)), float(np.sin(angle))


def warp_image(image: np.ndarray, view: View, border: Literal["mirror", "black"] = "mirror") -> np.ndarray:
    """Bilinear reading of uint8 (H, W, 1 or 3). A source finer than half a result pixel is first averaged over whole blocks of pixels."""
    factor = min(int(np.hypot(view.matrix[0][0], view.matrix[1][0]) + 1e-9), *image.shape[:2])
    image, view = _own_part(image, view, max(factor, 1))
    if factor > 1:
        image, view = _reduced(image, view, factor)
    rows, columns = view.places()
    y, x = rows >> 13, columns >> 13
    fy, fx = rows & (_ONE - 1), columns & (_ONE - 1)
    both = fy * fx >> 13  # rounded down: the four weights stay at 0 or above and still add up to 2^13
    packed = _packed(image)
    total = np.full(y.shape, sum((_ONE // 2) << (_FIELD * channel) for channel in range(image.shape[2])), np.int64)  # rounds
    for dy, dx, weight in ((0, 0, _ONE - fy - fx + both), (0, 1, fx - both), (1, 0, fy - both), (1, 1, both)):
        total += weight * _read(packed, y + dy, x + dx, border)
    channels = [(total >> (_FIELD * channel + 13)).astype(np.uint8) for channel in range(image.shape[2])]  # the cast drops other fields
    return np.stack(channels, -1)


def warp_labels(labels: np.ndarray, view: View, border: Literal["mirror", "black"] = "mirror") -> np.ndarray:
    """Nearest reading of (H, W) at the middle of each pixel and at four places around it: what three of five agree on, else the middle's.

    The vote takes off the teeth that one reading leaves on an edge: turned there and back, objects keep more of themselves.
    """
    rows, columns = (places + _ONE // 2 for places in view.places())  # shifting right then rounds to the nearest
    middle = _read(labels, rows >> 13, columns >> 13, border)
    around = []
    for down, right in ((-_AROUND, 0), (_AROUND, 0), (0, -_AROUND), (0, _AROUND)):
        dy, dx = (round((a * down + b * right) * _ONE) for a, b in view.matrix)
        around.append(_read(labels, (rows + dy) >> 13, (columns + dx) >> 13, border))
    first, second, third, _ = around
    likely = np.where(first == second, first, third)  # the only label besides the middle's that three can agree on
    agreeing = sum((label == likely).astype(np.uint8) for label in (middle, *around))
    return np.where(agreeing >= 3, likely, middle)


def leaves(shape: tuple[int, ...], view: View) -> bool:
    """Whether the cut reads outside a source of this (height, width)."""
    return any(c - r < -1e-9 or c + r > length - 1 + 1e-9 for c, r, length in zip(view.centre, view.reach(), shape))


def _read(plane: np.ndarray, y: np.ndarray, x: np.ndarray, border: str) -> np.ndarray:
    """plane[y, x], with the border's rule outside; y and x are large, so one comparison each decides whether any is."""
    height, width = plane.shape
    outside = min(y.min(), x.min()) < 0 or y.max() >= height or x.max() >= width
    if not outside:
        return plane.ravel()[y * width + x] if plane.flags.c_contiguous else plane[y, x]
    if border == "mirror":
        return plane[mirrored(y, height), mirrored(x, width)]
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    return np.where(inside, plane[np.where(inside, y, 0), np.where(inside, x, 0)], 0)


def _packed(image: np.ndarray) -> np.ndarray:
    packed = image[..., 0].astype(np.int64)
    for channel in range(1, image.shape[2]):
        packed |= image[..., channel].astype(np.int64) << (_FIELD * channel)
    return packed


def _own_part(image: np.ndarray, view: View, factor: int) -> tuple[np.ndarray, View]:
    """The part of a large image that the cut reads, in whole blocks; all of it where the cut leaves the image."""
    if leaves(image.shape, view):
        return image, view
    corner = [max(0, int(np.floor(c - r)) - factor) // factor * factor for c, r in zip(view.centre, view.reach())]
    end = [int(np.ceil(c + r)) + 2 * factor + 2 for c, r in zip(view.centre, view.reach())]
    part = image[corner[0] : end[0], corner[1] : end[1]]
    return part, View(view.size, (view.centre[0] - corner[0], view.centre[1] - corner[1]), view.matrix)


def _reduced(image: np.ndarray, view: View, factor: int) -> tuple[np.ndarray, View]:
    """Mean of factor x factor pixels, and where the view lies on these."""
    height, width = (length // factor for length in image.shape[:2])
    blocks = image[: height * factor, : width * factor].reshape(height, factor, width, factor, -1)
    mean = ((blocks.astype(np.uint32).sum((1, 3)) * 2 + factor**2) // (2 * factor**2)).astype(np.uint8)
    y, x = ((c + 0.5) / factor - 0.5 for c in view.centre)
    (a, b), (c, d) = view.matrix
    return mean, View(view.size, (y, x), ((a / factor, b / factor), (c / factor, d / factor)))
