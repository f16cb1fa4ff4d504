"""Turning, filtering and colours pixel by pixel: what the fast versions in data are compared with."""

import math
import statistics

import numpy as np


def mirror(place, length):
    """A place outside brought back by mirroring at the first and last pixel, step by step."""
    while not 0 <= place < length:
        place = -place if place < 0 else 2 * (length - 1) - place
    return place


def turned(image, size, centre, degrees, scale=1.0, flip=(False, False)):
    """Bilinear, counter-clockwise on the screen: rows down, so an angle turns (right, up)."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    result = np.zeros((size, size, image.shape[2]))
    for i in range(size):
        for j in range(size):
            right, up = (j - (size - 1) / 2) * scale, -(i - (size - 1) / 2) * scale
            right, up = (-right if flip[1] else right), (-up if flip[0] else up)
            # What appears at an angle a was at a - degrees.
            x, y = right * cos + up * sin, -right * sin + up * cos
            row, column = centre[0] - y, centre[1] + x
            top, left = math.floor(row), math.floor(column)
            for dy in (0, 1):
                for dx in (0, 1):
                    weight = (1 - abs(row - top - dy)) * (1 - abs(column - left - dx))
                    pixel = image[mirror(top + dy, image.shape[0]), mirror(left + dx, image.shape[1])]
                    result[i, j] += weight * pixel
    return result


def median(image, size):
    reach = size // 2
    result = np.zeros_like(image)
    for i in range(image.shape[0]):
        for j in range(image.shape[1]):
            for c in range(image.shape[2]):
                around = [
                    int(image[mirror(i + dy, image.shape[0]), mirror(j + dx, image.shape[1]), c])
                    for dy in range(-reach, reach + 1)
                    for dx in range(-reach, reach + 1)
                ]
                result[i, j, c] = statistics.median(around)
    return result


def inside(outline, x, y):
    """Even-odd rule: how many edges a ray to the right crosses."""
    crossings = 0
    for (x0, y0), (x1, y1) in zip(outline, [*outline[1:], outline[0]]):
        if (y0 > y) != (y1 > y) and x < x0 + (y - y0) * (x1 - x0) / (y1 - y0):
            crossings += 1
    return crossings % 2 == 1
