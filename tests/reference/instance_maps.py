"""Random pairs of instance maps for the tests: noise, where everything ties and falls to pieces, and blocks that are nearly found."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

SIDES = st.tuples(st.integers(1, 9), st.integers(1, 9))


@st.composite
def noise(draw):
    shape = draw(SIDES)
    ids = arrays(np.int64, shape, elements=st.sampled_from([0, 0, 0, 1, 2, 5]))
    return draw(ids), draw(ids)


def blocks(random, shape, count):
    """Rectangles drawn over each other."""
    labels = np.zeros(shape, np.int32)
    for number in range(1, count + 1):
        top, left = random.integers(0, shape)
        height, width = random.integers(1, 7, 2)
        labels[top : top + height, left : left + width] = number
    return labels


@st.composite
def drawn(draw):
    """A map and what a fair segmentation makes of it: shifted, with pixels changed, objects lost and others found."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = tuple(random.integers(6, 20, 2))
    truth = blocks(random, shape, random.integers(0, 8))
    found = np.roll(truth, random.integers(-1, 2, 2), axis=(0, 1))
    found[np.isin(found, random.integers(1, 9, random.integers(0, 3)))] = 0
    extra = blocks(random, shape, random.integers(0, 3))
    found = np.where(extra != 0, extra + 20, found)
    found[random.random(shape) < random.choice([0, 0.1])] = 0
    return truth, found


PAIRS = st.one_of(noise(), drawn())
