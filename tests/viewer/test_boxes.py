"""The index finds what looking at every box would find."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dsfcnn.viewer.boxes import BoxIndex


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(0, 200))
def test_the_same_as_every_box_looked_at(seed, count):
    random = np.random.default_rng(seed)
    places = random.uniform(-300, 3000, (count, 2))
    sizes = np.exp(random.uniform(np.log(0.5), np.log(1500), (count, 2)))  # from a pixel to half of the slide
    boxes = np.concatenate([places, sizes], 1).round().astype(np.float32)  # whole numbers, so that sides meet exactly
    index = BoxIndex(boxes)
    for _ in range(10):
        left, top = random.integers(-400, 3000, 2)
        right, bottom = left + random.integers(0, 1200), top + random.integers(0, 1200)
        x, y, width, height = boxes.T
        meets = (x <= right) & (x + width >= left) & (y <= bottom) & (y + height >= top)
        assert index.meeting(left, top, right, bottom).tolist() == np.flatnonzero(meets).tolist()


def test_no_boxes():
    assert len(BoxIndex(np.zeros((0, 4), np.float32)).meeting(0, 0, 1e6, 1e6)) == 0
