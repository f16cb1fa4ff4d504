"""Slides beside QuPath's GeoJSON: regions and their objects, at the resolution that is asked for."""

import gzip
import json
import pickle

import numpy as np
import pytest
import tifffile

from dsfcnn.data import Crops, load_batches, open_dataset, splits
from dsfcnn.data.annotated import find_regions, read_shapes, split_folder
from dsfcnn.data.check import check_dataset
from dsfcnn.data.open import recognise
from dsfcnn.data.split import write_split
from dsfcnn.data.synthetic.slide import SlideScene, write_slide
from dsfcnn.errors import DataError, UsageError


def box(left, top, right, bottom):
    return [[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]


def feature(*rings, kind="detection", name=None, **more):
    properties = {"objectType": kind, **({"classification": {"name": name, "color": [1, 2, 3]}} if name else {})}
    return {"type": "Feature", "id": "x", "geometry": {"type": "Polygon", "coordinates": list(rings)}, "properties": properties, **more}


REGION = feature(box(100, 80, 500, 380), kind="annotation", name="Region 1")
NUCLEUS = feature(box(120, 100, 160, 130), name="Nucleus")
CUT_OFF = feature(box(480, 300, 560, 340), name="Nucleus")
OUTSIDE = feature(box(600, 300, 640, 340), name="Nucleus")


@pytest.fixture(scope="module")
def slide(tmp_path_factory):
    path = tmp_path_factory.mktemp("slide") / "a.tif"
    write_slide(path, SlideScene(900, 700, mpp=0.25, tissue=1.0))
    return path


@pytest.fixture
def folder(slide, tmp_path):
    (tmp_path / "a.tif").symlink_to(slide)
    return tmp_path


def annotate(folder, *features, name="a.geojson"):
    content = json.dumps({"type": "FeatureCollection", "features": list(features)}).encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


@pytest.mark.parametrize("name", ["a.geojson", "a.geojson.gz"])
def test_a_region_with_objects(folder, name):
    annotate(folder, REGION, NUCLEUS, CUT_OFF, OUTSIDE, name=name)
    assert recognise(folder) == "slides"
    assert splits(folder) == ["all"]
    data = open_dataset(folder, "all", mpp=0.25)
    (sample,) = data
    assert sample.image.shape == (300, 400, 3)
    assert sample.instances.max() == 2
    assert (sample.instances[20:50, 20:60] == 1).all()
    assert (sample.instances == 1).sum() == 30 * 40
    assert (sample.instances[220:260, 380:] == 2).all()
    assert (sample.instances == 2).sum() == 40 * 20  # cut off at the region's edge
    direct = SlideScene(900, 700, mpp=0.25, tissue=1.0).draw(100, 80, 400, 300)[0]
    assert np.abs(sample.image.astype(int) - direct).mean() < 6  # JPEG lies between them


def test_an_object_under_another_leaves_no_gap_in_the_ids(folder):
    annotate(folder, REGION, NUCLEUS, feature(box(115, 95, 165, 135)), CUT_OFF)
    (sample,) = open_dataset(folder, "all", mpp=0.25)
    assert np.unique(sample.instances).tolist() == [0, 1, 2]
    assert sample.instances[30, 30] == 1


def test_another_resolution(folder):
    annotate(folder, REGION, NUCLEUS)
    data = open_dataset(folder, "all", mpp=0.5)
    assert data[0].image.shape == (150, 200, 3)
    assert (data[0].instances > 0).sum() == 30 * 40 // 4
    assert (data[0].instances[10:25, 10:30] == 1).all()
    assert data[0].mpp == 0.5


def test_regions_by_the_rule(tmp_path):
    rectangle = feature(box(0, 0, 50, 50), kind="annotation")
    empty = feature(box(200, 200, 250, 250), kind="annotation")
    tilted = feature([[100, 100], [150, 110], [140, 160], [90, 150], [100, 100]], kind="annotation")
    inner = feature(box(10, 10, 20, 20))
    classed = feature(box(300, 300, 350, 350), kind="annotation", name="Gland")
    named = feature(box(400, 400, 450, 450), kind="annotation", name="region*")
    annotate(tmp_path, rectangle, empty, tilted, inner, classed, named)
    regions, objects = find_regions(read_shapes(tmp_path / "a.geojson"))
    assert sorted(shape.box()[0] for shape in regions) == [0, 400]
    assert sorted(shape.box()[0] for shape in objects) == [10, 90, 200, 300]


def test_cells_give_their_nucleus_and_bounds_are_added(tmp_path):
    cell = feature(box(0, 0, 50, 50), kind="cell", nucleusGeometry={"type": "Polygon", "coordinates": [box(10, 10, 20, 20)]})
    point = {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}, "properties": {}}
    annotate(tmp_path, cell, point)
    (shape,) = read_shapes(tmp_path / "a.geojson", (1000, 2000))
    assert shape.box() == (1010, 2010, 1020, 2020)


def test_a_region_that_is_no_rectangle_is_white_outside(folder):
    triangle = feature([[100, 80], [400, 80], [100, 380], [100, 80]], kind="annotation", name="Region")
    annotate(folder, triangle, feature(box(100, 80, 400, 380)))
    (sample,) = open_dataset(folder, "all", mpp=0.25)
    assert (sample.image[-50:, -50:] == 255).all()
    assert sample.image[:50, :50].mean() < 250
    assert (sample.instances > 0).mean() == pytest.approx(0.5, abs=0.01)
    assert sample.instances[-1, -1] == 0


@pytest.mark.parametrize("place", [(900, 0, 1000, 100), (0, 700, 100, 800), (-100, 0, 0, 100), (5000, -80, 6000, -10)])
def test_a_region_outside_the_slide_is_no_image(place, folder, refused):
    annotate(folder, feature(box(*place), kind="annotation", name="Region"), NUCLEUS)
    with refused(DataError, "annotations of this slide"):
        open_dataset(folder, "all", mpp=0.25)


def test_a_region_ends_where_the_slide_ends(folder):
    annotate(folder, feature(box(800, -50, 1e9, 40), kind="annotation", name="Region"), feature(box(880, 10, 920, 20), name="Nucleus"))
    (sample,) = open_dataset(folder, "all", mpp=0.25)
    assert sample.image.shape == (40, 100, 3)
    assert (sample.instances[10:20, 80:] == 1).all()


def test_large_regions_come_in_parts(folder, monkeypatch):
    monkeypatch.setattr("dsfcnn.data.annotated._PART", 256)
    annotate(folder, REGION, NUCLEUS, CUT_OFF)
    data = open_dataset(folder, "all", mpp=0.25)
    assert [data[i].image.shape[:2] for i in range(len(data))] == 4 * [(150, 200)], "no slivers"
    monkeypatch.setattr("dsfcnn.data.annotated._PART", 2048)
    (whole,) = open_dataset(folder, "all", mpp=0.25)
    assert (np.hstack([data[0].image, data[1].image]) == whole.image[:150]).all()
    assert sum((data[i].instances > 0).sum() for i in range(4)) == (whole.instances > 0).sum()


def test_regions_are_read_in_workers(folder):
    annotate(folder, REGION, NUCLEUS)
    data = open_dataset(folder, "all", mpp=0.25)
    first = data[0]
    (batch,) = load_batches(Crops(data, 64, 0.25), 2, range(1), workers=1)
    assert batch[0].image.tobytes() == Crops(data, 64, 0.25).draw(0, 0).image.tobytes()
    assert (pickle.loads(pickle.dumps(data))[0].image == first.image).all()


def test_splits_by_folder_and_by_slide(slide, tmp_path):
    for split in ("train", "test"):
        (tmp_path / "named" / split).mkdir(parents=True)
        (tmp_path / "named" / split / "a.tif").symlink_to(slide)
        annotate(tmp_path / "named" / split, REGION)
    assert splits(tmp_path / "named") == ["train", "test"]
    assert len(open_dataset(tmp_path / "named", "test", mpp=0.5)) == 1
    (tmp_path / "flat").mkdir()
    for stem in "abcd":
        (tmp_path / "flat" / f"{stem}.tif").symlink_to(slide)
        annotate(tmp_path / "flat", REGION, REGION, name=f"{stem}.geojson")
    write_split(tmp_path / "split.csv", split_folder(tmp_path / "flat", valid=0.25, test=0.25))
    sizes = {s: len(open_dataset(tmp_path / "flat", s, mpp=1, split_file=tmp_path / "split.csv")) for s in ("train", "valid", "test")}
    assert sizes == {"train": 4, "valid": 2, "test": 2}  # two regions in each slide
    with pytest.raises(UsageError, match="leave the split file away"):
        open_dataset(tmp_path / "named", "train", mpp=1, split_file=tmp_path / "split.csv")
    write_split(tmp_path / "split.csv", {"a.tif": "train", "moved.tif": "train"})
    with pytest.raises(DataError, match=r"names 'moved\.tif', which is not here"):
        open_dataset(tmp_path / "flat", "train", mpp=1, split_file=tmp_path / "split.csv")


def test_a_slide_without_resolution_is_taken_at_the_one_given(tmp_path):
    picture = SlideScene(900, 700, mpp=0.5, tissue=1.0).draw(0, 0, 900, 700)[0]
    tifffile.imwrite(tmp_path / "a.tif", picture, tile=(256, 256), photometric="rgb")
    annotate(tmp_path, REGION, NUCLEUS)
    (sample,) = data = open_dataset(tmp_path, "all", mpp=0.5)
    assert (sample.image == picture[80:380, 100:500]).all()  # its own pixels: nothing was resampled
    assert sample.mpp == 0.5
    assert data.notes == ("a.tif: does not say how large a pixel is; taken as 0.5 microns",)
    assert (pickle.loads(pickle.dumps(data))[0].image == sample.image).all()
    report, _ = check_dataset(tmp_path, mpp=0.5)
    assert report.splits[0].notes == list(data.notes)
    assert report.problems == []


def test_a_slide_with_a_resolution_needs_no_note(folder):
    annotate(folder, REGION)
    assert open_dataset(folder, "all", mpp=0.5).notes == ()


def test_mistakes(folder, refused):
    annotate(folder, REGION)
    with refused(UsageError, "mpp"):
        open_dataset(folder, "all")
    annotate(folder, NUCLEUS)
    with pytest.raises(DataError, match="no region"):
        open_dataset(folder, "all", mpp=0.5)
    annotate(folder, REGION, name="b.geojson")
    annotate(folder, REGION)
    with pytest.raises(DataError, match=r"b\.geojson: annotations without a slide"):
        open_dataset(folder, "all", mpp=0.5)
    annotate(folder, REGION, name="a.geojson.gz")
    with pytest.raises(DataError, match=r"a\.geojson\.gz: its slide has other annotations too"):
        open_dataset(folder, "all", mpp=0.5)
    (folder / "a.geojson.gz").unlink()
    (folder / "b.svs").write_bytes(b"not a slide")
    with pytest.raises(DataError, match=r"b\.svs"):
        open_dataset(folder, "all", mpp=0.5)


NO_FEATURES = [b"", b"{", b"[1]", b"3", b'{"features": [{}]}', b'{"features": 3}', b"\xff\xfe", b"[" * 100_000]


def test_what_is_no_object_is_left_out(tmp_path):
    """As QuPath writes them: cores of a tissue array, what is to be ignored, and features whose geometry was lost."""
    nothing = {**NUCLEUS, "geometry": None}, feature(name="Nucleus")
    annotate(tmp_path, NUCLEUS, feature(box(0, 0, 900, 900), kind="tma_core"), feature(box(0, 0, 50, 50), name="Ignore*"), *nothing)
    (shape,) = read_shapes(tmp_path / "a.geojson")
    assert shape.class_name == "Nucleus"


@pytest.mark.parametrize("content", NO_FEATURES, ids=range(8))
def test_damaged_annotations(content, tmp_path, refused):
    (tmp_path / "a.geojson").write_bytes(content)
    with refused(DataError, "export"):
        read_shapes(tmp_path / "a.geojson")


@pytest.mark.parametrize("ring", [[], [[]], [[1], [2], [3]], [[0, 0], [1, 1]], [[0, 0], [1, 1], [float("inf"), 2]], [1, 2, 3]], ids=str)
def test_places_that_make_no_polygon(ring, tmp_path, refused):
    (tmp_path / "a.geojson").write_text(json.dumps(feature(ring)))
    with refused(DataError, "export"):
        read_shapes(tmp_path / "a.geojson")


@pytest.mark.parametrize("name", [5, True, ["Nucleus"], {"en": "Nucleus"}], ids=str)
def test_names_of_classes_are_texts(name, tmp_path, refused):
    (tmp_path / "a.geojson").write_text(json.dumps(feature(box(0, 0, 9, 9), name=name)))
    with refused(DataError, "export"):
        read_shapes(tmp_path / "a.geojson")


def test_classes_derived_from_others(folder):
    """QuPath writes "Region*: first" as a list of names."""

    def derived(shape, *names):
        return {**shape, "properties": {**shape["properties"], "classification": {"names": list(names), "color": [1, 2, 3]}}}

    annotate(folder, derived(REGION, "Region*", "first"), NUCLEUS, derived(CUT_OFF, "Ignore*", "Fold"))
    (sample,) = open_dataset(folder, "all", mpp=0.25)
    assert sample.instances.max() == 1


@pytest.mark.parametrize("name", ["a.GeoJSON", "a.tif.geojson"])
def test_what_lies_beside_a_slide_is_no_other_slide(name, folder):
    annotate(folder, REGION, NUCLEUS, name=name)
    for beside in ("a.xml", "a.qpdata"):
        (folder / beside).write_text("its own affair")
    assert len(open_dataset(folder, "all", mpp=0.25)) == 1
