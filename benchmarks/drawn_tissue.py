"""A small steerable network learns drawn tissue in a few minutes on one core, and is tested on tissue that it has not seen.

python benchmarks/drawn_tissue.py [--minutes 3] [--task nuclei|glands|tumour]
"""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F

import dsfcnn
from dsfcnn.data import Augment, Crops, load_batches
from dsfcnn.data.synthetic.dataset import Drawn


def as_input(samples):
    return torch.from_numpy(np.stack([sample.image for sample in samples])).permute(0, 3, 1, 2).float() / 255


def tumour_loss(model, samples):
    return F.cross_entropy(model(as_input(samples)), torch.tensor([sample.label for sample in samples]))


def object_loss(model, samples):
    objects = torch.from_numpy(np.stack([sample.instances > 0 for sample in samples])).long()
    return F.cross_entropy(model(as_input(samples))["object"], objects)


def test_tumour(model, data):
    """Share of right answers; chance is 1/2."""
    samples = [data[index] for index in range(len(data))]
    scores = torch.cat([model(as_input(samples[start : start + 20])).softmax(1)[:, 1] for start in range(0, len(samples), 20)]).numpy()
    labels = np.array([sample.label for sample in samples])
    area = dsfcnn.metrics.auc(labels, scores)
    print(f"test: accuracy {((scores > 0.5) == labels).mean():.3f} (chance 0.500), AUC {area:.3f} (chance 0.500), {len(labels)} patches")


def test_objects(model, data):
    """Dice of objects against the best that ignores the image: calling every pixel an object."""
    dice, chance = [], []
    for index in range(len(data)):
        sample = data[index]
        truth = sample.instances > 0
        found = model(as_input([sample]))["object"][0].argmax(0).numpy() == 1
        dice.append(2 * (found & truth).sum() / max(1, found.sum() + truth.sum()))
        chance.append(2 * truth.mean() / (1 + truth.mean()))
    print(f"test: Dice {np.mean(dice):.3f} (every pixel an object: {np.mean(chance):.3f}), {len(data)} images")


# Model, its options, training data, test data, loss, test.
TASKS = {
    "nuclei": ("steerable-nuclei", {}, Drawn("nuclei", "train", count=20), Drawn("nuclei", "test", size=256), object_loss, test_objects),
    "glands": (
        "steerable-glands",
        {"heads": {"object": 2}},
        Drawn("glands", "train", count=20),
        Drawn("glands", "test"),
        object_loss,
        test_objects,
    ),
    "tumour": ("steerable-tumour", {}, Drawn("tumour", "train"), Drawn("tumour", "test"), tumour_loss, test_tumour),
}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--task", choices=TASKS, default="nuclei")
    options.add_argument("--minutes", type=float, default=3.0)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    name, more, train, test, loss_of, test_on = TASKS[chosen.task]
    model = dsfcnn.create(name, group="C4", width=0.3, **more)
    crops = Crops(train, 96, train.mpp, per_epoch=1_000_000, augment=Augment())
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    start, losses = time.perf_counter(), []
    for step, samples in enumerate(load_batches(crops, 8, range(1_000_000))):
        optimiser.zero_grad()
        loss = loss_of(model, samples)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
        if step % 20 == 19:
            print(f"step {step + 1}: loss {np.mean(losses[-20:]):.3f}, {time.perf_counter() - start:.0f} s", flush=True)
        if time.perf_counter() - start > 60 * chosen.minutes:
            break
    model.eval()
    with torch.no_grad():
        test_on(model, test)


if __name__ == "__main__":
    main()
