"""Every fault of an image or an instance map, through ``dsfcnn data check`` and through a loader in training."""

import io
import json
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
import tifffile
from PIL import Image

from dsfcnn.cli.main import main
from dsfcnn.data import Crops, load_batches, open_dataset
from dsfcnn.data.check import check_dataset, outlined
from dsfcnn.data.sample import Sample
from dsfcnn.errors import DataError, MissingInputError

rng = np.random.default_rng(5)
PIXELS = rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)
IDS = np.zeros((30, 40), np.uint16)
IDS[5:15, 5:20], IDS[20:28, 22:38] = 3, 70


@pytest.fixture
def folder(tmp_path):
    """Three good pairs; a test spoils the second."""
    data = tmp_path / "data"
    for split in ("train", "test"):
        for part in ("images", "labels"):
            (data / split / part).mkdir(parents=True)
        for name in "abc":
            Image.fromarray(np.roll(PIXELS, ord(name) + (split == "test") * 7, 0)).save(data / split / "images" / f"{name}.png")
            np.save(data / split / "labels" / f"{name}.npy", IDS)
    return data


def png(pixels, **options):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", **options)
    return stream.getvalue()


def flipped(content, place):
    changed = bytearray(content)
    changed[place] ^= 0x10
    return bytes(changed)


def spoil_with(content):
    return lambda path: path.write_bytes(content)


def as_tiff(array, **options):
    return lambda path: tifffile.imwrite(path, array, **options)


def as_pipe(path):
    path.unlink()
    os.mkfifo(path)


def as_loop(path):
    path.unlink()
    path.symlink_to(path.name)


def as_dangling_link(path):
    path.unlink()
    path.symlink_to("nowhere")


def as_device(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def as_bomb(kind):
    """A PNG with 200 MB of text or colour profile, packed."""
    return lambda path: path.write_bytes(GOOD[:33] + chunk(kind, b"k\0\0" + zlib.compress(bytes(200 << 20))) + GOOD[33:])


def as_jpeg_cut_off(path):
    Image.fromarray(PIXELS).save(path, "JPEG")
    path.write_bytes(path.read_bytes()[:-200])


GOOD = png(PIXELS)
NO_PIXELS = [(b"IHDR", struct.pack(">IIBBBBB", 0, 0, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
BAD_IMAGES = {
    "truncated": (spoil_with(GOOD[: len(GOOD) // 2]), DataError),
    "bit flipped": (spoil_with(flipped(GOOD, len(GOOD) // 2)), DataError),
    "CRC": (spoil_with(flipped(GOOD, 30)), DataError),
    "JPEG cut off": (as_jpeg_cut_off, DataError),
    "zero size": (spoil_with(GOOD[:8] + b"".join(chunk(*part) for part in NO_PIXELS)), DataError),
    "text bomb": (as_bomb(b"zTXt"), DataError),
    "ICC bomb": (as_bomb(b"iCCP"), DataError),
    "wrong magic": (spoil_with(b"XXXX" + GOOD[4:]), DataError),
    "LFS pointer": (spoil_with(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), DataError),
    "HTML": (spoil_with(b"<!DOCTYPE html><html></html>"), DataError),
    "empty": (spoil_with(b""), DataError),
    "16 bits": (as_tiff(np.zeros((30, 40, 3), np.uint16), photometric="rgb"), DataError),
    "float": (as_tiff(np.zeros((30, 40), np.float32)), DataError),
    "CMYK": (lambda path: Image.new("CMYK", (40, 30)).save(path, "TIFF"), DataError),
    "LAB": (lambda path: Image.new("LAB", (40, 30)).save(path, "TIFF"), DataError),
    "GIF": (lambda path: Image.new("L", (40, 30)).save(path, "GIF"), DataError),
    "BMP": (lambda path: Image.new("RGB", (40, 30)).save(path, "BMP"), DataError),
    "SVG": (spoil_with(b'<svg width="40" height="30"></svg>'), DataError),
    "EPS": (spoil_with(b"%!PS-Adobe-3.0 EPSF-3.0"), DataError),
    "unknown": (spoil_with(rng.bytes(300)), DataError),
    "dangling link": (as_dangling_link, MissingInputError),
    "device": (as_device, MissingInputError),
    "pipe": (as_pipe, MissingInputError),
    "loop": (as_loop, MissingInputError),
}


def as_npy(array):
    return lambda path: np.save(path, array)


BAD_MASKS = {
    "float": as_npy(np.zeros((30, 40), np.float32)),
    "bool": as_npy(np.zeros((30, 40), bool)),
    "complex": as_npy(np.zeros((30, 40), complex)),
    "strings": as_npy(np.full((30, 40), "a")),
    "NaN": as_npy(np.full((30, 40), np.nan)),
    "3-D": as_npy(np.zeros((30, 40, 3), np.uint8)),
    "object": lambda path: np.save(path, np.full((30, 40), None), allow_pickle=True),
    "negative": as_npy(np.full((30, 40), -2)),
    "other size": as_npy(np.zeros((40, 30), np.uint8)),
    "huge header": spoil_with(b"\x93NUMPY\x02\x00" + (1 << 30).to_bytes(4, "little") + b" " * 100),
    "truncated": spoil_with(
        b"\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (30, 40), }".ljust(127) + b"\n" + bytes(50)
    ),
    "empty": spoil_with(b""),
}
FAULTS = [
    *(pytest.param("images", spoil, error, id=f"image {name}") for name, (spoil, error) in BAD_IMAGES.items()),
    *(pytest.param("labels", spoil, DataError, id=f"mask {name}") for name, spoil in BAD_MASKS.items()),
]


def spoiled(folder, part, spoil):
    path = folder / "train" / part / ("b.png" if part == "images" else "b.npy")
    spoil(path)
    return path


@pytest.mark.parametrize(("part", "spoil", "error"), FAULTS)
def test_check_names_a_fault_and_goes_on(part, spoil, error, folder):
    path = spoiled(folder, part, spoil)
    report, montage = check_dataset(folder, mpp=0.5)
    (problem,) = report.problems
    assert path.name in problem or "b.png" in problem
    assert "\n" not in problem
    assert "; " in problem
    assert [(split.read, split.samples, split.objects) for split in report.splits] == [(2, 3, 4), (3, 3, 6)]
    assert montage.dtype == np.uint8


@pytest.mark.parametrize(("part", "spoil", "error"), FAULTS)
def test_training_stops_at_a_fault_by_name(part, spoil, error, folder):
    path = spoiled(folder, part, spoil)
    crops = Crops(open_dataset(folder, "train", mpp=0.5), 16, 0.5)
    with pytest.raises(error) as caught:
        list(load_batches(crops, 3, range(1)))
    assert path.name in str(caught.value) or "b.png" in str(caught.value)
    assert caught.value.exit_code in (65, 66)
    assert "\n" not in str(caught.value)


def test_a_fault_in_a_worker_is_told_alike(folder):
    spoiled(folder, "labels", BAD_MASKS["other size"])
    crops = Crops(open_dataset(folder, "train", mpp=0.5), 16, 0.5)
    with pytest.raises(
        DataError, match=r"^b\.png: the instance map is 30 x 40 pixels but the image 40 x 30; they must cover the same tissue$"
    ):
        list(load_batches(crops, 3, range(2), workers=2))


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1"])
def test_images_that_can_be_converted_are(mode, folder):
    Image.fromarray(PIXELS).convert(mode).save(folder / "train" / "images" / "b.png")
    assert open_dataset(folder, "train", mpp=0.5)[1].image.shape == (30, 40, 3)


@pytest.mark.parametrize("shape", [(1, 1), (1, 40)])
def test_tiny_images_are_data_too(shape, folder):
    Image.fromarray(PIXELS[: shape[0], : shape[1]]).save(folder / "train" / "images" / "b.png")
    np.save(folder / "train" / "labels" / "b.npy", np.zeros(shape, np.uint8))
    assert check_dataset(folder, mpp=0.5)[0].problems == []
    crops = Crops(open_dataset(folder, "train", mpp=0.5), 16, 0.5)
    assert all(crops.draw(0, index).image.shape == (16, 16, 3) for index in range(3))


def test_a_bomb_is_refused_before_it_is_decoded(folder):
    """20,000 x 20,000 pixels in a few hundred kilobytes; the limit is 150 million."""
    path = folder / "train" / "images" / "b.png"
    Image.new("1", (20_000, 20_000)).save(path)
    code = f"""
import resource, sys
from dsfcnn.data.check import check_dataset
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
print(check_dataset({str(folder)!r}, mpp=0.5)[0].problems)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert "20000 x 20000 pixels" in done.stdout, done.stderr


def test_duplicates_between_splits_are_found(folder):
    (folder / "test" / "images" / "b.png").write_bytes((folder / "train" / "images" / "c.png").read_bytes())
    report, _ = check_dataset(folder, mpp=0.5)
    assert report.duplicates == ["b.png of test has the same pixels as c.png of train"]
    assert report.problems == []


def test_contours_lie_on_the_edge_of_objects():
    instances = np.zeros((20, 20), np.int32)
    instances[5:10, 5:12], instances[5:10, 12:15] = 1, 2
    drawn = outlined(Sample(np.full((20, 20, 3), 200, np.uint8), instances, None, 0.25, "a"))
    green = (drawn == (0, 255, 0)).all(-1)
    assert green[5, 5:15].all()
    assert green[6:9, [5, 11, 12, 14]].all()
    assert not green[7, 6:11].any()
    assert not green[instances == 0].any()


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


def test_the_command_reports_and_draws(folder, tmp_path, capsys):
    assert run("data", "check", folder, "--mpp", "0.5", "--out", tmp_path / "out") == 0
    said = capsys.readouterr().out
    assert "folder train: 3 of 3 images read, 0.5 microns per pixel" in said
    assert "objects: 6; in an image 2 to 2" in said
    with Image.open(tmp_path / "out" / "montage.png") as montage:
        assert (np.asarray(montage) == (0, 255, 0)).all(-1).sum() > 100
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["splits"][0]["sizes"] == {"40 x 30": 3}
    assert str(tmp_path) not in json.dumps(report)
    assert run("data", "check", folder, "--mpp", "0.5", "--out", tmp_path / "out") == 73


def test_the_command_fails_where_the_data_does(folder, capsys):
    (folder / "train" / "images" / "b.png").write_bytes(b"")
    (folder / "train" / "labels" / "c.npy").unlink()
    assert run("data", "check", folder, "--mpp", "0.5", "--json") == 65
    told = capsys.readouterr()
    report = json.loads(told.out)
    assert [split["read"] for split in report["splits"]] == [1, 3]
    assert len(report["splits"][0]["problems"]) == 2
    assert run("data", "check", folder, "--mpp", "0.5", "--split", "test") == 0
    capsys.readouterr()
    assert run("data", "check", folder, "--mpp", "0.5") == 65
    assert capsys.readouterr().err.count("error: ") == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("check", "DATA"), 2),
        (("check", "DATA", "--mpp", "0.5", "--out", "DATA/out"), 2),
        (("check", "DATA", "--mpp", "0.5", "--split", "dev"), 2),
        (("check", "DATA", "--format", "nonsense"), 2),
        (("check", "DATA/none"), 66),
        (("check", "DATA/train/images"), 65),
        (("check", "DATA", "--format", "glas"), 65),
        (("split", "DATA", "--out", "DATA/split.csv"), 2),
    ],
)
def test_mistakes_are_one_line(arguments, code, folder, capsys):
    before = sorted(folder.rglob("*"))
    assert run("data", *(argument.replace("DATA", str(folder)) for argument in arguments)) == code
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert sorted(folder.rglob("*")) == before


def test_the_command_divides_a_folder(folder, tmp_path, capsys):
    table = tmp_path / "split.csv"
    assert run("data", "split", folder / "train", "--out", table, "--valid", "0.34", "--test", "0.33") == 0
    assert "train 1, valid 1, test 1" in capsys.readouterr().out
    assert run("data", "check", folder / "train", "--mpp", "1", "--split-file", table) == 0
    assert capsys.readouterr().out.count("1 of 1 images read") == 3
    assert run("data", "split", folder / "train", "--out", table) == 73


@pytest.mark.parametrize("kind", ["pairs", "slides"])
def test_what_is_divided_already_needs_no_table(kind, folder, tmp_path, capsys):
    if kind == "slides":
        folder = tmp_path / "slides"
        for split in ("train", "valid"):
            (folder / split).mkdir(parents=True)
            for end in (".svs", ".geojson"):
                (folder / split / f"{split}{end}").touch()
    assert run("data", "split", folder, "--out", tmp_path / "split.csv") == 2
    assert "has the splits train, " in capsys.readouterr().err
    assert not (tmp_path / "split.csv").exists()
