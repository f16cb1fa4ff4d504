"""Heat maps and tiles of tumour; that outputs say nothing about where they come from; that they need no extra."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
import shapely
import tifffile
from found_objects import NUCLEUS, discs, objects_of

from dsfcnn.inference.geojson import GeoJsonWriter, read_geojson
from dsfcnn.inference.heatmap import write_heatmap, write_tiles
from dsfcnn.inference.objects import Classification
from dsfcnn.inference.overlay import picture_of, write_overlay
from dsfcnn.inference.rasters import array_tiles, in_bytes, label_tiles, write_instances, write_mask, write_probability
from dsfcnn.inference.table import MeasurementsWriter
from dsfcnn.slides import find_tissue, open_slide

NORMAL, TUMOUR, STROMA = Classification("Normal", "#00ff00"), Classification("Tumour", "#c80000"), Classification("Stroma", "#0000ff")
GRID = np.array([[[0.9, 0.1], [np.nan, np.nan], [0.2, 0.8]], [[0.4, 0.6], [1.0, 0.0], [0.0, 1.0]]])


def test_a_heat_map_has_a_pixel_for_each_cell(tmp_path):
    write_heatmap(tmp_path / "a.tif", GRID[..., 1], mpp=0.97)
    with tifffile.TiffFile(tmp_path / "a.tif") as tiff:
        assert tiff.pages[0].get_resolution("micrometer")[0] == pytest.approx(1 / (32 * 0.97))
        assert tiff.asarray().tolist() == [[26, 0, 204], [153, 0, 255]]


def test_tiles_are_squares_of_32_pixels_cut_at_the_edge(tmp_path):
    scale = 0.97 / 0.25
    count = write_tiles(tmp_path / "a.geojson", GRID, [NORMAL, TUMOUR], (60, 90), slide_id="a", scale=scale, offset=(100, 50))
    features = list(read_geojson(tmp_path / "a.geojson"))
    assert count == len(features) == 5  # none where nothing was analysed
    boxes = [shapely.geometry.shape(feature["geometry"]).bounds for feature in features]
    assert boxes[0] == pytest.approx((-100, -50, 32 * scale - 100, 32 * scale - 50))
    assert boxes[-1] == pytest.approx((64 * scale - 100, 32 * scale - 50, 90 * scale - 100, 60 * scale - 50))
    assert {feature["properties"]["objectType"] for feature in features} == {"tile"}
    assert [feature["properties"]["classification"]["name"] for feature in features] == ["Normal", "Tumour", "Tumour", "Normal", "Tumour"]
    assert features[0]["properties"]["measurements"] == {"Probability Normal": 0.9, "Probability Tumour": 0.1}


def test_more_classes_than_two(tmp_path):
    grid = np.array([[[0.2, 0.3, 0.5]]])
    write_tiles(tmp_path / "a.geojson.gz", grid, [NORMAL, TUMOUR, STROMA], (32, 32), True, slide_id="a")
    (feature,) = json.loads(gzip.decompress((tmp_path / "a.geojson.gz").read_bytes()))["features"]
    assert feature["properties"]["classification"] == {"name": "Stroma", "color": [0, 0, 255]}
    assert feature["geometry"]["coordinates"] == [[[0, 0], [32, 0], [32, 32], [0, 32], [0, 0]]]


def test_nothing_says_where_it_comes_from(tmp_path):
    """Everything that prediction writes about a slide, whose path, description and id hold a patient's name."""
    folder = tmp_path / "Mrs Patient"
    folder.mkdir()
    labels, out = discs(), tmp_path / "out"
    out.mkdir()
    with tifffile.TiffWriter(folder / "SECRET slide.tif") as tiff:
        options = {"tile": (128, 128), "photometric": "rgb", "resolution": (40_000, 40_000), "resolutionunit": "CENTIMETER"}
        tiff.write(np.full((*labels.shape, 3), 180, np.uint8), description="Mrs Patient, SECRET", metadata=None, **options)
    objects = sorted(objects_of(labels), key=lambda one: one.y)
    with open_slide(folder / "SECRET slide.tif") as slide:
        geojson = GeoJsonWriter(out / "nuclei.geojson.gz", "detection", NUCLEUS, True, slide_id="SECRET slide", offset=slide.bounds)
        with geojson, MeasurementsWriter(out / "measurements.csv") as table:
            for one in objects:
                table.write(one, geojson.write(one), NUCLEUS.name)
        write_instances(out / "instances.tif", label_tiles(objects, labels.shape), labels.shape, slide.mpp)
        write_instances(out / "instances.png", label_tiles(objects, labels.shape), labels.shape, slide.mpp)
        write_probability(out / "probability.tif", array_tiles(in_bytes(labels > 0)), labels.shape, slide.mpp)
        tissue = find_tissue(slide)
        write_mask(out / "tissue_mask.png", tissue.mask, tissue.unreadable)
        picture, scale = picture_of(slide)
        write_overlay(out / "overlay.png", picture, objects, 1 / scale, NUCLEUS)
        write_tiles(out / "tumour.geojson", GRID, [NORMAL, TUMOUR], (60, 90), slide_id="SECRET slide")
    written = list(out.iterdir())
    assert len(written) == 8
    for path in written:
        content = path.read_bytes()
        content += gzip.decompress(content) if path.suffix == ".gz" else b""
        for word in (b"secret", b"patient", str(tmp_path).encode().lower(), b"slide"):
            assert word not in content.lower(), (path, word)
        if path.suffix == ".png":  # nothing but the size, the pixels and the end
            chunks, place = set(), 8
            while place < len(content):
                chunks.add(content[place + 4 : place + 8])
                place += 12 + int.from_bytes(content[place : place + 4])
            assert chunks == {b"IHDR", b"IDAT", b"IEND"}
        if path.suffix == ".tif":
            with tifffile.TiffFile(path) as tiff:
                assert not {tag.name for page in tiff.pages for tag in page.tags} & {
                    "ImageDescription",
                    "Software",
                    "DateTime",
                    "HostComputer",
                }


def test_nothing_but_shapely_polygons_needs_an_extra(tmp_path):
    code = """
import sys
for name in ("shapely", "rasterio", "openslide", "tiffslide", "imagecodecs"):
    sys.modules[name] = None
import numpy as np
from dsfcnn.inference import geojson, heatmap, objects, overlay, rasters, table
labels = np.kron(np.arange(6).reshape(2, 3), np.ones((9, 9), int))
image, kind = np.full((18, 27, 3), 200, np.uint8), objects.Classification("Nucleus", "#1f77b4")
found = list(objects.find_instances(labels, image, 0.25, labels / 10))
features = geojson.GeoJsonWriter("a.geojson", "detection", kind, slide_id="a")
with features, table.MeasurementsWriter("a.csv") as rows:
    for one in found:
        rows.write(one, features.write(one), kind.name)
assert (geojson.rasterise(geojson.read_geojson("a.geojson"), labels.shape) == labels).all()
for name in ("a.png", "a.tif"):
    rasters.write_instances(name, rasters.array_tiles(labels), labels.shape, 0.25)
heatmap.write_heatmap("heat.tif", labels / 10, 0.97)
overlay.write_overlay("overlay.png", image, found, 1.0, kind)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.iterdir())) == 6
