"""Where on a slide there is tissue.

Glass is bright and without colour; tissue, however pale, takes some light away in at least one channel. So the optical density against
the glass decides, with a threshold just above the glass's own noise. A threshold that splits light from dark (Otsu) finds the dark
tissue and calls the pale rest glass; missing tissue is the worse mistake, and a little glass only costs time.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from dsfcnn.errors import UnreadableRegion, UsageError
from dsfcnn.slides.slide import Slide

_MPP = 8.0  # um per mask pixel: a nucleus is about one; finer for small pictures, coarser for enormous ones
_SIDES = (512, 4096)  # mask pixels along the longer side: at least if the slide has them, at most
_STRIP = 1 << 20  # mask pixels read at a time
_SAMPLE = 1 << 20  # mask pixels from which the glass is known; of larger pictures every second, third, ... row and column is looked at
_RETRY = 32  # side in mask pixels of the pieces that are tried one by one where a strip cannot be read

# Chosen by eye on real slides and on drawn ones whose tissue is known; tests hold the pale cases.
_NEUTRAL = 14  # largest difference between channels of glass, grey levels
_DIMMEST_GLASS = 190  # grey level; what is darker everywhere is a picture full of tissue
_DENSITY = (0.02, 0.05)  # the threshold lies between these: 4.5 % and 11 % of the light taken away
_NOISES = 6.0  # threshold above the glass in robust standard deviations of the glass
_PAINTED = 250  # grey level of all channels, hardly below white: may be paint that no camera saw
_EVEN = 0.006  # robust standard deviation of the density of glass, 3 grey levels
_BLACK = 50  # no channel brighter: pen, or the black that scanners put where they did not look
_SMALLEST_PIECE, _LARGEST_HOLE, _MARGIN = 1000.0, 40_000.0, 16.0  # um^2, um^2, um


@dataclass(frozen=True)
class Tissue:
    """``mask`` covers the slide from its top-left corner with ``scale`` level-0 pixels to a mask pixel. Unreadable parts are in it too."""

    mask: np.ndarray
    unreadable: np.ndarray
    mpp: float
    scale: float

    @property
    def area(self) -> float:
        """Square millimetres of tissue."""
        return float(self.mask.sum()) * (self.mpp / 1000) ** 2

    def touches(self, x: float, y: float, width: float, height: float) -> bool:
        """Whether a rectangle in level-0 pixels has tissue in it, or within 16 um of it: the mask's edge is not exact."""
        margin = _MARGIN / self.mpp  # mask pixels
        left, top = (max(math.floor(place / self.scale - margin), 0) for place in (x, y))
        right, bottom = (max(math.ceil(place / self.scale + margin), 0) for place in (x + width, y + height))
        return bool(self.mask[top:bottom, left:right].any())


def find_tissue(slide: Slide, *, mpp: float | None = None) -> Tissue:
    """Find the tissue of a slide on a coarse picture of it, which is read in strips.

    Args:
        slide: H&E, or any stain on bright glass.
        mpp: resolution of the mask; 8 um per pixel by default, finer for pictures of less than 4 mm and coarser beyond 32 mm.
    """
    mpp = _resolution(slide) if mpp is None else mpp
    if not (math.isfinite(mpp) and mpp > 0):
        raise UsageError(f"a tissue mask of {mpp} um per pixel; give a positive resolution, such as 8")
    picture, unreadable = overview(slide, mpp)
    mask = tissue_of(picture, mpp, ~unreadable)
    return Tissue(mask | unreadable, unreadable, mpp, mpp / slide.mpp)


def tissue_of(picture: np.ndarray, mpp: float, known: np.ndarray | None = None) -> np.ndarray:
    """The tissue of a coarse RGB picture as a boolean mask; ``known`` says which of its pixels count."""
    known = np.ones(picture.shape[:2], bool) if known is None else known
    brightest, darkest = _extremes(picture)
    black = known & (brightest < _BLACK)
    density, threshold = _density(picture, known & ~black)
    mask = known & (density > threshold) & ~black
    if black.any():  # between black and glass lies a grey rim that is neither
        mask &= ~(ndimage.binary_dilation(black, iterations=2) & (brightest - darkest < _NEUTRAL))
        black = _without_small(black, _SMALLEST_PIECE / mpp**2)
    mask = _without_small(mask, _SMALLEST_PIECE / mpp**2)
    mask = ~_without_small(~mask, _LARGEST_HOLE / mpp**2, keep_at_border=True)
    return mask & known & ~black


def _extremes(picture: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The brightest and the darkest channel of every pixel; plane by plane, which is ten times as fast as along the last axis."""
    red, green, blue = (picture[..., channel] for channel in range(3))
    return np.maximum(np.maximum(red, green), blue), np.minimum(np.minimum(red, green), blue)


def _density(picture: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, float]:
    """The largest optical density of the three channels against the glass, smoothed a little, and the threshold for it."""
    glass, noise = _glass(picture, known)
    table = -np.log10((np.arange(256, dtype=np.float32) + 1)[:, None] / (glass + 1))  # grey level, channel
    density = np.zeros(picture.shape[:2], np.float32)
    for channel in range(3):
        np.maximum(density, ndimage.gaussian_filter(table[picture[..., channel], channel], 0.7), out=density)
    return density, float(np.clip(_NOISES * noise, *_DENSITY))


def _glass(picture: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, float]:
    """Colour of the glass, and how much its optical density wavers (robust standard deviation)."""
    step = math.isqrt(known.size // _SAMPLE) or 1
    picture, known = picture[::step, ::step], known[::step, ::step]
    brightest, darkest = _extremes(picture)
    counts = np.bincount(brightest[known], minlength=256) if known.any() else np.ones(256)
    white = max(int(np.searchsorted(counts.cumsum(), 0.99 * counts.sum())), _DIMMEST_GLASS)  # the brightest hundredth
    chroma = brightest - darkest
    neutral = known & (chroma <= _NEUTRAL) & (darkest >= 0.88 * white)
    if neutral.sum() < max(0.002 * known.sum(), 1):  # hardly any glass: all tissue, or nothing at all
        return np.full(3, white, np.float32), 0.0
    # Beside pure white that a scanner painted where it did not look, real glass is grey, and even as no tissue is.
    grey = neutral & (darkest < _PAINTED) & (chroma <= _NEUTRAL // 2)
    if grey.sum() >= 0.01 * known.sum():
        colour, noise = _typical(picture[grey])
        if noise < _EVEN:
            return colour, noise
    samples = picture[neutral]
    brightness = samples.sum(1)
    # The brighter half of what may be glass: pale tissue among it must not pull the colour towards itself.
    return _typical(samples[brightness >= np.median(brightness)])


def _typical(samples: np.ndarray) -> tuple[np.ndarray, float]:
    """Median colour, and the robust standard deviation of the optical density about it."""
    colour = np.median(samples, axis=0).astype(np.float32)
    deviation = np.abs(np.log10((samples.astype(np.float32) + 1) / (colour + 1))).max(1)
    return colour, 1.4826 * float(np.median(deviation))


def _without_small(mask: np.ndarray, pixels: float, keep_at_border: bool = False) -> np.ndarray:
    """The mask without its connected pieces of fewer pixels, except, if wanted, those that the border of the picture may have cut."""
    labels, count = ndimage.label(mask)
    keep = np.bincount(labels.ravel(), minlength=count + 1) >= pixels
    if keep_at_border:
        for side in (labels[0], labels[-1], labels[:, 0], labels[:, -1]):
            keep[side] = True
    keep[0] = False
    return keep[labels]


def _resolution(slide: Slide) -> float:
    longest = max(slide.width, slide.height) * slide.mpp  # um
    return max(slide.mpp, min(_MPP, longest / _SIDES[0]), longest / _SIDES[1])


def overview(slide: Slide, mpp: float) -> tuple[np.ndarray, np.ndarray]:
    """The whole slide at ``mpp``, and which pixels of it could not be read."""
    scale = mpp / slide.mpp
    width, height = max(1, round(slide.width / scale)), max(1, round(slide.height / scale))
    picture, unreadable = np.full((height, width, 3), 255, np.uint8), np.zeros((height, width), bool)
    rows = max(_RETRY, _STRIP // width // _RETRY * _RETRY)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        try:
            picture[top:bottom] = slide.read(0, top * scale, width, bottom - top, mpp)
        except UnreadableRegion:
            for y, x in itertools.product(range(top, bottom, _RETRY), range(0, width, _RETRY)):
                piece = slice(y, min(y + _RETRY, bottom)), slice(x, min(x + _RETRY, width))
                try:
                    picture[piece] = slide.read(x * scale, y * scale, piece[1].stop - x, piece[0].stop - y, mpp)
                except UnreadableRegion:
                    unreadable[piece] = True
    return picture, unreadable
