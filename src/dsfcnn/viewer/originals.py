"""The slide or image that a result was made from. Results hold no path, so it is found again by the hash of its contents.

Files of the result's name come first, then those of its size: hashing a folder of slides can take minutes.
"""

import threading
from collections.abc import Sequence
from pathlib import Path

from dsfcnn.errors import DsfcnnError, MissingInputError
from dsfcnn.inference.inputs import ENDS
from dsfcnn.inference.state import sha256
from dsfcnn.slides import open_slide
from dsfcnn.slides.source import shown
from dsfcnn.viewer.folder import Record


class Originals:
    """Where to look: files, and folders of files."""

    def __init__(self, places: Sequence[Path]):
        self.files: list[Path] = []
        for place in places:
            try:
                inside = sorted(path for path in place.iterdir() if path.suffix.lower() in ENDS and path.is_file())
            except NotADirectoryError:
                inside = [place]
            except OSError as error:
                raise MissingInputError(f"{shown(place)}: cannot be read ({error.strerror}); give --slides what was analysed") from error
            self.files += inside
        self._hashes: dict[Path, str] = {}
        self._lock = threading.Lock()

    def find(self, record: Record) -> Path:
        """The file with the recorded contents."""
        named = [path for path in self.files if path.stem == record.input.name]
        others = (path for path in self.files if path.stem != record.input.name and _has_size(path, record))
        for path in (*named, *others):
            if self._hash(path) == record.settings.input:
                return path
        if named:
            raise MissingInputError(
                f"{shown(named[0].name)} is not the file that was analysed, its contents differ; give --slides the right one"
            )
        raise MissingInputError("the slide was not found; start the viewer with --slides and the file or its folder to see it")

    def _hash(self, path: Path) -> str:
        with self._lock:
            if path not in self._hashes:
                try:
                    self._hashes[path] = sha256(path)
                except (DsfcnnError, OSError):
                    return ""
            return self._hashes[path]


def _has_size(path: Path, record: Record) -> bool:
    try:
        with open_slide(path, mpp=record.settings.slide_mpp) as slide:
            return (slide.width, slide.height) == (record.input.width, record.input.height)
    except DsfcnnError:
        return False
