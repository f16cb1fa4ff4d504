"""Objects as arrays say what the GeoJSON file says."""

import gzip
import json
import struct

import numpy as np
import pytest
from drawn_results import NUCLEUS, ellipses, write_features
from found_objects import discs, objects_of

from dsfcnn.errors import DataError
from dsfcnn.inference.geojson import GeoJsonWriter, read_geojson
from dsfcnn.viewer.objects import read_objects


@pytest.fixture(scope="module")
def labels():
    return discs()


@pytest.fixture(scope="module")
def found(labels, tmp_path_factory):
    path = tmp_path_factory.mktemp("objects") / "nuclei.geojson"
    with GeoJsonWriter(path, "detection", NUCLEUS, slide_id="a", scale=2.0, offset=(100, 50)) as writer:
        for one in objects_of(labels):
            writer.write(one)
    return path, read_objects(path, (100, 50))


def unpacked(data):
    """As the page reads it."""
    objects, rings, corners = struct.unpack_from("<3I", data)
    place, parts = 12, []
    counts = {"<u4": [objects], "<f4": [4 * objects], "<I": [objects + 1, rings + 1], "<u2": [2 * corners], "u1": [objects]}
    for dtype, count in ((dtype, count) for dtype, several in counts.items() for count in several):
        parts.append(np.frombuffer(data, dtype, count, place))
        place += parts[-1].nbytes
    assert place == len(data)
    return parts


def test_outlines_areas_ids_and_measurements(found, labels):
    path, objects = found
    features = list(read_geojson(path))
    assert len(objects) == len(features) == labels.max()
    assert objects.names == tuple(features[0]["properties"]["measurements"])
    assert objects.classes == (("Nucleus", (44, 160, 44)),)
    for number, feature in enumerate(features):
        geometry = feature["geometry"]
        polygons = geometry["coordinates"] if geometry["type"] == "MultiPolygon" else [geometry["coordinates"]]
        rings = [np.add(ring[:-1], (100, 50)) for polygon in polygons for ring in polygon]
        outline = objects.outline(number)
        assert [len(ring) for ring in outline] == [len(ring) for ring in rings]
        assert max(np.abs(a - b).max() for a, b in zip(outline, rings)) < 0.01
        assert objects.areas[number] == pytest.approx(4 * np.count_nonzero(labels == number + 1), rel=1e-5)
        assert objects.ids[number].tobytes().hex() == feature["id"].replace("-", "")
        assert objects.values[number] == pytest.approx(list(feature["properties"]["measurements"].values()), rel=1e-5)


def test_a_place_belongs_to_the_object_of_the_label_map(found, labels):
    objects, random = found[1], np.random.default_rng(0)
    rows, columns = np.nonzero(labels > 0)
    some = random.choice(len(rows), 300, replace=False)
    places = [*zip(rows[some], columns[some]), *random.integers(0, labels.shape, (300, 2))]
    for row, column in places:
        at = objects.at(2 * column + 1, 2 * row + 1)
        assert (0 if at is None else at + 1) == labels[row, column]
    assert objects.at(-5, -5) is None


def test_where_objects_overlap_the_smaller_is_meant(tmp_path):
    square = [[0, 0], [100, 0], [100, 100], [0, 100], [0, 0]]
    inner = [[40, 40], [60, 40], [60, 60], [40, 60], [40, 40]]
    features = [{"geometry": {"type": "Polygon", "coordinates": [ring]}} for ring in (square, inner)]
    path = tmp_path / "a.geojson"
    path.write_text(json.dumps(features))
    objects = read_objects(path)
    assert (objects.at(50, 50), objects.at(10, 10)) == (1, 0)
    assert objects.classes == (("no class", (128, 128, 128)),)
    assert objects.ids.max() == 0


def test_what_is_sent_to_the_page(found):
    objects = found[1]
    chosen = objects.index.meeting(300, 300, 700, 800)
    assert 0 < len(chosen) < len(objects)
    numbers, boxes, first_rings, first_corners, places, kinds = unpacked(objects.packed(chosen, 300, 200))
    assert numbers.tolist() == (chosen + 1).tolist()
    assert kinds.tolist() == [0] * len(chosen)
    for place, number in enumerate(chosen):
        left, top, width, height = boxes[4 * place : 4 * place + 4]
        outline = objects.outline(number)
        rings = range(first_rings[place], first_rings[place + 1])
        assert len(rings) == len(outline)
        for ring, known in zip(rings, outline):
            corners = places[2 * first_corners[ring] : 2 * first_corners[ring + 1]].reshape(-1, 2)
            assert np.abs(corners / 65535 * (width, height) + (left + 300, top + 200) - known).max() < 1e-3
    assert objects.corners_of(chosen) == len(places) // 2
    nothing = unpacked(objects.packed(chosen[:0], 0, 0))
    assert [len(part) for part in nothing] == [0, 0, 1, 1, 0, 0]


def test_measurements_that_only_some_have(tmp_path):
    ring = [[0, 0], [5, 0], [5, 5], [0, 0]]
    kinds = [{"name": "a", "color": [300, -1, 2]}, None, {"name": "b"}]
    stated = [{"x": 1}, {}, {"y": 2, "x": 3}]
    features = [
        {"geometry": {"type": "Polygon", "coordinates": [ring]}, "properties": {"measurements": one, "classification": kind}}
        for one, kind in zip(stated, kinds)
    ]
    path = tmp_path / "a.geojson.gz"
    path.write_bytes(gzip.compress(json.dumps({"type": "FeatureCollection", "features": features}).encode()))
    objects = read_objects(path)
    assert objects.names == ("x", "y")
    np.testing.assert_array_equal(objects.values, np.array([[1, np.nan], [np.nan, np.nan], [3, 2]], np.float32))
    assert [objects.classes[kind][0] for kind in objects.kinds] == ["a", "no class", "b"]
    assert objects.classes[0][1] == (44, 255, 2)


def test_batches_join(tmp_path, monkeypatch):
    path = tmp_path / "nuclei.geojson.gz"
    write_features(path, ellipses(50, 7))
    whole, ticks = read_objects(path), []
    monkeypatch.setattr("dsfcnn.viewer.objects._BATCH", 8)
    parts = read_objects(path, tick=ticks.append)
    assert ticks == [8, 16, 24, 32, 40, 48]
    for name in ("boxes", "areas", "rings", "corners", "places", "kinds", "ids", "values"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    assert whole.nbytes > 50 * 4


def test_reading_can_be_stopped(tmp_path, monkeypatch):
    path = tmp_path / "nuclei.geojson.gz"
    write_features(path, ellipses(20, 7))
    monkeypatch.setattr("dsfcnn.viewer.objects._BATCH", 8)

    class Stop(Exception):
        pass

    def stop(done):
        raise Stop

    with pytest.raises(Stop):
        read_objects(path, tick=stop)


def test_no_objects(tmp_path):
    path = tmp_path / "nuclei.geojson.gz"
    write_features(path, [])
    objects = read_objects(path)
    assert (len(objects), objects.side, objects.at(0, 0), objects.names) == (0, 0, None, ())
    assert len(objects.packed(objects.index.meeting(0, 0, 9, 9), 0, 0)) == 12 + 8


@pytest.mark.parametrize(
    "feature",
    [
        {},
        {"geometry": None},
        {"geometry": {"type": "Point", "coordinates": [1, 2]}},
        {"geometry": {"type": "Polygon", "coordinates": []}},
        {"geometry": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [0, 0]]]}},
        {"geometry": {"type": "Polygon", "coordinates": [[[0, 0], [1], [1, 1], [0, 0]]]}},
        {"geometry": {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], ["a", 1], [0, 0]]]}},
        {"geometry": {"type": "Polygon", "coordinates": [[[0, 0], [1e300, 0], [1, 1], [0, 0]]]}},
        {"geometry": {"type": "Polygon", "coordinates": [[[0, 0], [float("nan"), 0], [1, 1], [0, 0]]]}},
        {"geometry": {"type": "Polygon", "coordinates": [[[0, 0], [10**400, 0], [1, 1], [0, 0]]]}},
        {"geometry": {"type": "Polygon", "coordinates": 5}},
        {"geometry": {"type": "Polygon", "coordinates": [[[0, 0], [5, 0], [5, 5], [0, 0]]]}, "properties": {"measurements": {"a": "x"}}},
        {"geometry": {"type": "Polygon", "coordinates": [[[0, 0], [5, 0], [5, 5], [0, 0]]]}, "properties": {"classification": "x"}},
    ],
)
def test_a_feature_that_makes_no_sense(feature, tmp_path, refused):
    path = tmp_path / "a.geojson"
    path.write_text(json.dumps([feature]))
    with refused(DataError, "again"):
        read_objects(path)


def test_the_drawn_features_are_those_of_the_writer(tmp_path):
    """What many tests and the benchmark read is what prediction writes."""
    nuclei = list(ellipses(30, 6))
    with GeoJsonWriter(tmp_path / "a.geojson", "detection", NUCLEUS, slide_id="a", offset=(7, 9)) as writer:
        for one in nuclei:
            writer.write(one)
    write_features(tmp_path / "b.geojson", nuclei, (7, 9))
    written, drawn = (list(read_geojson(tmp_path / name)) for name in ("a.geojson", "b.geojson"))
    assert [{**one, "id": ""} for one in written] == [{**one, "id": ""} for one in drawn]
