"""Decoding nuclei and measuring them, beside a watershed over the whole image and plain loops over objects: how many times faster.

    python benchmarks/tasks.py [--side 1000] [--rounds 3] [--growth 1000 2000 4000]

The nuclei are drawn: ellipses, 600 per megapixel, many touching, with smooth probabilities. Both ways run in turns in one process on one
thread, and must find the same objects and give the same figures. Times are those of the processor. The growth is that of our time from
one size to the next, divided by that of the pixels: 1 is linear.
"""

import argparse
import time
from itertools import pairwise
from statistics import median

import numpy as np
from scipy import ndimage
from scipy.spatial.distance import directed_hausdorff
from skimage.segmentation import watershed

import dsfcnn

DENSITY = 600e-6  # nuclei per pixel
SMALLEST = 10  # px
TASK = dsfcnn.tasks.get("nuclei")


def draw(side, seed=0):
    """Instance map of ellipses and probabilities as of a fair network: blurred targets and a little smooth noise."""
    random = np.random.default_rng(seed)
    truth = np.zeros((side, side), np.int32)
    for number in range(1, round(DENSITY * side**2) + 1):
        row, column = random.integers(0, side, 2)
        long, short, angle = random.uniform(9, 15), random.uniform(7, 10), random.uniform(0, np.pi)
        box = np.s_[max(0, row - 16) : min(side, row + 17), max(0, column - 16) : min(side, column + 17)]
        y, x = np.ogrid[box]
        u = (y - row) * np.sin(angle) + (x - column) * np.cos(angle)
        v = (y - row) * np.cos(angle) - (x - column) * np.sin(angle)
        inside = (u / long) ** 2 + (v / short) ** 2 <= 1
        truth[box][inside & (truth[box] == 0)] = number
    targets = TASK.targets(truth)
    probabilities = {}
    for head, names in TASK.heads.items():
        logits = np.stack([6.0 * (targets[head] == i) for i in range(len(names))]) + random.normal(0, 1.5, (len(names), side, side))
        exponentials = np.exp(ndimage.gaussian_filter(logits, (0, 1, 1)))
        probabilities[head] = (exponentials / exponentials.sum(0)).astype(np.float32)
    return truth, probabilities


def measure(truth, found):
    results = dsfcnn.metrics.score_instances([truth], [found])
    return {name: estimate.value for name, estimate in results.mean.items()}


def loop_filter(labels):
    """Labels without small objects, by a mask of the whole image for each object."""
    for number in range(1, labels.max() + 1):
        mask = labels == number
        if mask.sum() < SMALLEST:
            labels[mask] = 0
    return labels


def table_filter(labels):
    """The same by one count of all ids."""
    return np.where(np.bincount(labels.ravel()) >= SMALLEST, np.arange(labels.max() + 1), 0)[labels]


def plain_decode(probabilities, large=loop_filter):
    _, nucleus = probabilities["object"]
    marker, contour, _ = probabilities["marker"]
    foreground = large(ndimage.label(nucleus > 0.5)[0]) > 0
    inside = (marker - (contour >= 0.4)) * foreground > 0.75
    markers = large(ndimage.label(ndimage.binary_fill_holes(inside))[0])
    return watershed(-marker, markers, mask=foreground)


def plain_measure(truth, found):
    """The same measures by a mask of the whole image for each object."""
    masks = [{n: labels == n for n in np.unique(labels) if n} for labels in (truth, found)]
    area = [{n: int(mask.sum()) for n, mask in side.items()} for side in masks]
    shared = {}
    for t, mask in masks[0].items():
        for p in np.unique(found[mask]):
            if p:
                shared[t, p] = int((mask & masks[1][p]).sum())
    return {**plain_quality(shared, *area), **plain_objects(shared, masks, area)}


def plain_quality(shared, truths, predictions):
    iou = {(t, p): n / (truths[t] + predictions[p] - n) for (t, p), n in shared.items()}
    hits = [value for value in iou.values() if value > 0.5]
    dq, sq = 2 * len(hits) / (len(truths) + len(predictions)), float(np.mean(hits))
    inside = union = 0
    used = set()
    for t, size in truths.items():
        best = max((p for u, p in iou if u == t), key=lambda p, t=t: iou[t, p], default=None)
        if best is None:
            union += size
        else:
            inside += shared[t, best]
            union += size + predictions[best] - shared[t, best]
            used.add(best)
    union += sum(size for p, size in predictions.items() if p not in used)
    dice = 2 * sum(shared.values()) / (sum(truths.values()) + sum(predictions.values()))
    return {"pq": dq * sq, "dq": dq, "sq": sq, "aji": inside / union, "binary_dice": dice}


def plain_objects(shared, masks, area):
    pixels = [{n: np.argwhere(mask) for n, mask in side.items()} for side in masks]

    def distance(t, p):
        a, b = pixels[0][t], pixels[1][p]
        return max(directed_hausdorff(a, b)[0], directed_hausdorff(b, a)[0])

    hits, dice, hausdorff = 0, [0.0, 0.0], [0.0, 0.0]
    for side in (0, 1):
        for n, size in area[side].items():
            weight = size / sum(area[side].values()) / 2
            pairs = [pair for pair in shared if pair[side] == n]
            if not pairs:
                hausdorff[side] += weight * min(distance(*((n, other) if side == 0 else (other, n))) for other in area[1 - side])
                continue
            t, p = max(pairs, key=shared.__getitem__)
            dice[side] += weight * 2 * shared[t, p] / (area[0][t] + area[1][p])
            hausdorff[side] += weight * distance(t, p)
            hits += side == 1 and 2 * shared[t, p] > area[0][t]
    f1 = 2 * hits / (len(area[0]) + len(area[1]))
    return {"object_f1": f1, "object_dice": sum(dice), "object_hausdorff": sum(hausdorff)}


def timed(run, *arguments):
    start = time.process_time()
    result = run(*arguments)
    return result, time.process_time() - start


def compare(side, rounds):
    truth, probabilities = draw(side)
    rows = []
    for _ in range(rounds):
        found, decoding = timed(TASK.decode, probabilities)
        other, plain_decoding = timed(plain_decode, probabilities)
        _, without_loops = timed(plain_decode, probabilities, table_filter)
        figures, measures = timed(measure, truth, found)
        others, plain_measures = timed(plain_measure, truth, found)
        rows.append((decoding, measures, plain_decoding, plain_measures, without_loops))
    assert dsfcnn.metrics.panoptic_quality(other, found).pq == 1, "the two ways found different objects"
    assert all(abs(figures[name] - others[name]) < 1e-9 for name in figures), "the two ways measured differently"
    decoding, measures, plain_decoding, plain_measures, without_loops = (median(column) for column in zip(*rows))
    print(f"{side} x {side}, {found.max()} nuclei found, PQ {figures['pq']:.3f}\n\n| step | times faster |\n| --- | ---: |")
    print(f"| decoding and all measures | {(plain_decoding + plain_measures) / (decoding + measures):.1f} |")
    print(f"| decoding | {plain_decoding / decoding:.1f} |")
    print(f"| decoding, beside a watershed over the whole image without loops over objects | {without_loops / decoding:.1f} |")
    print(f"| all measures | {plain_measures / measures:.1f} |\n")


def growth(sides, rounds):
    medians = {}
    for side in sides:
        truth, probabilities = draw(side)
        rows = []
        for _ in range(rounds):
            found, decoding = timed(TASK.decode, probabilities)
            _, measures = timed(measure, truth, found)
            rows.append((decoding, measures))
        medians[side] = np.median(rows, axis=0)
    print("| from | to | decoding | measures |\n| ---: | ---: | ---: | ---: |")
    for small, large in pairwise(sides):
        factor = medians[large] / medians[small] / (large / small) ** 2
        print(f"| {small} | {large} | {factor[0]:.2f} | {factor[1]:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--growth", type=int, nargs="*", default=[1000, 2000, 4000])
    options = parser.parse_args()
    compare(options.side, options.rounds)
    growth(options.growth, options.rounds)


if __name__ == "__main__":
    main()
