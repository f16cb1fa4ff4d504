"""Images and whole slides: what they are, how large a pixel is, and their pixels at any resolution. Nothing here needs torch."""

from dsfcnn.errors import UnreadableRegion
from dsfcnn.slides.image import read_image
from dsfcnn.slides.open import MissingLibraries, open_slide
from dsfcnn.slides.resolution import UnknownResolution
from dsfcnn.slides.slide import Level, Slide, resample
from dsfcnn.slides.tissue import Tissue, find_tissue

__all__ = [
    "Level",
    "MissingLibraries",
    "Slide",
    "Tissue",
    "UnknownResolution",
    "UnreadableRegion",
    "find_tissue",
    "open_slide",
    "read_image",
    "resample",
]
