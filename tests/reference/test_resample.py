"""A slide read at another resolution is the direct sum over its pixels, written out in resample.py."""

import numpy as np
import pytest
from PIL import Image
from resample import averaged, resampled

from dsfcnn.slides import open_slide


@pytest.mark.parametrize(("mpp", "square"), [(0.5, 1), (0.31, 1), (0.7, 1), (1.0, 1), (1.6, 1), (3.9, 1), (5.0, 2), (6.5, 3)])
def test_resampling_is_the_direct_sum(mpp, square, tmp_path):
    """From a step of 8 on, squares are averaged first."""
    picture = np.random.default_rng(2).integers(0, 256, (60, 72, 3)).astype(np.uint8)
    Image.fromarray(picture).save(tmp_path / "a.png")
    with open_slide(tmp_path / "a.png", mpp=0.5) as slide:
        for x, y in ((10, 8), (10.4, 8.7), (-3.2, -1.5), (65.25, 57)):
            first = averaged(picture, square)
            direct = resampled(first, x / square, y / square, mpp / 0.5 / square, 7, 5)
            assert np.abs(slide.read(x, y, 7, 5, mpp) - direct).max() <= 1, (x, y)
