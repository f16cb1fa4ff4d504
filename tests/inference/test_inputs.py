"""Which files of a folder are inputs."""

import os

import openslide

from dsfcnn.inference import inputs
from dsfcnn.slides.openslide import quick_hash


def test_a_dicom_slide_of_several_files_is_one_input(tmp_path, monkeypatch):
    series = {"a.dcm": "one", "b.dcm": "two", "c.DCM": "one", "d.dcm": None, "e.dcm": None, "f.czi": "one", "g.txt": "three"}
    for name in series:
        (tmp_path / name).touch()
    monkeypatch.setattr(inputs, "quick_hash", lambda path: series[path.name])
    for named in ([tmp_path], [tmp_path / name for name in sorted(series, key=str.lower)[:-1]]):  # as a folder, and as the shell's *
        found = inputs.collect(named, None, tmp_path.parent / "out")
        assert [one.path.name for one in found] == ["a.dcm", "b.dcm", "d.dcm", "e.dcm", "f.czi"]


def test_unreadable_dicom_files_stay_inputs_of_their_own(tmp_path):
    for name in ("a.dcm", "b.dcm"):
        (tmp_path / name).write_bytes(bytes(128) + b"DICM" + bytes(600))
    assert [one.name for one in inputs.collect([tmp_path], None, tmp_path.parent / "out")] == ["a", "b"]


def test_a_pipe_is_not_waited_for(tmp_path, monkeypatch):
    def opened(path):
        raise AssertionError("a pipe was opened")

    os.mkfifo(tmp_path / "x.dcm")
    monkeypatch.setattr(openslide, "OpenSlide", opened)
    assert quick_hash(tmp_path / "x.dcm") is None
    assert [one.name for one in inputs.collect([tmp_path / "x.dcm"], None, tmp_path / "out")] == ["x"]
