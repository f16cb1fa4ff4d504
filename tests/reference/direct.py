"""The paper's convolutions in slow, plain loops: what the layers are compared with.

Maps are nested lists or arrays (..., row, column). A place u in a filter is (x, y) in pixels from its centre, x to the right and y up; a
filter is a dict {u: value}. The paper's * is read as cross-correlation, out(z) = sum over u of f(z + u) filter(u), with zeros outside
the map. Angles are counter-clockwise.
"""

import cmath
import math

import numpy as np

FREQUENCIES = {3: (0, 2), 5: (0, 2, 2), 7: (0, 2, 3, 2)}  # highest k on rings j = 0, 1, ...
WIDTH, OUTER_WIDTH = 0.6, 0.4  # sigma in pixels


def places(kernel_size):
    """Every place of the square, row by row from the top left."""
    half = kernel_size // 2
    return [(x, y) for y in range(half, -half - 1, -1) for x in range(-half, half + 1)]


def atoms(kernel_size):
    """{(j, k): filter} of Eqs. (11) and (12), with unit norm, and nothing at the centre for k > 0."""
    found = {}
    for j, highest in enumerate(FREQUENCIES[kernel_size]):
        sigma = OUTER_WIDTH if j == kernel_size // 2 else WIDTH
        for k in range(highest + 1):
            atom = {}
            for x, y in places(kernel_size):
                ring = math.exp(-((math.hypot(x, y) - j) ** 2) / (2 * sigma**2))
                atom[x, y] = ring * cmath.exp(1j * k * math.atan2(y, x)) if k == 0 or (x, y) != (0, 0) else 0
            norm = math.sqrt(sum(abs(value) ** 2 for value in atom.values()))
            found[j, k] = {u: value / norm for u, value in atom.items()}
    return found


def correlate(plane, filter_):
    """out(z) = sum over u of f(z + u) filter(u)."""
    plane = np.asarray(plane).tolist()
    height, width = len(plane), len(plane[0])
    out = np.zeros((height, width))
    for row in range(height):
        for column in range(width):
            total = 0.0
            for (x, y), value in filter_.items():
                read_row, read_column = row - y, column + x  # rows count downwards
                if 0 <= read_row < height and 0 <= read_column < width:
                    total += plane[read_row][read_column] * value
            out[row, column] = total
    return out


def steered(weights, angle, kernel_size):
    """Re(sum over jk of w_jk e^{-ik angle} psi_jk), for weights {(j, k): complex}."""
    filter_ = dict.fromkeys(places(kernel_size), 0.0)
    for (j, k), atom in atoms(kernel_size).items():
        factor = weights[j, k] * cmath.exp(-1j * k * angle)
        for u, value in atom.items():
            filter_[u] += (factor * value).real
    return filter_


def turned(filter_, angle, kernel_size, disc):
    """The filter at u is the given one at the place that the turn carries to u, read between its four nearest pixels.

    With ``disc``, nothing is written outside the circle of radius K // 2 + 0.5.
    """
    result = {}
    for x, y in places(kernel_size):
        back_x = math.cos(angle) * x + math.sin(angle) * y
        back_y = -math.sin(angle) * x + math.cos(angle) * y
        left, below = math.floor(back_x), math.floor(back_y)
        right_share, above_share = back_x - left, back_y - below
        if disc and math.hypot(x, y) > kernel_size // 2 + 0.5:
            continue
        result[x, y] = (
            filter_.get((left, below), 0) * (1 - right_share) * (1 - above_share)
            + filter_.get((left + 1, below), 0) * right_share * (1 - above_share)
            + filter_.get((left, below + 1), 0) * (1 - right_share) * above_share
            + filter_.get((left + 1, below + 1), 0) * right_share * above_share
        )
    return result


def lift(image, weights, orientations, move):
    """Eq. (19): (C, H, W) -> (fields, n, H, W). ``move(weights[o][i], angle)`` is the filter turned by the angle."""
    out = np.zeros((len(weights), orientations, *np.shape(image)[-2:]))
    for o in range(len(weights)):
        for s in range(orientations):
            theta = 2 * math.pi * s / orientations
            for i in range(len(image)):
                out[o, s] += correlate(image[i], move(weights[o][i], theta))
    return out


def g_convolve(fields, weights, orientations, move):
    """Eq. (18): (fields, n, H, W) -> the same. ``weights[o][i][s]`` belong to lambda = theta - phi = 2 pi s / n."""
    out = np.zeros((len(weights), orientations, *np.shape(fields)[-2:]))
    for o in range(len(weights)):
        for t in range(orientations):
            for i in range(len(fields)):
                for p in range(orientations):
                    phi = 2 * math.pi * p / orientations
                    out[o, t] += correlate(fields[i][p], move(weights[o][i][(t - p) % orientations], phi))
    return out


def square_symmetries():
    """The 2x2 matrices of D4: turns by 0, 90, 180, 270 degrees, then the same after the mirror y -> -y."""
    quarter, mirror = np.array([[0, -1], [1, 0]]), np.array([[1, 0], [0, -1]])
    turns = [np.linalg.matrix_power(quarter, s) for s in range(4)]
    return turns + [turn @ mirror for turn in turns]


def carried(filter_, matrix):
    """The filter moved by a matrix: it takes its value at u to matrix u."""
    return {tuple((matrix @ np.array(u)).tolist()): value for u, value in filter_.items()}


def lift_by_matrices(image, filters, matrices):
    """Eq. (19) for any finite group that maps pixels onto pixels. ``filters[o][i]`` is a filter {u: value}."""
    out = np.zeros((len(filters), len(matrices), *np.shape(image)[-2:]))
    for o in range(len(filters)):
        for t, theta in enumerate(matrices):
            for i in range(len(image)):
                out[o, t] += correlate(image[i], carried(filters[o][i], theta))
    return out


def g_convolve_by_matrices(fields, filters, matrices):
    """Eq. (18) for such a group: orientation theta reads orientation phi by the filter of phi^-1 theta, moved by phi."""
    out = np.zeros((len(filters), len(matrices), *np.shape(fields)[-2:]))
    for o in range(len(filters)):
        for t, theta in enumerate(matrices):
            for i in range(len(fields)):
                for p, phi in enumerate(matrices):
                    between = next(s for s, matrix in enumerate(matrices) if np.array_equal(phi @ matrix, theta))
                    out[o, t] += correlate(fields[i][p], carried(filters[o][i][between], phi))
    return out
