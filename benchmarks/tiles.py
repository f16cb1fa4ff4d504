"""Tiled against untiled: a small network learns drawn tissue, its margin is measured, and 1500 x 1500 pixels go through it both ways.

python benchmarks/tiles.py [--task nuclei|glands] [--minutes 3] [--keep FOLDER] [--model FOLDER]
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

import dsfcnn
from dsfcnn.data import Augment, Crops, load_batches
from dsfcnn.data.synthetic.dataset import Drawn
from dsfcnn.inference.margin import measure_margin
from dsfcnn.inference.network import TorchNetwork, probabilities_of
from dsfcnn.inference.predictor import Predictor, as_slide
from dsfcnn.inference.stitch import read_box


def train(task, minutes):
    data = Drawn(task.name, "train", count=20)
    model = dsfcnn.create(f"steerable-{task.name}", group="C4", width=0.3)
    crops = Crops(data, 128, data.mpp, per_epoch=1_000_000, augment=Augment())
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    start, losses = time.perf_counter(), []
    for samples in load_batches(crops, 4, range(1_000_000)):
        images = torch.from_numpy(np.stack([sample.image for sample in samples])).permute(0, 3, 1, 2).float() / 255
        drawn = [task.targets(sample.instances, data.mpp) for sample in samples]
        targets = {head: torch.from_numpy(np.stack([one[head] for one in drawn])) for head in drawn[0]}
        targets = {head: values.long() if values.dtype == torch.uint8 else values for head, values in targets.items()}
        optimiser.zero_grad()
        loss = task.loss(model(images), targets)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
        if time.perf_counter() - start > 60 * minutes:
            break
    print(f"{model.architecture['name']}, C4, width 0.3: {len(losses)} steps, loss {np.mean(losses[-20:]):.3f}", flush=True)
    return model.eval()


def tiled_probabilities(predictor, image, tile):
    slide = as_slide(image, predictor.mpp)
    grid = predictor.grid(slide, tile=tile)
    heads = {head: np.empty((len(names), *image.shape[:2]), np.float32) for head, names in predictor.task.heads.items()}
    for place in grid.tiles():
        seen, core = grid.seen(place), grid.core(place)
        found = probabilities_of(predictor.network, read_box(slide, grid, seen)[0])
        for head, values in found.items():
            heads[head][(slice(None), *core.slices(grid.whole))] = values[(slice(None), *core.slices(seen))]
    return heads


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--task", choices=("nuclei", "glands"), default="nuclei")
    options.add_argument("--minutes", type=float, default=3.0)
    options.add_argument("--model", type=Path, help="A model folder to use instead of training one.")
    options.add_argument("--keep", type=Path, help="Save the network as a model folder here.")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    task = dsfcnn.tasks.get(chosen.task)
    model = dsfcnn.load_model(chosen.model) if chosen.model else train(task, chosen.minutes)
    network = TorchNetwork(model)
    images = Drawn(task.name, "valid", count=3, size=1024)
    margin = measure_margin(network, [images[index].image for index in range(3)])
    print(f"margin: {margin} pixels", flush=True)
    if chosen.keep:
        dsfcnn.save_model(model, chosen.keep, mpp=task.mpp, tile_margin=margin, overwrite=True)
    predictor = Predictor(network, {"task": task.name, "mpp": task.mpp, "tile_margin": margin})
    sample = Drawn(task.name, "test", count=1, size=1500)[0]
    whole = predictor.segment(sample.image, tile=1520)
    wanted = tiled_probabilities(predictor, sample.image, 1520)
    truth = dsfcnn.metrics.panoptic_quality(sample.instances, whole)
    print(f"untiled: {whole.max()} objects of {sample.instances.max()} drawn, PQ against these {truth.pq:.3f}", flush=True)
    for tile in (256, 512, 1024):
        found = predictor.segment(sample.image, tile=tile)
        parts = tiled_probabilities(predictor, sample.image, tile)
        worst = max(float(np.abs(parts[head] - wanted[head]).max()) for head in wanted)
        pq = dsfcnn.metrics.panoptic_quality(whole, found).pq
        print(
            f"tiles of {tile}: {found.max()} objects, PQ {pq:.5f} against untiled, probabilities differ by at most {worst:.1e}", flush=True
        )


if __name__ == "__main__":
    main()
