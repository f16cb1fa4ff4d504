"""Fetching the page's library, with a pip that only pretends."""

import io
import subprocess
import tarfile

import pytest

from dsfcnn.errors import MissingInputError, OutputError
from dsfcnn.viewer import openseadragon


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    monkeypatch.setattr(openseadragon, "VENDOR", tmp_path / "vendor")
    return tmp_path / "vendor"


@pytest.fixture
def pip(monkeypatch):
    """What pip was asked; it leaves a package with the file and others."""
    asked = []

    def pretend(command, **options):
        asked.append([str(word) for word in command])
        folder = command[-1]
        with tarfile.open(folder / "openslide_python-1.4.7.tar.gz", "w:gz") as archive:
            for name in (openseadragon._MEMBER, "openslide_python-1.4.7/setup.py"):
                entry = tarfile.TarInfo(name)
                entry.size = 7
                archive.addfile(entry, io.BytesIO(b"library"))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(openseadragon.subprocess, "run", pretend)
    return asked


def test_one_file_is_kept_and_fetched_once(vendor, pip):
    assert openseadragon.fetch() == vendor / "openseadragon.js"
    assert [path.name for path in vendor.iterdir()] == ["openseadragon.js"]
    assert (vendor / "openseadragon.js").read_bytes() == b"library"
    assert {"--require-hashes", "--no-deps", "--no-binary=openslide-python"} <= set(pip[0])
    openseadragon.fetch()
    assert len(pip) == 1


def test_pip_that_fails_is_one_line(vendor, monkeypatch, refused):
    def fail(command, **options):
        return subprocess.CompletedProcess(command, 1, "", "WARNING: something\nERROR: no matching distribution\n\n")

    monkeypatch.setattr(openseadragon.subprocess, "run", fail)
    with refused(MissingInputError, "check the network"):
        openseadragon.fetch()
    assert not vendor.exists()


def test_an_installation_of_somebody_else(vendor, pip, monkeypatch, refused):
    def forbid(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(openseadragon, "atomic_write", forbid)
    with refused(OutputError, "the user who installed"):
        openseadragon.fetch()
