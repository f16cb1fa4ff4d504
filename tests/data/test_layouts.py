"""Data sets in exactly the layout in which their owners distribute them, written small."""

import gzip
import hashlib
import pickle
import struct
import subprocess
import sys

import h5py
import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from scipy.ndimage import rotate

from dsfcnn.data import kumar, load_batches, open_dataset, rotmnist, splits
from dsfcnn.data.crops import Crops
from dsfcnn.data.folder import split_folder
from dsfcnn.data.open import recognise
from dsfcnn.data.rotmnist import regenerate, turn
from dsfcnn.data.split import read_split, write_split
from dsfcnn.data.synthetic.dataset import Drawn
from dsfcnn.errors import DataError, MissingInputError, OutputError, UsageError

rng = np.random.default_rng(3)


def picture(height=20, width=24):
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


def ids(height=20, width=24):
    found = np.zeros((height, width), np.uint8)
    found[2:8, 3:9], found[10:15, 12:20] = 4, 9
    return found


def write(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


# PCam


def write_pcam(folder, count=5):
    for split in ("train", "valid", "test"):
        x, y = rng.integers(0, 256, (count, 96, 96, 3), dtype=np.uint8), np.arange(count, dtype=np.uint8).reshape(-1, 1, 1, 1) % 2
        for part, array in (("x", x), ("y", y)):
            with h5py.File(folder / f"camelyonpatch_level_2_split_{split}_{part}.h5", "w") as file:
                file.create_dataset(part, data=array, chunks=(1, *array.shape[1:]))
    return x


def test_pcam_hdf5(tmp_path):
    x = write_pcam(tmp_path)
    assert recognise(tmp_path) == "pcam"
    assert splits(tmp_path) == ["train", "valid", "test"]
    data = open_dataset(tmp_path, "test")
    assert (len(data), data.classes, data.mpp) == (5, ("normal", "tumour"), 0.97)
    for index in (0, 3, -1):
        sample = data[index]
        assert (sample.image == x[index]).all()
        assert sample.label == index % 5 % 2
        assert sample.instances is None
        assert str(tmp_path) not in sample.source
    with pytest.raises(IndexError):
        data[5]


def test_pcam_hdf5_is_read_in_other_processes(tmp_path):
    write_pcam(tmp_path)
    data = open_dataset(tmp_path, "train")
    expected = [data[i].image.tobytes() for i in range(5)]  # opened here first: the workers must open it again
    crops = Crops(data, 96, 0.97, augment=None)
    (batch,) = load_batches(crops, 5, range(1), workers=2)
    assert sorted(sample.image.tobytes() for sample in batch) == sorted(expected)
    assert pickle.loads(pickle.dumps(data))[2].image.tobytes() == expected[2]


@pytest.mark.parametrize(
    ("part", "array", "words"),
    [
        ("x", np.zeros((5, 90, 96, 3), np.uint8), "96, 96, 3"),
        ("x", np.zeros((5, 96, 96, 3), np.float32), "float32"),
        ("y", np.zeros((4, 1, 1, 1), np.uint8), "5 images"),
        ("y", np.zeros((5, 1, 1, 1), np.float64), "float64"),
        ("y", np.full((5, 1, 1, 1), 2, np.uint8), "other than 0 and 1"),
    ],
)
def test_pcam_hdf5_with_other_arrays(part, array, words, tmp_path):
    write_pcam(tmp_path)
    with h5py.File(tmp_path / f"camelyonpatch_level_2_split_train_{part}.h5", "w") as file:
        file.create_dataset(part, data=array)
    with pytest.raises(DataError, match=words):
        open_dataset(tmp_path, "train")


def test_pcam_hdf5_damaged_or_missing(tmp_path):
    write_pcam(tmp_path)
    path = tmp_path / "camelyonpatch_level_2_split_train_x.h5"
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(DataError, match="unpack"):
        open_dataset(tmp_path, "train")
    path.unlink()
    with pytest.raises(MissingInputError):
        open_dataset(tmp_path, "train")


def write_mosaics(folder, rows=None):
    mosaic = picture(2 * 96, 3 * 96)
    write(folder / "train_000.webp", mosaic, lossless=True)
    rows = rows or ["a,1,train,train_000.webp,0,2", "b,0,train,train_000.webp,1,1", "c,0,test,train_000.webp,1,0"]
    (folder / "labels.csv").write_text("id,label,split,mosaic,row,col\n" + "\n".join(rows) + "\n")
    return mosaic


def test_pcam_mosaics(tmp_path):
    mosaic = write_mosaics(tmp_path)
    assert recognise(tmp_path) == "pcam"
    assert splits(tmp_path) == ["train", "test"]
    data = open_dataset(tmp_path, "train")
    assert [data[i].label for i in range(2)] == [1, 0]
    assert (data[0].image == mosaic[:96, 192:288]).all()
    assert (data[1].image == mosaic[96:, 96:192]).all()


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("a,1,train,train_000.webp,2,0", "outside the mosaic"),
        ("a,2,train,train_000.webp,0,0", "label 2"),
        ("a,1,train,train_000.webp,x,0", "no patch"),
        ("a,1,train,../train_000.webp,0,0", "outside the folder"),
        ("a,1,train,none.webp,0,0", "not there"),
    ],
)
def test_pcam_mosaics_with_mistakes(row, words, tmp_path):
    write_mosaics(tmp_path, [row])
    with pytest.raises(DataError, match=words):
        open_dataset(tmp_path, "train", "pcam")[0]


# Kumar, CRAG, GlaS


@pytest.mark.parametrize("end", ["png", "tif", "npy", "mat"])
def test_kumar_by_split(end, tmp_path):
    """As HoVer-Net distributes it (Images, Labels, mat), and with other files for the maps."""
    pixels = picture()
    for split in ("train", "test_same", "test_diff"):
        write(tmp_path / split / "Images" / "TCGA-18-5592-01Z-00-DX1.tif", pixels)
        labels = tmp_path / split / "Labels" / f"TCGA-18-5592-01Z-00-DX1.{end}"
        labels.parent.mkdir()
        if end == "mat":
            savemat(labels, {"inst_map": ids().astype(float), "inst_centroid": np.zeros((2, 2))})
        elif end == "npy":
            np.save(labels, ids().astype(np.int32))
        else:
            Image.fromarray(ids()).save(labels)
    assert recognise(tmp_path) == "kumar"
    assert splits(tmp_path) == ["train", "test_same", "test_diff"]
    data = open_dataset(tmp_path, "train")
    assert (data.classes, data.mpp, len(data)) == (("nucleus",), 0.25, 1)
    sample = data[0]
    assert (sample.image == pixels).all()
    assert sample.instances.dtype == np.int32
    assert (sample.instances == np.searchsorted([0, 4, 9], ids())).all()
    assert sample.source == "TCGA-18-5592-01Z-00-DX1.tif"
    assert (pickle.loads(pickle.dumps(data))[0].image == pixels).all()


def test_kumar_moved_to_where_outlines_lie(tmp_path):
    """The middle of a spot moves by the displacement; another patient's stays. Nothing moves unless asked for."""
    y, x = np.mgrid[:31, :37]
    spot = np.rint(40 + 160 * np.exp(-((y - 14) ** 2 + (x - 18) ** 2) / 18)).astype(np.uint8)
    pixels = np.stack([spot, spot // 2, spot], 2)
    for name in ("TCGA-18-5592-01Z-00-DX1", "TCGA-XX-0000-01Z-00-DX1"):
        write(tmp_path / "train" / "images" / f"{name}.tif", pixels)
        write(tmp_path / "train" / "labels" / f"{name}.png", (spot > 100).astype(np.uint8))
    known, unknown = open_dataset(tmp_path, "train", "kumar", aligned=True)
    assert (unknown.image == pixels).all()
    assert all((sample.image == pixels).all() for sample in open_dataset(tmp_path, "train", "kumar"))
    for channel in range(3):
        before, after = (np.float64(image[..., channel]) - image[0, 0, channel] for image in (pixels, known.image))
        moved = [(after * place).sum() / after.sum() - (before * place).sum() / before.sum() for place in (y, x)]
        assert moved == pytest.approx(kumar.DISPLACED, abs=0.02)
    assert (known.instances == (spot > 100)).all()


_XML = """<?xml version="1.0" encoding="UTF-8"?>
<Annotations MicronsPerPixel="0.2525"><Annotation Id="1" Name="" ReadOnly="0" Type="4"><Attributes/>
<Regions><RegionAttributeHeaders/>{}</Regions><Plots/></Annotation></Annotations>"""
_REGION = '<Region Id="{}" Type="0" Area="30"><Attributes/><Vertices>{}</Vertices></Region>'


def imagescope(*outlines):
    regions = [_REGION.format(i, "".join(f'<Vertex X="{x}" Y="{y}" Z="0"/>' for x, y in outline)) for i, outline in enumerate(outlines, 1)]
    return _XML.format("".join(regions))


def test_kumar_original(tmp_path):
    names = ["TCGA-A7-A13E-01Z-00-DX1", "TCGA-E2-A1B5-01Z-00-DX1", "TCGA-AY-A8YK-01A-01-TS1", "TCGA-XX-0000-01Z-00-DX1"]
    (tmp_path / "Annotations").mkdir()
    for name in names:
        write(tmp_path / "Tissue Images" / f"{name}.tif", picture())
        square, triangle, click = [(2, 3), (8, 3), (8, 9), (2, 9)], [(12.0, 4.0), (20.0, 4.0), (12.0, 12.0)], [(1, 1)]
        (tmp_path / "Annotations" / f"{name}.xml").write_text(imagescope(square, click, triangle))
    assert recognise(tmp_path) == "kumar"
    assert splits(tmp_path) == ["train", "test_same", "test_diff", "all"]
    assert [open_dataset(tmp_path, s)[0].source for s in ("train", "test_same", "test_diff")] == [f"{n}.tif" for n in names[:3]]
    assert len(open_dataset(tmp_path, "all")) == 4
    instances = open_dataset(tmp_path, "train")[0].instances
    expected = np.zeros((20, 24), int)
    expected[3:9, 2:8] = 1
    assert (instances[:, :10] == expected[:, :10]).all()
    assert instances.max() == 2
    assert 28 <= (instances == 2).sum() <= 36  # half of 8 x 8


DAMAGED = ["<Annotations", imagescope([("a", 1), (2, 2), (3, 3)]), imagescope([("nan", 1), (2, 2), (3, 3)]), "<!DOCTYPE a><a/>", ""]


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_imagescope(text, tmp_path, refused):
    write(tmp_path / "Tissue Images" / "a.tif", picture())
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "Annotations" / "a.xml").write_text(text)
    with refused(DataError, "again"):
        open_dataset(tmp_path, "all", "kumar")[0]


def test_crag(tmp_path):
    for split, count in (("train", 3), ("valid", 2)):
        for number in range(1, count + 1):
            for part, pixels in (("Images", picture()), ("Annotation", ids()), ("Overlay", picture())):
                write(tmp_path / split / part / f"{split}_{number}.png", pixels)
    assert recognise(tmp_path) == "crag"
    assert [(s, len(open_dataset(tmp_path, s))) for s in splits(tmp_path)] == [("train", 3), ("valid", 2)]
    data = open_dataset(tmp_path, "valid")
    assert (data.mpp, data.classes, data[0].instances.max()) == (0.5, ("gland",), 2)
    assert open_dataset(tmp_path, "valid", mpp=0.55)[0].mpp == 0.55


def test_images_and_annotations_may_be_anybodys(tmp_path):
    """They would be read at CRAG's resolution without a word."""
    for part, pixels in (("images", picture()), ("annotations", ids())):
        write(tmp_path / "train" / part / "a.png", pixels)
    with pytest.raises(DataError, match="no data set in a known layout"):
        recognise(tmp_path)


def test_glas_bitmaps(tmp_path):
    pixels = {}
    for split, count in (("train", 2), ("testA", 1), ("testB", 1)):
        for number in range(1, count + 1):
            pixels[f"{split}_{number}.bmp"] = picture()
            write(tmp_path / f"{split}_{number}.bmp", pixels[f"{split}_{number}.bmp"])
            write(tmp_path / f"{split}_{number}_anno.bmp", ids())
    (tmp_path / "Grade.csv").write_text("name,patient ID, grade (GlaS)\ntrain_1,1, benign\n")
    assert recognise(tmp_path) == "glas"
    assert [(s, len(open_dataset(tmp_path, s))) for s in splits(tmp_path)] == [("train", 2), ("testA", 1), ("testB", 1)]
    data = open_dataset(tmp_path, "train")
    assert data.mpp == 0.62
    for sample in (data[0], data[1]):
        assert (sample.image == pixels[sample.source]).all()
        assert sample.instances.max() == 2


def test_glas_by_split(tmp_path):
    for split in ("train", "testA"):
        write(tmp_path / split / "images" / "a.jpg", picture(), quality=95)
        write(tmp_path / split / "labels" / "a.png", ids())
    (tmp_path / "Grade.csv").write_text("name\n")
    assert recognise(tmp_path) == "glas"
    assert splits(tmp_path) == ["train", "testA"]
    assert open_dataset(tmp_path, "testA")[0].instances.max() == 2


# Rotated MNIST


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder, packed=True):
    for part, count in (("train", 600), ("t10k", 100)):
        for kind, array in (
            ("images-idx3", rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)),
            ("labels-idx1", np.arange(count, dtype=np.uint8) % 10),
        ):
            name = f"{part}-{kind}-ubyte"
            (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(idx(array)) if packed else idx(array))


@pytest.mark.parametrize("packed", [True, False])
def test_rotated_mnist_is_made_from_idx_files(packed, tmp_path):
    write_mnist(tmp_path, packed)
    assert recognise(tmp_path) == "rotmnist"
    parts = {split: open_dataset(tmp_path, split) for split in splits(tmp_path)}
    assert {split: len(data) for split, data in parts.items()} == {"train": 100, "valid": 20, "test": 500}  # a hundredth of the real one
    sample = parts["train"][0]
    assert (sample.image.shape, sample.image.dtype, sample.mpp) == ((28, 28, 1), np.uint8, 1.0)
    pixels = [data[i].image.tobytes() for data in parts.values() for i in range(len(data))]
    assert len(set(pixels)) == len(pixels)
    assert sorted({data[i].label for data in parts.values() for i in range(len(data))}) == list(range(10))


def test_rotated_mnist_is_cached_whole_and_outside_the_data(tmp_path):
    source, cache = tmp_path / "mnist", tmp_path / "cache" / "here"
    source.mkdir()
    write_mnist(source)
    before = sorted(path.name for path in source.iterdir())
    first = open_dataset(source, "valid", cache=cache)
    (kept,) = cache.iterdir()
    stamp, content = kept.stat().st_mtime_ns, kept.read_bytes()
    again = open_dataset(source, "valid", cache=cache)
    fresh = open_dataset(source, "valid")
    for data in (again, fresh):
        assert all((data[i].image == first[i].image).all() and data[i].label == first[i].label for i in range(20))
    assert kept.stat().st_mtime_ns == stamp
    assert sorted(path.name for path in source.iterdir()) == before
    kept.write_bytes(content[:200])
    with pytest.raises(DataError, match="delete it"):
        open_dataset(source, "valid", cache=cache)
    assert pickle.loads(pickle.dumps(first))[3].image.shape == (28, 28, 1)


def test_a_cache_that_cannot_be(tmp_path, refused):
    source = tmp_path / "mnist"
    source.mkdir()
    write_mnist(source)
    before = sorted(source.rglob("*"))
    for inside in (source, source / "cache"):
        with refused(UsageError, "another cache folder"):
            open_dataset(source, "valid", cache=inside)
    assert sorted(source.rglob("*")) == before
    (tmp_path / "file").touch()
    with refused(OutputError, "another cache folder"):
        open_dataset(source, "valid", cache=tmp_path / "file")


def test_the_regenerated_bytes_never_change():
    """Written down once: another machine, another day, the same digits."""
    images = np.stack([np.uint8(20) * np.arange(28 * 28, dtype=np.uint8).reshape(28, 28) + np.uint8(i) for i in range(70)])
    rows = regenerate(images, np.arange(70, dtype=np.uint8) % 10, "test")
    assert rows.shape == (50, 785)
    assert hashlib.sha256(rows.tobytes()).hexdigest()[:16] == "5ad413b902d1e309"


def test_turning_digits():
    digit = Drawn("digits", "train")[7].image[..., 0]
    for quarter in range(4):
        assert (turn(digit, 90 * quarter) == np.rot90(digit, quarter)).all()
    expected = rotate(digit.astype(float), 33, reshape=False, order=1)
    assert np.abs(turn(digit, 33) - expected).max() < 1.5


def amat(images, labels):
    rows = (" ".join(f"{value:.6f}".rstrip("0") for value in image.ravel() / 255) for image in images)
    return "".join(f"{row} {label}.0\n" for row, label in zip(rows, labels)).encode()


def test_mnist_of_two_sizes(tmp_path, refused):
    write_mnist(tmp_path, packed=False)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(np.zeros((100, 20, 20), np.uint8)))
    with refused(DataError, "get MNIST again"):
        open_dataset(tmp_path, "train")


def test_official_rotated_mnist(tmp_path, monkeypatch):
    """Rows of text, a thousandth of the 12,000 for training and validation, divided as they are."""
    assert rotmnist.SPLITS == {"train": (0, 10_000), "valid": (10_000, 12_000), "test": (12_000, 62_000)}
    monkeypatch.setattr(rotmnist, "SPLITS", {split: (start // 1000, stop // 1000) for split, (start, stop) in rotmnist.SPLITS.items()})
    lines = [b"0 " * 784 + b"%d\n" % (i % 10) for i in range(12)]
    images = rng.integers(0, 256, (3, 28, 28))
    lines[0], lines[9], lines[10] = amat(images, [4, 5, 6]).splitlines(keepends=True)
    (tmp_path / "mnist_all_rotation_normalized_float_train_valid.amat").write_bytes(b"".join(lines))
    (tmp_path / "mnist_all_rotation_normalized_float_test.amat").write_bytes(amat(images, [1, 2, 3]))
    assert recognise(tmp_path) == "rotmnist"
    train, valid, test = (open_dataset(tmp_path, split) for split in ("train", "valid", "test"))
    assert (len(train), len(valid), len(test)) == (10, 2, 3)
    assert [(train[0].label, train[-1].label, valid[0].label)] == [(4, 5, 6)]
    for sample, image in zip((train[0], train[-1], valid[0], test[0]), images[[0, 1, 2, 0]]):
        assert (sample.image[..., 0] == image).all()


@pytest.mark.parametrize("content", [b"0 1 2\n", b"0 " * 784 + b"10\n", b"2 " * 784 + b"1\n", b"0 " * 784 + b"x\n", b"0 " * 784 + b"1.5\n"])
def test_damaged_amat(content, tmp_path, refused):
    (tmp_path / "mnist_all_rotation_normalized_float_test.amat").write_bytes(content)
    with refused(DataError, "get it again"):
        open_dataset(tmp_path, "test")


@pytest.mark.parametrize("cut", [lambda c: c[:-3], lambda c: b"\1" + c[1:], lambda c: c[:6], lambda c: c + b"more"])
def test_damaged_idx(cut, tmp_path, refused):
    write_mnist(tmp_path, packed=False)
    path = tmp_path / "t10k-images-idx3-ubyte"
    path.write_bytes(cut(path.read_bytes()))
    with refused(DataError, "get it again"):
        open_dataset(tmp_path, "train")


# Users' own


def test_own_images_and_labels(tmp_path):
    pixels = picture()
    for split in ("train", "valid", "test"):
        write(tmp_path / split / "images" / "a.png", pixels)
        write(tmp_path / split / "images" / "b.JPG", pixels, format="JPEG")
        write(tmp_path / split / "images" / "c d.webp", pixels)
        write(tmp_path / split / "images" / "e.tif", pixels)
        write(tmp_path / split / "labels" / "a.tif", ids())
        write(tmp_path / split / "labels" / "b.png", ids())
        np.save(tmp_path / split / "labels" / "c d.npy", ids())
        savemat(tmp_path / split / "labels" / "e.mat", {"inst_map": ids()})
        (tmp_path / split / "images" / ".hidden.png").write_bytes(b"not an image")
    assert recognise(tmp_path) == "folder"
    data = open_dataset(tmp_path, "valid", mpp=0.4)
    assert [data.source(i) for i in range(4)] == ["a.png", "b.JPG", "c d.webp", "e.tif"]
    assert all(data[i].instances.max() == 2 and data[i].mpp == 0.4 for i in range(4))
    assert len(splits(tmp_path)) == 3


def test_pixels_of_size_0_are_not_those_that_a_data_set_is_known_for(tmp_path, refused):
    write(tmp_path / "train" / "Images" / "a.png", picture())
    write(tmp_path / "train" / "Annotation" / "a.png", ids())
    assert open_dataset(tmp_path, "train").mpp == 0.5
    with refused(UsageError, "size of a pixel"):
        open_dataset(tmp_path, "train", mpp=0.0)


@pytest.mark.parametrize("mpp", [None, 0.0, -1.0, float("nan"), 100.0])
def test_resolution_is_never_guessed(mpp, tmp_path, refused):
    write(tmp_path / "images" / "a.png", picture())
    write(tmp_path / "labels" / "a.png", ids())
    with refused(UsageError, "micron"):
        open_dataset(tmp_path, "all", mpp=mpp)


def test_own_class_folders(tmp_path):
    for split, classes in (("train", ("benign", "grade 2", "zebra")), ("test", ("zebra", "grade 2"))):
        for name in classes:
            for number in range(2):
                write(tmp_path / split / name / f"{number}.png", picture())
    train, test = (open_dataset(tmp_path, split, mpp=1.0) for split in ("train", "test"))
    assert train.classes == test.classes == ("benign", "grade 2", "zebra")
    assert [train[i].label for i in range(6)] == [0, 0, 1, 1, 2, 2]
    assert [test[i].label for i in range(4)] == [1, 1, 2, 2]  # the same numbers as in training
    assert train[0].source == "benign/0.png"


@pytest.mark.parametrize("divided", [False, True])
def test_images_of_another_kind_in_class_folders_are_not_passed_over(tmp_path, divided):
    for name in ("normal/a.png", "tumour/b.png", "tumour/c.bmp"):
        write(tmp_path / "data" / name, picture())
    write_split(tmp_path / "split.csv", {"normal/a.png": "train", "tumour/b.png": "train"})
    chosen = {"split": "train", "split_file": tmp_path / "split.csv"} if divided else {"split": "all"}
    with pytest.raises(DataError, match=r"tumour/c\.bmp: not PNG, JPEG, TIFF or WebP; convert it or take it away"):
        open_dataset(tmp_path / "data", format="folder", mpp=1.0, **chosen)


def test_a_split_with_images_of_one_class(tmp_path):
    for place in ("train/normal", "train/tumour", "valid/tumour"):
        write(tmp_path / place / "a.png", picture())
    (tmp_path / "valid" / "normal").mkdir()
    assert splits(tmp_path) == ["train", "valid"]
    valid = open_dataset(tmp_path, "valid", mpp=1.0)
    assert (valid.classes, valid[0].label) == (("normal", "tumour"), 1)


def test_a_split_that_lacks_its_labels_is_none_of_classes(tmp_path):
    for place in ("train/images", "train/labels", "valid/images"):
        write(tmp_path / place / "a.png", ids() if place.endswith("labels") else picture())
    assert splits(tmp_path, "folder") == ["train"]


def test_a_split_by_seed_is_written_down(tmp_path):
    data, table = tmp_path / "data", tmp_path / "split.csv"
    for name in ("a", "b"):
        for number in range(20):
            write(data / name / f'{number},"x.png', picture(6, 6))
    assert splits(data, "folder") == ["all"]
    with pytest.raises(UsageError, match="it has all"):
        open_dataset(data, "train", mpp=1.0)
    chosen = split_folder(data, seed=1, valid=0.2, test=0.1)
    write_split(table, chosen)
    assert read_split(table) == chosen
    parts = {split: open_dataset(data, split, mpp=1.0, split_file=table) for split in splits(data, split_file=table)}
    names = {split: {part.source(i) for i in range(len(part))} for split, part in parts.items()}
    assert {split: len(found) for split, found in names.items()} == {"train": 28, "valid": 8, "test": 4}
    assert len(set.union(*names.values())) == 40
    assert [sum(name.startswith("a/") for name in names[split]) for split in ("train", "valid", "test")] == [14, 4, 2]  # each class alike
    assert chosen == split_folder(data, seed=1, valid=0.2, test=0.1)
    assert chosen != split_folder(data, seed=2, valid=0.2, test=0.1)
    (data / "a" / '3,"x.png').unlink()
    with pytest.raises(DataError, match="new split"):
        open_dataset(data, chosen['a/3,"x.png'], mpp=1.0, split_file=table)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "data split"),
        ("a,b\n", "data split"),
        ("name,split\na,dev\n", "row 2"),
        ("name,split\na\n", "row 2"),
        ("name,split\na,train\nb,test\na,test\n", "row 4"),
    ],
)
def test_damaged_split_files(text, words, tmp_path, refused):
    (tmp_path / "split.csv").write_text(text)
    with refused(DataError, words):
        read_split(tmp_path / "split.csv")


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffname,split\r\na b.png,train\r\nc.png,test\r\n",
        "name;split\na b.png;train\nc.png;test\n\n",
        "name,split\na b.png,train\nc.png,test\n,\n",
    ],
)
def test_a_split_file_may_come_from_a_spreadsheet(text, tmp_path):
    (tmp_path / "split.csv").write_text(text, newline="")
    assert read_split(tmp_path / "split.csv") == {"a b.png": "train", "c.png": "test"}


def test_any_labels_csv_is_not_pcam(tmp_path):
    write(tmp_path / "images" / "a.png", picture())
    write(tmp_path / "labels" / "a.png", ids())
    (tmp_path / "labels.csv").write_text("patient,grade\n1,2\n")
    assert recognise(tmp_path) == "folder"


def test_files_without_a_partner_are_named(tmp_path):
    write(tmp_path / "images" / "a.png", picture())
    write(tmp_path / "images" / "b.png", picture())
    write(tmp_path / "labels" / "a.png", ids())
    with pytest.raises(DataError, match=r"b\.png: an image without truth"):
        open_dataset(tmp_path, "all", mpp=1)
    write(tmp_path / "labels" / "b.png", ids())
    write(tmp_path / "labels" / "c.png", ids())
    with pytest.raises(DataError, match=r"c\.png: an instance map without"):
        open_dataset(tmp_path, "all", mpp=1)
    write(tmp_path / "images" / "c.png", picture())
    write(tmp_path / "images" / "c.jpg", picture())
    with pytest.raises(DataError, match=r"c\.\w+: has the stem 'c'"):
        open_dataset(tmp_path, "all", mpp=1)


def test_folders_that_are_no_data(tmp_path, refused):
    with refused(DataError, "format"):
        recognise(tmp_path)
    with refused(MissingInputError, "path"):
        recognise(tmp_path / "none")
    with refused(UsageError, "synthetic"):
        open_dataset(None, "train")
    with refused(UsageError, "rotmnist"):
        open_dataset(tmp_path, "train", format="mnist")
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    with refused(DataError, "layouts"):
        open_dataset(tmp_path, "all", mpp=1)


def test_reading_data_needs_no_torch():
    code = "import sys, dsfcnn.data, dsfcnn.data.check; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_folder_that_may_not_be_read_is_no_bug(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.scandir", refuse)
    monkeypatch.setattr("pathlib.Path.stat", lambda path, **how: refuse(path))
    with pytest.raises(MissingInputError, match="Permission denied"):
        open_dataset(tmp_path, "train")
