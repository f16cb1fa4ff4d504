"""Plain images: whole and unchanged, or refused by name with the right exit code."""

import os
import random
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from dsfcnn.errors import DataError, DsfcnnError, Interrupted, MissingInputError
from dsfcnn.slides import read_image
from dsfcnn.slides.image import over_white


@pytest.fixture
def picture():
    rng = np.random.default_rng(1)
    return np.kron(rng.integers(0, 256, (8, 10, 3)), np.ones((4, 4, 1))).astype(np.uint8)


def png(width, height, *chunks, bits=8, colour=2):
    """A PNG of one colour with right checksums, written by hand so that it may lie."""
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in parts)


def lying_webp(content, width, height):
    """A lossless WebP that claims another size: 14 bits each, less one, behind the signature of the stream."""
    place = content.index(b"VP8L") + 9
    (bits,) = struct.unpack_from("<I", content, place)
    lie = (bits >> 28 << 28) | (height - 1) << 14 | (width - 1)
    return content[:place] + struct.pack("<I", lie) + content[place + 4 :]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("a.png", {}),
        ("a.tif", {}),
        ("a.tif", {"compression": "tiff_lzw"}),
        ("a.tif", {"compression": "tiff_adobe_deflate"}),
        ("a.webp", {"lossless": True}),
    ],
)
def test_pixels_are_those_of_the_file(name, settings, picture, tmp_path):
    Image.fromarray(picture).save(tmp_path / name, **settings)
    pixels = read_image(tmp_path / name)
    assert pixels.dtype == np.uint8
    assert (pixels == picture).all()


def test_jpeg_is_near_and_names_do_not_matter(picture, tmp_path):
    Image.fromarray(picture).save(tmp_path / "a.jpg", quality=98, subsampling=0)
    os.rename(tmp_path / "a.jpg", tmp_path / "a b'\n\udcff.png")
    assert np.abs(read_image(tmp_path / "a b'\n\udcff.png").astype(int) - picture).mean() < 3


@pytest.mark.parametrize("orientation", [3, 6])
def test_a_tiff_is_not_turned(orientation, picture, tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", picture, photometric="rgb", extratags=[(274, "H", 1, orientation, True)])
    assert Image.open(tmp_path / "a.tif").getexif()[274] == orientation
    pixels = read_image(tmp_path / "a.tif")
    assert pixels.shape == picture.shape
    assert (pixels == picture).all()
    tifffile.imwrite(tmp_path / "a.tif", np.stack([picture, picture]), photometric="rgb", extratags=[(274, "H", 1, orientation, True)])
    with pytest.raises(DataError, match="holds 2 pictures"):
        read_image(tmp_path / "a.tif")


@pytest.mark.parametrize("mode", ["L", "P", "1", "LA", "RGBA"])
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_grey_palette_and_alpha_become_rgb(mode, suffix, picture, tmp_path):
    image = Image.fromarray(picture).convert(mode)
    if "A" in mode:
        image.putalpha(Image.fromarray(np.arange(32 * 40, dtype=np.uint8).reshape(32, 40)))
    image.save(tmp_path / f"a.{suffix}")
    rgba = np.asarray(image.convert("RGBA")).astype(float)
    white = rgba[..., :3] * rgba[..., 3:] / 255 + 255 - rgba[..., 3:]
    assert np.abs(read_image(tmp_path / f"a.{suffix}") - white).max() <= 0.5 + 1e-9


def test_a_transparent_colour_of_a_palette_is_white(tmp_path):
    image = Image.fromarray(np.array([[0, 1], [2, 1]], np.uint8), "L").convert("P")
    image.putpalette([9, 9, 9, 50, 60, 70, 1, 2, 3])
    image.save(tmp_path / "a.png", transparency=0)
    assert read_image(tmp_path / "a.png").tolist() == [[[255, 255, 255], [50, 60, 70]], [[1, 2, 3], [50, 60, 70]]]


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 255), st.integers(0, 255))
def test_alpha_over_white_is_rounded(colour, alpha):
    exact = colour * alpha / 255 + 255 - alpha
    assert abs(int(over_white(np.array([[colour, 0, 0, alpha]], np.uint8))[0, 0]) - exact) <= 0.5


@pytest.mark.parametrize("size", [(1, 1), (1, 50), (50, 1)])
def test_a_single_pixel_or_line_is_an_image(size, tmp_path):
    Image.new("RGB", size, (1, 2, 3)).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png").shape == (size[1], size[0], 3)


def write_16_bit_grey(path):
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(path, "PNG")


def write_16_bit_rgb(path):
    path.write_bytes(png(4, 4, bits=16))


def write_tiff(dtype, shape=(4, 4, 3)):
    return lambda path: tifffile.imwrite(path, np.zeros(shape, dtype), photometric="rgb" if shape[-1] == 3 else "minisblack")


def save(mode, form):
    return lambda path: Image.new(mode, (4, 4)).save(path, form)


def write(content):
    return lambda path: path.write_bytes(content)


def write_animation(path):
    Image.new("RGB", (4, 4)).save(path, "WEBP", save_all=True, append_images=[Image.new("RGB", (4, 4), "red")], lossless=True)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (write_16_bit_grey, "16 bits per channel"),
        (write_16_bit_rgb, "16 bits per channel"),
        (write_tiff(np.uint16), "16 bits per channel"),
        (write_tiff(np.float32, (4, 4)), "32 bits per channel"),
        (write_tiff(np.int8, (4, 4)), "bits per channel"),
        (save("CMYK", "JPEG"), "CMYK"),
        (save("CMYK", "TIFF"), "CMYK"),
        (save("LAB", "TIFF"), "LAB"),
        (write_animation, "2 pictures"),
        (write_tiff(np.uint8, (2, 4, 4)), "2 pictures"),
        (save("P", "GIF"), "GIF"),
        (save("RGB", "EPS"), "PostScript"),
        (save("RGB", "BMP"), "known format"),
        (write(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), "SVG"),
        (write(b"\n<!DOCTYPE html><p>404</p>"), "web page"),
        (write(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"), "LFS"),
        (write(b""), "empty file"),
        (write(b"\x89PNG\r\n\x1a\n"), "damaged PNG"),
        (write(b"hello"), "known format"),
        (write(b"II*\0\xff\xff\xff\xff"), "damaged TIFF"),
        (write(png(0, 4)), ""),
        (write(png(4, 4)[:-40]), "damaged PNG"),
        (write(png(4, 4, (b"iCCP", b"x\0\0" + zlib.compress(bytes(1 << 26))))), "damaged PNG"),
        (write(png(4, 4, (b"zTXt", b"x\0\0" + zlib.compress(bytes(1 << 26))))), "damaged PNG"),
        (write(png(20_000, 20_000)), "20000 x 20000 pixels"),
        (write(png(2**31 - 1, 2**31 - 1)), "pixels"),
    ],
)
def test_what_is_no_8_bit_picture_is_refused(make, words, tmp_path):
    path = tmp_path / "a.png"
    make(path)
    with pytest.raises(DataError, match=f"a.png: .*{words}") as caught:
        read_image(path)
    assert caught.value.exit_code == 65
    assert "; " in str(caught.value)


def test_the_limit_is_the_callers(tmp_path):
    Image.new("RGB", (30, 30)).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png", max_pixels=900).shape == (30, 30, 3)
    with pytest.raises(DataError, match="--max-pixels"):
        read_image(tmp_path / "a.png", max_pixels=899)


def test_a_bomb_takes_no_memory(tmp_path):
    """A text chunk, a profile and a picture that would fill memory, in a process whose peak is measured."""
    bomb = zlib.compress(bytes(1 << 28))
    (tmp_path / "a.png").write_bytes(png(4, 4, (b"zTXt", b"x\0\0" + bomb)))
    (tmp_path / "b.png").write_bytes(png(4, 4, (b"iCCP", b"x\0\0" + bomb)))
    (tmp_path / "c.png").write_bytes(png(60_000, 60_000))
    Image.new("RGB", (8, 8)).save(tmp_path / "d.webp", lossless=True)
    (tmp_path / "d.webp").write_bytes(lying_webp((tmp_path / "d.webp").read_bytes(), 12_999, 12_999))
    code = """
import resource, sys
from dsfcnn.errors import DataError
from dsfcnn.slides import read_image
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    try:
        read_image(path)
        sys.exit(path)
    except DataError:
        pass
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    done = subprocess.run([sys.executable, "-c", code, *sorted(tmp_path.iterdir())], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 100  # MB


@pytest.mark.parametrize("kind", ["fifo", "device", "dangling", "loop", "folder", "missing", "nul", "long"])
def test_what_is_no_file_is_missing_and_never_waited_for(kind, tmp_path, refused):
    path = tmp_path / "a.png"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind in ("device", "dangling", "loop"):
        path.symlink_to({"device": "/dev/zero", "dangling": tmp_path / "b.png", "loop": path}[kind])
    elif kind != "missing":
        path = tmp_path / {"nul": "a\0b", "long": "a" * 300}[kind]
    with refused(MissingInputError, ""):
        read_image(path)


def test_a_signal_while_reading_is_no_damage(picture, tmp_path, monkeypatch):
    Image.fromarray(picture).save(tmp_path / "a.png")

    def stopped(image):
        raise Interrupted("stopped by SIGTERM; continue with --resume", 143)

    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", stopped)
    with pytest.raises(Interrupted):
        read_image(tmp_path / "a.png")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_missing(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "a.png").chmod(0)
    with pytest.raises(MissingInputError, match="Permission"):
        read_image(tmp_path / "a.png")


def test_a_download_that_stopped_in_its_reserved_space_is_refused(picture, tmp_path):
    """Zeros from the middle on: a decoder takes them for pixels."""
    for form, options in (("PNG", {}), ("JPEG", {}), ("JPEG", {"progressive": True}), ("WEBP", {"lossless": True})):
        Image.fromarray(picture).save(tmp_path / "a", form, **options)
        content = (tmp_path / "a").read_bytes()
        (tmp_path / "a").write_bytes(content[: len(content) * 2 // 3] + bytes(len(content) // 3 + 1))
        with pytest.raises(DataError):
            read_image(tmp_path / "a")


@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_ends_at_its_mark_whatever_lies_behind(progressive, picture, tmp_path):
    Image.fromarray(picture).save(tmp_path / "a", "JPEG", progressive=progressive)
    content, wanted = (tmp_path / "a").read_bytes(), read_image(tmp_path / "a")
    (tmp_path / "a").write_bytes(content + b"film \xff\xda film")
    assert (read_image(tmp_path / "a") == wanted).all()
    for padding in (b"", bytes(100)):
        (tmp_path / "a").write_bytes(content[:-2] + padding)
        with pytest.raises(DataError, match="damaged JPEG"):
            read_image(tmp_path / "a")


def encoded(picture, tmp_path):
    for number, (form, options) in enumerate(
        [
            ("PNG", {}),
            ("JPEG", {"quality": 90}),
            ("TIFF", {}),
            ("TIFF", {"compression": "tiff_lzw"}),
            ("TIFF", {"compression": "jpeg"}),
            ("WEBP", {"lossless": True}),
            ("WEBP", {"quality": 80}),
        ]
    ):
        path = tmp_path / f"whole-{number}"
        Image.fromarray(picture).save(path, form, **options)
        yield form, path.read_bytes()


def test_a_damaged_file_is_refused_or_a_picture_of_some_kind(picture, tmp_path, capfd):
    """Flipped bits and cut ends: nothing but our own errors; a PNG has checksums, so there every flip of a bit is found."""
    rng = random.Random(3)
    for form, content in encoded(picture, tmp_path):
        for _ in range(30):
            damaged = bytearray(content)
            place = rng.randrange(len(content))
            damaged[place] ^= 1 << rng.randrange(8)
            (tmp_path / "a").write_bytes(damaged)
            try:
                pixels = read_image(tmp_path / "a")
                assert form != "PNG", f"a flipped bit at {place} was not seen"
                assert pixels.ndim == 3
            except DsfcnnError as error:
                assert error.exit_code == 65  # noqa: PT017
        for length in rng.sample(range(len(content) - 1), 10):
            (tmp_path / "a").write_bytes(content[:length])
            with pytest.raises(DataError):
                read_image(tmp_path / "a")
    assert capfd.readouterr().err.count("\n") == 0, "a library printed something itself"
