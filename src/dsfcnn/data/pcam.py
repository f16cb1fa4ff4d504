"""PatchCamelyon, 96 x 96 patches at 10x: the owners' HDF5 files, or mosaics of patches with a table.

HDF5: ``camelyonpatch_level_2_split_{train,valid,test}_{x,y}.h5`` with the arrays ``x`` (N, 96, 96, 3) and ``y`` (N, 1, 1, 1); a patch is
read when it is asked for. Mosaics: ``labels.csv`` with the columns id, label, split, mosaic, row, col, beside the pictures it names.
"""

import csv
import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsfcnn.data.pairs import entries
from dsfcnn.data.sample import Dataset, Sample, checked_mpp, place_in
from dsfcnn.errors import DataError, DsfcnnError, UsageError
from dsfcnn.slides import read_image
from dsfcnn.slides.source import open_file, shown

MPP = 0.97
CLASSES = ("normal", "tumour")
SIDE = 96
SPLITS = ("train", "valid", "test")
_COLUMNS = ("id", "label", "split", "mosaic", "row", "col")
_MOSAICS_KEPT = 8  # decoded mosaics a process keeps, 14 MB each as they are shared


def splits(folder: Path) -> list[str]:
    """Of ``train``, ``valid`` and ``test`` those that are there."""
    if (folder / "labels.csv").exists():
        return [name for name in SPLITS if any(patch.split == name for patch in _read_table(folder / "labels.csv"))]
    names = {path.name for path in entries(folder)}
    return [name for name in SPLITS if _hdf5_name(name, "x") in names or _hdf5_name(name, "y") in names]


def is_known_by_table(folder: Path) -> bool:
    """Whether a ``labels.csv``, which may be anybody's, is a table of mosaics."""
    if not (folder / "labels.csv").exists():
        return True
    with open_file(folder / "labels.csv") as stream:
        return b"mosaic" in stream.readline(1000)


def open_split(folder: Path, split: str, mpp: float | None = None) -> Dataset:
    if (folder / "labels.csv").exists():
        patches = [patch for patch in _read_table(folder / "labels.csv") if patch.split == split]
        return MosaicPatches(folder, patches, mpp or MPP)
    return HDF5Patches(folder / _hdf5_name(split, "x"), folder / _hdf5_name(split, "y"), mpp or MPP)


def _hdf5_name(split: str, part: str) -> str:
    return f"camelyonpatch_level_2_split_{split}_{part}.h5"


class HDF5Patches:
    """The owners' files of one split."""

    name = "pcam"
    classes = CLASSES
    unpaired: tuple[str, ...] = ()

    def __init__(self, images: Path, labels: Path, mpp: float):
        self.images, self.labels, self.mpp = images, labels, checked_mpp(mpp)
        self._files: tuple[int, Any] | None = None
        x, y = self._open(images, "x"), self._open(labels, "y")
        if x.shape[1:] != (SIDE, SIDE, 3) or x.dtype != np.uint8:
            raise DataError(f"{shown(images)}: x of type {x.dtype} and shape {x.shape}; PCam has uint8 of (N, 96, 96, 3)")
        if y.dtype.kind not in "iu" or y.size != len(x):
            raise DataError(f"{shown(labels)}: y of type {y.dtype} and shape {y.shape} for {len(x)} images; give one whole number each")
        self._truth = np.asarray(y).reshape(-1)
        if len(self._truth) and not set(np.unique(self._truth)) <= {0, 1}:
            raise DataError(f"{shown(labels)}: labels other than 0 and 1; get it again")
        self._length = len(x)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Sample:
        index = place_in(len(self), index)
        try:
            image = self._x()[index]
        except OSError as error:
            raise DataError(f"{shown(self.images)}: patch {index} cannot be read; get the file again") from error
        return Sample(image, None, int(self._truth[index]), self.mpp, self.source(index))

    def source(self, index: int) -> str:
        return f"{shown(self.images.name)}[{index}]"

    @property
    def files(self) -> tuple[Path, ...]:
        return self.images, self.labels

    def _x(self) -> Any:
        """The array of images, opened once in each process: HDF5's own state does not survive a fork."""
        if self._files is None or self._files[0] != os.getpid():
            self._files = (os.getpid(), self._open(self.images, "x"))
        return self._files[1]

    def _open(self, path: Path, key: str) -> Any:
        try:
            import h5py
        except ImportError as error:
            raise UsageError(f"{shown(path)}: reading HDF5 needs h5py; install it with pip install 'dsfcnn[hdf5]'") from error
        open_file(path).close()  # says what is wrong with a file that is not there
        try:
            found = h5py.File(path, "r")[key]
            found.shape, found.dtype  # noqa: B018  a group in its place has neither
        except Exception as error:  # HDF5 raises OSError, KeyError, RuntimeError, ... over damaged files
            raise DataError(
                f"{shown(path)}: not an HDF5 file with an array {key!r}; get it again (and unpack it, if it ends with .gz)"
            ) from error
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": None}


@dataclass(frozen=True)
class _Patch:
    label: int
    split: str
    mosaic: str
    row: int
    col: int


class MosaicPatches:
    """Patches that lie in pictures, 96 pixels apart."""

    name = "pcam"
    classes = CLASSES

    def __init__(self, folder: Path, patches: list[_Patch], mpp: float):
        self.folder, self.patches, self.mpp = folder, patches, checked_mpp(mpp)
        self.unpaired = tuple(
            f"{shown(name)}: named in labels.csv but not there; add it or take its rows away"
            for name in sorted({patch.mosaic for patch in patches})
            if not (folder / name).exists()
        )
        self._mosaics: OrderedDict[str, np.ndarray] = OrderedDict()

    def __len__(self) -> int:
        return len(self.patches)

    def __getitem__(self, index: int) -> Sample:
        patch = self.patches[place_in(len(self), index)]
        mosaic = self._mosaic(patch.mosaic)
        top, left = patch.row * SIDE, patch.col * SIDE
        image = mosaic[top : top + SIDE, left : left + SIDE]
        if image.shape != (SIDE, SIDE, 3):
            height, width = mosaic.shape[:2]
            raise DataError(f"{self.source(index)}: outside the mosaic of {width} x {height} pixels; mend labels.csv")
        return Sample(image.copy(), None, patch.label, self.mpp, self.source(index))

    def source(self, index: int) -> str:
        patch = self.patches[index]
        return f"{shown(patch.mosaic)}[{patch.row},{patch.col}]"

    @property
    def files(self) -> tuple[Path, ...]:
        return self.folder / "labels.csv", *(self.folder / name for name in sorted({patch.mosaic for patch in self.patches}))

    def _mosaic(self, name: str) -> np.ndarray:
        if name not in self._mosaics:
            self._mosaics[name] = read_image(self.folder / name)
            if len(self._mosaics) > _MOSAICS_KEPT:
                self._mosaics.popitem(last=False)
        self._mosaics.move_to_end(name)
        return self._mosaics[name]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mosaics": OrderedDict()}


def _read_table(path: Path) -> list[_Patch]:
    with open_file(path) as stream:
        try:
            rows = list(csv.DictReader(stream.read().decode().splitlines()))
            if not rows or not set(_COLUMNS) <= set(rows[0]):
                raise DataError(f"{shown(path)}: not a table of PCam mosaics; its columns must be {', '.join(_COLUMNS)}")
            return [_patch_of(row) for row in rows]
        except DsfcnnError:
            raise
        except (ValueError, TypeError, csv.Error) as error:
            raise DataError(f"{shown(path)}: a row that is no patch ({' '.join(str(error).split())}); mend it or get it again") from error


def _patch_of(row: dict[str, str]) -> _Patch:
    patch = _Patch(int(row["label"]), row["split"], row["mosaic"], int(row["row"]), int(row["col"]))
    if patch.label not in (0, 1) or min(patch.row, patch.col) < 0:
        raise ValueError(f"label {patch.label} at row {patch.row}, column {patch.col}")
    if Path(patch.mosaic).name != patch.mosaic:
        raise ValueError("a mosaic outside the folder")
    return patch
