"""How large a pixel is, and who said so.

In this order: what the user states, the slide's metadata, a TIFF resolution tag, the objective's power. A value outside 0.05 to
20 microns is not believed, since no slide scanner makes one: 72 dots per inch, which programs write when they do not know, is 353.
"""

import math

from dsfcnn.errors import DataError, UsageError
from dsfcnn.slides.slide import Facts

SANE = (0.05, 20.0)  # microns per pixel; faults that users meet lie far outside
_SQUARE = 0.02  # how much the two sides of a pixel may differ; a guess, scanners stay within 0.5 %
_MICRONS_AT_1X = 10.0  # 40x is 0.25 and 20x is 0.5 um per pixel on every common scanner, within 10 %


class UnknownResolution(DataError):
    """A slide that does not say how large its pixels are."""


def find_mpp(facts: Facts, stated: float | None, name: str) -> tuple[float, str]:
    """Microns per level-0 pixel, and where that number came from."""
    if stated is not None:
        return check_mpp(stated, "--slide-mpp"), "--slide-mpp"
    for pair, source in ((facts.metadata_mpp, "metadata"), (facts.tag_mpp, "TIFF resolution tag")):
        if pair is None or not all(_is_sane(value) for value in pair):
            continue
        if abs(pair[0] / pair[1] - 1) > _SQUARE:
            raise UnknownResolution(f"{name}: pixels of {pair[0]:.3g} x {pair[1]:.3g} um are not square; give --slide-mpp")
        return sum(pair) / 2, source
    if facts.power is not None and facts.power > 0 and _is_sane(_MICRONS_AT_1X / facts.power):
        return _MICRONS_AT_1X / facts.power, "objective power"
    absurd = next((pair for pair in (facts.metadata_mpp, facts.tag_mpp) if pair is not None), None)
    what = "does not say how large a pixel is" if absurd is None else f"says that a pixel is {absurd[0]:.4g} um, which cannot be"
    raise UnknownResolution(f"{name}: {what}; give --slide-mpp, in microns per pixel")


def own_mpp(facts: Facts) -> float | None:
    """What the file itself says; None where it says nothing that can be believed."""
    try:
        return find_mpp(facts, None, "")[0]
    except UnknownResolution:
        return None


def check_mpp(value: float, option: str) -> float:
    """A resolution that somebody states, refused where no microscope could be meant."""
    if not _is_sane(value):
        raise UsageError(f"{option} is {value}, expected microns per pixel from {SANE[0]} to {SANE[1]:g}; 40x is about 0.25")
    return float(value)


def _is_sane(value: float) -> bool:
    return math.isfinite(value) and SANE[0] <= value <= SANE[1]
