"""Decoding nuclei and measuring them, beside a watershed over the whole image and plain loops over objects: how many times faster.

    python benchmarks/tasks.py [--side 1000] [--rounds 5] [--growth 1000 2000 4000]

The objects are drawn: ellipses, many touching, with smooth probabilities; 600 nuclei or 30 glands per megapixel. Both ways run in turns in
one process on one thread, and must find the same objects and give the same figures. Times are those of the processor.

The growth is the time that an image of the largest size takes, divided by the time that the same image takes cut into squares of a
smaller size: 1 is linear. Both run in turns; the figures are the median, least and greatest of all rounds by the time of the processor, and
in brackets the median by the clock, which on a busy machine also counts waiting.
"""

import argparse
import time
from statistics import median

import numpy as np
from scipy import ndimage
from scipy.spatial.distance import directed_hausdorff
from skimage.segmentation import watershed

import dsfcnn
from dsfcnn.kernels.memory import keep_memory

SHAPES = {"nuclei": (600e-6, (9, 15), (7, 10)), "glands": (30e-6, (50, 90), (35, 60))}  # objects per pixel, half axes in pixels
SMALLEST = 10  # px
TASK = dsfcnn.tasks.get("nuclei")


def draw(side, task=TASK, seed=0):
    """Instance map of ellipses and probabilities as of a fair network: blurred targets and a little smooth noise."""
    random = np.random.default_rng(seed)
    truth = np.zeros((side, side), np.int32)
    density, longs, shorts = SHAPES[task.name]
    reach = longs[1] + 1
    for number in range(1, round(density * side**2) + 1):
        row, column = random.integers(0, side, 2)
        long, short, angle = random.uniform(*longs), random.uniform(*shorts), random.uniform(0, np.pi)
        box = np.s_[max(0, row - reach) : min(side, row + reach + 1), max(0, column - reach) : min(side, column + reach + 1)]
        y, x = np.ogrid[box]
        u = (y - row) * np.sin(angle) + (x - column) * np.cos(angle)
        v = (y - row) * np.cos(angle) - (x - column) * np.sin(angle)
        inside = (u / long) ** 2 + (v / short) ** 2 <= 1
        truth[box][inside & (truth[box] == 0)] = number
    targets = task.targets(truth)
    probabilities = {}
    for head, names in task.heads.items():
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
    print("| step | pixels a side | time per pixel at the largest side over that here |\n| --- | ---: | --- |")
    for name in SHAPES:
        task = dsfcnn.tasks.get(name)
        largest = sides[-1]
        truth, probabilities = draw(largest, task)
        found = task.decode(probabilities)
        cuts = {
            side: [np.s_[y : y + side, x : x + side] for y in range(0, largest, side) for x in range(0, largest, side)] for side in sides
        }
        parts = {side: [cut(probabilities, place) for place in cuts[side]] for side in sides}
        pairs = {side: [(truth[place].copy(), found[place].copy()) for place in cuts[side]] for side in sides}
        steps = {f"decoding {name}": (task.decode, {side: [(part,) for part in parts[side]] for side in sides})}
        if task is TASK:
            steps["all measures"] = measure, pairs
        for step, (run, images) in steps.items():
            times = [[both_times(run, images[side]) for side in sides] for _ in range(rounds)]
            ratios = np.array([[[last / own for own, last in zip(row, rows[-1])] for row in rows] for rows in times])
            for side, ratio in zip(sides[:-1], ratios.swapaxes(0, 1)):
                processor, clock = ratio.T
                print(
                    f"| {step} | {side} | {median(processor):.2f} ({processor.min():.2f} to {processor.max():.2f}) [{median(clock):.2f}] |"
                )


def cut(probabilities, place):
    return {head: array[:, *place].copy() for head, array in probabilities.items()}


def both_times(run, images):
    """Seconds of the processor and of the clock for all images."""
    processor, clock = time.process_time(), time.perf_counter()
    for image in images:
        run(*image)
    return time.process_time() - processor, time.perf_counter() - clock


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--growth", type=int, nargs="*", default=[1000, 2000, 4000])
    options = parser.parse_args()
    keep_memory()  # as the program's commands do: a result is not cleared anew by the system each time
    compare(options.side, options.rounds)
    growth(options.growth, options.rounds)


if __name__ == "__main__":
    main()
