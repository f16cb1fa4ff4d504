"""One input, from its pixels to its files.

First the tiles that have tissue go through the network, one after the other, while a thread reads the next ones and other processes decode
the ones before; each leaves its probabilities and its objects in the state folder. Then the objects are merged, measured and written.
"""

import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from dsfcnn import __version__
from dsfcnn.errors import DataError
from dsfcnn.files import telling_full_disk
from dsfcnn.inference.decoding import Decoding
from dsfcnn.inference.inputs import Input
from dsfcnn.inference.patches import patch_box, patch_grid, tile_classes, write_classes
from dsfcnn.inference.predictor import Predictor
from dsfcnn.inference.rasters import write_mask
from dsfcnn.inference.results import Pixels, Spool, classification, measured, write_probabilities, write_results
from dsfcnn.inference.state import State, sha256
from dsfcnn.inference.stitch import RETRY, read_box, tile_probabilities
from dsfcnn.inference.tiles import Box, Grid, Tile
from dsfcnn.inference.within import Annotations, Area, contains, parse_region
from dsfcnn.kernels.memory import give_back_memory
from dsfcnn.slides import Slide, Tissue, find_tissue, open_slide, read_image
from dsfcnn.slides.image import MAX_PIXELS, is_transparent
from dsfcnn.slides.resolution import own_mpp
from dsfcnn.slides.slide import blocks
from dsfcnn.slides.source import shown
from dsfcnn.tasks.task import Segmentation

if TYPE_CHECKING:
    from dsfcnn.inference.cohort import Cluster

_MOST_UNREADABLE = 0.01  # of the pixels looked at; beyond that the result would mislead
_OTHER_MPP = 0.02  # of the slide's own resolution; what is given may be rounded
_AHEAD = 2  # tiles that are read before the network wants them

Rectangle = tuple[float, float, float, float]  # x, y, width, height on level 0
Progress = Callable[[str, int, int], None]  # what is being done, how much of it, of how much


@dataclass(frozen=True)
class Options:
    """What a user can choose for an input; see ``dsfcnn predict --help``."""

    mask: Path | None = None
    find_mask: bool = True
    region: str | None = None
    within: Path | None = None
    slide_mpp: float | None = None
    mpp: float | None = None
    max_pixels: int = MAX_PIXELS
    tile: int | None = None
    workers: int = 1


class Job:
    """One input of a run; ``cluster`` computes its tiles elsewhere."""

    def __init__(self, predictor: Predictor, source: Input, out: Path, options: Options, model: str, cluster: "Cluster | None" = None):
        self.predictor, self.source, self.options = predictor, source, options
        self.results = out / source.name
        self.state = State(self.results)
        self.out, self.cluster = out, cluster
        self.model = model  # sha256 of its files
        self._open: tuple[Slide, Grid, Tissue | None, Area | None] | None = None
        self.mpp = predictor.mpp if options.mpp is None else options.mpp

    def _opened(self) -> Slide:
        options = self.options
        return open_slide(self.source.path, mpp=options.slide_mpp, image_mpp=self.predictor.mpp, max_pixels=options.max_pixels)

    def run(self, resume: bool, overwrite: bool, tell: Callable[[str], None], progress: Progress, backend: str) -> dict[str, Any]:
        """Do what is not done yet; returns the record that is in run.json."""
        began = time.perf_counter()
        with self._opened() as slide:
            grid = self._grid(slide)
            settings = self._settings(slide, grid, backend)
            area, mask = self._area(slide), self._mask(slide)  # before results that are there make room
            if self.state.begin(settings, resume, overwrite):
                self.state.discard()
                return self.state.record()
            if slide.mpp_source == "assumed for a plain image":
                tell(f"{shown(self.source.name)}: taken at the model's {slide.mpp:g} um per pixel; give --slide-mpp if that is wrong")
            own = own_mpp(slide.facts)
            if own is not None and abs(slide.mpp / own - 1) > _OTHER_MPP:
                tell(f"{shown(self.source.name)}: says {own:.4g} um per pixel but is taken at --slide-mpp {slide.mpp:g}")
            try:
                counts, seconds = self._predict(slide, grid, area, mask, tell, progress)
            except DataError:
                self.state.abandon()
                raise
            record = {
                "settings": settings,
                "versions": {"dsfcnn": __version__, "python": platform.python_version(), **_versions()},
                "input": {
                    "name": self.source.name,
                    "width": slide.width,
                    "height": slide.height,
                    "bounds": list(slide.bounds),  # what the GeoJSON's coordinates lack
                    "reader": slide.reader,
                },
                "mpp_source": slide.mpp_source,
                "counts": counts,
                "seconds": {"tiles": round(seconds, 2), "all": round(time.perf_counter() - began, 2)},
            }
        self.state.finish(record)
        return record

    def _predict(
        self, slide: Slide, grid: Grid, area: Area | None, mask: Tissue | None, tell: Callable[[str], None], progress: Progress
    ) -> tuple[dict[str, Any], float]:
        """All files but the record; returns what was counted, and the seconds until all tiles were there."""
        began = time.perf_counter()
        tissue = mask or self._found(slide)
        tiles = [tile for tile in grid.tiles() if _wanted(grid.level0(grid.core(tile)), tissue, None)]
        # An object whose centre lies in the area may reach into a tile beside it, which then is needed too.
        tiles = [tile for tile in tiles if _wanted(grid.level0(grid.window(tile)), None, area)]
        if not tiles:
            where = "" if area is None else " in the place to look at"
            tell(f"{shown(self.source.name)}: no tissue found{where}; the result is empty")
        self._network(slide, grid, tiles, tissue, area, progress)
        damaged, broken, places = self._damage(grid, tiles)
        if damaged > _MOST_UNREADABLE:
            raise DataError(f"{shown(self.source.path)}: {damaged:.1%} of what was looked at is damaged; get the slide again")
        seconds = time.perf_counter() - began
        if tissue is not None:
            write_mask(self.results / "tissue_mask.png", tissue.mask, tissue.unreadable)
        counts = self._write(slide, grid, tiles, _centres(tissue, area), places, progress)
        tissue_mm2 = round(_looked_at(slide, tissue, area), 6)
        return {**counts, "tiles": len(tiles), "unreadable_tiles": broken, "tissue_mm2": tissue_mm2}, seconds

    def check(self, backend: str) -> None:
        """Refuse to go on with a run that was begun otherwise, before any work is done on any input."""
        if not self.state.results.exists():
            return
        with self._opened() as slide:
            self.state.check(self._settings(slide, self._grid(slide), backend))

    def _grid(self, slide: Slide) -> Grid:
        if isinstance(self.predictor.task, Segmentation):
            return self.predictor.grid(slide, self.mpp, self.options.tile)
        return patch_grid(slide, self.mpp)

    def _settings(self, slide: Slide, grid: Grid, backend: str) -> dict[str, Any]:
        """All that decides the bytes of the results."""
        options = self.options
        mask = "none" if not options.find_mask else "found" if options.mask is None else sha256(options.mask)
        return {
            "model": self.model,
            "task": self.predictor.task.name,
            "input": self._input_hash,
            "slide_mpp": slide.mpp,
            "mpp": grid.mpp,
            "tile": grid.tile,
            "margin": grid.margin,
            "border": grid.border,
            "overlap": grid.overlap,
            "factor": grid.factor,
            "mask": mask if not slide.is_image or options.mask else "none",
            "region": options.region,
            "within": None if options.within is None else sha256(options.within),
            "device": self.predictor.network.device,
            "backend": backend,
            "threads": torch.get_num_threads(),  # the order of sums depends on it
        }

    @cached_property
    def _input_hash(self) -> str:
        """Once for a run that first checks and then goes on: slides have gigabytes."""
        return sha256(self.source.path)

    def _mask(self, slide: Slide) -> Tissue | None:
        """Where the user says to look."""
        return None if self.options.mask is None else read_mask(self.options.mask, slide, self.options.max_pixels)

    def _found(self, slide: Slide) -> Tissue | None:
        """Where to look without a mask: a plain image was cut out by somebody and is looked at as a whole."""
        return find_tissue(slide) if self.options.find_mask and not slide.is_image else None

    def _area(self, slide: Slide) -> Area | None:
        area: Area | None = None
        if self.options.region is not None:
            area = parse_region(self.options.region)
        elif self.options.within is not None:
            area = Annotations(self.options.within, slide.bounds)
        if area is not None and not area.touches(0, 0, slide.width, slide.height):
            what, size = "--region" if self.options.within is None else "--within", f"{slide.width} x {slide.height}"
            raise DataError(f"{shown(self.source.path)}: {what} lies outside its {size} pixels; give places in pixels of this slide")
        return area

    def _network(self, slide: Slide, grid: Grid, tiles: list[Tile], tissue: Tissue | None, area: Area | None, progress: Progress) -> None:
        """Probabilities, and objects where there are any, of all tiles."""
        task = self.predictor.task
        missing = [tile for tile in tiles if not self.state.has_tile(tile)]
        done = len(tiles) - len(missing)
        progress("tiles", done, len(tiles))
        decoded = tiles if isinstance(task, Segmentation) else []
        with Decoding(self.results, cast(Segmentation, task), grid, decoded, self.options.workers) as decoding:
            if self.cluster is not None:
                finished: Iterable[Tile] = self.cluster.compute(self, missing)
            else:
                finished = self._one_by_one(slide, grid, missing, tissue, area)
            for number, tile in enumerate(finished, 1):
                if decoded:
                    decoding.has_probabilities(tile)
                progress("tiles", done + number, len(tiles))
            decoding.finish()

    def _one_by_one(self, slide: Slide, grid: Grid, tiles: list[Tile], tissue: Tissue | None, area: Area | None) -> Iterator[Tile]:
        """Compute tiles here, while a thread reads the next ones."""
        with ThreadPoolExecutor(1) as reader:
            ahead: list[Future[Any]] = []
            try:
                for number, tile in enumerate(tiles):
                    while len(ahead) <= _AHEAD and number + len(ahead) < len(tiles):
                        ahead.append(reader.submit(read_box, slide, grid, self._seen(grid, tiles[number + len(ahead)])))
                    picture, damaged = ahead.pop(0).result()
                    self._compute(grid, tile, picture, damaged, tissue, area)
                    yield tile
            finally:
                for future in ahead:
                    future.cancel()

    def compute_alone(self, tile: Tile) -> None:
        """One tile, for a process that knows nothing but this job; what it has opened stays open for the next."""
        if self._open is None:
            slide = self._opened()
            cells = not isinstance(self.predictor.task, Segmentation)  # they are chosen one by one; tiles have been
            tissue = (self._mask(slide) or self._found(slide)) if cells else None
            self._open = slide, self._grid(slide), tissue, self._area(slide) if cells else None
        slide, grid, tissue, area = self._open
        picture, damaged = read_box(slide, grid, self._seen(grid, tile))
        self._compute(grid, tile, picture, damaged, tissue, area)

    def _seen(self, grid: Grid, tile: Tile) -> Box:
        return grid.seen(tile) if isinstance(self.predictor.task, Segmentation) else patch_box(grid, tile)

    def _compute(
        self, grid: Grid, tile: Tile, picture: np.ndarray, damaged: np.ndarray | None, tissue: Tissue | None, area: Area | None
    ) -> None:
        network, task = self.predictor.network, self.predictor.task
        give_back_memory()
        if isinstance(task, Segmentation):
            stored = tile_probabilities(network, task, grid, tile, picture, damaged)
        else:
            stored = tile_classes(network, grid, tile, picture, damaged, _cells(tissue, area))
        inner = np.zeros((0, 0), bool) if damaged is None else damaged[grid.core(tile).slices(self._seen(grid, tile))]
        self.state.save_tile(tile, stored=stored, damaged=inner)

    def _damage(self, grid: Grid, tiles: list[Tile]) -> tuple[float, int, list[Rectangle]]:
        """Share of damaged pixels, the number of tiles that have some, and where they are, on level 0."""
        pixels, broken, places = 0, 0, []
        for tile in tiles:
            damaged, core = self.state.damaged(tile), grid.core(tile)
            pixels, broken = pixels + int(damaged.sum()), broken + bool(damaged.any())
            for left, top in blocks(*core[:2], core.width, core.height, RETRY) if damaged.any() else ():
                block = Box(left, top, left + RETRY, top + RETRY).within(core)
                if damaged[block.slices(core)].any():
                    places.append(grid.level0(block))
        return pixels / max(1, sum(grid.core(tile).area for tile in tiles)), broken, places

    def _write(
        self,
        slide: Slide,
        grid: Grid,
        tiles: list[Tile],
        keep: Callable[[float, float], bool],
        damaged: list[Rectangle],
        progress: Progress,
    ) -> dict[str, int]:
        task, config = self.predictor.task, self.predictor.config
        slide_id = self.source.name
        if not isinstance(task, Segmentation):
            return write_classes(self.results, self.state, grid, tiles, slide, config, task, slide_id, damaged)
        pixels, done = Pixels(slide, grid), 0

        def one_more() -> None:
            nonlocal done
            done += 1
            progress("objects", done, len(tiles))

        with telling_full_disk(self.results), tempfile.TemporaryFile(dir=self.state.folder) as stream:
            spool = Spool(stream)
            for instance in measured(self.state, tiles, pixels, keep, one_more):
                spool.add(instance)
            counts = write_results(self.results, spool, pixels, classification(config, task.name), task.name, slide_id, damaged)
        write_probabilities(self.results / "probability.tif", self.state, grid, task)
        return counts


def _wanted(rectangle: Rectangle, tissue: Tissue | None, area: Area | None) -> bool:
    return (tissue is None or tissue.touches(*rectangle)) and (area is None or area.touches(*rectangle))


def _looked_at(slide: Slide, tissue: Tissue | None, area: Area | None) -> float:
    """Square millimetres of tissue, of the whole slide where it was not looked for, inside the area if there is one."""
    if tissue is None:
        pixels = slide.width * slide.height if area is None else area.pixels(slide.width, slide.height)
        return pixels * (slide.mpp / 1000) ** 2
    if area is None:
        return tissue.area
    pixels = 0
    for row, line in enumerate(tissue.mask):
        places = (np.flatnonzero(line) + 0.5) * tissue.scale
        pixels += int(np.count_nonzero(area.contain(places, np.full_like(places, (row + 0.5) * tissue.scale))))
    return pixels * (tissue.mpp / 1000) ** 2


def _cells(tissue: Tissue | None, area: Area | None) -> Callable[[Rectangle], bool]:
    return lambda rectangle: _wanted(rectangle, tissue, area)


def _centres(tissue: Tissue | None, area: Area | None) -> Callable[[float, float], bool]:
    """Which objects are kept, by their centres: a tile with some tissue has glass too, on which a network may see anything."""
    return lambda x, y: (tissue is None or tissue.touches(x, y, 0, 0)) and (area is None or contains(area, x, y))


def read_mask(path: Path, slide: Slide, max_pixels: int = MAX_PIXELS) -> Tissue:
    """A user's mask: a picture of the whole slide at any resolution, tissue wherever it is not black."""
    picture = read_image(path, max_pixels=max_pixels).max(2) > 0
    if is_transparent(path):  # it was laid over white, so what is not painted would be tissue
        raise DataError(f"{shown(path)}: a mask with transparent parts; save it without, black where nothing is to be looked at")
    height, width = picture.shape
    scale = slide.width / width
    if abs(slide.height / scale - height) > 1 + 0.01 * height:
        raise DataError(
            f"{shown(path)}: a mask of {width} x {height} does not cover a slide of {slide.width} x {slide.height}; "
            "give one of the same proportions"
        )
    return Tissue(picture, np.zeros_like(picture), slide.mpp * scale, scale)


def model_hash(path: Path) -> str:
    """Of the model's files that decide its results."""
    return sha256(path) if path.is_file() else sha256(path / "config.json", path / "model.safetensors")


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "numpy", "scipy", "scikit-image", "pillow")}
