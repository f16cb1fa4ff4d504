"""Random fields that are functions of the place: any window of them can be drawn by itself, and windows join without a seam.

Random numbers come from hashing whole coordinates, so there is no state, no order and no size. All lengths are in microns.
"""

from dataclasses import dataclass

import numpy as np

# Optical density of haematoxylin and eosin in R, G, B, of length 1: the reference stains of Macenko et al., 2009, pinker than Ruifrok's.
_HAEMATOXYLIN, _EOSIN = np.array([0.5626, 0.7201, 0.4062]), np.array([0.2159, 0.8012, 0.5581])


@dataclass(frozen=True)
class Window:
    """A rectangle of the plane: its corner (left, top) and its pixels, ``mpp`` microns each."""

    left: int
    top: int
    width: int
    height: int
    mpp: float

    def grown(self, pixels: int) -> "Window":
        """The window with a margin on all sides."""
        return Window(self.left - pixels, self.top - pixels, self.width + 2 * pixels, self.height + 2 * pixels, self.mpp)

    def microns(self) -> tuple[float, float, float, float]:
        """left, top, right, bottom"""
        return self.left * self.mpp, self.top * self.mpp, (self.left + self.width) * self.mpp, (self.top + self.height) * self.mpp

    def x(self) -> np.ndarray:
        """Centres of the columns."""
        return (self.left + np.arange(self.width) + 0.5) * self.mpp

    def y(self) -> np.ndarray:
        """Centres of the rows."""
        return (self.top + np.arange(self.height) + 0.5) * self.mpp


def uniform(*keys: int | np.ndarray) -> np.ndarray:
    """Numbers in [0, 1) from whole numbers, by the mixing steps of SplitMix64; arrays broadcast.

    >>> uniform(1, 2, np.arange(2)).round(3).tolist() == [float(uniform(1, 2, k).round(3)) for k in (0, 1)]
    True
    """
    with np.errstate(over="ignore"):
        mixed = np.zeros((), np.uint64)
        for key in keys:
            mixed = (mixed ^ np.asarray(key, np.int64).astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed = mixed ^ (mixed >> np.uint64(31))
    return np.asarray((mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def noise(seed: int, x: np.ndarray, y: np.ndarray, scale: float) -> np.ndarray:
    """Smooth noise from 0 to 1 on the grid y by x, of features as large as ``scale``: random values on a lattice, interpolated."""
    (columns, fx), (rows, fy) = _lattice(x, scale), _lattice(y, scale)
    across = np.arange(columns[0], columns[-1] + 2)
    down = np.arange(rows[0], rows[-1] + 2)
    values = uniform(seed, down[:, None], across[None, :]).astype(np.float32)
    values = values[:, columns - across[0]] * (1 - fx) + values[:, columns - across[0] + 1] * fx
    return values[rows - down[0]] * (1 - fy[:, None]) + values[rows - down[0] + 1] * fy[:, None]


def noise_at(seed: int, x: np.ndarray, y: np.ndarray, scale: float) -> np.ndarray:
    """The same noise at scattered places (x[i], y[i])."""
    (column, fx), (row, fy) = _lattice(x, scale), _lattice(y, scale)
    upper = uniform(seed, row, column) * (1 - fx) + uniform(seed, row, column + 1) * fx
    lower = uniform(seed, row + 1, column) * (1 - fx) + uniform(seed, row + 1, column + 1) * fx
    return upper * (1 - fy) + lower * fy


def _lattice(places: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    scaled = np.asarray(places) / scale
    cell = np.floor(scaled).astype(np.int64)
    part = (scaled - cell).astype(np.float32)
    return cell, part * part * (3 - 2 * part)


def grain(seed: int, window: Window) -> np.ndarray:
    """Noise of the camera: independent, about normal with deviation 1, (H, W, 3)."""
    x = np.arange(window.left, window.left + window.width)
    y = np.arange(window.top, window.top + window.height)
    # One hash gives 53 bits: 17 for each channel. The sum of two triangles is close enough to a bell.
    bits = (uniform(seed, y[:, None], x[None, :]) * 2.0**51).astype(np.int64)
    channels = np.stack([bits >> shift & 0x1FFFF for shift in (0, 17, 34)], -1).astype(np.float32) / 2**16 - 1
    return (channels + np.roll(channels, 1, -1)[..., ::-1]) * np.float32(1.2)


def cells(window: Window, spacing: float, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Whole (column, row) of every cell of a square lattice from which something up to ``reach`` away can enter the window."""
    left, top, right, bottom = window.microns()
    columns = np.arange(int(np.floor((left - reach) / spacing)), int(np.floor((right + reach) / spacing)) + 1)
    rows = np.arange(int(np.floor((top - reach) / spacing)), int(np.floor((bottom + reach) / spacing)) + 1)
    grid = np.meshgrid(columns, rows)
    return grid[0].ravel(), grid[1].ravel()


def stain(haematoxylin: np.ndarray, eosin: np.ndarray, white: float = 243.0) -> np.ndarray:
    """Light through stained tissue, Beer-Lambert: white * 10^-(h H + e E) for optical densities h and e. float32 (H, W, 3)."""
    h, e = (density[..., None].astype(np.float32) for density in (haematoxylin, eosin))
    density = h * _HAEMATOXYLIN.astype(np.float32) + e * _EOSIN.astype(np.float32)
    return np.float32(white) * np.exp(np.float32(-np.log(10)) * density)
