"""Objects of many shapes for the tests of prediction's outputs."""

import numpy as np
from hypothesis import strategies as st

from dsfcnn.inference.objects import Classification, find_instances

NUCLEUS = Classification("Nucleus", "#1f77b4")


@st.composite
def label_maps(draw):
    """Noise of few ids: pieces that touch at corners, holes, islands in holes, pixels on every edge."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.tuples(st.integers(1, 14), st.integers(1, 14)))
    ids = random.integers(1, draw(st.integers(2, 5)), shape)
    filled = random.random(shape) < draw(st.sampled_from([0.2, 0.5, 0.75, 0.95]))
    return np.where(filled, ids, 0).astype(np.int32)


def masks():
    """Masks of the same kind with at least one pixel."""
    return label_maps().map(lambda labels: labels == max(labels.max(), 0)).filter(np.any)


def objects_of(labels, mpp=0.25, x=0, y=0):
    """Objects of a label map, over an image and probabilities of noise."""
    random = np.random.default_rng(1)
    image = random.integers(0, 256, (*labels.shape, 3), dtype=np.uint8)
    return list(find_instances(labels, image, mpp, random.random(labels.shape), x, y))


def discs(height=600, width=700):
    """A label map of discs over each other, a large one with a hole, and one object in two pieces; ids are 1, 2, ... by their first row."""
    labels, (rows, columns) = np.zeros((height, width), np.int32), np.mgrid[:height, :width]
    random = np.random.default_rng(3)
    for number in range(1, 60):
        y, x, radius = random.integers(0, height), random.integers(0, width), random.integers(3, 12)
        labels[(rows - y) ** 2 + (columns - x) ** 2 < radius**2] = number
    distance = (rows - height // 2) ** 2 + (columns - width // 2) ** 2
    labels[distance < 90**2] = 60
    labels[distance < 30**2] = 0
    labels[-100:, -200:-180] = labels[-95:-85, -160:-140] = 61
    ids, firsts = np.unique(labels, return_index=True)
    order = np.argsort(firsts[ids > 0] // width, kind="stable")
    table = np.zeros(ids.max() + 1, np.int32)
    table[ids[ids > 0][order]] = np.arange(1, len(order) + 1)
    return table[labels]
