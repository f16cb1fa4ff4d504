"""Prediction from file to files: seconds per megapixel, what of it is not the network, and the authors' way beside it in the same run.

    python benchmarks/predict.py [--tile N] [--margin 192] [--rounds 3] [--threads 2] [--only dsf-nuclei small]

A drawn slide of 3 x 3 tiles is predicted in its central tile alone, which has neighbours on all sides as nearly every tile of a large slide
has; reading, network, decoding and all files (of the whole slide) are in the time, one after the other. Random weights find nothing, so the
network's answer is replaced by a perfect one for the drawn nuclei; its own time counts. In turns with it are timed

- outside the network: all 9 tiles with perfect answers at no cost;

and for dsf-nuclei:

- dense: the network in ordinary convolutions (``dsfcnn.fold``) on the tile without any margin, the least that it could cost;
- dense, our tiles: the same on the tile with its margin, which is left out on the way up as far as the tile does not depend on it;
- the authors': the same in windows of 256, of which the central 112 are kept, 12 at a time.

Figures are seconds per megapixel of result at the network's resolution, medians with the quartiles of the rounds, and ratios of rounds.
Dense dsf-nuclei takes most of the time; --tile 256 makes a first look quick. Run it on a quiet machine.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

import numpy as np
import torch
from scipy.ndimage import uniform_filter

import dsfcnn
from dsfcnn import tasks
from dsfcnn.data.synthetic.slide import SlideScene, write_slide
from dsfcnn.inference.inputs import Input
from dsfcnn.inference.job import Job, Options
from dsfcnn.inference.network import TorchNetwork, cut_out
from dsfcnn.inference.predictor import MARGIN, Predictor
from dsfcnn.inference.tiles import Box, Tile
from dsfcnn.kernels import set_backend
from dsfcnn.kernels.memory import keep_small_memory
from dsfcnn.slides import open_slide

WINDOW, KEPT, BATCH = 256, 112, 12  # of the authors' code
# name, group, width, microns per pixel
MODELS = {"dsf-nuclei": ("C8", 1.0, 0.25), "small": ("C4", 0.25, 0.5)}


class Perfect:
    """A network that takes its time (or not, if ``idle``), and whose answers are then exchanged for those of the drawn nuclei."""

    device = "cpu"

    def __init__(self, network: TorchNetwork):
        self.network, self.idle, self.seconds = network, False, 0.0
        self.answers: list[dict[str, np.ndarray]] = []  # what comes next last

    def logits(self, batch: np.ndarray, part: Box | None = None) -> dict[str, np.ndarray]:
        began = time.perf_counter()
        if not self.idle:
            self.network.logits(batch, part)
        self.seconds += time.perf_counter() - began
        return cut_out(self.answers.pop(), part)

    def largest_tile(self, margin: int) -> int:
        return self.network.largest_tile(margin)


def perfect_logits(scene: SlideScene, seen: Box, scale: float, mpp: float) -> dict[str, np.ndarray]:
    """Logits by head (1, channels, H, W), blurred as a network's are."""
    step = round(scale)
    _, instances = scene.draw(seen.left * step, seen.top * step, seen.width * step, seen.height * step)
    task = tasks.get("nuclei")
    targets = task.targets(instances[step // 2 :: step, step // 2 :: step], mpp)
    answer = {}
    for head, names in task.heads.items():
        planes = np.stack([uniform_filter((targets[head] == number).astype(np.float32), 3) for number in range(len(names))])
        answer[head] = np.log(np.clip(planes, 1e-4, 1))[None]
    return answer


class Prediction:
    """Runs of ``dsfcnn predict`` in this process, on a slide of 3 x 3 tiles."""

    def __init__(self, name: str, tile: int | None, margin: int, folder: Path):
        group, width, mpp = MODELS[name]
        self.model = dsfcnn.create("dsf-nuclei", group=group, width=width)
        self.network = Perfect(TorchNetwork(self.model))
        self.predictor = Predictor(self.network, {"task": "nuclei", "mpp": mpp, "tile_margin": margin})
        self.tile = tile or self.network.largest_tile(margin)
        self.scene = SlideScene(*(3 * self.tile * round(mpp / 0.25),) * 2, tissue=1, seed=1)
        self.slide, self.folder = folder / f"{name}.tif", folder
        write_slide(self.slide, self.scene)
        with open_slide(self.slide) as slide:
            self.grid = self.predictor.grid(slide, tile=self.tile)
        self.answers = {place: perfect_logits(self.scene, self.grid.seen(place), self.grid.scale, mpp) for place in self.grid.tiles()}
        self.objects = 0

    def _run(self, places: list[Tile], region: str | None) -> float:
        """Seconds per megapixel of these tiles."""
        options = Options(workers=0, tile=self.tile, find_mask=False, region=region)
        job = Job(self.predictor, Input(self.slide, self.slide.stem), self.folder / "out", options, "perfect")
        self.network.answers, self.network.seconds = [self.answers[place] for place in reversed(places)], 0.0
        began = time.perf_counter()
        record = job.run(False, True, lambda line: None, lambda what, done, total: None, "auto")
        seconds = time.perf_counter() - began
        assert record["counts"]["tiles"] == len(places)
        self.objects = record["counts"]["objects"]
        return seconds / self.megapixels / len(places)

    @property
    def megapixels(self) -> float:
        """Of a tile."""
        return self.tile**2 / 1e6

    def one_tile(self) -> tuple[float, float]:
        """All, and of it the network."""
        place, self.network.idle = Tile(1, 1), False
        x, y, width, height = self.grid.level0(self.grid.core(place))
        seconds = self._run([place], f"{x + 1},{y + 1},{width - 2},{height - 2}")
        return seconds, self.network.seconds / self.megapixels

    def outside(self) -> float:
        self.network.idle = True
        return self._run(list(self.grid.tiles()), None)


def timed(network: torch.nn.Module, shape: tuple[int, int, int], megapixels: float, margin: int = 0) -> Callable[[], float]:
    """Seconds per megapixel of result of a network on (batch, height, width) pixels, of which a margin is not wanted."""
    images = torch.rand(shape[0], 3, *shape[1:])
    part = None if not margin else tuple((margin, length - margin) for length in shape[1:])

    def run() -> float:
        with torch.inference_mode():
            began = time.perf_counter()
            network(images, part)
            return (time.perf_counter() - began) / megapixels

    return run


def said(values: list[float]) -> str:
    lower, _, upper = quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return f"{median(values):7.2f}  ({lower:.2f} to {upper:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tile", type=int, help="Pixels a side; by default what dsfcnn predict takes.")
    parser.add_argument("--margin", type=int, default=MARGIN, help="Pixels; by default what a model has whose own was not measured.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_small_memory()
    set_backend("auto")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            torch.manual_seed(0)
            compare(name, Prediction(name, options.tile, options.margin, Path(folder)), options.rounds)


def compare(name: str, ours: Prediction, rounds: int) -> None:
    group, width, mpp = MODELS[name]
    print(f"{name} ({group}, width {width}, {mpp} um/px), tile {ours.tile}, margin {ours.grid.margin}", flush=True)
    others: dict[str, Callable[[], float]] = {}
    if name == "dsf-nuclei":
        plain, side = dsfcnn.fold(ours.model), ours.tile + 2 * ours.grid.margin
        others = {
            "dense": timed(plain, (1, ours.tile, ours.tile), ours.megapixels),
            "dense, our tiles": timed(plain, (1, side, side), ours.megapixels, ours.grid.margin),
            "the authors'": timed(plain, (BATCH, WINDOW, WINDOW), BATCH * KEPT**2 / 1e6),
        }
    times: dict[str, list[float]] = {"ours, from file to files": [], "of it the network": [], "outside the network": []}
    ours.outside()  # the first one fills caches
    for _ in range(rounds):
        for key, value in zip(times, (*ours.one_tile(), ours.outside())):
            times[key].append(value)
        for key, run in others.items():
            times.setdefault(key, []).append(run())
    for key, values in times.items():
        print(f"  {key:26}{said(values)} s per megapixel")
    print(f"  {ours.objects} objects")
    for what, above, below, goal in (
        ("outside the network, of dense", "outside the network", "dense", "at most 0.10"),
        ("the authors' to ours", "the authors'", "ours, from file to files", "at least 10"),
        ("of it by tiling", "the authors'", "dense, our tiles", "at least 2.5"),
    ):
        if others:
            print(f"  {what:30}{said([a / b for a, b in zip(times[above], times[below])])}  goal: {goal}", flush=True)


if __name__ == "__main__":
    main()
