"""Slow, direct versions of what prediction measures and draws, with other libraries."""

import numpy as np
import rasterio.features
import shapely
from skimage import measure


def traced(mask):
    """GDAL's polygons of a mask as one geometry."""
    pieces = [shapely.geometry.shape(shape) for shape, _ in rasterio.features.shapes(mask.astype(np.uint8), mask=mask)]
    return shapely.MultiPolygon(pieces)


def eccentricity(mask, times=16):
    """scikit-image's on pixels divided so finely that they are squares rather than points."""
    fine = np.kron(mask, np.ones((times, times), bool)).astype(np.uint8)
    return measure.regionprops(fine)[0].eccentricity


def solidity(mask):
    rows, columns = np.nonzero(mask)
    corners = [(x + dx, y + dy) for x, y in zip(columns, rows) for dx in (0, 1) for dy in (0, 1)]
    return mask.sum() / shapely.MultiPoint(corners).convex_hull.area


def stains(colour):
    """Haematoxylin, eosin and the rest of one RGB colour, by solving for three stains of which the third is at right angles."""
    haematoxylin, eosin = np.array([0.65111, 0.70119, 0.29049]), np.array([0.2159, 0.8012, 0.5581])
    density = -np.log10(np.maximum(np.asarray(colour, float), 1) / 255)
    return np.linalg.solve(np.stack([haematoxylin, eosin, np.cross(haematoxylin, eosin)]).T, density)


def quarter(map_):
    """Means of squares of 4 pixels; what does not fill a square is left away, and a side of less than 4 is repeated at its end."""
    rows, columns = (max(1, side // 4) for side in map_.shape)
    filled = np.pad(map_, [(0, max(0, 4 - side)) for side in map_.shape], "edge")
    return filled[: rows * 4, : columns * 4].astype(float).reshape(rows, 4, columns, 4).mean((1, 3))
