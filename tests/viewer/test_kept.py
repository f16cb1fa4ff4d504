"""Objects from the file beside a result are those of the GeoJSON file, or none at all."""

import numpy as np
import pytest
from drawn_results import ellipses, write_features, write_nuclei
from starlette.testclient import TestClient

from dsfcnn.viewer import kept
from dsfcnn.viewer.objects import read_objects
from dsfcnn.viewer.server import make_app

from .conftest import described, key_of

FILE = ".objects.npz"


@pytest.fixture
def objects(tmp_path):
    write_features(tmp_path / "a.geojson.gz", ellipses(50, 7))
    return read_objects(tmp_path / "a.geojson.gz", (3, 4))


def equal(one, other):
    for name, value in vars(one).items():
        same = getattr(other, name)
        assert (value.dtype, value.shape) == (same.dtype, same.shape) if isinstance(value, np.ndarray) else value == same, name
        assert not isinstance(value, np.ndarray) or np.array_equal(value, same, equal_nan=value.dtype.kind == "f"), name


def test_what_is_kept_comes_back_for_its_source_only(objects, tmp_path):
    assert kept.load_kept(tmp_path, "hash", (3, 4)) is None
    kept.keep(tmp_path, "hash", (3, 4), objects)
    equal(objects, kept.load_kept(tmp_path, "hash", (3, 4)))
    assert kept.load_kept(tmp_path, "other", (3, 4)) is None
    assert kept.load_kept(tmp_path, "hash", (3, 5)) is None


def test_a_file_that_is_damaged_is_not_used(objects, tmp_path):
    kept.keep(tmp_path, "hash", (0, 0), objects)
    whole = (tmp_path / FILE).read_bytes()
    middle = len(whole) // 2
    for content in (b"", whole[:middle], whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :], b"\x80\x04K\x01."):
        (tmp_path / FILE).write_bytes(content)
        assert kept.load_kept(tmp_path, "hash", (0, 0)) is None
    np.savez(tmp_path / FILE, facts=np.array([{}], object))
    assert kept.load_kept(tmp_path, "hash", (0, 0)) is None


def test_a_folder_that_cannot_be_written_to_goes_without(objects, tmp_path):
    kept.keep(tmp_path / "nowhere", "hash", (0, 0), objects)
    assert kept.load_kept(tmp_path / "nowhere", "hash", (0, 0)) is None


def open_result(out):
    with TestClient(make_app(out), base_url="http://localhost") as client:
        key = key_of(client, "a")
        return described(client, key), client.get(f"/api/results/{key}/objects/7").json()


def test_many_objects_are_read_once(tmp_path, monkeypatch):
    folder = tmp_path / "out" / "a"
    write_nuclei(folder, None, (400, 400), 60)
    first = open_result(tmp_path / "out")
    assert not (folder / FILE).exists()
    monkeypatch.setattr(kept, "FEWEST", 60)
    assert open_result(tmp_path / "out") == first
    assert (folder / FILE).exists()
    with monkeypatch.context() as patch:
        patch.setattr("dsfcnn.viewer.opened.read_objects", None)  # so that it cannot be used
        found = open_result(tmp_path / "out")
    assert (found[0]["objects"], found[1]) == (first[0]["objects"], first[1])
    write_features(folder / "nuclei.geojson.gz", ellipses(61, 7))
    assert open_result(tmp_path / "out")[0]["objects"] == 61
