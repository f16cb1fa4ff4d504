"""Objects kept in a file beside the result, so that a large result opens at once the next time.

A million nuclei take about a minute of a processor to read from GeoJSON, and 2 s from this file. It holds the hash of the GeoJSON file
that it was made from, and is made again when that is another one. A folder that cannot be written to goes without.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from dsfcnn.errors import DsfcnnError
from dsfcnn.files import atomic_write
from dsfcnn.slides.source import open_file
from dsfcnn.viewer.objects import Objects

FEWEST = 50_000  # objects worth a file; fewer are read in about 3 s
_NAME = ".objects.npz"
_VERSION = 1  # of the arrays' meaning


def load_kept(folder: Path, source: str, offset: tuple[float, float]) -> Objects | None:
    """What :func:`keep` wrote for this source; None where there is nothing, or something else.

    Args:
        source: sha256 of the GeoJSON file.
    """
    try:
        with open_file(folder / _NAME) as stream, np.load(stream, allow_pickle=False) as file:
            facts = json.loads(file["facts"].tobytes())
            if facts.pop("of") != [_VERSION, source, *offset]:
                return None
            classes = tuple((name, tuple(colour)) for name, colour in facts.pop("classes"))
            arrays = {name: file[name] for name in file.files if name != "facts"}
            return Objects(**arrays, names=tuple(facts.pop("names")), classes=classes)
    except Exception:  # not there, or whatever numpy and zipfile find wrong with a damaged file
        return None


def keep(folder: Path, source: str, offset: tuple[float, float], objects: Objects) -> None:
    facts = {"of": [_VERSION, source, *offset], "names": objects.names, "classes": objects.classes}
    arrays: dict[str, Any] = {name: value for name, value in vars(objects).items() if isinstance(value, np.ndarray)}
    try:
        with atomic_write(folder / _NAME) as stream:
            np.savez(stream, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
    except (OSError, DsfcnnError):
        return  # no place, or not ours: the result is shown all the same
