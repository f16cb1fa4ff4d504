"""Digits drawn as pen strokes, for tests without MNIST: uint8 (28, 28, 1), white on black, upright, each with its own hand."""

import numpy as np

from dsfcnn.data.synthetic.fields import uniform

SIDE = 28
_T = np.linspace(0, 2 * np.pi, 25)
_RING = np.stack([np.sin(_T), -np.cos(_T)], 1)  # x to the right, y down; from the top, clockwise


def _arc(x: float, y: float, rx: float, ry: float, start: float = 0.0, stop: float = 1.0) -> np.ndarray:
    part = _RING[round(24 * start) : round(24 * stop) + 1]
    return part * (rx, ry) + (x, y)


# Strokes in a box from -1 to 1.
_STROKES: list[list[np.ndarray]] = [
    [_arc(0, 0, 0.6, 0.95)],
    [np.array([[-0.35, -0.6], [0.1, -0.95], [0.1, 0.95]])],
    [np.concatenate([_arc(0, -0.4, 0.55, 0.55)[-7:-1], _arc(0, -0.4, 0.55, 0.55, 0, 0.4), [[-0.6, 0.95], [0.65, 0.95]]])],
    [np.concatenate([_arc(0, -0.45, 0.5, 0.5)[-5:-1], _arc(0, -0.45, 0.5, 0.5, 0, 0.5), _arc(0, 0.47, 0.58, 0.5, 0, 0.7)])],
    [np.array([[0.25, 0.95], [0.25, -0.95], [-0.65, 0.35], [0.7, 0.35]])],
    [np.concatenate([[[0.55, -0.95], [-0.45, -0.95], [-0.5, -0.1]], _arc(0, 0.4, 0.55, 0.55, 0, 0.7)])],
    [np.concatenate([[[0.4, -0.95], [-0.35, -0.2]], _arc(0, 0.4, 0.52, 0.55, 0.75, 1)]), _arc(0, 0.4, 0.52, 0.55)],
    [np.array([[-0.6, -0.95], [0.6, -0.95], [-0.15, 0.95]])],
    [_arc(0, -0.47, 0.45, 0.47), _arc(0, 0.48, 0.56, 0.47)],
    [_arc(0, -0.4, 0.52, 0.55), np.array([[0.52, -0.4], [0.35, 0.95]])],
]


def draw_digit(seed: int, label: int) -> np.ndarray:
    """One digit: the strokes scaled, slanted and moved a little, with a pen of its own width."""
    random = uniform(seed, 600, np.arange(7)) - 0.5
    slant, pen = 0.5 * random[0], 1.1 + 0.5 * random[1]
    matrix = np.array([[7.0 + 2.5 * random[2], -7 * slant], [1.2 * random[3], 8.3 + 2 * random[4]]])
    centre = (SIDE - 1) / 2 + 1.5 * random[5:7]
    y, x = np.mgrid[:SIDE, :SIDE]
    pixels = np.stack([x, y], -1).reshape(-1, 1, 2)
    nearest = np.full(SIDE * SIDE, np.inf)
    for stroke in _STROKES[label]:
        points = stroke @ matrix.T + centre
        start, step = points[:-1], np.diff(points, axis=0)
        along = np.clip(((pixels - start) * step).sum(-1) / np.maximum((step**2).sum(-1), 1e-9), 0, 1)
        nearest = np.minimum(nearest, np.linalg.norm(pixels - start - along[..., None] * step, axis=-1).min(1))
    ink = np.clip(pen + 0.5 - nearest, 0, 1)
    return np.rint(255 * ink).astype(np.uint8).reshape(SIDE, SIDE, 1)
