"""What a run has done so far, so that a killed one goes on where it was.

Beside an input's results lies a folder ``.state``: what the run was started with, and for every tile its probabilities and its objects,
each file whole or not there. It goes away when the results are complete; ``run.json``, written last, says that they are.
"""

import hashlib
import json
import shutil
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from dsfcnn.errors import OutputError, UsageError
from dsfcnn.files import atomic_write, remove_unfinished
from dsfcnn.inference.stitch import TileObjects
from dsfcnn.inference.tiles import Box, Tile
from dsfcnn.slides.source import open_file

_FOLDER, _SETTINGS, RECORD = ".state", "settings.json", "run.json"
_OBJECTS = tuple(f"{task}.geojson{end}" for task in ("nuclei", "glands", "tumour") for end in ("", ".gz"))
_PICTURES = ("instances.png", "instances.tif", "overlay.png", "probability*.tif", "tissue_mask.png")
_VIEWED = ".objects.npz"  # objects as the viewer keeps them
_RESULTS = (*_OBJECTS, *_PICTURES, "measurements.csv", _VIEWED, RECORD)


class State:
    """The files of one input's unfinished work. Several processes may write different tiles."""

    def __init__(self, results: Path):
        self.results, self.folder = results, results / _FOLDER

    def begin(self, settings: dict[str, Any], resume: bool, overwrite: bool) -> bool:
        """Make the folder, or see that what is there was begun with the same settings; True when the results are complete already."""
        earlier = None
        if not (overwrite and not resume and self._clear()):
            if not resume:
                self.expect_new()
            earlier = self._earlier()
            self.check(settings)
        if earlier is not None:
            remove_unfinished(self.results)
        else:
            self.discard()  # tiles whose settings are lost may be of another model
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{self.results}: cannot make this folder ({error.strerror}); give another --out") from error
        if earlier is None:
            with atomic_write(self.folder / _SETTINGS) as stream:
                stream.write(_text(settings))
        return (self.results / RECORD).exists()

    def expect_new(self) -> None:
        """Refuse to write over what is there."""
        if self._earlier() is not None:
            raise OutputError(f"{self.results}: exists already; give another --out, or --resume to go on, or --overwrite")

    def check(self, settings: dict[str, Any]) -> None:
        """Refuse to go on with what was begun with other settings."""
        earlier = self._earlier()
        if earlier is not None:
            _expect_same(earlier, settings, self.results)

    def _earlier(self) -> dict[str, Any] | None:
        for path, key in ((self.results / RECORD, "settings"), (self.folder / _SETTINGS, None)):
            try:
                found = json.loads(path.read_bytes())
                return found if key is None else found[key]
            except FileNotFoundError:
                continue
            except OSError as error:
                raise OutputError(f"{path}: {error.strerror}; give another --out, or --id") from error
            except (ValueError, KeyError, TypeError) as error:
                raise OutputError(f"{path}: not the record of a run; give another --out, or --overwrite") from error
        if self.results.exists() and any(path.name not in (_FOLDER, _VIEWED) for path in self.results.iterdir()):
            raise OutputError(f"{self.results}: holds other files; give another --out")
        return None

    def _clear(self) -> bool:
        """Remove what a run has written, its record last; others' files stay. A folder without the trace of a run is left alone: False."""
        if not self.is_begun():
            return False
        for pattern in _RESULTS:
            for path in self.results.glob(pattern):
                path.unlink()
        self.discard()
        return True

    def is_begun(self) -> bool:
        """Whether a run has left a trace, so that what lies here may be its results."""
        return self.folder.exists() or (self.results / RECORD).exists()

    def finish(self, record: dict[str, Any]) -> None:
        """The results are complete."""
        with atomic_write(self.results / RECORD) as stream:
            stream.write(_text(record))
        self.discard()

    def abandon(self) -> None:
        """Nothing comes of this input; a later run, with a better file, finds no trace of this one."""
        self.discard()
        with suppress(OSError):  # others' files in it
            self.results.rmdir()

    def discard(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def record(self) -> dict[str, Any]:
        return json.loads((self.results / RECORD).read_bytes())

    def save_tile(self, tile: Tile, **arrays: np.ndarray) -> None:
        """Probabilities of a tile."""
        self._save(_name("probability", tile), arrays)

    def tile(self, tile: Tile) -> dict[str, np.ndarray] | None:
        """What ``save_tile`` was given; None before that."""
        return self._load(_name("probability", tile))

    def damaged(self, tile: Tile) -> np.ndarray:
        """Which of a tile's pixels could not be read; of size 0 where all could."""
        found = self._load(_name("probability", tile), ["damaged"])
        if found is None:
            raise OutputError(f"{self.folder / _name('probability', tile)}: is gone; run again with --resume")
        return found["damaged"]

    def save_objects(self, tile: Tile, objects: TileObjects) -> None:
        arrays = {"box": np.array(objects.box), "labels": objects.labels, "area": objects.area, "probability": objects.probability}
        self._save(_name("objects", tile), arrays)

    def objects(self, tile: Tile) -> TileObjects | None:
        found = self._load(_name("objects", tile))
        if found is None:
            return None
        return TileObjects(Box(*found["box"].tolist()), found["labels"], found["area"], found["probability"])

    def has_tile(self, tile: Tile) -> bool:
        return (self.folder / _name("probability", tile)).exists()

    def has_objects(self, tile: Tile) -> bool:
        return (self.folder / _name("objects", tile)).exists()

    def _save(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        with atomic_write(self.folder / name) as stream:
            np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]

    def _load(self, name: str, keys: list[str] | None = None) -> dict[str, np.ndarray] | None:
        try:
            with np.load(self.folder / name, allow_pickle=False) as found:
                return {key: found[key] for key in keys or found.files}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, BadZipFile, KeyError, EOFError, RuntimeError, zlib.error) as error:
            raise OutputError(f"{self.folder / name}: damaged; remove it and run again with --resume") from error


def _name(kind: str, tile: Tile) -> str:
    return f"{kind}-{tile.row}-{tile.column}.npz"


def _text(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2).encode() + b"\n"


def _expect_same(earlier: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    now = json.loads(_text(now))
    for key in [*earlier, *(key for key in now if key not in earlier)]:
        if earlier.get(key) != now.get(key):
            raise UsageError(
                f"{folder}: begun with {key} {earlier.get(key)!r} but this run has {now.get(key)!r}; "
                "give the same model and options, another --out, or --overwrite"
            )


def sha256(*paths: Path) -> str:
    """Of the contents of files, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with open_file(path) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
