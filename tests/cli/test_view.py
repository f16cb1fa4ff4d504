"""``dsfcnn view``: an address, or a line that says why not."""

import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from drawn_results import write_record

from dsfcnn.cli.main import main

START = """
import signal, sys
from dsfcnn.viewer import serve
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background, tests included
files = serve.page_files()
serve.page_files = lambda: files | {"openseadragon.js": ("text/javascript", b"")}  # nothing is fetched in these tests
from dsfcnn.cli.main import main
main(sys.argv[1:])
"""


@pytest.fixture
def out(tmp_path):
    (tmp_path / "out").mkdir()
    write_record(tmp_path / "out", None, (100, 100))
    return tmp_path / "out"


def refusal(*arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["view", *map(str, arguments)])
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return stopped.value.code, said


@pytest.fixture
def complete(monkeypatch):
    pytest.importorskip("uvicorn")
    monkeypatch.setattr("dsfcnn.viewer.serve.expect_openseadragon", lambda files: None)


def test_mistakes_are_one_line(complete, out, tmp_path, capsys):
    assert refusal(tmp_path / "none", capsys=capsys) == (
        66,
        f"error: {tmp_path / 'none'}: no such folder; give one that 'dsfcnn predict' or 'dsfcnn equivariance' has written\n",
    )
    (tmp_path / "empty").mkdir()
    assert refusal(tmp_path / "empty", capsys=capsys)[0] == 66
    assert refusal(out, "--slides", tmp_path / "none", capsys=capsys)[0] == 66
    code, said = refusal(out, "--host", "no such host.example", capsys=capsys)
    assert (code, "--host" in said) == (2, True)
    assert refusal(out, "--port", "70000", capsys=capsys)[0] == 2


def test_without_openseadragon(out, capsys, monkeypatch):
    monkeypatch.setattr("dsfcnn.viewer.serve.page_files", dict)
    code, said = refusal(out, capsys=capsys)
    assert (code, "--fetch" in said) == (2, True)


def test_without_its_packages(out, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "dsfcnn.viewer.serve", raising=False)
    code, said = refusal(out, capsys=capsys)
    assert (code, "dsfcnn[viewer]" in said) == (2, True)


def open_(address):
    try:
        with urllib.request.urlopen(address, timeout=30) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.parametrize("options", [[], ["--token"], ["--host", "127.0.0.1"]])
def test_it_answers_until_it_is_stopped(options, out):
    process = subprocess.Popen(
        [sys.executable, "-c", START, "view", str(out), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:" if "--host" in options else "http://localhost:")
        plain, _, token = address.partition("?token=")
        assert len(token) == (32 if options else 0)
        if options:
            assert open_(plain + "api/results")[0] == 403
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with opener.open(address, timeout=30) as reply:
                assert (reply.url, b"<!doctype html>" in reply.read()) == (plain, True)
        else:
            assert open_(plain + "api/results")[0] == 200
    finally:
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[1]
    assert process.returncode == 130
    assert said == ""
