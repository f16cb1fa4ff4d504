"""What decoding loses by itself: targets of true objects, fed back as perfect probabilities, decoded and scored.

    python benchmarks/ideal_decoding.py DATA [--split train]

DATA holds kumar/SPLIT/labels and glas/SPLIT/labels with instance maps as PNG files. Every true object that is not found is listed
by reason. A network can only do better than these figures where it contradicts its own targets.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

import dsfcnn
from dsfcnn.tasks.metrics.overlap import overlap
from dsfcnn.tasks.targets import MARKER

GLAS_MPP = 0.62
GOALS = {"nuclei": {"pq": 0.97}, "glands": {"object_f1": 0.975, "object_dice": 0.99}}


def perfect(task, targets):
    """Probabilities of 0 and 1 that say exactly what the targets say."""
    return {head: np.stack([targets[head] == i for i in range(len(names))]).astype(np.float32) for head, names in task.heads.items()}


def lost(task, truth, found, marker, covered):
    """Why each true object that was not found was lost. ``covered``: the share of its pixels (or of the union) that counts as found."""
    table = overlap(truth, found)
    whole = table.union if task.name == "nuclei" else table.truth_area[table.truth]
    hit = np.zeros(len(table.truth_area), bool)
    hit[table.truth[2 * table.shared > whole]] = True
    for number in np.flatnonzero(~hit):
        mask = table.truth_labels == number + 1
        core = np.count_nonzero(marker[mask] == MARKER)
        if core == 0:
            reason = "too small or thin: erosion leaves no marker"
        elif not (mask & (found != 0)).any():
            reason = "what erosion leaves of it is below the size filter, or opening removes it"
        elif len(np.unique(found[mask & (found != 0)])) > 1:
            reason = "in several pieces, or falls into them by erosion; none is more than half of it"
        else:
            reason = "joined with a neighbour"
        yield reason


def run(task, labels, mpp):
    truths, found, reasons = [], [], Counter()
    for path in labels:
        truth = np.array(Image.open(path))
        targets = task.targets(truth, mpp)
        objects = task.decode(perfect(task, targets), mpp)
        truths.append(truth)
        found.append(objects)
        reasons.update(lost(task, truth, objects, targets["marker" if "marker" in targets else "object"], 0.5))
    return task.score(truths, found), sum(len(np.unique(t[t != 0])) for t in truths), reasons


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="train")
    options = parser.parse_args()
    missed = []
    for name, folder, mpp in (("nuclei", "kumar", None), ("glands", "glas", GLAS_MPP)):
        task = dsfcnn.tasks.get(name)
        labels = sorted((options.data / folder / options.split / "labels").glob("*.png"))
        if not labels:
            sys.exit(f"error: {options.data / folder / options.split}: no labels/*.png; give the folder that holds {folder}")
        results, objects, reasons = run(task, labels, mpp)
        print(f"## {folder}/{options.split}: {len(labels)} images, {objects} {name}, {mpp or task.mpp} um/px\n\n{results.table()}")
        print(f"lost: {reasons.total()} of {objects}")
        for reason, count in reasons.most_common():
            print(f"- {count}: {reason}")
        print()
        for measure, goal in GOALS[name].items():
            value = results.mean[measure].value if name == "nuclei" else results.pooled[measure].value
            if value < goal:
                missed.append(f"{folder} {measure} {value:.4f} is below {goal}")
    sys.exit("\n".join(missed))


if __name__ == "__main__":
    main()
