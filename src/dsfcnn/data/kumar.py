"""Kumar's nuclei, 1000 x 1000 at 40x: images beside instance maps by split, or the original tif files with ImageScope XML.

By split: ``train``, ``test_same`` and ``test_diff`` (or fewer, or ``valid`` and ``test``), each with ``images`` and ``labels``.
Original: ``Tissue Images`` and ``Annotations``; the names then decide the split, 16 for training and 8 + 6 for testing as in HoVer-Net.

The instance maps of these 30 images lie a little to the right of the nuclei and below them. A network that commutes with turns cannot
learn that, so images can be moved as far when they are read.
"""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from scipy import ndimage

from dsfcnn.data.masks import relabel
from dsfcnn.data.pairs import Pairs, expect_some, files_in, image_and_label_folders, match, match_folders
from dsfcnn.data.polygons import fill
from dsfcnn.errors import DataError
from dsfcnn.slides import read_image
from dsfcnn.slides.source import open_file, shown

MPP = 0.25
SPLITS = ("train", "valid", "test", "test_same", "test_diff")
# TCGA patients of the original files: the 16 of training, and the test images of the same and of other organs.
_PATIENTS = {
    "train": "A7-A13E A7-A13F AR-A1AK AR-A1AS B0-5711 HE-7128 HE-7129 HE-7130 "
    "18-5592 38-6178 49-4488 50-5931 G9-6336 G9-6348 G9-6356 G9-6363",
    "test_same": "E2-A1B5 E2-A14V B0-5710 B0-5698 21-5784 21-5786 CH-5767 G9-6362",
    "test_diff": "DK-A2I6 G2-A2EK AY-A8YK NH-A8F7 KB-A93J RD-A8N9",
}
DISPLACED = (0.2, 0.5)  # pixels down and to the right; tools/displacement.py measures 0.21 and 0.52 on the training images
_LARGEST_XML = 200_000_000  # bytes; the original files have up to 10 MB


def splits(folder: Path) -> list[str]:
    """The splits that are there; of the original files also ``all``."""
    if _original(folder):
        found, _ = _match_original(folder)
        named = [name for name in _PATIENTS if any(_patient(pair.name) in _PATIENTS[name].split() for pair in found)]
        return [*named, "all"]
    return [name for name in SPLITS if (folder / name).is_dir() and image_and_label_folders(folder / name)]


def is_known_by_name(folder: Path) -> bool:
    """Whether nobody else's data would be laid out so."""
    return _original(folder) or any((folder / name).is_dir() for name in ("test_same", "test_diff"))


def open_split(folder: Path, split: str, mpp: float | None = None, aligned: bool = False) -> Pairs:
    """``aligned`` images lie where their instance maps do; those with XML, for which no displacement is known, stay as they are."""
    if _original(folder):
        pairs, unpaired = _match_original(folder)
        if split != "all":
            pairs = [pair for pair in pairs if _patient(pair.name) in _PATIENTS[split].split()]
        return Pairs("kumar", ("nucleus",), mpp or MPP, tuple(pairs), tuple(unpaired), read_truth=read_imagescope)
    folders = image_and_label_folders(folder / split)
    assert folders  # splits() has named it
    pairs, unpaired = match_folders(folders)
    expect_some(pairs, unpaired, folder / split)
    return Pairs("kumar", ("nucleus",), mpp or MPP, tuple(pairs), tuple(unpaired), read_aligned if aligned else read_image)


def read_aligned(path: Path) -> np.ndarray:
    """An image, moved if it is one of the 30."""
    image = read_image(path)
    if not any(_patient(path.name) in patients.split() for patients in _PATIENTS.values()):
        return image
    moved = np.empty_like(image)
    for channel in range(image.shape[2]):
        plane = ndimage.shift(image[..., channel].astype(np.float32), DISPLACED, order=3, mode="mirror")
        moved[..., channel] = np.clip(np.rint(plane), 0, 255)
    return moved


def read_imagescope(path: Path, size: tuple[int, int]) -> np.ndarray:
    """ImageScope's XML as an instance map of ``size`` (height, width): a region is an object, a later one lies above an earlier one."""
    with open_file(path) as stream:
        text = stream.read(_LARGEST_XML + 1)
    if len(text) > _LARGEST_XML or b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        raise DataError(f"{shown(path)}: not an annotation of ImageScope (too large, or with entities); export it again")
    instances = np.zeros(size, np.int32)
    try:
        regions = ElementTree.fromstring(text).iter("Region")
        outlines = [np.array([[float(v.attrib["X"]), float(v.attrib["Y"])] for v in region.iter("Vertex")]) for region in regions]
        if not all(np.isfinite(outline).all() for outline in outlines):
            raise ValueError
    except (ElementTree.ParseError, KeyError, ValueError) as error:
        raise DataError(f"{shown(path)}: a damaged ImageScope annotation; export it again") from error
    for number, outline in enumerate(outlines, 1):
        if len(outline) > 2:  # a click without a shape is no nucleus
            fill(instances, [[outline]], number)
    return relabel(instances)


def _original(folder: Path) -> bool:
    return (folder / "Tissue Images").is_dir() and (folder / "Annotations").is_dir()


def _match_original(folder: Path) -> tuple[list, list[str]]:
    return match(files_in(folder / "Tissue Images", (".tif",)), files_in(folder / "Annotations", (".xml",)))


def _patient(name: str) -> str:
    """TCGA-A7-A13E-01Z-00-DX1.tif -> A7-A13E"""
    return "-".join(name.split("-")[1:3])
