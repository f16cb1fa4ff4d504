"""Rotated MNIST: the official .amat files, or one regenerated from MNIST's idx files.

Regenerated: all 70,000 digits in one pool, put into an order by a fixed seed, 10,000 for training, 2,000 for validation and 50,000 for
testing, each turned by an angle of its own with bilinear interpolation on black. Figures on it are comparable among themselves, and to
published ones only under the word "regenerated". Turning is done in whole numbers, so its bytes are the same on every machine.
"""

import gzip
import hashlib
import math
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsfcnn.data.pairs import entries
from dsfcnn.data.sample import Sample, place_in
from dsfcnn.errors import DataError, DsfcnnError, OutputError
from dsfcnn.files import atomic_write, expect_outside
from dsfcnn.slides.source import open_file, shown

SIDE = 28
SPLITS = {"train": (0, 10_000), "valid": (10_000, 12_000), "test": (12_000, 62_000)}
SEED = 12_000  # of the order and the angles; any number would do, but it must stay
_ONE = 1 << 13  # one pixel in the arithmetic of turning
_OFFICIAL = "mnist_all_rotation_normalized_float_{}.amat"
_IDX = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))


@dataclass(frozen=True, eq=False)
class Digits:
    """Digits of one split: uint8 (N, 785), 784 pixels and the label."""

    rows: np.ndarray
    split: str
    name: str = "rotmnist"
    classes: tuple[str, ...] = tuple("0123456789")
    mpp: float = 1.0
    unpaired: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Sample:
        index = place_in(len(self), index)
        row = np.asarray(self.rows[index])
        return Sample(row[:-1].reshape(SIDE, SIDE, 1).copy(), None, int(row[-1]), self.mpp, self.source(index))

    def source(self, index: int) -> str:
        return f"{self.split}[{index}]"


def splits(folder: Path) -> list[str]:
    """``train``, ``valid`` and ``test``, if the files of either layout are there."""
    names = {path.name for path in entries(folder)}
    if {name.removesuffix(".gz") for name in names} >= set(_IDX):
        return list(SPLITS)
    return [split for split in SPLITS if _OFFICIAL.format("test" if split == "test" else "train_valid") in names]


def open_split(folder: Path, split: str, cache: Path | None = None) -> Digits:
    """One split; with ``cache``, a folder outside the data, the second time opens what the first time has written there."""
    official = folder / _OFFICIAL.format("test" if split == "test" else "train_valid")
    sources = [official] if official.exists() else [_idx_file(folder, name) for name in _IDX]
    if cache is None:
        return Digits(_make(sources, split), split, files=tuple(sources))
    expect_outside(cache, folder, "cache folder")
    kept = cache / f"rotmnist-{split}-{_digest(sources)}.npy"
    if not kept.exists():
        _keep(kept, _make(sources, split))
    return Digits(_open_kept(kept), split, files=tuple(sources))


def _make(sources: list[Path], split: str) -> np.ndarray:
    if len(sources) == 1:
        rows = _read_amat(sources[0])
        return rows if split == "test" else rows[slice(*SPLITS[split])]
    return regenerate(*_read_pool(sources), split)


def regenerate(images: np.ndarray, labels: np.ndarray, split: str) -> np.ndarray:
    """A split from a pool of digits, uint8 (N, 28, 28) and (N,), as rows of 784 pixels and the label.

    A digit's place in the order and its angle depend on its place in the pool alone. A pool smaller than MNIST's 70,000 is divided
    in the same proportions.
    """
    random = np.random.Generator(np.random.Philox(SEED)).random((len(images), 2))
    order = np.argsort(random[:, 0], kind="stable")
    start, stop = (bound * len(images) // 70_000 for bound in SPLITS[split])
    chosen = order[start:stop]
    rows = np.empty((len(chosen), SIDE * SIDE + 1), np.uint8)
    for row, index in zip(rows, chosen):
        row[:-1] = turn(images[index], 360 * random[index, 1]).ravel()
        row[-1] = labels[index]
    return rows


def turn(image: np.ndarray, degrees: float) -> np.ndarray:
    """uint8 (28, 28) turned counter-clockwise about its centre, bilinear, black outside, in whole numbers throughout.

    Places are in 2^-13 pixel. Cosine and sine are rounded to 2^-26, which hides the last bit in which libraries differ.
    """
    cos, sin = (round(f(math.radians(degrees)) * (1 << 26)) for f in (math.cos, math.sin))
    step = 2 * np.arange(SIDE, dtype=np.int64) - (SIDE - 1)  # in half pixels from the centre
    middle = (SIDE - 1) * _ONE // 2 + _ONE  # and one pixel for the black frame
    rows = ((cos * step[:, None] + sin * step[None, :]) >> 14) + middle
    columns = ((-sin * step[:, None] + cos * step[None, :]) >> 14) + middle
    framed = np.zeros((SIDE + 3, SIDE + 3), np.int64)
    framed[1 : SIDE + 1, 1 : SIDE + 1] = image
    rows, columns = (np.clip(places, 0, (SIDE + 1) * _ONE) for places in (rows, columns))
    y, x, fy, fx = rows >> 13, columns >> 13, rows & (_ONE - 1), columns & (_ONE - 1)
    upper = framed[y, x] * (_ONE - fx) + framed[y, x + 1] * fx
    lower = framed[y + 1, x] * (_ONE - fx) + framed[y + 1, x + 1] * fx
    return ((upper * (_ONE - fy) + lower * fy + (1 << 25)) >> 26).astype(np.uint8)


def _read_pool(sources: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    read = [[_read_idx(path, dimensions) for path in sources[first::2]] for first, dimensions in ((0, 3), (1, 1))]
    for path, found in zip(sources[::2], read[0]):
        if found.shape[1:] != (SIDE, SIDE):
            raise DataError(f"{shown(path)}: images of shape {found.shape}; get MNIST again")
    images, labels = map(np.concatenate, read)
    if len(images) != len(labels):
        raise DataError(f"{shown(sources[0].parent)}: {len(labels)} labels for images of shape {images.shape}; get MNIST again")
    if labels.size and labels.max() > 9:
        raise DataError(f"{shown(sources[1])}: labels above 9; get MNIST again")
    return images, labels


def _read_idx(path: Path, dimensions: int) -> np.ndarray:
    """An idx file of bytes, packed by gzip or not: 0, 0, 8, number of dimensions, their lengths, the values."""
    try:
        with open_file(path) as stream:
            data = (gzip.GzipFile(fileobj=stream) if path.suffix == ".gz" else stream).read(1 << 27)  # MNIST has 47 MB
        lengths = struct.unpack_from(f">{dimensions}I", data, 4)
        values = np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions)
        if data[:4] != bytes([0, 0, 8, dimensions]) or values.size != math.prod(lengths):
            raise ValueError
    except DsfcnnError:
        raise
    except (OSError, EOFError, ValueError, struct.error, gzip.zlib.error) as error:  # type: ignore[attr-defined]
        raise DataError(f"{shown(path)}: not a whole idx file of MNIST; get it again") from error
    return values.reshape(lengths)


def _read_amat(path: Path) -> np.ndarray:
    with open_file(path) as stream:
        try:
            values = np.loadtxt(stream, np.float32, ndmin=2)
            if values.shape[1] != SIDE * SIDE + 1 or not ((values[:, :-1] >= 0) & (values[:, :-1] <= 1)).all():
                raise ValueError
            labels = values[:, -1].astype(np.uint8)
            if (labels != values[:, -1]).any() or (labels > 9).any():
                raise ValueError
        except ValueError as error:
            raise DataError(f"{shown(path)}: not rows of 784 pixels from 0 to 1 and a digit; get it again") from error
    return np.concatenate([np.rint(values[:, :-1] * 255).astype(np.uint8), labels[:, None]], 1)


def _idx_file(folder: Path, name: str) -> Path:
    return folder / name if (folder / name).exists() else folder / f"{name}.gz"


def _digest(sources: list[Path]) -> str:
    """Of what the split is made from: the files' bytes and the rule above."""
    found = hashlib.sha256(f"rule 1, seed {SEED}".encode())
    for path in sources:
        with open_file(path) as stream:
            found.update(hashlib.sha256(stream.read()).digest())
    return found.hexdigest()[:16]


def _keep(path: Path, rows: np.ndarray) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as stream:
            np.save(stream, rows, allow_pickle=False)
    except DsfcnnError:
        raise
    except OSError as error:
        raise OutputError(f"{shown(path.parent)}: not writable ({error.strerror}); give another cache folder") from error


def _open_kept(path: Path) -> np.ndarray:
    try:
        rows = np.load(path, allow_pickle=False)
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != SIDE * SIDE + 1:
            raise ValueError
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{shown(path)}: damaged; delete it, it will be made again") from error
    return rows
