"""Which of the kernel's files is loaded, and what is said when none can be."""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from dsfcnn.kernels import library


@pytest.fixture
def processor(monkeypatch):
    """A pretended folder of kernels: what becomes of each file, and the answer of ``load``."""

    def load(**files):
        def opened(name):
            if files[name] == "broken":
                raise OSError("wrong architecture")
            return type("Functions", (), {"name": name, "dsfcnn_supported": lambda self: files[name] == "runs"})()

        monkeypatch.setattr(library, "built", lambda: [Path(name) for name in files])
        monkeypatch.setattr(library.ctypes, "CDLL", opened)
        monkeypatch.setattr(library, "declare", lambda functions: None)
        return library.load.__wrapped__()

    return load


def test_the_first_that_the_processor_runs_is_taken(processor):
    assert processor(wide="runs", narrow="runs").functions.name == "wide"
    assert processor(wide="lacks something", narrow="runs").functions.name == "narrow"
    assert processor(wide="broken", narrow="runs").functions.name == "narrow"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "was not built; install a C compiler"),
        ({"wide": "lacks something", "narrow": "lacks something"}, "lacks AVX2 or FMA"),
        ({"narrow": "broken"}, "cannot be loaded (wrong architecture); install dsfcnn again"),
    ],
)
def test_dense_convolutions_know_why(processor, files, reason):
    found = processor(**files)
    assert found.functions is None
    assert reason in found.reason


def test_the_faster_kernel_is_tried_first(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    for name in ("_gconv", "_gconv_avx512", "_other"):
        (tmp_path / f"{name}{EXTENSION_SUFFIXES[0]}").touch()
    assert [file.name.partition(".")[0] for file in library.built()] == ["_gconv_avx512", "_gconv"]
