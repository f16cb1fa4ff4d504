"""How fast training samples are made, beside how fast the smallest model uses them up.

Cuts of 256 x 256 pixels with the authors' augmentation, their targets and the penalty map, from drawn nuclei or any data set, in one
process and in workers; and a training step of a small model on such a batch. Ratios of one run mean something, times of two runs do not.

    python benchmarks/data.py [--data DIR --split train] [--workers 2]
"""

import argparse
import statistics
import time

import numpy as np
import torch

import dsfcnn
from dsfcnn import tasks
from dsfcnn.data import Augment, Crops, load_batches, open_dataset
from dsfcnn.data.crops import one_piece_each
from dsfcnn.data.synthetic.dataset import Drawn
from dsfcnn.data.warp import View, warp_image, warp_labels

TASK = tasks.get("nuclei")


def prepare(samples):
    """A batch as training takes it: images and, for each head, targets."""
    targets = [TASK.targets(sample.instances, sample.mpp) for sample in samples]
    return np.stack([sample.image for sample in samples]), {key: np.stack([t[key] for t in targets]) for key in targets[0]}


def median_ms(function, repeats=30):
    function(0)
    times = []
    for index in range(1, repeats + 1):
        start = time.perf_counter()
        function(index)
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def samples_per_second(crops, batch, workers, steps):
    """After the first batches, in which workers start and images are decoded."""
    batches = load_batches(crops, batch, range(steps + 4 * max(1, workers)), workers=workers, prepare=prepare)
    for _ in range(4 * max(1, workers)):
        next(batches)
    start = time.perf_counter()
    for _ in batches:
        pass
    return steps * batch / (time.perf_counter() - start)


def training_step_seconds(model, batch, repeats=2):
    images, targets = batch
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    targets = {key: torch.from_numpy(value) for key, value in targets.items()}
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        optimiser.zero_grad()
        TASK.loss(model(x), {key: value.long() if value.dtype == torch.uint8 else value for key, value in targets.items()}).backward()
        optimiser.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", help="folder of a data set of nuclei; drawn ones by default")
    options.add_argument("--split", default="train")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--batch", type=int, default=8)
    options.add_argument("--steps", type=int, default=12)
    options.add_argument("--model", default="dsf-nuclei")
    options.add_argument("--group", default="C4")
    options.add_argument("--width", type=float, default=0.3)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    data = open_dataset(chosen.data, chosen.split) if chosen.data else Drawn("nuclei", "train", count=8)
    crops = Crops(data, 256, 0.25, per_epoch=1_000_000, augment=Augment())
    whole, view = data[0], View.turned(256, (250.3, 250.8), 33.0)
    sample = crops.draw(0, 0)
    rng = np.random.default_rng(0)
    pieces = {
        "turn image": lambda _: warp_image(whole.image, view),
        "turn instances, one piece each": lambda _: one_piece_each(warp_labels(whole.instances, view)),
        "blur and colour": lambda _: Augment().change_colour(sample.image, rng),
        "targets and penalty map": lambda _: TASK.targets(sample.instances, 0.25),
    }
    for name, piece in pieces.items():
        print(f"{name:32s} {median_ms(piece):8.2f} ms")
    for index in range(64):
        crops.draw(0, index)  # decode or draw every image once
    rates = {0: samples_per_second(crops, chosen.batch, 0, chosen.steps)}
    if chosen.workers:
        rates[chosen.workers] = samples_per_second(crops, chosen.batch, chosen.workers, chosen.steps)
    for workers, rate in rates.items():
        print(f"{workers} workers: {rate:6.1f} samples a second, {rate / max(1, workers):6.1f} for each process")
    model = dsfcnn.create(chosen.model, group=chosen.group, width=chosen.width)
    step = training_step_seconds(model, prepare([crops.draw(0, i) for i in range(chosen.batch)]))
    print(f"{chosen.model} {chosen.group} width {chosen.width}: {step:.2f} s a step, {chosen.batch / step:.1f} samples a second")
    print(f"the loader makes {rates[chosen.workers] * step / chosen.batch:.1f} times what the model uses, each measured alone")


if __name__ == "__main__":
    main()
