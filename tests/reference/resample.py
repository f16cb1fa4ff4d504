"""Resampling by a direct sum over all pixels within reach, in float64: what Slide.read is compared with."""

import math

import numpy as np


def resampled(picture, x, y, scale, width, height):
    """(height, width, 3) floats; pixel (c, r) of the result is centred at x + (c + 1/2) scale, y + (r + 1/2) scale. White outside."""
    result = np.empty((height, width, 3))
    for row in range(height):
        below = weights(y + (row + 0.5) * scale, scale)
        for column in range(width):
            across = weights(x + (column + 0.5) * scale, scale)
            result[row, column] = sum(v * w * pixel(picture, i, j) for j, v in below.items() for i, w in across.items())
    return result.round().clip(0, 255)


def averaged(picture, square):
    """The means of squares of pixels, rounded; the picture's sides are multiples of the square's."""
    rows, columns = picture.shape[0] // square, picture.shape[1] // square
    parts = [[picture[r * square : (r + 1) * square, c * square : (c + 1) * square] for c in range(columns)] for r in range(rows)]
    return np.array([[np.floor(part.mean((0, 1)) + 0.5) for part in row] for row in parts]).astype(np.uint8)


def weights(centre, scale):
    """{pixel: weight} of the filter about a centre, with sum 1; pixel i is centred at i + 1/2."""
    reach = max(scale, 1)
    kernel = hamming if scale >= 1 else triangle
    found = {i: kernel((i + 0.5 - centre) / reach) for i in range(math.floor(centre - reach) - 1, math.ceil(centre + reach) + 1)}
    total = sum(found.values())
    return {i: weight / total for i, weight in found.items()}


def hamming(t):
    """sin(pi t) / (pi t) under a Hamming window of half-width 1."""
    if abs(t) >= 1:
        return 0.0
    return (math.sin(math.pi * t) / (math.pi * t) if t else 1.0) * (0.54 + 0.46 * math.cos(math.pi * t))


def triangle(t):
    return max(0.0, 1 - abs(t))


def pixel(picture, x, y):
    inside = 0 <= x < picture.shape[1] and 0 <= y < picture.shape[0]
    return picture[y, x].astype(float) if inside else np.full(3, 255.0)
