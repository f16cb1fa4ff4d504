"""What every data set gives: one image with its truth, its resolution and the name of its file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from dsfcnn.errors import DataError, UsageError


@dataclass(frozen=True, eq=False)
class Sample:
    """One image and what is known about it.

    Args:
        image: uint8 (H, W, 3), or (H, W, 1) for digits.
        instances: int32 (H, W), 0 where there is no object and 1, 2, ... on the objects; None for a classified image.
        label: index into the data set's ``classes``; None for a segmented image.
        mpp: size of a pixel in microns; 1 for digits, which have no scale.
        source: name of the file (and the place in it) for messages; never a path.
    """

    image: np.ndarray
    instances: np.ndarray | None
    label: int | None
    mpp: float
    source: str


class Dataset(Protocol):
    """A split of a data set. Images are read when they are asked for; a copy in another process reads for itself."""

    @property
    def name(self) -> str: ...

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def mpp(self) -> float: ...

    @property
    def unpaired(self) -> tuple[str, ...]:
        """A sentence for each file whose partner is missing."""
        ...

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that samples are read from; none for drawn data."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...

    def source(self, index: int) -> str:
        """The sample's name without reading it."""
        ...


def checked_mpp(mpp: float) -> float:
    """Microns per pixel that a microscope can have: 0.05 to 20, the range that slides are held to."""
    if not 0.05 <= mpp <= 20:
        raise UsageError(f"a resolution of {mpp} microns per pixel is outside 0.05 to 20; give the size of a pixel in microns")
    return float(mpp)


def place_in(length: int, index: int) -> int:
    """``index`` as a sequence understands it: negative from the end, IndexError outside."""
    if not -length <= index < length:
        raise IndexError(f"index {index} of a data set with {length} samples")
    return index % length


def sample_of(image: np.ndarray, instances: np.ndarray, mpp: float, source: str) -> Sample:
    """A segmented image, once its instance map is known to cover it."""
    if instances.shape != image.shape[:2]:
        (h, w), (height, width) = instances.shape, image.shape[:2]
        raise DataError(f"{source}: the instance map is {w} x {h} pixels but the image {width} x {height}; they must cover the same tissue")
    return Sample(image, instances, None, mpp, source)
