"""What turning costs the truth: instance maps turned by an angle and back, as crops are turned in training, beside what they were.

    python benchmarks/turning.py DATA [--split train] [--format auto] [--mpp X] [--angles 10 27.5 45 61.3 80]

Every object of every image is compared with itself after the two turns, by IoU. Nearest-neighbour reading moves an edge by up to half a
pixel each time, so small objects lose most. The image is set into black first, so that no corner is cut off.
"""

import argparse

import numpy as np

from dsfcnn.data import open_dataset
from dsfcnn.data.warp import View, warp_labels

LARGE = 250  # pixels


def there_and_back(instances, degrees):
    """The map after both turns; ``instances`` is square with an odd side, so its middle is a pixel."""
    side = len(instances)
    middle = (side - 1) / 2, (side - 1) / 2
    there = warp_labels(instances, View.turned(side, middle, degrees), "black")
    return warp_labels(there, View.turned(side, middle, -degrees), "black")


def on_black(instances):
    """The map in the middle of a square that holds it however it is turned."""
    height, width = instances.shape
    side = int(np.ceil(np.hypot(height, width))) // 2 * 2 + 3
    square = np.zeros((side, side), instances.dtype)
    top, left = (side - height) // 2, (side - width) // 2
    square[top : top + height, left : left + width] = instances
    return square


def ious(before, after):
    """Of each object with itself, and its pixels before."""
    count = int(before.max()) + 1
    shared = np.bincount(before[before == after], minlength=count)
    area = np.bincount(before.ravel(), minlength=count)
    union = area + np.bincount(after.ravel(), minlength=count) - shared
    return shared[1:] / union[1:], area[1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--split", default="train")
    parser.add_argument("--format", default="auto")
    parser.add_argument("--mpp", type=float)
    parser.add_argument("--angles", type=float, nargs="+", default=[10, 27.5, 45, 61.3, 80])
    options = parser.parse_args()
    data = open_dataset(options.data, options.split, options.format, options.mpp)
    found = {degrees: [] for degrees in options.angles}
    for index in range(len(data)):
        sample = data[index]
        square = on_black(sample.instances)
        for degrees in options.angles:
            found[degrees].append((*ious(square, there_and_back(square, degrees)), sample.source))
    heads = ["angle", "objects", "median IoU", "worst", "of 250 pixels and more", "of these up to 0.95", "worst", "its pixels and image"]
    print("|", " | ".join(heads), "|\n|" + " ---: |" * 7 + " --- |")
    for degrees in options.angles:
        print_row(degrees, found[degrees])
    print_row("all", [image for images in found.values() for image in images])


def print_row(name, images):
    scores, areas = (np.concatenate(parts) for parts in list(zip(*images))[:2])
    sources = np.repeat([source for *_, source in images], [len(score) for score, *_ in images])
    large = np.flatnonzero(areas >= LARGE)
    row = [name, f"{len(scores):,}", f"{np.median(scores):.3f}", f"{scores.min():.3f}", f"{len(large):,}"]
    if len(large):
        worst = large[np.argmin(scores[large])]
        row += [np.count_nonzero(scores[large] <= 0.95), f"{scores[worst]:.4f}", f"{areas[worst]}, {sources[worst]}"]
    print("|", " | ".join(map(str, row)), "|")


if __name__ == "__main__":
    main()
