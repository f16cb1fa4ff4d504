"""What decoding loses by itself: targets of true objects, fed back as perfect probabilities, decoded and scored.

    python benchmarks/ideal_decoding.py DATA [--split train]

DATA holds kumar/SPLIT/labels and glas/SPLIT/labels with instance maps as PNG files. Every true object that is not found is listed
by reason. These figures are the ceiling of a network that learned its targets perfectly.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image
from scipy import ndimage

import dsfcnn
from dsfcnn.tasks.metrics.overlap import overlap
from dsfcnn.tasks.targets import MARKER

GLAS_MPP = 0.62  # the size filter and the diamonds scale from 0.5
GOALS = {"nuclei": {"pq": 0.97}, "glands": {"object_f1": 0.975, "object_dice": 0.99}}


def perfect(task, targets):
    """Probabilities of 0 and 1 that say exactly what the targets say."""
    return {head: np.stack([targets[head] == i for i in range(len(names))]).astype(np.float32) for head, names in task.heads.items()}


def lost(task, truth, found, marker, mpp):
    """Why each true object without a true positive was lost."""
    table = overlap(truth, found)
    whole = table.union if task.name == "nuclei" else table.truth_area[table.truth]  # PQ's and F1's own rule
    hit = np.zeros(len(table.truth_area), bool)
    hit[table.truth[2 * table.shared > whole]] = True
    smallest = (task.settings.smallest_marker if task.name == "nuclei" else task.settings.smallest_gland) / mpp**2
    for number in np.flatnonzero(~hit):
        mask = truth == table.truths.ids[number]
        pieces, count = ndimage.label(mask & (marker == MARKER))
        sizes = np.bincount(pieces.ravel())[1:]
        if count == 0:
            yield "too small or thin: erosion leaves nothing"
        elif sizes.max() < smallest:
            yield f"too small: erosion leaves less than the {smallest:.0f} px of the size filter"
        elif count > 1:
            yield "falls into pieces by erosion"
        elif not found[mask].any():
            yield "too thin: opening cuts it below the size filter"
        else:
            yield "takes in touching neighbours that lost their markers"


def run(task, labels, mpp):
    truths, found, reasons = [], [], Counter()
    for path in labels:
        truth = np.array(Image.open(path))
        targets = task.targets(truth, mpp)
        objects = task.decode(perfect(task, targets), mpp)
        truths.append(truth)
        found.append(objects)
        reasons.update(lost(task, truth, objects, targets["marker" if "marker" in targets else "object"], mpp))
    return task.score(truths, found), sum(len(np.unique(t[t != 0])) for t in truths), reasons


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="train")
    options = parser.parse_args()
    missed = []
    for name, folder, mpp in (("nuclei", "kumar", 0.25), ("glands", "glas", GLAS_MPP)):
        task = dsfcnn.tasks.get(name)
        labels = sorted((options.data / folder / options.split / "labels").glob("*.png"))
        if not labels:
            sys.exit(f"error: {options.data / folder / options.split}: no labels/*.png; give the folder that holds {folder}")
        results, objects, reasons = run(task, labels, mpp)
        print(f"## {folder}/{options.split}: {len(labels)} images, {objects} {name}, {mpp} um/px\n\n{results.table()}")
        print(f"lost: {reasons.total()} of {objects}")
        for reason, count in reasons.most_common():
            print(f"- {count}: {reason}")
        print()
        for measure, goal in GOALS[name].items():
            value = results.mean[measure].value if name == "nuclei" else results.pooled[measure].value
            if value < goal:
                missed.append(f"{folder} {measure} {value:.4f} is below {goal}")
    sys.exit("\n".join(missed) or None)


if __name__ == "__main__":
    main()
