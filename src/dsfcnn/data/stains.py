"""The two stains of an image, found in the image itself, and images as if stained in another way.

By Beer and Lambert, a pixel's optical densities in R, G, B are a sum of what each stain absorbs, times how much of it there is. The colours
of a slide's two stains are the two edges of the fan of its pixels' densities: Macenko et al., 2009.
"""

from functools import cache

import numpy as np

_FAINT = 0.3  # octaves of light absorbed, in each channel: pixels below say nothing of the colour of a stain
_EDGE = 1.0  # percent of pixels beyond each edge of the fan, and above the full strength of a stain: Macenko's value
_ENOUGH = 1_000  # pixels from which edges can be told
_MOST = 250_000  # pixels that are looked at


def densities(image: np.ndarray) -> np.ndarray:
    """Optical density of every pixel, (H W, 3), in octaves, at least 0."""
    return _density_table()[image].reshape(-1, 3)


def from_densities(density: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The image with these densities, rounded and cut to bytes."""
    values = np.exp2(-density) * np.float32(256) - 1
    return np.clip(values + np.float32(0.5), 0, 255).astype(np.uint8).reshape(shape)


@cache
def _density_table() -> np.ndarray:
    """-log2((v + 1) / 256) of every byte."""
    return -np.log2((np.arange(256) + 1) / 256).astype(np.float32)


def stains_of(image: np.ndarray) -> np.ndarray | None:
    """Densities (3, 3) of haematoxylin and eosin at their full strength, and of a unit of what is neither; None where it cannot be told.

    Haematoxylin is the one that absorbs more red.
    """
    density = densities(image)
    density = density[:: max(1, len(density) // _MOST)].astype(np.float64)
    stained = density[(density > _FAINT).all(1)]
    if len(stained) < _ENOUGH:
        return None
    _, axes = np.linalg.eigh(np.cov(stained.T))
    plane = axes[:, [2, 1]]  # the two directions in which the densities differ most
    plane[:, 0] *= np.sign(plane[:, 0].sum()) or 1
    along, across = (stained @ plane).T
    angles = np.percentile(np.arctan2(across, along), (_EDGE, 100 - _EDGE))
    edges = np.stack([np.cos(angles), np.sin(angles)], 1) @ plane.T
    edges = np.clip(edges, 0, None)
    edges /= np.linalg.norm(edges, axis=1, keepdims=True)
    haematoxylin, eosin = sorted(edges, key=lambda edge: -edge[0])
    neither = np.cross(haematoxylin, eosin)
    if np.linalg.norm(neither) < 0.05:  # an angle of 3 degrees: one stain
        return None
    stains = np.stack([haematoxylin, eosin, neither / np.linalg.norm(neither)])
    full = np.percentile(density @ np.linalg.inv(stains), 100 - _EDGE, axis=0)[:2]
    return stains * np.array([*full, 1.0])[:, None] if (full > 0).all() else None


def restain(image: np.ndarray, stains: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The image as if its ``stains`` were the ``wanted`` ones; both as ``stains_of`` gives them."""
    matrix = np.linalg.inv(stains) @ wanted
    return from_densities(densities(image) @ matrix.astype(np.float32), image.shape)
