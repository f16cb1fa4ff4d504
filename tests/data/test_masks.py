"""Instance maps: every way to write one is read alike, and every fault is told with type and shape."""

import os
import struct

import numpy as np
import pytest
import slow_images as slow
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from scipy.io import savemat

from dsfcnn.data import read_instances
from dsfcnn.data.masks import relabel
from dsfcnn.data.polygons import fill
from dsfcnn.errors import DataError, MissingInputError

IDS = np.array([[0, 0, 7, 7], [3, 3, 7, 200], [3, 0, 0, 200]])
EXPECTED = [[0, 0, 2, 2], [1, 1, 2, 3], [1, 0, 0, 3]]


def save(path, ids):
    if path.suffix == ".npy":
        np.save(path, ids)
    elif path.suffix == ".mat":
        savemat(path, {"inst_map": ids, "inst_type": np.zeros((3, 1))}, do_compression=True)
    elif path.suffix == ".png":
        Image.fromarray(ids).save(path)
    else:
        tifffile.imwrite(path, ids)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *[(f"a.{end}", dtype) for end in ("npy", "mat") for dtype in ("uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")],
        *[("a.png", dtype) for dtype in ("uint8", "uint16")],
        *[("a.tif", dtype) for dtype in ("uint8", "uint16", "int32", "uint32")],
        ("a.mat", "float64"),
    ],
)
def test_every_way_to_write_it(name, dtype, tmp_path):
    save(tmp_path / name, IDS.astype(dtype))
    found = read_instances(tmp_path / name)
    assert found.dtype == np.int32
    assert found.tolist() == EXPECTED


def test_palettes_and_fortran_order(tmp_path):
    picture = Image.fromarray(IDS.astype(np.uint8)).convert("P")
    picture.putdata(IDS.ravel().tolist())
    picture.save(tmp_path / "p.png")
    assert read_instances(tmp_path / "p.png").tolist() == EXPECTED  # the places in the palette, not its colours
    np.save(tmp_path / "f.npy", np.asfortranarray(IDS))
    assert read_instances(tmp_path / "f.npy").tolist() == EXPECTED


@pytest.mark.parametrize("value", [2**63 - 1, 2**40, 70_000])
def test_large_ids_cost_nothing(value, tmp_path):
    np.save(tmp_path / "a.npy", np.array([[0, value], [value - 1, 0]]))
    assert read_instances(tmp_path / "a.npy").tolist() == [[0, 2], [1, 0]]


def test_more_ids_than_16_bits(tmp_path):
    ids = np.arange(70_000, dtype=np.int64).reshape(280, 250)
    np.save(tmp_path / "a.npy", ids)
    assert (read_instances(tmp_path / "a.npy") == ids).all()


def test_unsigned_32_bit_ids_do_not_become_negative(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.array([[0, 2**32 - 1], [5, 0]], np.uint32))
    assert read_instances(tmp_path / "a.tif").tolist() == [[0, 2], [1, 0]]


@pytest.mark.parametrize("kind", [">u4", "<i8", ">u8"])
def test_tiffs_that_pillow_does_not_know(kind, tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", IDS.astype(kind), byteorder=kind[0])
    assert read_instances(tmp_path / "a.tif").tolist() == EXPECTED


def test_an_8_bit_tiff_whose_white_is_zero(tmp_path):
    ids = np.zeros((5, 7), np.uint8)
    ids[1:3, 2:6] = 3
    tifffile.imwrite(tmp_path / "map.tif", ids, photometric="miniswhite")
    assert (read_instances(tmp_path / "map.tif") == (ids > 0)).all()
    tifffile.imwrite(tmp_path / "signed.tif", -ids.astype(np.int8), photometric="minisblack")
    with pytest.raises(DataError, match="negative ids"):
        read_instances(tmp_path / "signed.tif")


def test_empty_and_full_maps_are_valid(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 4), np.uint8))
    assert read_instances(tmp_path / "a.npy").max() == 0
    assert relabel(np.full((2, 2), 9)).tolist() == [[1, 1], [1, 1]]


@settings(deadline=None, derandomize=True, max_examples=50)
@given(arrays.arrays(st.sampled_from([np.uint8, np.int64, np.uint64]), (3, 4), elements=st.integers(0, 255)))
def test_relabelling_keeps_objects_apart_and_together(ids):
    found = relabel(ids)
    assert ((found == 0) == (ids == 0)).all()
    assert ((found.ravel()[:, None] == found.ravel()) == (ids.ravel()[:, None] == ids.ravel())).all()
    assert found.max() == len(set(ids.ravel().tolist()) - {0})


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((3, 4), np.float32), "float32 and shape (3, 4)"),
        (np.full((3, 4), np.nan), "float64 and shape (3, 4)"),
        (np.zeros((3, 4), bool), "bool and shape (3, 4)"),
        (np.zeros((3, 4), complex), "complex128 and shape (3, 4)"),
        (np.array([["a", "b"]]), "<U1 and shape (1, 2)"),
        (np.zeros((3, 4, 3), np.uint8), "uint8 and shape (3, 4, 3)"),
        (np.zeros(4, np.uint8), "uint8 and shape (4,)"),
        (np.array([[-1, 2]]), "negative"),
        (np.zeros((0, 4), np.uint8), "shape (0, 4)"),
    ],
)
def test_what_is_no_instance_map_is_refused(array, words, tmp_path, refused):
    np.save(tmp_path / "a.npy", array)
    with refused(DataError, ""):
        read_instances(tmp_path / "a.npy")
    with pytest.raises(DataError, match=r"a\.npy") as caught:
        read_instances(tmp_path / "a.npy")
    assert words in str(caught.value)
    assert caught.value.exit_code == 65


class Trap:
    def __reduce__(self):
        return os.mkdir, ("trapped",)


def test_pickles_are_never_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.array([[Trap()]], object), allow_pickle=True)
    with pytest.raises(DataError, match="type object and shape"):
        read_instances("a.npy")
    assert not (tmp_path / "trapped").exists()


def npy(header):
    header = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (npy("{'descr': '<i4', 'fortran_order': False, 'shape': (1000000, 1000000), }"), "more than"),
        (npy("{'descr': '<i4', 'fortran_order': False, 'shape': (1000, 1000), }") + bytes(100), "damaged"),
        (npy("{'descr': '<i4', 'fortran_order': False, 'shape': (-1, 4), }"), "damaged"),
        (npy("{'descr': '<i4', 'shape': (2, 2), }"), "damaged"),
        (npy("__import__('os').mkdir('trapped')"), "damaged"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 31) + b" " * 1000, "damaged"),
        (b"\x93NUMPY\x09\x00", "damaged"),
        (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
        (b"", "empty"),
    ],
)
def test_lying_headers(content, words, tmp_path):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_instances(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("save_as", "words"),
    [
        (lambda p: Image.new("RGB", (4, 3)).save(p), r"uint8 and shape \(3, 4, 3\)"),
        (lambda p: Image.new("RGBA", (4, 3)).save(p), r"shape \(3, 4, 4\)"),
        (lambda p: Image.new("1", (4, 3)).save(p), r"bool and shape \(3, 4\)"),
    ],
)
def test_pictures_that_are_no_maps(save_as, words, tmp_path):
    save_as(tmp_path / "a.png")
    with pytest.raises(DataError, match=words):
        read_instances(tmp_path / "a.png")


def test_a_float_tiff_is_refused(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((3, 4), np.float32))
    with pytest.raises(DataError, match=r"float32 and shape \(3, 4\)"):
        read_instances(tmp_path / "a.tif")


def test_a_stack_of_maps_is_refused(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((5, 3, 4), np.uint16), photometric="minisblack")
    with pytest.raises(DataError, match=r"uint16 and shape \(5, 3, 4\)"):
        read_instances(tmp_path / "a.tif")


def test_a_mask_as_jpeg_is_refused(tmp_path):
    """JPEG changes values; ids would come out wrong without a word."""
    Image.fromarray(IDS.astype(np.uint8)).save(tmp_path / "a.png", "JPEG")
    with pytest.raises(DataError, match="PNG or TIFF"):
        read_instances(tmp_path / "a.png")


def test_matlab_files_that_are_no_maps(tmp_path):
    savemat(tmp_path / "other.mat", {"labels": IDS})
    with pytest.raises(DataError, match="no variable inst_map"):
        read_instances(tmp_path / "other.mat")
    savemat(tmp_path / "half.mat", {"inst_map": IDS + 0.5})
    with pytest.raises(DataError, match="fractions"):
        read_instances(tmp_path / "half.mat")
    savemat(tmp_path / "cell.mat", {"inst_map": np.array([[{"a": 1}, 2]], object)})
    with pytest.raises(DataError):
        read_instances(tmp_path / "cell.mat")
    (tmp_path / "new.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(116) + bytes(8) + b"\x00\x02IM" + bytes(64))
    with pytest.raises(DataError, match="-v7"):
        read_instances(tmp_path / "new.mat")


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # doubts about tags, of which only the error matters
@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.npy", "a.mat"])
def test_damaged_maps_are_refused_or_read(name, tmp_path):
    """Cut short or with a flipped bit: DataError, or a map of whole numbers, never another error."""
    save(tmp_path / name, IDS.astype(np.uint16))
    content = (tmp_path / name).read_bytes()
    rng = np.random.default_rng(0)
    for trial in range(150):
        changed = bytearray(content)
        if trial % 3 == 0:
            changed = changed[: rng.integers(len(content))]
        else:
            changed[rng.integers(len(content))] ^= 1 << rng.integers(8)
        (tmp_path / name).write_bytes(changed)
        try:
            found = read_instances(tmp_path / name)
        except DataError:
            continue
        assert found.dtype == np.int32
        assert found.ndim == 2


def test_what_is_not_there_or_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "loop.mat").symlink_to("loop.mat")
    for name in ("none.npy", "none.png", "pipe.npy", "loop.mat", "."):
        with pytest.raises(MissingInputError):
            read_instances(tmp_path / name)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(st.tuples(st.floats(-3, 14), st.floats(-3, 12)), min_size=3, max_size=7))
def test_a_pixel_is_inside_when_its_centre_is(outline):
    """Centres on an edge may fall either way; those are left out."""
    instances = np.zeros((9, 11), np.int32)
    fill(instances, [[np.array(outline)]], 5)
    for y in range(9):
        for x in range(11):
            votes = {slow.inside(outline, x + 0.5 + dx, y + 0.5 + dy) for dx in (-1e-6, 0, 1e-6) for dy in (-1e-6, 0, 1e-6)}
            if len(votes) == 1:
                assert (instances[y, x] == 5) == votes.pop()


def test_holes_and_several_parts():
    instances = np.zeros((10, 20), np.int32)

    def square(left, top, side):
        return np.array([[left, top], [left + side, top], [left + side, top + side], [left, top + side]], float)

    fill(instances, [[square(1, 1, 8), square(3, 3, 4)], [square(12, 2, 3)]], 2)
    assert (instances == 2).sum() == 64 - 16 + 9
    fill(instances, [[square(-5, -5, 7)], [square(100, 100, 5)]], 3)
    assert (instances == 3).sum() == 4


@pytest.mark.parametrize("shift", [0.0, 0.5, 0.25])
def test_objects_that_touch_keep_their_areas(shift):
    """At half the resolution every second edge lies on pixels' centres."""

    def box(left, top, right, bottom):
        return [np.array([[left, top], [right, top], [right, bottom], [left, bottom]]) + shift]

    instances = np.zeros((20, 20), np.int32)
    fill(instances, [box(2, 2, 6, 6)], 1)
    fill(instances, [box(6, 2, 10, 6)], 2)
    fill(instances, [[*box(2, 8, 12, 18), *box(4, 10, 8, 14)]], 3)
    assert np.bincount(instances.ravel())[1:].tolist() == [16, 16, 84]
