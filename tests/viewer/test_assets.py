"""The page's files: all there, asked for by name only, and nothing in them that the policy forbids."""

import re

import pytest

from dsfcnn.errors import UsageError
from dsfcnn.viewer.assets import expect_openseadragon, page_files
from dsfcnn.viewer.openseadragon import NAME as OPENSEADRAGON


def test_every_file_that_is_named_is_there():
    files = page_files()
    named = set()
    for name, (_, body) in files.items():
        if name != OPENSEADRAGON:
            named |= set(re.findall(r'(?:/page/|"\./)([\w.]+)"', body.decode()))
    assert "main.js" in named
    assert named <= set(files) | {OPENSEADRAGON}
    assert set(files) - {"index.html"} <= named | {OPENSEADRAGON}  # and none is forgotten


def test_nothing_inline_and_nothing_from_elsewhere():
    for name, (_, body) in page_files().items():
        if name == OPENSEADRAGON:
            continue
        text = body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, name
        assert "innerHTML" not in text, name
        assert not re.search(r"\son\w+=|\sstyle=|<style|eval\(", text), name
        assert not re.search(r"<script(?![^>]*\bsrc=)", text), name


def test_openseadragon_is_asked_for(refused):
    with refused(UsageError, "--fetch"):
        expect_openseadragon({})
    expect_openseadragon({OPENSEADRAGON: ("text/javascript", b"")})
    with pytest.raises(UsageError):
        expect_openseadragon({"openseadragon.min.js": ("text/javascript", b"")})
