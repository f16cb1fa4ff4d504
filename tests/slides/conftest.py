"""Slides drawn for the tests: pyramids of a known picture in the formats that scanners and programs write."""

import struct

import numpy as np
import pytest
import tifffile
from scipy import ndimage

APERIO = "Aperio Image Library v11.2.1 \n{width}x{height} (128x128)|AppMag = 20|MPP = 0.4990|User = Mrs Patient|ScanScope ID = SECRET"
OME = {"axes": "YXS", "PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.5, "PhysicalSizeYUnit": "µm"}


def smaller(picture, ratio):
    """The mean of squares, with what does not fill a square left away, as scanners do it."""
    height, width = (side // ratio for side in picture.shape[:2])
    squares = picture[: height * ratio, : width * ratio].reshape(height, ratio, width, ratio, -1)
    return squares.mean((1, 3)).round().astype(np.uint8)


@pytest.fixture
def write_slide(tmp_path):
    """Write a pyramid of a picture as style "generic", "aperio" or "ome"; returns its path."""

    def write(picture, style="generic", ratios=(1, 2, 4), name="slide.tif", mpp=0.5, compression="deflate", **options):
        path = tmp_path / name
        options = {"tile": (128, 128), "photometric": "rgb", "compression": compression, **options}
        levels = [picture if ratio == 1 else smaller(picture, ratio) for ratio in ratios]
        with tifffile.TiffWriter(path, bigtiff=False, ome=style == "ome") as file:
            if style == "ome":
                file.write(levels[0], subifds=len(levels) - 1, metadata=OME, **options)
                for level in levels[1:]:
                    file.write(level, subfiletype=1, metadata=None, **options)
                return path
            for ratio, level in zip(ratios, levels):
                if mpp is not None:
                    options |= {"resolution": (10_000 / mpp / ratio,) * 2, "resolutionunit": "CENTIMETER"}
                if style == "aperio":
                    options["description"] = APERIO.format(width=picture.shape[1], height=picture.shape[0])
                file.write(level, subfiletype=int(ratio > 1 and style != "aperio"), metadata=None, **options)
                if style == "aperio" and ratio == 1:
                    file.write(smaller(picture, 8), photometric="rgb", metadata=None, rowsperstrip=16, description="Aperio thumbnail")
            if style == "aperio":
                label = {"photometric": "rgb", "metadata": None, "rowsperstrip": 40}
                file.write(np.full((40, 50, 3), 7, np.uint8), description="Aperio label\nlabel 50x40", subfiletype=1, **label)
                file.write(np.full((40, 60, 3), 9, np.uint8), description="Aperio macro\nmacro 60x40", subfiletype=9, **label)
        return path

    return write


@pytest.fixture(scope="session")
def drawn():
    """A picture of blobs with sharp edges and fine grain, of odd size so that pyramids do not fit exactly."""
    rng = np.random.default_rng(5)
    blobs = ndimage.gaussian_filter(rng.normal(size=(517, 603, 3)), (6, 6, 0)) * 900 + 150
    return np.clip(blobs + rng.normal(size=blobs.shape) * 12, 0, 255).astype(np.uint8)


@pytest.fixture
def same_tile_tiff(tmp_path):
    """A TIFF of any size that costs nothing: every tile of a level is the same bytes in the file."""

    def write(levels, tile_bytes, side=256, name="large.tif", mpp=0.25):
        content = bytearray(b"II+\0\x08\0\0\0" + struct.pack("<Q", 0))
        tile = len(content)
        content += tile_bytes + b"\0" * (-len(tile_bytes) % 8)
        link = 8
        for number, (width, height) in enumerate(levels):
            tiles = -(-width // side) * -(-height // side)
            offsets = len(content)
            content += struct.pack("<Q", tile) * tiles
            counts = len(content)
            content += struct.pack("<Q", len(tile_bytes)) * tiles
            resolution = struct.pack("<II", round(10_000_000 / mpp / 2**number), 1000)
            one = struct.Struct("<Q").pack
            entries = [
                (254, 4, 1, one(int(number > 0))), (256, 4, 1, one(width)), (257, 4, 1, one(height)),
                (258, 3, 3, struct.pack("<4H", 8, 8, 8, 0)), (259, 3, 1, one(8)), (262, 3, 1, one(2)), (277, 3, 1, one(3)),
                (282, 5, 1, resolution), (283, 5, 1, resolution), (284, 3, 1, one(1)), (296, 3, 1, one(3)),
                (322, 3, 1, one(side)), (323, 3, 1, one(side)), (324, 16, tiles, one(offsets)), (325, 16, tiles, one(counts)),
            ]  # fmt: skip
            struct.pack_into("<Q", content, link, len(content))
            content += struct.pack("<Q", len(entries)) + b"".join(struct.pack("<HHQ", *entry[:3]) + entry[3] for entry in entries)
            link = len(content)
            content += struct.pack("<Q", 0)
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write
