"""Images and whole slides: what they are, how large a pixel is, and their pixels at any resolution. Nothing here needs torch."""

from dsfcnn.slides.image import read_image

__all__ = ["read_image"]
