"""Training samples: cuts from a data set's images, turned and changed, each a function of (seed, epoch, index) alone.

A cut is turned about its centre, and the centre is chosen so that the turned square stays inside the image: the corners are tissue, not a
mirror image of it. Only where the image is too small for that does its border mirror.

Images finer than the cut are turned at about their own resolution and then reduced by the filter that prediction reads with: turning
after reducing would blur what the network learns from, and not what it is asked about.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
from skimage.measure import label

from dsfcnn.data.augment import Augment
from dsfcnn.data.sample import Dataset, Sample, checked_mpp
from dsfcnn.data.warp import View, warp_image, warp_labels
from dsfcnn.errors import UsageError
from dsfcnn.slides import resample

_FINEST = 4  # pixels a side that are reduced to one; far finer images are averaged over squares before they are turned


@dataclass
class Crops:
    """Cuts of ``size`` x ``size`` pixels at ``mpp``.

    Every pass over the images takes them in a new order; ``per_epoch`` cuts make an epoch (None: one of each image).

    Args:
        augment: None leaves turning, flipping and colours alone; the place is random all the same.
        seed: of the whole training.
        cache_bytes: decoded images that a process keeps; 1 GB holds Kumar's and GlaS' training images.
    """

    dataset: Dataset
    size: int
    mpp: float
    per_epoch: int | None = None
    augment: Augment | None = field(default_factory=Augment)
    seed: int = 0
    cache_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        checked_mpp(self.mpp)
        if self.size < 1 or (self.per_epoch is not None and self.per_epoch < 1):
            raise UsageError(f"crops of {self.size} pixels, {self.per_epoch} an epoch; both must be 1 or more")
        if self.seed < 0:
            raise UsageError(f"a seed of {self.seed}; use 0 or more")
        if not len(self.dataset):
            raise UsageError(f"{self.dataset.name}: no images to cut from; give another split")
        self._images = _Recent(self.dataset, self.cache_bytes)
        self._order: tuple[tuple[int, int], np.ndarray] = ((-1, -1), np.empty(0))  # of the pass that was asked for last

    def __len__(self) -> int:
        """Cuts in an epoch."""
        return len(self.dataset) if self.per_epoch is None else self.per_epoch

    def draw(self, epoch: int, index: int) -> Sample:
        """Cut number ``index`` of ``epoch``: the same bytes whenever, wherever and in whatever order it is drawn."""
        if not 0 <= index < len(self):
            raise IndexError(f"cut {index} of an epoch of {len(self)}")
        whole = self._images[self._image_of(epoch, index)]
        rng = random_stream(self.seed, epoch, index)
        view = self._view(whole, rng)
        border = self.augment.border if self.augment else "mirror"
        image = warp_image(whole.image, view, border)
        finer = view.size // self.size
        if finer > 1:
            image = resample(image, self.size, self.size)
        if self.augment:
            image = self.augment.change_colour(image, rng)
        instances = None if whole.instances is None else one_piece_each(warp_labels(whole.instances, view.coarser(finer), border))
        return Sample(image, instances, whole.label, self.mpp, whole.source)

    def _image_of(self, epoch: int, index: int) -> int:
        number = len(self.dataset)
        pass_, place = divmod(index, number)
        if self._order[0] != (epoch, pass_):
            # Sorting random numbers: an order that does not depend on how a library shuffles.
            order = np.argsort(random_stream(self.seed, epoch, pass_, 1).random(number), kind="stable")
            self._order = (epoch, pass_), order
        return int(self._order[1][place])

    def _view(self, whole: Sample, rng: np.random.Generator) -> View:
        """Where the cut lies; in pixels of about the image's own size where those are smaller, a whole number to each of the cut's."""
        augment = self.augment
        degrees = rng.uniform(0, 360) if augment and augment.turn else 0.0
        up, side = (bool(bit) for bit in rng.integers(0, 2, 2))
        flip = (up, side) if augment and augment.flip else (False, False)
        height, width = whole.image.shape[:2]
        finer = min(max(1, round(self.mpp / whole.mpp)), _FINEST)
        size, scale = finer * self.size, self.mpp / whole.mpp / finer
        view = View.turned(size, ((height - 1) / 2, (width - 1) / 2), degrees, scale, flip)
        if augment and augment.scale:
            scale *= _wider(view, (height, width), 1 + augment.scale, rng.random())
            view = View.turned(view.size, view.centre, degrees, scale, flip)
        shift = augment.shift * size * scale if augment else 0.0
        centre = [_place(length, reach, shift, rng.random()) for length, reach in zip((height, width), view.reach())]
        if not degrees and scale == finer == 1:  # nothing to interpolate: whole pixels
            centre = [round(c - (size - 1) / 2) + (size - 1) / 2 for c in centre]
        return View(view.size, (centre[0], centre[1]), view.matrix)


def _wider(view: View, shape: tuple[int, int], most: float, where: float) -> float:
    """Factor on the tissue that a cut covers: 1 / most to most, uniform in its logarithm, for ``where`` in [0, 1).

    Where the image has room for the cut as it is, the factor goes no further than that room.
    """
    room = min((length - 1) / (2 * reach) if reach else most for length, reach in zip(shape, view.reach()))
    largest = min(most, room) if room >= 1 else most
    return float(np.exp((1 - where) * np.log(largest) - where * np.log(most)))


def _place(length: int, reach: float, shift: float, where: float) -> float:
    """Centre of the cut along an axis: anywhere that it fits, else the middle give or take ``shift``; ``where`` is in [0, 1)."""
    room = length - 1 - 2 * reach
    return reach + where * room if room >= 0 else (length - 1) / 2 + (2 * where - 1) * shift


def one_piece_each(instances: np.ndarray) -> np.ndarray:
    """New ids 1, 2, ... so that each is one connected piece: a cut or a mirrored border may have split objects."""
    return label(instances, background=0, connectivity=2).astype(np.int32)


def random_stream(*key: int) -> np.random.Generator:
    """Random numbers that depend on the key alone; close keys give unrelated numbers."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


class _Recent:
    """The samples used last, up to a number of bytes; a copy in another process starts empty."""

    def __init__(self, dataset: Dataset, limit: int):
        self.dataset, self.limit = dataset, limit
        self._kept: OrderedDict[int, Sample] = OrderedDict()
        self._bytes = 0

    def __getitem__(self, index: int) -> Sample:
        if index in self._kept:
            self._kept.move_to_end(index)
            return self._kept[index]
        sample = self.dataset[index]
        self._kept[index] = sample
        self._bytes += _bytes_of(sample)
        while self._bytes > self.limit and len(self._kept) > 1:
            self._bytes -= _bytes_of(self._kept.popitem(last=False)[1])
        return sample

    def __reduce__(self) -> tuple[type, tuple[Dataset, int]]:
        return _Recent, (self.dataset, self.limit)


def _bytes_of(sample: Sample) -> int:
    return sample.image.nbytes + (0 if sample.instances is None else sample.instances.nbytes)
