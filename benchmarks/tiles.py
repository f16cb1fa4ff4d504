"""Tiled against untiled: an image goes through the network whole, and in tiles of 256, 512 and 1024 pixels in any order.

    python benchmarks/tiles.py [--model FOLDER] [--images FILE ... --mpp 0.25] [--task nuclei|glands] [--minutes 3] [--keep FOLDER]

Without --model a small network learns drawn tissue first, and its margin is measured on drawn images; a model folder has a margin of its
own. The image is 1500 x 1500 drawn pixels unless real ones are given, which are read at the model's resolution (1500 pixels a side at
most). An object is doubled if two of the tiled result lie on it, each on a tenth of it or more; it is cut if none of them agrees with
nine tenths of it. Exits with 1 if PQ is below 0.995, a probability is off by 1e-3, or any object is doubled or cut.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch

import dsfcnn
from dsfcnn.data import Augment, Crops, load_batches
from dsfcnn.data.synthetic.dataset import Drawn
from dsfcnn.inference.margin import measure_margin
from dsfcnn.inference.network import TorchNetwork, probabilities_of
from dsfcnn.inference.predictor import Predictor, as_slide, merged, on_image
from dsfcnn.inference.stitch import read_box, to_bytes
from dsfcnn.models import read_config
from dsfcnn.slides import open_slide

TILES = (256, 512, 1024)


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


def stored_in_tiles(predictor, slide, tile, order):
    """Objects on the image's pixels, and the probabilities by head, with the tiles computed in the given order."""
    grid, task = predictor.grid(slide, tile=tile), predictor.segmentation()
    heads = {head: np.empty((len(names), grid.height, grid.width), np.float32) for head, names in task.heads.items()}
    stored = {}
    for place in order(list(grid.tiles())):
        seen, core = grid.seen(place), grid.core(place)
        picture, _ = read_box(slide, grid, seen)
        found = probabilities_of(predictor.network, picture, core.counted_from(seen))
        stored[place] = to_bytes(task, found)
        for head, values in found.items():
            heads[head][(slice(None), *core.slices(grid.whole))] = values
    return on_image(merged(task, grid, stored), grid, slide.width, slide.height), heads


def doubled_and_cut(whole, tiled):
    """How many objects of the untiled result are there twice, or have no partner."""
    table = np.zeros((whole.max() + 1, tiled.max() + 1), int)
    np.add.at(table, (whole.ravel(), tiled.ravel()), 1)
    area, union = table.sum(1)[1:], table.sum(1)[1:, None] + table.sum(0)[None, 1:] - table[1:, 1:]
    overlap = table[1:, 1:]
    if not overlap.size:
        return 0, len(area)
    return int(((overlap >= 0.1 * area[:, None]).sum(1) > 1).sum()), int(((overlap / union).max(1) < 0.9).sum())


def shuffled(places):
    return [places[index] for index in np.random.default_rng(0).permutation(len(places))]


def pictures(chosen, task, mpp):
    """Name, slide and truth (None if unknown) of what is looked at."""
    if not chosen.images:
        sample = Drawn(task.name, "test", count=1, size=1500)[0]
        yield "drawn", as_slide(sample.image, sample.mpp), sample.instances
    for path in chosen.images:
        with open_slide(path, mpp=chosen.mpp, image_mpp=mpp) as slide:
            side = [min(1500, int(length * slide.mpp / mpp)) for length in (slide.width, slide.height)]
            yield path.name, as_slide(slide.read(0, 0, *side, mpp), mpp), None


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--task", choices=("nuclei", "glands"), default="nuclei")
    options.add_argument("--minutes", type=float, default=3.0)
    options.add_argument("--model", type=Path, help="A model folder to use instead of training one.")
    options.add_argument("--keep", type=Path, help="Save the network that was trained, with its margin, as a model folder here.")
    options.add_argument("--images", type=Path, nargs="+", default=[], help="Real images or slides.")
    options.add_argument("--mpp", type=float, help="Microns per pixel of these, where they do not say.")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = read_config(chosen.model) if chosen.model else {"task": chosen.task, "mpp": dsfcnn.tasks.get(chosen.task).mpp}
    task = dsfcnn.tasks.get(config["task"])
    model = dsfcnn.load_model(chosen.model) if chosen.model else train(task, chosen.minutes)
    network, mpp = TorchNetwork(model), config["mpp"] or task.mpp
    margin = config.get("tile_margin")
    if margin is None:
        images = [as_slide(sample.image, sample.mpp) for sample in Drawn(task.name, "valid", count=3, size=round(1024 * mpp / task.mpp))]
        margin = measure_margin(network, [image.read(0, 0, 1024, 1024, mpp, mirror=True) for image in images])
    print(f"margin: {margin} pixels", flush=True)
    if chosen.keep:
        dsfcnn.save_model(model, chosen.keep, mpp=mpp, tile_margin=margin, overwrite=True)
    predictor = Predictor(network, {**config, "tile_margin": margin})
    failed = False
    for name, slide, truth in pictures(chosen, task, mpp):
        whole, wanted = stored_in_tiles(predictor, slide, 4096, list)
        against = "" if truth is None else f", PQ {dsfcnn.metrics.panoptic_quality(truth, whole).pq:.3f} against the {truth.max()} drawn"
        print(f"{name}, {slide.width} x {slide.height}, untiled: {whole.max()} objects{against}", flush=True)
        for tile in TILES:
            found, parts = stored_in_tiles(predictor, slide, tile, shuffled)
            if tile == TILES[-1]:  # where it is cheapest; the others were shuffled too
                again = predictor.segment(slide.read(0, 0, slide.width, slide.height), slide.mpp, tile=tile)
                same = bool((found == again).all())
                failed |= not same
                print(f"  tiles of {tile} in order: {'the same' if same else 'ANOTHER RESULT'}", flush=True)
            worst = max(float(np.abs(parts[head] - wanted[head]).max()) for head in wanted)
            pq, (doubled, cut) = dsfcnn.metrics.panoptic_quality(whole, found).pq, doubled_and_cut(whole, found)
            failed |= pq < 0.995 or worst >= 1e-3 or doubled > 0 or cut > 0
            print(
                f"  tiles of {tile}, shuffled: {found.max()} objects, {doubled} doubled, {cut} cut, PQ {pq:.5f} against untiled, "
                f"probabilities differ by at most {worst:.1e}",
                flush=True,
            )
    sys.exit(failed)


if __name__ == "__main__":
    main()
