"""Augmentation as the authors train, in integer arithmetic where it matters: the same bytes on every run.

Blur, median or noise first, then colour. Hue, saturation, brightness and contrast are each affine in RGB, so whatever their order
they are one 3 x 3 matrix and one offset per image. Turning and flipping belong to the cut (``crops.py``), which resamples once.
"""

from dataclasses import dataclass, fields
from functools import cache
from typing import Literal, Self

import numpy as np

from dsfcnn.errors import UsageError

# Optical density of haematoxylin, eosin and the residual in R, G, B: Ruifrok and Johnston, 2001.
STAINS = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11], [0.27, 0.57, 0.78]])
_LUMA = np.array([0.299, 0.587, 0.114])  # grey of OpenCV and of television, Rec. 601


@dataclass(frozen=True)
class Augment:
    """Named strengths; the defaults are those of the authors' code (they nearest-neighbour the image, here it is bilinear).

    Args:
        turn: turn by any angle.
        flip: mirror upwards and sideways, each with probability 1/2.
        scale: largest change of the magnification, a factor from 1 / (1 + scale) to 1 + scale, uniform in its logarithm; not in the paper,
            0 turns it off.
        shift: where an image leaves no room to move the crop, move it by up to this part of its size and mirror the border.
        border: what lies outside such an image: its mirror image, or black for digits.
        filter: probability of one of Gaussian blur, median blur (3 or 5 pixels) and noise.
        noise: standard deviation of the noise, of 255.
        hue: largest turn of the colours about the grey axis, in degrees.
        saturation: largest change of the factor on the distance from grey.
        brightness: largest offset, of 255.
        contrast: largest change of the factor on the distance from the image's mean colour.
        stain: largest change of the factor on the optical density of haematoxylin and of eosin; not in the paper, 0 turns it off.
    """

    turn: bool = True
    flip: bool = True
    scale: float = 0.0
    shift: float = 0.01
    border: Literal["mirror", "black"] = "mirror"
    filter: float = 0.5
    noise: float = 1.0
    hue: float = 16.0  # 8 on OpenCV's scale of 180 to a full turn
    saturation: float = 0.2
    brightness: float = 26.0
    contrast: float = 0.25
    stain: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float | int) and not 0 <= value < 256:
                raise UsageError(f"augmentation with {field.name} = {value}; use a strength from 0 (off) to 255")
        if self.border not in ("mirror", "black"):
            raise UsageError(f"augmentation with border = {self.border!r}; use mirror or black")
        if self.filter > 1:
            raise UsageError(f"augmentation with filter = {self.filter}; use a probability from 0 to 1")
        if self.scale > 1:
            raise UsageError(f"augmentation with scale = {self.scale}; use at most 1, which is a factor of two")
        if max(self.saturation, self.contrast, self.stain) >= 1:
            raise UsageError("augmentation that can take a factor to zero; use saturation, contrast and stain below 1")

    @classmethod
    def digits(cls) -> Self:
        """What the authors do to rotated MNIST: turns, on black, and nothing else."""
        return cls(flip=False, shift=0, border="black", filter=0, hue=0, saturation=0, brightness=0, contrast=0)

    def change_colour(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Everything but turning and flipping. uint8 (H, W, 3) -> the same; grey images keep their colour, which is none."""
        if rng.random() < self.filter:
            image = self._filtered(image, rng)
        if image.shape[2] == 3 and self.stain:
            image = jitter_stain(image, 1 + self.stain * rng.uniform(-1, 1, 2))
        if image.shape[2] == 3 and max(self.hue, self.saturation, self.brightness, self.contrast) > 0:
            image = self._recoloured(image, rng)
        return image

    def _filtered(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        kind = rng.integers(3)
        if kind == 0:
            across, along = rng.choice((3, 5), 2)
            return gaussian_blur(gaussian_blur(image, int(across), 0), int(along), 1)
        if kind == 1:
            return median_blur(image, int(rng.choice((3, 5))))
        noise = rng.standard_normal(image.shape, np.float32) * np.float32(self.noise)
        return _to_bytes(image + noise)

    def _recoloured(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        matrix, offset = np.eye(3), np.zeros(3)
        mean = image.reshape(-1, 3).mean(0)
        strength = rng.uniform(-1, 1, 4)
        for step in rng.permutation(4):
            now = matrix @ mean + offset  # the mean colour after the steps so far
            if step == 0:
                matrix, offset = _then(hue_matrix(self.hue * strength[0]), 0, matrix, offset)
            elif step == 1:
                factor = 1 + self.saturation * strength[1]
                matrix, offset = _then(factor * np.eye(3) + (1 - factor) * _LUMA, 0, matrix, offset)
            elif step == 2:
                matrix, offset = _then(np.eye(3), self.brightness * strength[2], matrix, offset)
            else:
                factor = 1 + self.contrast * strength[3]
                matrix, offset = _then(factor * np.eye(3), (1 - factor) * now, matrix, offset)
        return apply_affine(image, matrix, offset)


def _then(
    next_matrix: np.ndarray, next_offset: float | np.ndarray, matrix: np.ndarray, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    return next_matrix @ matrix, next_matrix @ offset + next_offset


def apply_affine(image: np.ndarray, matrix: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """matrix @ colour + offset for every pixel, rounded and cut to bytes."""
    changed = image.reshape(-1, 3).astype(np.float32) @ matrix.T.astype(np.float32)
    changed += (offset + 0.5).astype(np.float32)  # a half more, so that cutting the fraction off rounds
    np.clip(changed, 0, 255, out=changed)
    return changed.astype(np.uint8).reshape(image.shape)


def hue_matrix(degrees: float) -> np.ndarray:
    """Turn of RGB about the grey axis, which keeps grey grey and R + G + B.

    >>> hue_matrix(120).round(6) + 0
    array([[0., 0., 1.], [1., 0., 0.], [0., 1., 0.]])
    """
    angle = np.deg2rad(degrees)
    cross = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / np.sqrt(3)  # v -> (1, 1, 1) / sqrt 3 x v
    return np.cos(angle) * np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) / 3


def jitter_stain(image: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Beer-Lambert: scale the optical densities of haematoxylin and eosin, leave the residual."""
    density = _density_table()[image].reshape(-1, 3)
    unmix = np.linalg.inv(STAINS)
    matrix = unmix @ np.diag([*factors, 1.0]) @ STAINS
    changed = np.exp2(density @ matrix.astype(np.float32))
    return _to_bytes(changed * np.float32(256) - 1).reshape(image.shape)


@cache
def _density_table() -> np.ndarray:
    """log2((v + 1) / 256) of every byte: optical density with its sign turned, in octaves."""
    return np.log2((np.arange(256) + 1) / 256).astype(np.float32)


def gaussian_blur(image: np.ndarray, size: int, axis: int) -> np.ndarray:
    """Binomial 1 2 1 or 1 4 6 4 1 along one axis, the kernels of OpenCV's GaussianBlur for sizes 3 and 5 with automatic sigma."""
    taps = {3: (1, 2, 1), 5: (1, 4, 6, 4, 1)}[size]
    reach, length = size // 2, image.shape[axis]
    padded = np.take(image, mirrored(np.arange(-reach, length + reach), length), axis).astype(np.uint16)
    total = np.full(image.shape, sum(taps) // 2, np.uint16)  # rounds the division below
    for start, tap in enumerate(taps):
        shifted = padded[start : start + length] if axis == 0 else padded[:, start : start + length]
        total += tap * shifted
    return (total >> (2 if size == 3 else 4)).astype(np.uint8)


def median_blur(image: np.ndarray, size: int) -> np.ndarray:
    """Median of size x size pixels in each channel, by a network of minima and maxima: 30 times faster than sorting each window."""
    height, width = image.shape[:2]
    reach = size // 2
    rows = mirrored(np.arange(-reach, height + reach), height)
    columns = mirrored(np.arange(-reach, width + reach), width)
    padded = image[rows][:, columns]
    planes = [padded[y : y + height, x : x + width] for y in range(size) for x in range(size)]
    for low, high, needs_low, needs_high in _median_network(size * size):
        a, b = planes[low], planes[high]
        if needs_low:
            planes[low] = np.minimum(a, b)
        if needs_high:
            planes[high] = np.maximum(a, b)
    return planes[size * size // 2]


@cache
def _median_network(count: int) -> list[tuple[int, int, bool, bool]]:
    """Batcher's merge exchange (Knuth 5.2.2 M) without what the middle place does not need: (low, high, needs low, needs high)."""
    exchanges = []
    top = 1 << (count - 1).bit_length() - 1
    p = top
    while p > 0:
        q, r, d = top, 0, p
        while True:
            exchanges += [(i, i + d) for i in range(count - d) if i & p == r]
            if q == p:
                break
            d, q, r = q - p, q >> 1, p
        p >>= 1
    needed, kept = {count // 2}, []
    for low, high in reversed(exchanges):
        if {low, high} & needed:
            kept.append((low, high, low in needed, high in needed))
            needed |= {low, high}
    return kept[::-1]


def mirrored(index: np.ndarray, length: int) -> np.ndarray:
    """Places outside 0 ... length - 1 mirrored at the first and last pixel, which are not repeated."""
    if length == 1:
        return np.zeros_like(index)
    period = 2 * (length - 1)
    index = np.abs(index) % period
    return np.minimum(index, period - index)


def _to_bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(values + np.float32(0.5), 0, 255).astype(np.uint8)
