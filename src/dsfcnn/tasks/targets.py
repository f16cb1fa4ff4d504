r"""From instance maps to what the networks learn, as in the authors' code.

For an object :math:`A` and a diamond :math:`D` the marker (inner part) is the erosion :math:`A \ominus D` and the contour the band
:math:`(A \oplus D) \setminus (A \ominus D)`. The same diamond erodes and dilates, so one object's contour never covers another's marker.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from dsfcnn.tasks.diamonds import dilate, erode
from dsfcnn.tasks.instances import split_pieces

MARKER, CONTOUR, BACKGROUND = 0, 1, 2  # classes of the three-way head, in the order of its channels


def marker_map(instances: NDArray[Any], radius: int) -> NDArray[np.uint8]:
    """Marker, contour or background of every pixel; ``radius`` of the diamond in pixels.

    >>> marker_map(np.array([[0, 0, 3, 3, 3, 8, 8, 8]]), radius=1).tolist()
    [[2, 1, 1, 0, 1, 1, 0, 0]]
    """
    classes = np.full(instances.shape, BACKGROUND, np.uint8)
    classes[dilate(instances != 0, radius)] = CONTOUR
    classes[erode(instances, radius) != 0] = MARKER
    return classes


def penalty_map(
    instances: NDArray[Any], sigma: float, strength: float = 10.0, seams: NDArray[np.bool_] | None = None
) -> NDArray[np.float32]:
    r"""U-Net's weights of the background between objects: :math:`1 + w_0 \exp(-(d_1 + d_2)^2 / 2\sigma^2)`, and 1 inside objects.

    :math:`d_1, d_2` are the distances in pixels to the nearest two objects, pieces of an object counted as objects. With fewer than two
    objects all weights are 1. Objects that touch have no background between them: the weight of ``seams`` inside objects counts too,
    with :math:`d_1 = 0`.

    Args:
        instances: ids of any integer type.
        sigma: how far apart objects still count as close, pixels.
        strength: :math:`w_0`.
        seams: pixels that are weighed inside objects too, such as their contours; not in the paper.
    """
    pieces = split_pieces(instances)
    reach = int(np.ceil(6 * sigma))  # beyond, w_0 = 10 adds less than 2e-7: nothing in float32
    nearest, second = np.full((2, *pieces.shape), np.inf)
    for number, box in enumerate(ndimage.find_objects(pieces), start=1):
        around = tuple(slice(max(0, side.start - reach), side.stop + reach) for side in box)
        distance = ndimage.distance_transform_edt(pieces[around] != number)
        second[around] = np.minimum(second[around], np.maximum(nearest[around], distance))
        nearest[around] = np.minimum(nearest[around], distance)
    weights = 1 + strength * np.exp(-(((nearest + second) / sigma) ** 2) / 2)
    weighed = pieces == 0 if seams is None else (pieces == 0) | seams
    return np.where(weighed, weights, 1).astype(np.float32)
