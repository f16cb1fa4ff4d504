"""Targets, decoding and measures once more, slowly: one object at a time, sets of pixels, all pairs of distances."""

import math
from fractions import Fraction

import numpy as np
from scipy import ndimage
from skimage.morphology import diamond
from skimage.segmentation import watershed


def objects(labels):
    """The set of pixels of every object."""
    return [frozenset(zip(*map(list, np.nonzero(labels == number)))) for number in np.unique(labels[labels != 0])]


def panoptic(truth, prediction):
    pairs = [(g, s) for g in objects(truth) for s in objects(prediction)]
    ious = [Fraction(len(g & s), len(g | s)) for g, s in pairs]
    found = [float(iou) for iou in ious if iou > Fraction(1, 2)]
    total = len(objects(truth)) + len(objects(prediction))
    if total == 0:
        return 1.0, 1.0, 1.0
    dq = 2 * len(found) / total
    sq = sum(found) / len(found) if found else 0.0
    return dq * sq, dq, sq


def aggregated_jaccard(truth, prediction):
    shared = whole = 0
    used = set()
    for g in objects(truth):
        met = [s for s in objects(prediction) if g & s]
        if not met:
            whole += len(g)
            continue
        merit = {s: (Fraction(len(g & s), len(g | s)), len(g & s)) for s in met}
        best = [s for s in met if merit[s] == max(merit.values())]
        shared += len(g & best[0])
        whole += len(g | best[0])
        used.update(best)
    whole += sum(len(s) for s in objects(prediction) if s not in used)
    return shared / whole if whole else 1.0


def dice(a, b):
    return Fraction(2 * len(a & b), len(a) + len(b))


def hausdorff(a, b):
    a, b = np.array(sorted(a)), np.array(sorted(b))
    distance = np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1))
    return max(distance.min(1).max(), distance.min(0).max())


def partners(a, others):
    """The objects that share most pixels with a."""
    most = max((len(a & b) for b in others), default=0)
    return [b for b in others if most and len(a & b) == most]


def object_f1(truth, prediction):
    true, found = objects(truth), objects(prediction)
    if not true and not found:
        return 1.0
    hits = 0
    for s in found:
        candidates = sorted(partners(s, true), key=lambda g: dice(s, g))
        hits += bool(candidates) and 2 * len(s & candidates[-1]) > len(candidates[-1])
    return 2 * hits / (2 * hits + (len(found) - hits) + (len(true) - hits))


def _two_sided(truth, prediction, value, empty, one_empty):
    true, found = objects(truth), objects(prediction)
    if not true and not found:
        return empty
    if not true or not found:
        return one_empty
    sides = []
    for some, others in ((found, true), (true, found)):
        total = sum(map(len, some))
        sides.append(sum(len(a) / total * float(value(a, others)) for a in some))
    return sum(sides) / 2


def object_dice(truth, prediction):
    return _two_sided(truth, prediction, lambda a, others: max((dice(a, b) for b in partners(a, others)), default=0), 1.0, 0.0)


def object_hausdorff(truth, prediction):
    def value(a, others):
        return min(hausdorff(a, b) for b in partners(a, others) or others)

    return _two_sided(truth, prediction, value, 0.0, math.hypot(*truth.shape))


def auc(labels, scores):
    pairs = [(s > t) + (s == t) / 2 for s, p in zip(scores, labels) if p for t, q in zip(scores, labels) if not q]
    return sum(pairs) / len(pairs)


def marker_map(instances, radius):
    classes = np.full(instances.shape, 2)
    for number in np.unique(instances[instances != 0]):
        mask = instances == number
        classes[ndimage.binary_dilation(mask, diamond(radius)) & (classes != 0)] = 1
        classes[ndimage.binary_erosion(mask, diamond(radius), border_value=1)] = 0
    return classes


def penalty_map(pieces, sigma, strength, weighed):
    weights = np.ones(pieces.shape)
    sets = [np.argwhere(pieces == number) for number in np.unique(pieces[pieces != 0])]
    for place in np.argwhere(weighed):
        distances = sorted(np.sqrt(((pixels - place) ** 2).sum(1)).min() for pixels in sets)
        if len(distances) > 1:
            weights[tuple(place)] += strength * math.exp(-(((distances[0] + distances[1]) / sigma) ** 2) / 2)
    return weights


def large(labels, smallest):
    """The labels without small objects, by a loop over objects."""
    for number in np.unique(labels[labels != 0]):
        if np.count_nonzero(labels == number) < smallest:
            labels[labels == number] = 0
    return labels


def decode_nuclei(nucleus, marker, contour, smallest):
    """One watershed over the whole image."""
    foreground = large(ndimage.label(nucleus > 0.5)[0], smallest) > 0
    inside = (marker - (contour >= 0.4)) * foreground > 0.75
    markers = large(ndimage.label(ndimage.binary_fill_holes(inside))[0], smallest)
    return watershed(-marker, markers, mask=foreground)


def peaks(surface, height):
    """Every connected set of pixels above (v - height), v its own largest value: level by level, by the definition."""
    found = np.zeros(surface.shape, np.int32)
    for value in np.unique(surface):
        parts, count = ndimage.label(surface > value - height)
        for number in range(1, count + 1):
            if surface[parts == number].max() == value:
                found[parts == number] = found.max() + 1
    return found


def half_width(mask, smoothing):
    """Distance of every pixel of the mask to the nearest one outside, that of the image included; then a sum of Gaussian weights."""
    around = np.pad(mask, 1)
    outside, width = np.argwhere(~around), np.zeros(around.shape)
    for place in np.argwhere(around):
        width[tuple(place)] = np.sqrt(((outside - place) ** 2).sum(1)).min()
    reach = int(4 * smoothing + 0.5)
    weights = {step: math.exp(-((step / smoothing) ** 2) / 2) for step in range(-reach, reach + 1)}
    padded, smooth = np.pad(width, reach), np.zeros(width.shape)
    for down, right in np.ndindex(2 * reach + 1, 2 * reach + 1):
        part = padded[down : down + width.shape[0], right : right + width.shape[1]]
        smooth += weights[down - reach] * weights[right - reach] / sum(weights.values()) ** 2 * part
    return (smooth * around)[1:-1, 1:-1]


def part_at_necks(marker, part, ratio, lobe, smoothing):
    """1, 2, ... for the parts of a part (a mask)."""
    width = half_width(part & (marker > 0.5), smoothing)
    found = peaks(np.log(np.maximum(width, 1e-3)), -math.log(ratio))
    seeds = np.zeros(part.shape, np.int32)
    for number in range(1, found.max() + 1):
        if width[found == number].max() >= lobe:
            seeds[found == number] = seeds.max() + 1
    return watershed(-(width + marker), seeds, mask=part) if seeds.max() > 1 else part.astype(np.int32)


def decode_nuclei_by_peaks(nucleus, marker, certainty, height, smallest, necks=None):
    regions = large(ndimage.label(nucleus > 0.5)[0], smallest)
    objects = np.zeros(nucleus.shape, np.int32)
    for number in np.unique(regions[regions != 0]):
        region = regions == number
        markers = peaks(np.where(region, marker, -1), height)
        parts = watershed(-marker, markers, mask=region)
        for part in range(1, parts.max() + 1):
            within = (parts == part).astype(np.int32) if necks is None else part_at_necks(marker, parts == part, *necks)
            for own in (within == one for one in range(1, within.max() + 1)):
                if nucleus[own].max() > certainty and own.sum() >= smallest:
                    objects[own] = objects.max() + 1
    return objects


def decode_glands(inner, contour, opening, smallest, growth, certainty):
    mask = ndimage.binary_fill_holes(inner - (contour > 0.5) > 0.55)
    mask = ndimage.binary_erosion(mask, diamond(opening), border_value=1)
    labels = large(ndimage.label(ndimage.binary_dilation(mask, diamond(opening)))[0], smallest)
    for number in np.unique(labels[labels != 0]):
        if inner[labels == number].max() <= certainty:
            labels[labels == number] = 0
    sets = {number: np.argwhere(labels == number) for number in np.unique(labels[labels != 0])}
    grown = labels.copy()
    for place in np.argwhere(labels == 0):
        near = [(np.abs(pixels - place).sum(1).min(), -len(pixels), number) for number, pixels in sets.items()]
        if near and min(near)[0] <= growth:
            grown[tuple(place)] = min(near)[2]
    return grown


def nuclei_loss(logits, targets, smooth=1e-3):
    """The six terms, pixel by pixel. Logits and classes as numpy arrays."""
    total = 0.0
    for head, scored in (("object", (0, 1)), ("marker", (0, 1))):
        values, classes = logits[head], targets[head]
        weight = targets["weight"] if head == "marker" else np.ones(classes.shape)
        entropy, shared, whole = [], [0.0] * values.shape[1], [0.0] * values.shape[1]
        for n, y, x in np.ndindex(classes.shape):
            exponentials = [math.exp(v) for v in values[n, :, y, x]]
            probability = [e / sum(exponentials) for e in exponentials]
            true = classes[n, y, x]
            entropy.append(-weight[n, y, x] * math.log(probability[true]))
            for channel, p in enumerate(probability):
                shared[channel] += p * (channel == true)
                whole[channel] += p + (channel == true)
        total += sum(entropy) / len(entropy)
        total += sum(1 - (2 * shared[c] + smooth) / (whole[c] + smooth) for c in scored)
    return total
