"""What is measured of each object: size and shape in microns, stain, and how sure the network is.

The names are those in GeoJSON and CSV files and stay as they are. Micron is spelled um: QuPath shows an "Area µm^2" of its own for the
same objects, and two columns of one name would hide each other.
"""

import math

import numpy as np
from numpy.typing import NDArray

AREA, PERIMETER, ECCENTRICITY, SOLIDITY = "Area um^2", "Perimeter um", "Eccentricity", "Solidity"
STAIN, PROBABILITY = "Hematoxylin OD mean", "Probability"
NAMES = (AREA, PERIMETER, ECCENTRICITY, SOLIDITY, STAIN, PROBABILITY)

# QuPath's default vectors for H&E: optical density of red, green, blue per unit of stain. The third is at right angles to both.
_HAEMATOXYLIN, _EOSIN = (0.65111, 0.70119, 0.29049), (0.2159, 0.8012, 0.5581)
_PART = np.linalg.pinv(np.array([_HAEMATOXYLIN, _EOSIN]))[:, 0]  # optical density @ this = haematoxylin
_DENSITY = -np.log10(np.maximum(np.arange(256), 1) / 255)  # of a grey level against white; black counts as 1, as in QuPath


def measure(mask: NDArray[np.bool_], rgb: NDArray[np.uint8], mpp: float, probability: float) -> dict[str, float]:
    """Measurements of one object.

    Args:
        mask: its pixels, (h, w), at least one.
        rgb: the image there, uint8 (h, w, 3).
        mpp: microns per pixel.
        probability: how sure the network is of it, 0 to 1.

    >>> found = measure(np.ones((4, 4), bool), np.full((4, 4, 3), 255, np.uint8), mpp=0.5, probability=0.9)
    >>> [found[name] for name in ("Area um^2", "Eccentricity", "Solidity", "Hematoxylin OD mean", "Probability")]
    [4.0, 0.0, 1.0, 0.0, 0.9]
    """
    area = int(np.count_nonzero(mask))
    rows, columns = np.nonzero(mask)
    return {
        AREA: area * mpp**2,
        PERIMETER: perimeter(mask) * mpp,
        ECCENTRICITY: eccentricity(rows, columns),
        SOLIDITY: area / hull_area(rows, columns),
        STAIN: float(_DENSITY[rgb[rows, columns]].mean(0) @ _PART) + 0.0,  # no minus zero
        PROBABILITY: float(probability),
    }


def perimeter(mask: NDArray[np.bool_]) -> float:
    r"""Length of the outline in pixels by Crofton's formula, without the bias of counting pixel sides (27 % on a circle).

    A curve's length is half the mean number of its crossings with lines, over all lines. Here in four directions:
    :math:`\frac\pi8 (n_0 + n_{90} + (n_{45} + n_{135})/\sqrt2)`, with n the changes between neighbouring pixels.
    """
    padded = np.zeros((mask.shape[0] + 2, mask.shape[1] + 2), bool)
    padded[1:-1, 1:-1] = mask
    straight = np.count_nonzero(padded[:, 1:] != padded[:, :-1]) + np.count_nonzero(padded[1:] != padded[:-1])
    diagonal = np.count_nonzero(padded[1:, 1:] != padded[:-1, :-1]) + np.count_nonzero(padded[1:, :-1] != padded[:-1, 1:])
    return math.pi / 8 * (straight + diagonal / math.sqrt(2))


def eccentricity(rows: NDArray[np.intp], columns: NDArray[np.intp]) -> float:
    """Of the ellipse with the same second moments, 0 (circle) to 1 (line). Pixels are squares: each adds 1/12 to both variances."""
    y, x = rows - rows.mean(), columns - columns.mean()
    yy, xx, xy = (y @ y) / len(y) + 1 / 12, (x @ x) / len(x) + 1 / 12, (x @ y) / len(x)
    middle, spread = (xx + yy) / 2, math.hypot((xx - yy) / 2, xy)  # the variances along the axes are middle +- spread
    return math.sqrt(2 * spread / (middle + spread))


def hull_area(rows: NDArray[np.intp], columns: NDArray[np.intp]) -> float:
    """Area in pixels of the convex hull of the pixels' corners, as QuPath takes it from the outline. Pixels are in row order."""
    first = np.flatnonzero(np.diff(rows, prepend=-1))
    last = np.append(first[1:], len(rows)) - 1
    top = rows[first].tolist()
    left = _chain(top, columns[first].tolist(), -1)
    right = _chain(top, (columns[last] + 1).tolist(), 1)
    ring = left + right[::-1]
    return abs(sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in zip(ring, ring[1:] + ring[:1]))) / 2


def _chain(rows: list[int], columns: list[int], side: int) -> list[tuple[int, int]]:
    """The hull's left (-1) or right (1) side from top to bottom, through the outermost corners of every row."""
    chain: list[tuple[int, int]] = []
    for row, column in zip(rows, columns):
        for point in ((column, row), (column, row + 1)):
            while len(chain) > 1 and side * _turn(chain[-2], chain[-1], point) >= 0:
                chain.pop()
            chain.append(point)
    return chain


def _turn(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> int:
    """Positive where the path a, b, c bends to the outside of the right side."""
    return (c[0] - a[0]) * (b[1] - a[1]) - (b[0] - a[0]) * (c[1] - a[1])
