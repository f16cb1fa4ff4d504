"""What is left of an earlier run, and when it is used."""

import re

import numpy as np
import pytest

from dsfcnn.errors import OutputError
from dsfcnn.inference.state import State
from dsfcnn.inference.tiles import Tile


@pytest.mark.parametrize("resume", [False, True])
def test_tiles_whose_settings_are_lost_are_not_used(tmp_path, resume):
    state, tile = State(tmp_path / "a"), Tile(0, 0)
    state.begin({"model": "abc"}, resume=False, overwrite=False)
    state.save_tile(tile, stored=np.zeros(1))
    assert not state.begin({"model": "abc"}, resume=True, overwrite=False)
    assert state.has_tile(tile)
    (state.folder / "settings.json").unlink()
    assert not state.begin({"model": "def"}, resume, overwrite=False)
    assert not state.has_tile(tile)
    assert [path.name for path in state.folder.iterdir()] == ["settings.json"]


def flip(content, place, bits):
    """Change a byte of every entry in the list at the end of a ZIP file."""
    changed = bytearray(content)
    for entry in re.finditer(b"PK\x01\x02", content):
        changed[entry.start() + place] ^= bits
    return bytes(changed)


@pytest.mark.parametrize("read", [State.tile, State.damaged])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-30] + b"\xa5" * 30,
        lambda content: content[: (place := content.index(b"damaged.npy") + 40)] + b"\xa5" * 30 + content[place + 30 :],
        lambda content: flip(content, 10, 0x40),
        lambda content: flip(content, 8, 0x01),
    ],
    ids=["empty", "cut short", "no list of contents", "flipped bits", "another compression", "a password"],
)
def test_a_damaged_tile_is_named(tmp_path, read, spoil, refused):
    state, tile = State(tmp_path / "a"), Tile(0, 0)
    state.begin({"model": "abc"}, resume=False, overwrite=False)
    state.save_tile(tile, stored=np.zeros(1), damaged=np.random.default_rng(0).random((9, 9)) < 0.5)
    (path,) = state.folder.glob("probability*")
    path.write_bytes(spoil(path.read_bytes()))
    with refused(OutputError, "--resume"):
        read(state, tile)
