"""A result that somebody looks at: slide, objects and maps, opened in a thread of its own while the page says how far it is."""

import math
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dsfcnn.errors import DataError, DsfcnnError, MissingInputError
from dsfcnn.inference.measure import AREA
from dsfcnn.inference.state import sha256
from dsfcnn.slides import open_slide, read_image
from dsfcnn.slides.source import shown
from dsfcnn.viewer import kept
from dsfcnn.viewer.drawing import draw_objects, heat_colours, jpeg, png, tissue_colours
from dsfcnn.viewer.folder import Result
from dsfcnn.viewer.heat import HeatMap
from dsfcnn.viewer.objects import Objects, read_objects
from dsfcnn.viewer.originals import Originals
from dsfcnn.viewer.picture import Picture
from dsfcnn.viewer.pyramid import Pyramid, Square

FINER = 3  # levels beyond the full one on which outlines are drawn, so that they stay sharp at eight times
_OUTLINED = 10  # pixels on the screen that a typical object must have to be outlined; below, lines would cover it
_MOST_CORNERS = 250_000  # of outlines in a square: 1.5 MB; more are sent as a picture
_BINS = 40
_LONGEST = 20_000  # corners of an outline that is sent as text


class Closed(Exception):
    """The result is not looked at any more."""


class Opened:
    """Slide, objects, heat maps and tissue of one result; each may be missing, and then there is a message that says why."""

    def __init__(self, result: Result, originals: Originals, max_pixels: int):
        self.result, self.record = result, result.record
        self.pyramid = Pyramid(self.record.input.width, self.record.input.height)
        self.slide: Picture | None = None
        self.objects: Objects | None = None
        self.heats: dict[str, HeatMap] = {}
        self.tissue: np.ndarray | None = None
        self.busy = "looking for the slide"
        self.messages: dict[str, str] = {}  # by part
        self.read = 0  # objects so far
        self._closed = False
        self._place: Path | None = None  # of the slide
        self._parts: list[tuple[str, Callable[[], None]]] = [
            ("slide", lambda: self._open_slide(originals, max_pixels)),
            ("heat", self._open_heats),
            ("tissue", self._open_tissue),
            ("objects", self._read_objects),
        ]
        threading.Thread(target=self._open, name=f"open {result.key}", daemon=True).start()

    def _open(self) -> None:
        for part, open_part in self._parts:
            try:
                open_part()
            except Closed:
                break
            except DsfcnnError as error:
                self.messages[part] = self._without_path(error)
            except Exception as error:  # a bug of ours in one part leaves the others usable
                self.messages[part] = f"cannot be shown ({type(error).__name__}); this is a bug of dsfcnn"
        self.busy = ""
        if self._closed:
            self._close_pictures()

    def _without_path(self, error: DsfcnnError) -> str:
        """Only names of files: a path may tell more than results should."""
        message = str(error).replace(shown(self.result.folder), shown(self.result.name))
        return message if self._place is None else message.replace(shown(self._place), shown(self._place.name))

    def _open_slide(self, originals: Originals, max_pixels: int) -> None:
        settings = self.record.settings
        try:
            self._place = originals.find(self.record)
            slide = open_slide(self._place, mpp=settings.slide_mpp, max_pixels=max_pixels)
            if (slide.width, slide.height) != (self.pyramid.width, self.pyramid.height):
                slide.close()
                raise DataError(f"{shown(self._place)}: another size than was analysed; give --slides the right one")
            self.slide = Picture(slide)
        except DsfcnnError:
            overlay = self.result.file("overlay.png")
            if overlay is not None:  # the next best: a smaller picture with the contours in it
                picture = open_slide(overlay, mpp=settings.slide_mpp, max_pixels=max_pixels)
                self.slide = Picture(picture, self.pyramid.width / picture.width)
            raise

    def _open_heats(self) -> None:
        for path in self.result.files("probability*.tif"):
            self.heats[path.stem.removeprefix("probability").lstrip("-") or "probability"] = HeatMap(path, self.record)

    def _open_tissue(self) -> None:
        path = self.result.file("tissue_mask.png")
        if path is not None:
            self.tissue = np.ascontiguousarray(read_image(path)[..., 0])

    def _read_objects(self) -> None:
        self.busy = "reading objects"
        task = self.record.settings.task
        path = self.result.file(f"{task}.geojson.gz", f"{task}.geojson")
        if path is None:
            raise MissingInputError("there is no file of objects in this folder; run 'dsfcnn predict' again")
        objects = self._objects(path)
        _ = objects.index  # made now, not when the first square is asked for
        self.objects = objects

    def _objects(self, path: Path) -> Objects:
        """From the GeoJSON file; many from what was kept of it, or kept for the next time."""
        bounds = self.record.input.bounds
        if self.record.counts.objects < kept.FEWEST:
            return read_objects(path, bounds, self._tick)
        source = sha256(path)
        found = kept.load_kept(self.result.folder, source, bounds)
        if found is None:
            found = read_objects(path, bounds, self._tick)
            kept.keep(self.result.folder, source, bounds, found)
        return found

    def _tick(self, done: int) -> None:
        self.read = done
        if self._closed:
            raise Closed

    def describe(self) -> dict[str, Any]:
        """All that the page wants to know, as it is now."""
        record, objects = self.record, self.objects
        counts = np.bincount(objects.kinds, minlength=len(objects.classes)).tolist() if objects is not None else []
        return {
            "name": shown(self.result.name),
            "task": record.settings.task,
            "width": self.pyramid.width,
            "height": self.pyramid.height,
            "firstLevel": self.pyramid.first,
            "fullLevel": self.pyramid.full,
            "finer": FINER,
            "mpp": record.settings.slide_mpp,
            "mppSource": record.mpp_source,
            "busy": self.busy,
            "messages": dict(self.messages),  # a copy: parts are still being opened
            "slide": self.slide is not None,
            "heats": list(self.heats),
            "tissue": self.tissue is not None,
            "tissueArea": record.counts.tissue_mm2,
            "unreadableTiles": record.counts.unreadable_tiles,
            "expected": record.counts.objects,
            "read": self.read,
            "objects": None if objects is None else len(objects),
            "measurements": [] if objects is None else list(objects.names),
            "classes": [
                {"name": name, "colour": "#{:02x}{:02x}{:02x}".format(*colour), "count": count}
                for (name, colour), count in zip(objects.classes if objects is not None else [], counts)
            ],
        }

    def layers(self) -> dict[str, Callable[[Square], tuple[str, bytes]]]:
        """What there is to see, and how a square of it is made: media type and bytes."""
        found: dict[str, Callable[[Square], tuple[str, bytes]]] = {}
        if self.slide is not None:
            found["slide"] = partial(_slide_tile, self.slide)
        if self.tissue is not None:
            found["tissue"] = partial(_tissue_tile, self.tissue, self.pyramid)
        if self.objects is not None:
            found["objects"] = partial(_objects_tile, self.objects)
        return found | {f"heat-{number}": partial(_heat_tile, heat) for number, heat in enumerate(list(self.heats.values()))}

    def object(self, number: int) -> dict[str, Any] | None:
        """One object, counted from 1, with its measurements and outline."""
        objects = self.objects
        if objects is None or not 1 <= number <= len(objects):
            return None
        name, colour = objects.classes[objects.kinds[number - 1]]
        values = zip(objects.names, objects.values[number - 1].tolist())
        digits = objects.ids[number - 1].tobytes().hex()
        rings = objects.outline(number - 1)
        step = -(-sum(map(len, rings)) // _LONGEST)
        return {
            "number": number,
            "id": "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])),
            "class": name,
            "colour": "#{:02x}{:02x}{:02x}".format(*colour),
            "box": objects.boxes[number - 1].tolist(),
            "measurements": {name: value for name, value in values if math.isfinite(value)},
            "outline": [ring[::step].round(2).tolist() for ring in rings],
        }

    def histogram(self, column: int) -> dict[str, Any] | None:
        """How often the values of a measurement occur, in bins up to its 99.5th percentile; the last one has all that is larger."""
        objects = self.objects
        if objects is None or not 0 <= column < len(objects.names):
            return None
        values = objects.values[:, column]
        values = values[np.isfinite(values)].astype(np.float64)
        name = objects.names[column]
        if not len(values):
            return {"name": name, "counts": [], "edges": [], "median": None, "mean": None}
        low = 0.0 if name == AREA else float(values.min())
        high = max(float(np.quantile(values, 0.995)), low + 1e-6)
        counts, edges = np.histogram(np.minimum(values, high), _BINS, (low, high))
        return {
            "name": name,
            "counts": counts.tolist(),
            "edges": edges.tolist(),
            "median": float(np.median(values)),
            "mean": float(values.mean()),
        }

    def close(self) -> None:
        self._closed = True
        if not self.busy:
            self._close_pictures()

    def _close_pictures(self) -> None:
        for picture in (self.slide, *self.heats.values()):
            if picture is not None:
                picture.close()


def _slide_tile(slide: Picture, square: Square) -> tuple[str, bytes]:
    return "image/jpeg", jpeg(slide.read(square))


def _heat_tile(heat: HeatMap, square: Square) -> tuple[str, bytes]:
    return "image/png", png(heat_colours(heat.read(square)))


def _tissue_tile(mask: np.ndarray, pyramid: Pyramid, square: Square) -> tuple[str, bytes]:
    """The mask's pixels at the centres of the square's pixels."""
    columns = ((square.left + (np.arange(square.width) + 0.5) * square.scale) * mask.shape[1] / pyramid.width).astype(int)
    rows = ((square.top + (np.arange(square.height) + 0.5) * square.scale) * mask.shape[0] / pyramid.height).astype(int)
    part = mask[np.ix_(np.minimum(rows, mask.shape[0] - 1), np.minimum(columns, mask.shape[1] - 1))]
    return "image/png", png(tissue_colours(part))


def _objects_tile(objects: Objects, square: Square) -> tuple[str, bytes]:
    """Outlines where objects are large enough to be seen and few enough to be sent, else a picture."""
    if objects.side >= _OUTLINED * square.scale:
        numbers = objects.index.meeting(square.left, square.top, square.right, square.bottom)
        if objects.corners_of(numbers) <= _MOST_CORNERS:
            return "application/octet-stream", objects.packed(numbers, square.left, square.top)
    return "image/png", png(draw_objects(objects, square))
