"""The tasks compute what their definitions say: against slow loops, scikit-learn, scipy, torchmetrics and cases worked by hand."""

from dataclasses import replace

import numpy as np
import pytest
import slow_tasks as slow
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from instance_maps import PAIRS, blocks
from scipy import ndimage
from scipy.spatial.distance import directed_hausdorff
from sklearn.metrics import roc_auc_score
from torchmetrics.functional.detection import panoptic_quality as torchmetrics_quality

from dsfcnn import metrics
from dsfcnn.tasks import split_pieces
from dsfcnn.tasks.decode import GlandSettings, NucleiSettings, decode_glands, decode_nuclei
from dsfcnn.tasks.losses import nuclei_loss
from dsfcnn.tasks.targets import marker_map, penalty_map

checks = settings(max_examples=200, deadline=None, derandomize=True)


@checks
@given(PAIRS)
def test_panoptic_quality_is_that_of_torchmetrics(pair):
    truth, prediction = pair
    assume(truth.any() or prediction.any())  # 0/0 there
    found, true = (torch.tensor(np.stack([labels != 0, labels], -1)[None].astype(np.int64)) for labels in (prediction, truth))
    want = torchmetrics_quality(found, true, things={1}, stuffs={0}, return_sq_and_rq=True, return_per_class=True)
    pq, sq, dq = want[0].tolist()
    assert metrics.panoptic_quality(truth, prediction) == pytest.approx((pq, dq, sq), abs=1e-6)


@checks
@given(PAIRS)
def test_every_measure_is_that_of_the_loops(pair):
    assert metrics.panoptic_quality(*pair) == pytest.approx(slow.panoptic(*pair), abs=1e-12)
    assert metrics.aggregated_jaccard(*pair) == pytest.approx(slow.aggregated_jaccard(*pair), abs=1e-12)
    assert metrics.object_f1(*pair) == pytest.approx(slow.object_f1(*pair), abs=1e-12)
    assert metrics.object_dice(*pair) == pytest.approx(slow.object_dice(*pair), abs=1e-12)
    assert metrics.object_hausdorff(*pair) == pytest.approx(slow.object_hausdorff(*pair), abs=1e-9)
    true, found = (frozenset(zip(*np.nonzero(labels))) for labels in pair)
    assert metrics.binary_dice(*pair) == pytest.approx(float(slow.dice(true, found)) if true | found else 1.0, abs=1e-12)


@checks
@given(PAIRS)
def test_the_distance_of_two_objects_is_scipys(pair):
    a, b = ((labels != 0).astype(int) for labels in pair)
    assume(a.any() and b.any())
    one, other = np.argwhere(a), np.argwhere(b)
    want = max(directed_hausdorff(one, other)[0], directed_hausdorff(other, one)[0])
    assert metrics.object_hausdorff(a, b) == pytest.approx(want, abs=1e-9)


@checks
@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.25, 0.5, 0.7, 1.0]) | st.floats(-5, 5)), min_size=2, max_size=40))
def test_auc_is_that_of_scikit_learn(images):
    labels, scores = [int(positive) for positive, _ in images], [score for _, score in images]
    assume(0 < sum(labels) < len(labels))
    assert metrics.auc(labels, scores) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert metrics.auc(labels, scores) == pytest.approx(slow.auc(labels, scores), abs=1e-12)


def test_a_hole_counts_with_all_its_pixels():
    """A ring and the disc in its hole: the centre of the disc is farther from the ring than any pixel of its edge."""
    y, x = np.indices((41, 41)) - 20
    radius = np.hypot(y, x)
    disc, ring = (radius <= 10).astype(int), ((radius > 14) & (radius <= 16)).astype(int)
    one, other = np.argwhere(disc), np.argwhere(ring)
    want = max(directed_hausdorff(one, other)[0], directed_hausdorff(other, one)[0])
    assert want > 14  # from the centre
    assert metrics.object_hausdorff(disc, ring) == pytest.approx(want)


@pytest.mark.parametrize("gap", [0, 3, 60, 200])
def test_distances_near_and_far(gap):
    """Transforms on a box for near objects, trees for far ones."""
    random = np.random.default_rng(gap)
    truth, prediction = np.zeros((2, 12, 30 + gap), int)
    truth[:, :12] = random.random((12, 12)) < 0.7
    prediction[:, gap + 12 : gap + 24] = random.random((12, 12)) < 0.7
    prediction[0, 0] = 2 if gap == 200 else 0
    assert metrics.object_hausdorff(truth, prediction) == pytest.approx(slow.object_hausdorff(truth, prediction), abs=1e-9)


def rows(*parts):
    """A map of one row: (id, pixels), ..."""
    return np.repeat([number for number, _ in parts], [count for _, count in parts])[None]


@pytest.mark.parametrize(
    ("truth", "prediction", "f1", "dice", "distance"),
    [
        # Found whole with 2 pixels too many: Dice 2 * 4 / 10 on both sides, the farthest pixel is 2 away.
        (rows((1, 4), (0, 6)), rows((1, 6), (0, 4)), 1.0, 0.8, 2.0),
        # Exactly half of the true object is not more than half: a false positive and a false negative. Dice 2 * 2 / 6.
        (rows((1, 4), (0, 6)), rows((1, 2), (0, 8)), 0.0, 2 / 3, 2.0),
        # Two true objects of 4 under one prediction of 9: it covers its partner, the other is missed: TP 1, FP 0, FN 1.
        # Dice 8 / 13 from every side. H = 5 from every side: the ends of the prediction are 5 from each object.
        (rows((1, 4), (0, 1), (2, 4)), rows((7, 9)), 2 / 3, 8 / 13, 5.0),
        # One true object of 8 in two predictions, 5 and 3 pixels: the first is a hit, the second false. From the predictions
        # (5/8)(10/13) + (3/8)(6/11), from the truth 10/13. Distances 3 and 5, weights 5/8 and 3/8; from the truth 3.
        (rows((1, 8)), rows((3, 5), (4, 3)), 2 / 3, ((5 / 8) * (10 / 13) + (3 / 8) * (6 / 11) + 10 / 13) / 2, (15 / 8 + 15 / 8 + 3) / 2),
        # A miss 6 away: no Dice; each takes the other by distance.
        (rows((1, 2), (0, 6)), rows((0, 6), (1, 2)), 0.0, 0.0, 6.0),
        # Found, and a second prediction that meets nothing: its distance is to the only true object, 8 from its far end.
        (rows((1, 2), (0, 8)), rows((1, 2), (0, 6), (2, 1), (0, 1)), 2 / 3, (2 / 3 + 1) / 2, (1 / 3 * 8 + 0) / 2),
    ],
)
def test_cases_of_glas_worked_by_hand(truth, prediction, f1, dice, distance):
    assert metrics.object_f1(truth, prediction) == pytest.approx(f1)
    assert metrics.object_dice(truth, prediction) == pytest.approx(dice)
    assert metrics.object_hausdorff(truth, prediction) == pytest.approx(distance)


@pytest.mark.parametrize("ids", [(5, 9), (9, 5)])
def test_equal_ious_of_the_jaccard_index(ids):
    """2 of 6 and 3 of 9 pixels: the one that shares 3 counts, the other is left over. 3 / (9 + 2)."""
    truth, prediction = rows((1, 6), (0, 3)), rows((ids[0], 2), (0, 1), (ids[1], 6))
    assert metrics.aggregated_jaccard(truth, prediction) == pytest.approx(3 / 11)


def test_a_pair_at_exactly_half_is_not_found():
    assert metrics.panoptic_quality(rows((1, 4)), rows((1, 2), (0, 2))) == (0, 0, 0)
    assert metrics.panoptic_quality(rows((1, 4)), rows((1, 3), (0, 1))) == (0.75, 1, 0.75)


@checks
@given(PAIRS, st.integers(1, 4))
def test_targets_are_those_of_the_loops(pair, radius):
    np.testing.assert_array_equal(marker_map(pair[0], radius), slow.marker_map(pair[0], radius))


@settings(checks, max_examples=50)
@given(PAIRS, st.sampled_from([0.7, 1.5, 4.0]), st.booleans())
def test_penalties_are_those_of_all_distances(pair, sigma, with_seams):
    seams = slow.marker_map(pair[0], 1) == 1 if with_seams else None
    got, pieces = penalty_map(pair[0], sigma, seams=seams), split_pieces(pair[0])
    assert got.dtype == np.float32
    weighed = (pieces == 0) | seams if with_seams else pieces == 0
    np.testing.assert_allclose(got, slow.penalty_map(pieces, sigma, 10.0, weighed), rtol=0, atol=1e-5)


def test_penalties_of_objects_far_from_each_other():
    """Where boxes around objects end, nothing is seen in the map."""
    random = np.random.default_rng(0)
    instances = np.zeros((70, 90), np.int32)
    for number in range(1, 7):
        y, x = random.integers(0, (66, 86))
        instances[y : y + 4, x : x + 4] = number
    np.testing.assert_allclose(
        penalty_map(instances, 2.5), slow.penalty_map(split_pieces(instances), 2.5, 10.0, instances == 0), rtol=0, atol=1e-5
    )


def smooth_probabilities(seed, shape=(48, 40), blur=1.5, channels=3):
    """Softmax of smooth noise: no two values alike."""
    random = np.random.default_rng(seed)
    logits = np.stack([ndimage.gaussian_filter(random.standard_normal(shape), blur) for _ in range(channels)])
    exponentials = np.exp(6 * logits / logits.std())
    return exponentials / exponentials.sum(0)


def same_objects(a, b):
    """Whether two maps differ by their ids only."""
    pairs = np.unique(np.stack([a.ravel(), b.ravel()]), axis=1)
    return len(np.unique(pairs[0])) == pairs.shape[1] == len(np.unique(pairs[1])) and ((pairs[0] == 0) == (pairs[1] == 0)).all()


def test_the_comparison_sees_a_difference():
    assert same_objects(np.array([0, 1, 2]), np.array([0, 7, 3]))
    assert not same_objects(np.array([0, 1, 2]), np.array([0, 7, 7]))
    assert not same_objects(np.array([0, 1, 1]), np.array([0, 7, 3]))
    assert not same_objects(np.array([0, 1]), np.array([1, 0]))


@settings(checks, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3]))
def test_nuclei_are_those_of_a_watershed_over_the_whole_image(seed, blur):
    marker, contour, background = smooth_probabilities(seed, blur=blur)
    nucleus = 1 - background
    got = decode_nuclei(nucleus, marker, contour, 0.25, NucleiSettings())
    assert same_objects(got, slow.decode_nuclei(nucleus, marker, contour, smallest=10))


@settings(checks, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3]), st.sampled_from([0.1, 0.3]), st.sampled_from([0.0, 0.9]), st.booleans())
def test_nuclei_by_peaks_are_those_of_the_definition(seed, blur, height, certainty, in_steps):
    """Also where many values tie, as those that are kept in bytes do; flooding between them is then the library's choice."""
    marker, contour, background = smooth_probabilities(seed, shape=(30, 28), blur=blur)
    if in_steps:
        marker = np.rint(marker * 8) / 8
    chosen = NucleiSettings(smallest_region=0.25, certainty=certainty, marker_height=height)
    got = decode_nuclei(1 - background, marker, contour, 0.25, chosen)
    want = slow.decode_nuclei_by_peaks(1 - background, marker, certainty, height, smallest=4)
    assert same_objects(got, want)


NECKS = NucleiSettings(smallest_region=0.25, certainty=0.6, marker_height=0.6, neck=0.9, smallest_lobe=0.5)  # lobes of 2 pixels


@settings(checks, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([3, 4]))
def test_nuclei_parted_at_necks_are_those_of_the_definition(seed, blur):
    marker, contour, background = smooth_probabilities(seed, shape=(30, 28), blur=blur)
    got = decode_nuclei(1 - background, marker, contour, 0.25, NECKS)
    assert same_objects(got, slow.decode_nuclei_by_peaks(1 - background, marker, 0.6, 0.6, smallest=4, necks=(0.9, 2.0, 2.0)))


def test_the_random_nuclei_have_necks():
    """The test above is about objects that necks part: there are such objects."""
    parted = 0
    for seed in range(40):
        marker, contour, background = smooth_probabilities(seed, shape=(30, 28), blur=3)
        counts = [decode_nuclei(1 - background, marker, contour, 0.25, chosen).max() for chosen in (NECKS, replace(NECKS, neck=0.0))]
        parted += counts[0] > counts[1]
    assert parted > 5


def test_the_random_nuclei_touch():
    """The test above is about regions with several markers: there are such regions."""
    several = 0
    for seed in range(20):
        marker, contour, background = smooth_probabilities(seed, blur=2)
        objects = decode_nuclei(1 - background, marker, contour, 0.25, NucleiSettings())
        count = ndimage.label(objects)[1]
        several += len(np.unique(objects)) - 1 > count
    assert several > 5


@settings(checks, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 3]), st.sampled_from([0.0, 0.8]))
def test_glands_are_those_of_the_loops(seed, blur, certainty):
    inner, contour, _ = smooth_probabilities(seed, blur=blur)
    chosen = GlandSettings(smallest_gland=5.0, growth=1.5, certainty=certainty)  # 20 px and 3 px
    got = decode_glands(inner, contour, 0.5, chosen)
    assert same_objects(got, slow.decode_glands(inner, contour, opening=2, smallest=20, growth=3, certainty=certainty))


@settings(checks, max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_the_loss_is_that_of_the_loops(seed):
    random = np.random.default_rng(seed)
    logits = {"object": random.normal(0, 2, (2, 2, 4, 5)), "marker": random.normal(0, 2, (2, 3, 4, 5))}
    maps = np.stack([blocks(random, (4, 5), 2) for _ in range(2)])
    targets = {"object": (maps != 0).astype(np.uint8), "marker": random.integers(0, 3, maps.shape).astype(np.uint8)}
    targets["weight"] = random.uniform(1, 11, maps.shape)
    got = nuclei_loss({k: torch.tensor(v) for k, v in logits.items()}, {k: torch.tensor(v) for k, v in targets.items()})
    assert got.item() == pytest.approx(slow.nuclei_loss(logits, targets), abs=1e-10)
