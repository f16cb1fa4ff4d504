"""Instance maps: what they may be, their ids made contiguous, and objects that fell into pieces.

An instance map is a 2-D array of integers: 0 is background, every other number an object. Ids may have gaps and be as large as their
type allows; nothing here allocates by the largest id.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from skimage.measure import label

from dsfcnn.errors import DataError


def check_instances(instances: ArrayLike, what: str = "instances") -> NDArray[Any]:
    """The same map as an array, or a :class:`DataError` that names its type and shape."""
    array = np.asarray(instances)
    if array.dtype.kind not in "iu" or array.ndim != 2 or array.size == 0:
        raise DataError(f"{what}: expected integer ids of shape (H, W) but got {array.dtype} {array.shape}; give one object id per pixel")
    if array.dtype.kind == "i" and array.min() < 0:
        raise DataError(f"{what}: an id is negative ({array.min()}); use 0 for background and positive ids for objects")
    return array


def compact(instances: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """The map with ids 1, 2, ... in the order of the old ones, and the old ones.

    >>> labels, ids = compact(np.array([[0, 7], [900, 7]]))
    >>> labels.tolist(), ids.tolist()
    ([[0, 1], [2, 1]], [7, 900])
    """
    largest = int(instances.max())
    if largest > 4 * instances.size + 65535:  # a table by id would be larger than the map: sort instead
        ids, labels = np.unique(instances, return_inverse=True)
        first = int(ids[0] != 0)  # without background, objects start at 1 all the same
        return (labels.reshape(instances.shape) + first).astype(np.int32), ids[1 - first :]
    present = np.zeros(largest + 1, bool)
    present[instances] = True
    present[0] = False
    return np.cumsum(present, dtype=np.int32)[instances], np.flatnonzero(present)


def split_pieces(instances: ArrayLike) -> NDArray[np.int32]:
    """Every connected piece of every object as an object of its own, ids 1, 2, ...

    Cropping, mirroring or turning can leave two pieces under one id. Pixels that touch at a corner belong together: a thin
    object that was turned by nearest neighbour often hangs on one.

    >>> split_pieces(np.array([[5, 0, 5], [2, 2, 0]])).tolist()
    [[1, 0, 2], [3, 3, 0]]
    """
    return label(compact(check_instances(instances))[0], background=0, connectivity=2).astype(np.int32)
