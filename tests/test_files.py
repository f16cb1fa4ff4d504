"""A file is whole under its name or not there at all."""

import os
import signal
import subprocess
import sys

import pytest

from dsfcnn.errors import FolderInUse, OutputError, WriteError
from dsfcnn.files import atomic_write, claim_outputs, locked, remove_unfinished


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


def test_what_a_killed_write_left_is_removed_and_nothing_of_others(tmp_path):
    """Names such as .my.settings end in eight letters, as those of unfinished files once did."""
    (tmp_path / "part").mkdir()
    others = {tmp_path / name for name in (".my.settings", ".lock", "a.part", ".a.part", "part/.b.csv")}
    for path in others:
        path.touch()
    half = (
        "import os, pathlib, sys; from dsfcnn.files import atomic_write; "
        "writing = atomic_write(pathlib.Path(sys.argv[1])); writing.__enter__(); os._exit(9)"
    )
    for name in ("a.txt", "part/b.txt"):
        subprocess.run([sys.executable, "-c", half, str(tmp_path / name)], check=False)
    assert len(list(tmp_path.rglob(".*.txt.*"))) == 2
    remove_unfinished(tmp_path)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == others


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


HOLD = """
import os, sys, time
from pathlib import Path
from dsfcnn.files import locked
with locked(Path(sys.argv[1])):
    worker = os.fork()  # outlives its parent
    if worker:
        print(worker, flush=True)
    time.sleep(60)
"""


def test_a_folder_is_for_one_run_of_one_process(tmp_path):
    folder = tmp_path / "new"
    with locked(folder):
        with pytest.raises(FolderInUse, match="another run"), locked(tmp_path / "x" / ".." / "new"):
            pass
        with pytest.raises(FolderInUse), locked(folder):  # the refusal has not let go of it
            pass
        other = [
            sys.executable,
            "-c",
            "import sys, pathlib, dsfcnn.files as f\nwith f.locked(pathlib.Path(sys.argv[1])): pass",
            str(folder),
        ]
        assert b"FolderInUse" in subprocess.run(other, capture_output=True).stderr
    with locked(folder):
        pass
    with pytest.raises(OutputError, match="--out"), locked(folder / ".lock"):
        pass


def test_a_killed_run_holds_no_folder_though_its_worker_lives_on(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    worker = int(process.stdout.readline())
    with pytest.raises(FolderInUse), locked(tmp_path):
        pass
    process.kill()
    process.wait()
    try:
        with locked(tmp_path):
            os.kill(worker, 0)
    finally:
        os.kill(worker, signal.SIGKILL)
