"""What a file is taken for, where its resolution comes from, and what damaged files get: our own errors, at once."""

import os
import random
import struct
import subprocess
import sys
import zlib

import numpy as np
import openslide
import pytest
import tifffile
import tiffslide
from PIL import Image

from dsfcnn.errors import DataError, DsfcnnError, MissingInputError, UnreadableRegion, UsageError
from dsfcnn.slides import MissingLibraries, UnknownResolution, open_slide
from dsfcnn.slides import open as opening
from dsfcnn.slides.resolution import find_mpp
from dsfcnn.slides.slide import Facts, Level
from dsfcnn.slides.tiff import ome_mpp

WHITE = zlib.compress(bytes([255]) * (256 * 256 * 3))
LEVELS = (Level(100, 100, 1.0),)


def facts(**known):
    return Facts(LEVELS, "test", **known)


@pytest.mark.parametrize(
    ("known", "stated", "found"),
    [
        ({"metadata_mpp": (0.25, 0.25), "tag_mpp": (1, 1), "power": 20}, 0.3, (0.3, "--slide-mpp")),
        ({"metadata_mpp": (0.25, 0.252), "tag_mpp": (1, 1), "power": 20}, None, (0.251, "metadata")),
        ({"metadata_mpp": (0, 0), "tag_mpp": (0.5, 0.5), "power": 40}, None, (0.5, "TIFF resolution tag")),
        ({"metadata_mpp": (float("inf"),) * 2, "tag_mpp": (352.8, 352.8), "power": 40}, None, (0.25, "objective power")),
        ({"power": 20}, None, (0.5, "objective power")),
        ({"tag_mpp": (0.05, 0.05)}, None, (0.05, "TIFF resolution tag")),
        ({"tag_mpp": (20.0, 20.0)}, None, (20.0, "TIFF resolution tag")),
    ],
)
def test_the_resolution_and_its_source(known, stated, found):
    assert find_mpp(facts(**known), stated, "a.svs") == pytest.approx(found)


@pytest.mark.parametrize(
    "known",
    [{}, {"metadata_mpp": (0.0, 0.0)}, {"tag_mpp": (352.8, 352.8)}, {"metadata_mpp": (float("nan"), 0.5)}, {"power": 0}, {"power": 1e9},
     {"metadata_mpp": (0.25, 0.5)}, {"tag_mpp": (0.049, 0.049)}],
)  # fmt: skip
def test_a_slide_without_a_sane_resolution_is_refused_with_the_option(known, refused):
    with refused(UnknownResolution, "--slide-mpp"):
        find_mpp(facts(**known), None, "a.svs")
    assert find_mpp(facts(**known), 0.5, "a.svs")[0] == 0.5


@pytest.mark.parametrize("stated", [0, -1, float("nan"), float("inf"), 0.04, 21])
def test_an_absurd_statement_is_refused(stated, write_slide, drawn, refused):
    with refused(UsageError, "40x"):
        open_slide(write_slide(drawn), mpp=stated)


def test_a_slide_is_known_by_its_contents(write_slide, drawn, tmp_path):
    kinds = {}
    for style in ("generic", "aperio", "ome"):
        with open_slide(write_slide(drawn, style, name=f"{style}.png")) as slide:
            kinds[style] = (slide.reader, slide.vendor, slide.mpp, slide.mpp_source, slide.power)
    assert kinds == {
        "generic": ("openslide", "generic-tiff", pytest.approx(0.5), "TIFF resolution tag", None),
        "aperio": ("openslide", "aperio", 0.499, "metadata", 20),
        "ome": ("tiffslide", "ome-tiff", 0.5, "metadata", None),
    }


@pytest.mark.parametrize(
    ("options", "reader"),
    [
        ({"tile": None, "ratios": (1,)}, "pillow"),  # strips, one page: an image
        ({"tile": None, "ratios": (1,), "style": "ome"}, "tiffslide"),  # OME
        ({"tile": None, "ratios": (1, 2, 4)}, "tiffslide"),  # strips, but a pyramid
        ({"tile": None, "ratios": (1, 32)}, "pillow"),  # strips and a preview
        ({"ratios": (1,)}, "openslide"),  # tiles
    ],
)
def test_what_is_a_slide_and_what_is_an_image(options, reader, write_slide, drawn):
    with open_slide(write_slide(drawn, **options), image_mpp=0.25) as slide:
        assert slide.reader == reader
        assert slide.mpp == pytest.approx(0.25 if reader == "pillow" else 0.5)
        assert (slide.read(0, 0, 603, 517) == drawn).all()


def test_grey_and_jpeg_are_read_by_the_fallback(write_slide, drawn):
    path = write_slide(drawn, "ome", (1,), compression="jpeg", compressionargs={"level": 95})
    with open_slide(path) as slide:
        assert np.abs(slide.read(0, 0, 603, 517).astype(int) - drawn).mean() < 12  # colours in the wrong order would give 50
    with tifffile.TiffWriter(path, ome=True) as file:
        file.write(drawn[..., 0], tile=(128, 128), photometric="minisblack")
    with open_slide(path, mpp=0.5) as slide:
        assert (slide.read(0, 0, 603, 517) == drawn[..., :1]).all()


def test_an_image_needs_somebody_to_say_its_resolution(tmp_path, refused):
    Image.new("RGB", (10, 10)).save(tmp_path / "a.png", dpi=(72, 72))
    with refused(UnknownResolution, "--slide-mpp"):
        open_slide(tmp_path / "a.png")
    with open_slide(tmp_path / "a.png", mpp=0.4, image_mpp=0.25) as slide:
        assert (slide.mpp, slide.mpp_source) == (0.4, "--slide-mpp")


def test_without_the_libraries_images_work_and_slides_say_what_to_install(write_slide, drawn, tmp_path, monkeypatch, refused):
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    Image.fromarray(drawn).save(tmp_path / "a.tif")
    with open_slide(tmp_path / "a.tif", image_mpp=0.5) as slide:
        assert slide.reader == "pillow"
    os.rename(tmp_path / "a.tif", tmp_path / "a.mrxs")
    for path in (write_slide(drawn), tmp_path / "a.mrxs"):
        with refused(MissingLibraries, "pip install 'dsfcnn[wsi]'"):
            open_slide(path, image_mpp=0.5)


@pytest.mark.parametrize("name", ["a.mrxs", "a.MRXS"])
def test_a_mirax_slide_without_its_folder_is_no_image(name, drawn, tmp_path, refused):
    Image.fromarray(drawn).save(tmp_path / name, "JPEG")
    with refused(DataError, "put a beside it"):
        open_slide(tmp_path / name, image_mpp=0.5)


def test_an_ome_tiff_whose_slide_is_not_its_first_picture_is_refused(drawn, tmp_path, refused):
    """tiffslide would show the label for the slide."""
    path = tmp_path / "a.ome.tif"
    with tifffile.TiffWriter(path, ome=True) as file:
        file.write(drawn[::4, ::4], photometric="rgb", tile=(128, 128))
        file.write(drawn, photometric="rgb", tile=(128, 128))
    with refused(DataError, "save the slide alone"):
        open_slide(path, mpp=0.5)
    with tifffile.TiffWriter(path, ome=True) as file:
        file.write(drawn, photometric="rgb", tile=(128, 128))
        file.write(drawn[::4, ::4], photometric="rgb", tile=(128, 128))
    with open_slide(path, mpp=0.5) as slide:
        assert (slide.read(0, 0, 603, 517) == drawn).all()


def write_pages(path, *pages):
    """A tiled TIFF of pictures, each with what it says that it is: 0 a picture, 1 a smaller one, 2 one of several, 4 a mask."""
    with tifffile.TiffWriter(path) as file:
        for page, kind in pages:
            photometric = "rgb" if page.ndim == 3 else "mask"
            file.write(page, subfiletype=kind, photometric=photometric, tile=(128, 128), compression="deflate", metadata=None)


def test_a_stack_of_pictures_is_no_slide(drawn, tmp_path, refused):
    for kind in (0, 2):
        write_pages(tmp_path / "a.tif", *[(drawn, kind)] * 3)
        with pytest.raises(DataError, match="holds 3 pictures"):
            open_slide(tmp_path / "a.tif", mpp=0.5)
    for others in ([(drawn, 1)], [(drawn[..., 0] > 99, 4)], [(drawn[::2, ::2], 1), (drawn[::4, ::4], 1)], [(drawn[::2, ::2], 0)]):
        write_pages(tmp_path / "a.tif", (drawn, 0), *others)
        with open_slide(tmp_path / "a.tif", mpp=0.5) as slide:
            assert (slide.read(0, 0, 603, 517) == drawn).all()


def test_a_unit_may_be_written_as_xml_wants_it():
    for unit in ("&#181;m", "&#xB5;m", "&#956;m", "µm"):
        axes = " ".join(f'PhysicalSize{axis}="0.25" PhysicalSize{axis}Unit="{unit}"' for axis in "XY")
        assert ome_mpp(f"<OME><Pixels {axes}/></OME>") == (0.25, 0.25)


@pytest.mark.parametrize("dtype", [np.uint16, np.float32, np.int8])
@pytest.mark.parametrize("style", ["generic", "ome"])
def test_more_than_8_bits_are_refused(dtype, style, write_slide, drawn, refused):
    with refused(DataError, "8-bit"):
        open_slide(write_slide(drawn.astype(dtype), style, (1,)))


def test_cmyk_and_separate_channels_are_refused(write_slide, drawn, tmp_path, refused):
    cmyk = np.concatenate([drawn, drawn[..., :1]], 2)
    with refused(DataError, "RGB"):
        open_slide(write_slide(cmyk, "generic", (1,), photometric="separated"))
    for options in ({"photometric": "minisblack"}, {"photometric": "rgb", "planarconfig": "separate"}):
        with tifffile.TiffWriter(tmp_path / "a.tif", ome=True) as file:
            file.write(drawn.transpose(2, 0, 1), tile=(128, 128), metadata={"axes": "CYX"}, **options)
        with refused(DataError, "RGB"):
            open_slide(tmp_path / "a.tif", mpp=0.5)


@pytest.mark.parametrize("kind", ["unassalpha", "assocalpha"])
def test_what_is_transparent_in_a_tiled_tiff_is_white(kind, drawn, tmp_path):
    inner = np.s_[20:180, 10:190]
    picture = np.zeros((200, 200, 4), np.uint8)
    picture[(*inner, np.s_[:3])], picture[(*inner, 3)] = drawn[inner], 255
    tifffile.imwrite(tmp_path / "a.tif", picture, tile=(64, 64), photometric="rgb", extrasamples=[kind])
    wanted = np.full((200, 200, 3), 255, np.uint8)
    wanted[inner] = drawn[inner]
    with open_slide(tmp_path / "a.tif", mpp=0.5) as slide:
        assert slide.reader == "openslide"
        assert (slide.read(0, 0, 200, 200) == wanted).all()


def test_strips_that_cannot_be_read_in_parts_are_refused(tmp_path, refused):
    """An OME-TIFF of one strip of 10^8 pixels that holds nothing."""
    tifffile.imwrite(tmp_path / "a.ome.tif", shape=(10_000, 10_000, 3), dtype=np.uint8, photometric="rgb")
    with refused(DataError, "tiled"):
        open_slide(tmp_path / "a.ome.tif", mpp=0.5)


def damage(path, number, kind):
    """Make one tile of level 0 nonsense, or leave it out as sparse files do."""
    content = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        start, length = page.dataoffsets[number], page.databytecounts[number]
        tags = [page.tags["TileOffsets"], page.tags["TileByteCounts"]]
        if kind == "nonsense":
            content[start : start + length] = b"\x01" * length
        for tag in tags if kind == "sparse" else []:
            assert tag.dtype == tifffile.DATATYPE.LONG
            struct.pack_into("<I", content, tag.valueoffset + 4 * number, 0)
        if kind == "outside":
            struct.pack_into("<I", content, tags[0].valueoffset + 4 * number, len(content) + 1000)
    path.write_bytes(content)


@pytest.mark.parametrize("style", ["generic", "aperio", "ome"])
@pytest.mark.parametrize("kind", ["nonsense", "sparse", "outside"])
def test_a_damaged_tile_is_named_and_the_rest_is_read(style, kind, write_slide, drawn):
    path = write_slide(drawn, style)
    damage(path, 6, kind)  # five tiles in a row: the tile at (128, 128)
    with open_slide(path) as slide:
        for _ in range(2):  # again after the error
            assert (slide.read(0, 0, 600, 128) == drawn[:128, :600]).all()
            assert (slide.read(256, 128, 300, 300) == drawn[128:428, 256:556]).all()
            with pytest.raises(UnreadableRegion) as caught:
                slide.read(100, 100, 100, 100)
            assert caught.value.exit_code == 65
            x, y, width, height = caught.value.region
            assert x < 256 and x + width > 128 and y < 256 and y + height > 128  # noqa: PT018


def truncate(content):
    return content[: len(content) // 2]


def set_tag(number, value, count=None):
    """Change a value of the first directory of a little-endian classic TIFF."""

    def change(content):
        (place,) = struct.unpack_from("<I", content, 4)
        (tags,) = struct.unpack_from("<H", content, place)
        for entry in range(place + 2, place + 2 + 12 * tags, 12):
            if struct.unpack_from("<H", content, entry)[0] == number:
                if count is not None:
                    struct.pack_into("<I", content, entry + 4, count)
                if value is not None:
                    struct.pack_into("<HII", content, entry + 2, 4, 1 if count is None else count, value)
                return content
        raise AssertionError(f"no tag {number}")

    return change


def loop(content):
    (place,) = struct.unpack_from("<I", content, 4)
    (tags,) = struct.unpack_from("<H", content, place)
    struct.pack_into("<I", content, place + 2 + 12 * tags, place)
    return content


def chain_outside(content):
    (place,) = struct.unpack_from("<I", content, 4)
    (tags,) = struct.unpack_from("<H", content, place)
    struct.pack_into("<I", content, place + 2 + 12 * tags, 0xFFFFFFF0)
    return content


def first_outside(content):
    struct.pack_into("<I", content, 4, 0xFFFFFFF0)
    return content


def many_tags(content):
    (place,) = struct.unpack_from("<I", content, 4)
    struct.pack_into("<H", content, place, 0xFFFF)
    return content


LIES = {
    "truncate": truncate,
    "loop": loop,
    "chain outside": chain_outside,
    "first outside": first_outside,
    "no directory": lambda content: content[:4] + bytes(4) + content[8:],
    "many tags": many_tags,
    "wide": set_tag(256, 2**31 - 1),
    "high": set_tag(257, 2**32 - 1),
    "nothing wide": set_tag(256, 0),
    "wide tiles": set_tag(322, 2**31),
    "no tiles": set_tag(322, 0),
    "many offsets": set_tag(324, None, count=2**32 - 1),
    "offsets outside": set_tag(324, 2**32 - 16, count=25),
    "header only": lambda content: content[:8],
    "half a header": lambda content: content[:6],
    "big header only": lambda content: b"II+\0\x08\0\0\0",
}


@pytest.mark.parametrize("style", ["generic", "aperio", "ome"])
def test_lying_directories_are_refused_at_once_and_without_memory(style, write_slide, drawn, tmp_path):
    """In one process for all of them, whose peak memory is measured and whose time is limited to 5 s each."""
    content = write_slide(drawn, style).read_bytes()
    (tmp_path / "lies").mkdir()
    for name, lie in LIES.items():
        (tmp_path / "lies" / name).write_bytes(lie(bytearray(content)))
    code = """
import resource, signal, sys
from dsfcnn.errors import DataError
from dsfcnn.slides import open_slide
open_slide(sys.argv[1], mpp=0.5).close()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[2:]:
    signal.alarm(5)
    try:
        open_slide(path, mpp=0.5)
        sys.exit("taken: " + path)
    except DataError:
        pass
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    lies = sorted((tmp_path / "lies").iterdir())
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "slide.tif", *lies], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert float(done.stdout) < 60  # MB


@pytest.mark.parametrize("style", ["generic", "aperio", "ome"])
def test_a_mutated_slide_gives_our_errors_or_pixels(style, write_slide, drawn, tmp_path):
    """Bits flipped, most of them in the directories, and cut ends."""
    content = write_slide(drawn[:200, :260], style, (1, 2)).read_bytes()
    with tifffile.TiffFile(tmp_path / "slide.tif") as file:
        directories = [page.offset for page in file.pages]
    rng = random.Random(7)
    opened = 0
    for turn in range(50):
        damaged = bytearray(content)
        if turn % 10 == 9:
            damaged = damaged[: rng.randrange(len(content))]
        else:
            for _ in range(rng.choice([1, 1, 4])):
                place = rng.choice([rng.choice(directories) + rng.randrange(260), rng.randrange(len(content)), rng.randrange(16)])
                damaged[place % len(content)] ^= 1 << rng.randrange(8)
        (tmp_path / "damaged").write_bytes(damaged)
        try:
            with open_slide(tmp_path / "damaged", mpp=0.5) as slide:
                opened += 1
                assert slide.read(0, 0, 200, 150, 0.7).shape == (150, 200, 3)
        except DsfcnnError as error:
            assert error.exit_code == 65, error  # noqa: PT017
    assert 0 < opened < 50


@pytest.mark.parametrize("kind", ["fifo", "loop", "folder", "missing"])
def test_what_is_no_file_is_missing(kind, tmp_path, refused):
    path = tmp_path / "a.svs"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    with refused(MissingInputError, ""):
        open_slide(path, mpp=0.5)


@pytest.mark.parametrize(
    "content", [b"hello world" * 100, b"ZISRAWFILE" + bytes(600), bytes(128) + b"DICM" + bytes(600), b"SQLite format 3\0"]
)
def test_what_is_neither_slide_nor_image_is_refused(content, tmp_path, refused):
    (tmp_path / "a.czi").write_bytes(content)
    with refused(DataError, ""):
        open_slide(tmp_path / "a.czi", mpp=0.5)


def test_odd_names_work(write_slide, drawn):
    for style in ("generic", "ome"):
        for name in ("a b.tif", "a'\"\n.tif", "-x.tif", "http:::x::y.tif", "ü" * 90, "\udcff.tif"):
            with open_slide(write_slide(drawn, style, name=name)) as slide:
                assert slide.width == 603, name


def test_label_macro_and_texts_stay_closed(write_slide, drawn, monkeypatch, tmp_path):
    def opened(self):
        raise AssertionError("an associated image was asked for")

    monkeypatch.setattr(openslide.OpenSlide, "associated_images", property(opened))
    monkeypatch.setattr(tiffslide.TiffSlide, "associated_images", property(opened))
    from dsfcnn.slides import find_tissue
    from dsfcnn.slides.tiff import read_pages
    from dsfcnn.slides.tiffslide import TiffSlideReader

    path = write_slide(drawn, "aperio")
    with open_slide(path) as slide:
        slide.read(0, 0, 100, 100, 1.0)
        find_tissue(slide)
        assert len(slide.levels) == 3, "a label or macro image was taken for a level"
        kept = [repr(slide._reader.facts)]
    with path.open("rb") as stream:
        reader = TiffSlideReader(path, read_pages(stream)[0])
        kept.append(repr(reader.facts))
        assert len(reader.facts.levels) == 3
        assert (reader.facts.metadata_mpp, reader.facts.power) == ((0.499, 0.499), 20)
        reader.close()
    assert "Mrs" not in "".join(kept)
    assert "SECRET" not in "".join(kept)
    assert "Image Library" not in "".join(kept)


def test_files_that_an_ome_header_names_are_not_opened(write_slide, drawn, tmp_path):
    path = write_slide(drawn, "ome", (1,))
    other = tmp_path / "b.tif"
    os.mkfifo(other)  # whoever opened it would wait for ever
    with tifffile.TiffFile(path) as file:
        text = file.pages[0].description
        place = file.pages[0].tags["ImageDescription"]
        lie = text.replace("<TiffData", '<TiffData FirstZ="1" IFD="0"><UUID FileName="b.tif">urn:uuid:0</UUID></TiffData><TiffData')
        lie = lie.replace('SizeZ="1"', 'SizeZ="2"').encode()
        content = bytearray(path.read_bytes())
        struct.pack_into("<II", content, place.offset + 4, len(lie) + 1, len(content))
    path.write_bytes(bytes(content) + lie + b"\0")
    try:
        open_slide(path, mpp=0.5).close()
    except DsfcnnError as error:
        assert error.exit_code == 65  # noqa: PT017


def test_an_enormous_slide_opens_and_is_read_in_parts(same_tile_tiff):
    path = same_tile_tiff([(100_000 >> k, 100_000 >> k) for k in range(8)], WHITE)
    assert path.stat().st_size < 5e6
    with open_slide(path) as slide:
        assert (slide.width, slide.height, slide.mpp) == (100_000, 100_000, pytest.approx(0.25))
        assert (slide.read(99_000, 99_000, 256, 256, 0.5) == 255).all()
        assert slide.read(0, 0, 200, 200, 125.0).shape == (200, 200, 3)
