"""What is left of an earlier run, and when it is used."""

import numpy as np
import pytest

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
