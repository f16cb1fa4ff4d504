"""Slides beside QuPath's GeoJSON files: annotated regions as training images, read from the slide when they are asked for.

``a.svs`` belongs to ``a.geojson`` (or ``a.geojson.gz``), in one folder or in ``train``, ``valid`` and ``test``. In a file,

- a *region* is an annotation whose class begins with "Region", or an annotation without a class that is an upright rectangle and has the
  centre of another object inside: everything in it has been annotated;
- an *object* is every other polygon: detections, cells (their nucleus, where they have one) and annotations, but none of a class that
  begins with "Ignore". It counts in the regions that it meets, cut off at their edge.

What lies outside a region that is no rectangle is painted white, since nobody has looked at it. Regions of more than 2048 pixels a side are
taken in equal parts. A slide that does not say how large its pixels are, or a plain image in place of one, is taken to have the resolution
that is asked for.
"""

import gzip
import json
import math
import os
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dsfcnn.data.masks import relabel
from dsfcnn.data.pairs import entries
from dsfcnn.data.polygons import Rings, fill
from dsfcnn.data.sample import Sample, checked_mpp, place_in
from dsfcnn.data.split import SPLITS, expect_there, make_split, read_split
from dsfcnn.errors import DataError, DsfcnnError, UsageError
from dsfcnn.slides import Slide, open_slide
from dsfcnn.slides.resolution import UnknownResolution
from dsfcnn.slides.source import open_file, shown

_PART = 2048  # pixels a side of what is read at once: 12 MB
_LARGEST = 2 << 30  # bytes of GeoJSON; a slide with a million nuclei has about 1 GB
_ENDS = (".geojson", ".geojson.gz")
_BESIDE = {".xml", ".qpdata", ".json", ".csv", ".txt"}  # what other programs put beside a slide
_KINDS = ("annotation", "detection", "cell")  # QuPath also has the cores of a tissue array, and tiles
_OWN = ("metadata", "TIFF resolution tag", "objective power")  # where a slide itself says how large a pixel is


@dataclass(frozen=True)
class Shape:
    """A polygon or several, in level-0 pixels of the slide."""

    parts: list[Rings]
    kind: str  # QuPath's objectType
    class_name: str | None

    def box(self) -> tuple[float, float, float, float]:
        """left, top, right, bottom"""
        outlines = np.concatenate([rings[0] for rings in self.parts])
        return (*outlines.min(0), *outlines.max(0))

    def is_rectangle(self) -> bool:
        left, top, right, bottom = self.box()
        if len(self.parts) != 1 or len(self.parts[0]) != 1:
            return False
        corners = {tuple(vertex) for vertex in self.parts[0][0]}
        return corners == {(left, top), (left, bottom), (right, top), (right, bottom)}


@dataclass(frozen=True)
class _Part:
    """A piece of a region, at most _PART pixels a side at the wanted resolution."""

    slide: Path
    shapes: "_Shapes"
    region: Shape
    number: int
    left: float
    top: float
    width: int
    height: int
    scale: float  # level-0 pixels per pixel


@dataclass(frozen=True)
class _Shapes:
    """The objects of a slide, with their boxes in one array to look them up by."""

    objects: list[Shape]
    boxes: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "boxes", np.array([shape.box() for shape in self.objects]).reshape(-1, 4))

    def meeting(self, left: float, top: float, right: float, bottom: float) -> list[Shape]:
        boxes = self.boxes
        meets = (boxes[:, 0] < right) & (boxes[:, 2] > left) & (boxes[:, 1] < bottom) & (boxes[:, 3] > top)
        return [self.objects[index] for index in np.flatnonzero(meets)]


class AnnotatedRegions:
    """Regions of annotated slides, at one resolution."""

    name = "slides"
    classes = ("object",)

    def __init__(self, files: list[tuple[Path, Path]], mpp: float, unpaired: list[str]):
        self.mpp = checked_mpp(mpp)
        self.files = tuple(path for pair in files for path in pair)
        self.parts: list[_Part] = []
        problems, notes = list(unpaired), list[str]()
        for slide, annotations in files:
            try:
                with _open(slide, mpp) as opened:
                    self.parts += _parts_of(opened, annotations, mpp)
                    if opened.mpp_source not in _OWN:
                        notes.append(f"{shown(slide.name)}: does not say how large a pixel is; taken as {mpp:g} microns")
            except DsfcnnError as error:
                problems.append(str(error))
        self.unpaired, self.notes = tuple(problems), tuple(notes)
        self._slide: tuple[int, Path, Slide] | None = None

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, index: int) -> Sample:
        part = self.parts[place_in(len(self), index)]
        image = self._opened(part.slide).read(part.left, part.top, part.width, part.height, self.mpp)
        instances = np.zeros((part.height, part.width), np.int32)
        box = (part.left, part.top, part.left + part.width * part.scale, part.top + part.height * part.scale)
        for number, shape in enumerate(part.shapes.meeting(*box), 1):
            fill(instances, _moved(shape, part), number)
        if not part.region.is_rectangle():
            looked_at = np.zeros_like(instances)
            fill(looked_at, _moved(part.region, part), 1)
            image = np.where(looked_at[..., None] > 0, image, np.uint8(255))
            instances *= looked_at
        return Sample(image, relabel(instances), None, self.mpp, self.source(index))  # one may lie wholly under another

    def source(self, index: int) -> str:
        return f"{shown(self.parts[index].slide.name)}[{self.parts[index].number}]"

    def _opened(self, path: Path) -> Slide:
        """The slide used last stays open, in each process its own."""
        if self._slide is None or self._slide[:2] != (os.getpid(), path):
            if self._slide is not None and self._slide[0] == os.getpid():
                self._slide[2].close()
            self._slide = (os.getpid(), path, _open(path, self.mpp))
        return self._slide[2]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_slide": None}


def splits(folder: Path, split_file: Path | None = None) -> list[str]:
    """The splits that are there; ``all`` where slides lie in the folder itself and nothing divides them."""
    named = [name for name in SPLITS if (folder / name).is_dir() and _match(folder / name)[0]]
    if named or not _match(folder)[0]:
        return named
    return [name for name in SPLITS if name in read_split(split_file).values()] if split_file else ["all"]


def open_split(folder: Path, split: str, mpp: float | None = None, split_file: Path | None = None) -> AnnotatedRegions:
    if mpp is None:
        raise UsageError(
            f"{shown(folder)}: slides are read at the resolution that is wanted; give microns per pixel (--data-mpp, data_mpp= in training)"
        )
    files, unpaired = _match(folder / split if split != "all" and (folder / split).is_dir() else folder)
    if split_file:
        chosen = {name for name, part in read_split(split_file).items() if part == split}
        expect_there(chosen, {shown(slide.name) for slide, _ in files}, folder)
        files = [pair for pair in files if shown(pair[0].name) in chosen]
    return AnnotatedRegions(files, mpp, unpaired)


def split_folder(folder: Path, seed: int = 0, valid: float = 0.15, test: float = 0.15) -> dict[str, str]:
    """A split by slide, so that no slide is in two parts."""
    return make_split({"": [shown(slide.name) for slide, _ in _match(folder)[0]]}, seed, valid, test)


def _match(folder: Path) -> tuple[list[tuple[Path, Path]], list[str]]:
    """Slides with their annotations, and a sentence for each GeoJSON file without a slide. Slides without one are not training data."""
    here = [path for path in entries(folder) if path.is_file()]
    annotations = [path for path in here if path.name.lower().endswith(_ENDS)]
    slides: dict[str, list[Path]] = {}
    for path in here:
        if path not in annotations and path.suffix.lower() not in _BESIDE:
            for name in {path.name, path.stem, path.stem.removesuffix(".ome")}:
                slides.setdefault(name, []).append(path)
    files, alone, taken = [], [], set[Path]()
    for path in annotations:
        stem = path.name[: path.name.lower().rindex(".geojson")]
        found = slides.get(stem, [])
        if len(found) == 1 and found[0] in taken:
            alone.append(f"{shown(path.name)}: its slide has other annotations too; leave one of the files")
        elif len(found) == 1:
            files.append((found[0], path))
            taken.add(found[0])
        else:
            what = "annotations without a slide" if not found else "several files that could be its slide"
            alone.append(f"{shown(path.name)}: {what}; put exactly one slide of the same name beside it")
    return files, alone


def _open(path: Path, mpp: float) -> Slide:
    """With the resolution that the slide itself has, else with ``mpp``."""
    try:
        return open_slide(path, image_mpp=mpp)
    except UnknownResolution:
        return open_slide(path, mpp=mpp)


def _parts_of(slide: Slide, annotations: Path, mpp: float) -> list[_Part]:
    scale = mpp / slide.mpp
    regions, objects = find_regions(read_shapes(annotations, slide.bounds))
    if not regions:
        raise DataError(f"{shown(annotations)}: no region; draw a rectangle around what you have annotated and give it the class Region")
    shapes, found = _Shapes(objects), list[_Part]()
    for region in regions:
        left, top, right, bottom = region.box()
        if right <= 0 or bottom <= 0 or left >= slide.width or top >= slide.height:
            raise DataError(
                f"{shown(annotations)}: the region at ({left:g}, {top:g}) lies outside {slide.width} x {slide.height} pixels; "
                "give the annotations of this slide"
            )
        left, top, right, bottom = max(left, 0.0), max(top, 0.0), min(right, slide.width), min(bottom, slide.height)
        width, height = (max(1, math.floor(side / scale)) for side in (right - left, bottom - top))
        for y, below in pairwise(_edges(height)):
            for x, beyond in pairwise(_edges(width)):
                place = left + x * scale, top + y * scale, beyond - x, below - y
                found.append(_Part(slide.path, shapes, region, len(found), *place, scale))
    return found


def _edges(length: int) -> list[int]:
    """Of the fewest parts of at most _PART, about equal: training sees every part as often, so none may be a sliver.

    >>> _edges(2060)
    [0, 1030, 2060]
    """
    parts = -(-length // _PART)
    return [length * part // parts for part in range(parts + 1)]


def _moved(shape: Shape, part: _Part) -> list[Rings]:
    """In pixels of the part, from its upper left corner."""
    corner = np.array([part.left, part.top])
    return [[(ring - corner) / part.scale for ring in rings] for rings in shape.parts]


def find_regions(shapes: list[Shape]) -> tuple[list[Shape], list[Shape]]:
    """Regions and objects, by the rule above."""
    named = [shape for shape in shapes if shape.kind == "annotation" and (shape.class_name or "").lower().startswith("region")]
    rectangles = [shape for shape in shapes if shape.kind == "annotation" and shape.class_name is None and shape.is_rectangle()]
    boxes = np.array([shape.box() for shape in shapes]).reshape(-1, 4)
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    for shape in rectangles:
        left, top, right, bottom = shape.box()
        inside = (centres[:, 0] > left) & (centres[:, 0] < right) & (centres[:, 1] > top) & (centres[:, 1] < bottom)
        if inside.sum() > 1:  # its own centre is one of them
            named.append(shape)
    regions = set(map(id, named))
    return named, [shape for shape in shapes if id(shape) not in regions]


def read_shapes(path: Path, bounds: tuple[float, float] = (0, 0)) -> list[Shape]:
    """Regions and objects of a GeoJSON file as QuPath writes it; ``bounds`` is added to come to level-0 pixels.

    Points, lines and features without a geometry are left out, and cores of tissue arrays, tiles and what is to be ignored.
    """
    try:
        with open_file(path) as stream:
            text = (gzip.GzipFile(fileobj=stream) if path.name.lower().endswith(".gz") else stream).read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise DataError(f"{shown(path)}: more than 2 GB of annotations; export the regions alone")
        content = json.loads(text)
        features = content if isinstance(content, list) else content.get("features", [content])
        return [shape for feature in features if (shape := _shape_of(feature, np.asarray(bounds, float)))]
    except DsfcnnError:
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, RecursionError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
        raise DataError(f"{shown(path)}: not GeoJSON as QuPath writes it; export it again as a feature collection") from error


def _shape_of(feature: dict[str, Any], bounds: np.ndarray) -> Shape | None:
    geometry = feature.get("nucleusGeometry") or feature["geometry"]
    properties = feature.get("properties") or {}
    kind, classification = str(properties.get("objectType", "annotation")).lower(), properties.get("classification") or {}
    class_name = classification.get("name") or ": ".join(classification.get("names") or []) or None  # a class derived from others has names
    kinds = {"Polygon": lambda found: [found], "MultiPolygon": list}
    if not geometry or geometry["type"] not in kinds or not geometry["coordinates"]:
        return None
    if kind not in _KINDS or str(class_name).lower().startswith("ignore"):
        return None
    parts = [[_ring(places) + bounds for places in rings] for rings in kinds[geometry["type"]](geometry["coordinates"])]
    if not all(parts):
        raise ValueError("an empty polygon")
    if not isinstance(class_name, str | None):
        raise TypeError("a class without a name")
    return Shape(parts, kind, class_name)


def _ring(places: list[list[float]]) -> np.ndarray:
    """Places of a polygon; a third number of one, its height, is left out."""
    ring = np.array(places, float)
    if ring.ndim != 2 or ring.shape[0] < 3 or ring.shape[1] < 2 or not np.isfinite(ring).all():
        raise ValueError("an empty or infinite polygon")
    return ring[:, :2]
