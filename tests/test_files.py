"""A file is whole under its name or not there at all."""

import os

import pytest

from dsfcnn.errors import OutputError, WriteError
from dsfcnn.files import atomic_write, claim_outputs


def test_a_complete_write_appears(tmp_path):
    old = os.umask(0o022)
    try:
        with atomic_write(tmp_path / "a.txt") as stream:
            stream.write(b"whole")
            assert not (tmp_path / "a.txt").exists()
    finally:
        os.umask(old)
    assert (tmp_path / "a.txt").read_bytes() == b"whole"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o644


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"old")

    def fail_half_way():
        with atomic_write(tmp_path / "a.txt") as stream:
            stream.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert (tmp_path / "a.txt").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_is_said_so(tmp_path):
    with pytest.raises(WriteError, match="disk is full") as caught, atomic_write(tmp_path / "a.txt"):
        raise OSError(28, "No space left on device")
    assert caught.value.exit_code == 74
    assert list(tmp_path.iterdir()) == []


def test_outputs_are_claimed_before_work(tmp_path):
    claim_outputs(tmp_path / "new", ["a.png"], overwrite=False)
    (tmp_path / "new" / "a.png").touch()
    with pytest.raises(OutputError, match="--overwrite"):
        claim_outputs(tmp_path / "new", ["a.png"], overwrite=False)
    claim_outputs(tmp_path / "new", ["a.png"], overwrite=True)
    with pytest.raises(OutputError, match="cannot make"):
        claim_outputs(tmp_path / "new" / "a.png" / "b", [], overwrite=False)
