"""GeoJSON keeps QuPath's rules, comes back exactly, streams, and is whole or not there."""

import csv
import errno
import gzip
import json
import tracemalloc
import uuid

import numpy as np
import pytest
import shapely
from found_objects import NUCLEUS, discs, label_maps, objects_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsfcnn.data.annotated import read_shapes
from dsfcnn.errors import DataError, MissingInputError, UsageError, WriteError
from dsfcnn.inference.geojson import GeoJsonWriter, rasterise, read_geojson
from dsfcnn.inference.measure import NAMES
from dsfcnn.inference.objects import Classification, Instance
from dsfcnn.inference.table import MeasurementsWriter
from dsfcnn.tasks.instances import compact

GEOMETRIES = st.sampled_from([(1.0, (0, 0)), (2.0, (0, 0)), (0.9901, (0, 0)), (3.88, (512, 1031)), (0.25, (3, 7)), (1.0016, (0, 0))])


def write(path, objects, kind="detection", gz=False, **options):
    with GeoJsonWriter(path, kind, NUCLEUS, gz, **{"slide_id": "slide", **options}) as writer:
        for one in objects:
            writer.write(one)
    return path


@settings(deadline=None, derandomize=True, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(label_maps(), GEOMETRIES)
def test_the_instance_map_comes_back_exactly(tmp_path, labels, geometry):
    scale, offset = geometry
    path = write(tmp_path / "a.geojson", objects_of(labels), scale=scale, offset=offset)
    features = list(read_geojson(path))
    np.testing.assert_array_equal(rasterise(features, labels.shape, scale, offset), compact(labels)[0])
    for number, feature in enumerate(features, 1):
        shape = shapely.geometry.shape(feature["geometry"])
        assert shape.is_valid, shapely.is_valid_reason(shape)
        pixels = (compact(labels)[0] == number).sum()
        # Four decimals: an edge may move by 5e-5, and an object of p pixels has at most 4 p edges, each of length ``scale``.
        assert shape.area == pytest.approx(pixels * scale**2, abs=0 if scale in (1.0, 2.0) else 2e-4 * scale * pixels)


def test_a_larger_map_comes_back_from_a_packed_file(tmp_path):
    labels = discs()
    path = write(tmp_path / "a.geojson.gz", objects_of(labels), gz=True, scale=0.9901)
    np.testing.assert_array_equal(rasterise(read_geojson(path), labels.shape, 0.9901), labels)


def test_features_are_as_qupath_wants_them(tmp_path):
    content = json.loads(write(tmp_path / "a.geojson", objects_of(discs())).read_text())
    assert content["type"] == "FeatureCollection"
    kinds = set()
    for feature in content["features"]:
        assert set(feature) == {"type", "id", "geometry", "properties"}
        assert feature["type"] == "Feature"
        assert str(uuid.UUID(feature["id"])) == feature["id"]
        assert uuid.UUID(feature["id"]).version == 5
        properties = feature["properties"]
        assert set(properties) == {"objectType", "classification", "measurements"}
        assert properties["objectType"] == "detection"
        assert properties["classification"] == {"name": "Nucleus", "color": [31, 119, 180]}
        assert tuple(properties["measurements"]) == NAMES
        assert all(isinstance(value, int | float) for value in properties["measurements"].values())
        geometry = feature["geometry"]
        kinds.add(geometry["type"])
        for rings in geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]:
            for ring in rings:
                assert ring[0] == ring[-1]
                assert all(isinstance(value, int) for point in ring for value in point)  # no decimals where none are needed
    assert kinds == {"Polygon", "MultiPolygon"}
    assert len({feature["id"] for feature in content["features"]}) == len(content["features"])


def test_ids_depend_on_slide_kind_and_place_alone(tmp_path):
    def ids(objects, **options):
        return [feature["id"] for feature in read_geojson(write(tmp_path / "a.geojson", objects, **options))]

    objects = objects_of(discs())
    loose = [Instance(one.x - 2, one.y - 1, np.pad(one.mask, ((1, 3), (2, 0))), 0.1) for one in objects]  # crops cut less tightly
    assert ids(objects) == ids(objects) == ids(loose)
    assert ids(objects[::-1]) == ids(objects)[::-1]
    for other in (ids(objects, slide_id="another"), ids(objects, kind="annotation"), ids(objects_of(discs(), x=1))):
        assert not set(ids(objects)) & set(other)


@pytest.mark.parametrize("name", ["", "two\nlines", 'a"b', "-x", "Grüße", b"\xff\xfe.svs".decode("utf-8", "surrogateescape")])
def test_slides_of_any_name_have_ids(tmp_path, name):
    (feature,) = read_geojson(write(tmp_path / "a.geojson", [Instance(0, 0, np.ones((2, 2), bool), 0.5)], slide_id=name))
    assert uuid.UUID(feature["id"]).version == 5


def test_objects_around_each_other_have_ids_of_their_own(tmp_path):
    around = np.ones((3, 3), bool)
    around[1, 1] = False
    corner = np.array([[0, 1], [1, 1]], bool)
    objects = [Instance(0, 0, around, 0.5), Instance(1, 1, np.ones((1, 1), bool), 0.5), Instance(5, 5, corner, 0.5)]
    objects.append(Instance(5, 5, np.ones((1, 1), bool), 0.5))  # the same corner of the crop
    assert len({feature["id"] for feature in read_geojson(write(tmp_path / "a.geojson", objects))}) == 4


def test_an_object_may_have_a_class_of_its_own(tmp_path):
    with GeoJsonWriter(tmp_path / "a.geojson", "annotation", NUCLEUS, slide_id="a") as writer:
        name = writer.write(Instance(0, 0, np.ones((2, 2), bool), 0.5), Classification('Gland "b"\n', "#ff0080"))
    (feature,) = read_geojson(tmp_path / "a.geojson")
    assert feature["id"] == name
    assert feature["properties"]["classification"] == {"name": 'Gland "b"\n', "color": [255, 0, 128]}


@pytest.mark.parametrize("colour", ["red", "#12345", "#1234567", "", "#gg0000"])
def test_a_colour_that_is_none_is_refused(colour):
    with pytest.raises(UsageError, match="#rrggbb"):
        _ = Classification("Nucleus", colour).rgb


def test_no_objects_are_a_valid_file(tmp_path):
    for gz in (False, True):
        path = write(tmp_path / "a.geojson", [], gz=gz)
        assert list(read_geojson(path)) == []
        assert json.loads(gzip.decompress(path.read_bytes()) if gz else path.read_bytes())["features"] == []


def test_packed_bytes_do_not_depend_on_time_or_name(tmp_path, monkeypatch):
    objects = objects_of(discs())
    first = write(tmp_path / "a.geojson.gz", objects, gz=True).read_bytes()
    monkeypatch.setattr("time.time", lambda: 1e9)
    assert write(tmp_path / "another name.gz", objects, gz=True).read_bytes() == first
    assert first[3] == 0  # no name, no comment
    assert first[4:8] == bytes(4)  # no time
    assert gzip.decompress(first) == write(tmp_path / "b", objects).read_bytes()


def test_memory_does_not_grow_with_the_number_of_objects(tmp_path):
    (one,) = objects_of(np.kron(np.eye(2, dtype=int), np.ones((8, 8), int)))

    def peak(count):
        tracemalloc.start()
        write(tmp_path / "a.geojson.gz", (Instance(20 * i, 7, one.mask, 0.5, one.measurements) for i in range(count)), gz=True)
        written = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        assert sum(1 for _ in read_geojson(tmp_path / "a.geojson.gz")) == count
        read = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return written, read

    small, large = peak(100), peak(1500)
    assert large[0] < small[0] + 100_000  # bytes; 1,500 features are 1 MB
    assert large[1] < small[1] + 500_000


def interrupted(objects):
    yield from objects
    raise KeyboardInterrupt


@pytest.mark.parametrize("gz", [False, True])
def test_a_file_appears_when_it_is_complete_or_not_at_all(tmp_path, gz):
    path = write(tmp_path / "a.geojson", [], gz=gz)
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        write(path, interrupted(objects_of(discs())), gz=gz)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(WriteError, match="disk is full"):
        write(tmp_path / "a.geojson", objects_of(discs()), gz=True)
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_are_none_are_a_mistake_of_ours(tmp_path):
    with pytest.raises(AssertionError, match="finite"):
        write(tmp_path / "a", [Instance(0, 0, np.ones((1, 1), bool), 0.5, {"Area um^2": float("nan")})])


# Reading


def test_what_others_write_is_read(tmp_path):
    feature = {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [[[0, 0], [9.5, 0], [0, 7], [0, 0]]]},
        "properties": {"a": "]"},
    }
    for content in ([feature] * 2, {"type": "FeatureCollection", "crs": None, "features": [feature] * 2}):
        for indent in (None, 4):
            (tmp_path / "a.json").write_text("\ufeff" + json.dumps(content, indent=indent))
            assert list(read_geojson(tmp_path / "a.json")) == [feature] * 2


def test_a_feature_longer_than_what_is_read_at_once(tmp_path):
    ring = [[index, index % 7] for index in range(60_000)]
    features = [{"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}}] * 3
    (tmp_path / "a.json").write_text(json.dumps({"features": features}))
    assert list(read_geojson(tmp_path / "a.json")) == features


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{}", b"null", b"[1]", b"[[[[", b"[" * 100_000, b'{"features":[{"a":1}', b'{"features":[{"a":1'),
        *(b"\xff\xfe", b"\x1f\x8b\x08broken", b"PK\x03\x04"),
    ],
)
def test_what_is_no_geojson_is_refused_by_name(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.json: not GeoJSON"):
        list(read_geojson(tmp_path / "a.json"))


def test_a_packed_file_cut_short_is_refused(tmp_path):
    path = write(tmp_path / "a.geojson.gz", objects_of(discs()), gz=True)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match="not GeoJSON"):
        list(read_geojson(path))


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(MissingInputError):
        next(read_geojson(tmp_path / "none"))


def test_results_serve_as_training_data(tmp_path):
    """What is written here and corrected in QuPath is what the data package reads."""
    shapes = read_shapes(write(tmp_path / "a.geojson", objects_of(discs())))
    assert len(shapes) == discs().max()
    assert {shape.class_name for shape in shapes} == {"Nucleus"}


# The table


def test_the_table_has_the_same_objects(tmp_path):
    objects = objects_of(discs())
    geojson = GeoJsonWriter(tmp_path / "a.geojson", "detection", NUCLEUS, slide_id="slide", scale=0.5, offset=(10, 20))
    with geojson, MeasurementsWriter(tmp_path / "a.csv", scale=0.5, offset=(10, 20)) as table:
        for one in objects:
            table.write(one, geojson.write(one), NUCLEUS.name)
    with (tmp_path / "a.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    features = list(read_geojson(tmp_path / "a.geojson"))
    assert len(rows) == len(features) == len(objects)
    for number, (row, feature) in enumerate(zip(rows, features), 1):
        assert list(row) == ["object", "id", "class", "x", "y", *NAMES]
        assert (row["object"], row["id"], row["class"]) == (str(number), feature["id"], "Nucleus")
        centre = shapely.geometry.shape(feature["geometry"]).centroid
        assert (float(row["x"]), float(row["y"])) == pytest.approx((centre.x, centre.y), abs=1e-3)
        assert {name: float(row[name]) for name in NAMES} == feature["properties"]["measurements"]


def test_a_table_of_nothing_has_its_header(tmp_path):
    with MeasurementsWriter(tmp_path / "a.csv"):
        pass
    assert (tmp_path / "a.csv").read_text() == ",".join(["object", "id", "class", "x", "y", *NAMES]) + "\n"


def test_a_broken_table_leaves_nothing(tmp_path):
    with pytest.raises(KeyError), MeasurementsWriter(tmp_path / "a.csv") as table:
        table.write(Instance(0, 0, np.ones((1, 1), bool), 0.5), "id", "Nucleus")
    assert list(tmp_path.iterdir()) == []
