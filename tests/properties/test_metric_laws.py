"""What every measure of objects must obey, whatever the maps."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from instance_maps import PAIRS

from dsfcnn import metrics

laws = settings(max_examples=200, deadline=None, derandomize=True)
PERFECT = {"pq": 1, "dq": 1, "sq": 1, "aji": 1, "binary_dice": 1, "object_f1": 1, "object_dice": 1, "object_hausdorff": 0}


def measures(truth, prediction):
    quality = metrics.panoptic_quality(truth, prediction)
    return {
        **quality._asdict(),
        "aji": metrics.aggregated_jaccard(truth, prediction),
        "binary_dice": metrics.binary_dice(truth, prediction),
        "object_f1": metrics.object_f1(truth, prediction),
        "object_dice": metrics.object_dice(truth, prediction),
        "object_hausdorff": metrics.object_hausdorff(truth, prediction),
    }


def relabelled(labels, random):
    """The same objects under other ids: shuffled, with gaps, far above 65,535."""
    ids = np.unique(labels)
    new = random.choice(2**40, len(ids), replace=False) + 70_000 if random.random() < 0.5 else random.permutation(len(ids)) + 1
    new[ids == 0] = 0
    return new[np.searchsorted(ids, labels)]


@laws
@given(PAIRS)
def test_a_perfect_prediction_is_perfect(pair):
    assert measures(pair[0], pair[0]) == PERFECT


@laws
@given(PAIRS, st.integers(0, 2**32 - 1))
def test_ids_mean_nothing(pair, seed):
    random = np.random.default_rng(seed)
    truth, prediction = (relabelled(labels, random) for labels in pair)
    assert measures(truth, prediction) == pytest.approx(measures(*pair), abs=1e-12)


@laws
@given(PAIRS, st.integers(0, 3), st.booleans())
def test_turning_and_mirroring_both_maps_changes_nothing(pair, turns, mirror):
    moved = [np.rot90(labels[:, ::-1] if mirror else labels, turns) for labels in pair]
    assert measures(*moved) == pytest.approx(measures(*pair), abs=1e-12)


@laws
@given(PAIRS)
def test_symmetry(pair):
    """Nothing tells truth from prediction in these; F1 and AJI do tell."""
    forth, back = measures(*pair), measures(*pair[::-1])
    for name in ("pq", "dq", "sq", "binary_dice", "object_dice", "object_hausdorff"):
        assert forth[name] == pytest.approx(back[name], abs=1e-12), name


def test_f1_and_aji_are_not_symmetric():
    truth, prediction = np.array([[1, 1, 1, 0]]), np.array([[1, 2, 2, 2]])
    assert metrics.aggregated_jaccard(truth, prediction) != metrics.aggregated_jaccard(prediction, truth)
    truth, prediction = np.array([[1, 1, 1, 1]]), np.array([[1, 1, 0, 0]])
    assert metrics.object_f1(truth, prediction) != metrics.object_f1(prediction, truth)


@laws
@given(PAIRS)
def test_measures_are_finite_and_in_range(pair):
    values = measures(*pair)
    distance = values.pop("object_hausdorff")
    assert 0 <= distance <= np.hypot(*pair[0].shape) + 1e-9
    assert all(0 <= value <= 1 for value in values.values()), values


@laws
@given(PAIRS, st.data())
def test_a_false_object_never_helps(pair, data):
    truth, prediction = pair
    free = np.argwhere((truth == 0) & (prediction == 0))
    assume(len(free))
    chosen = data.draw(st.lists(st.integers(0, len(free) - 1), min_size=1, max_size=6))
    worse = prediction.copy()
    worse[tuple(free[chosen].T)] = prediction.max() + 1
    before, after = measures(truth, prediction), measures(truth, worse)
    for name in ("pq", "dq", "aji", "binary_dice", "object_f1", "object_dice"):
        assert after[name] <= before[name] + 1e-12, name
    if not truth.any() and not prediction.any():
        assert after["object_f1"] == after["pq"] == after["object_dice"] == 0


@laws
@given(PAIRS)
def test_losing_an_object_that_was_found_whole_never_helps(pair):
    truth, _ = pair
    assume(truth.any())
    lost = np.where(truth == truth.max(), 0, truth)
    before, after = measures(truth, truth), measures(truth, lost)
    for name in ("pq", "dq", "aji", "binary_dice", "object_f1", "object_dice"):
        assert after[name] < before[name], name
    assert after["object_hausdorff"] > 0


@laws
@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.3, 0.5]) | st.floats(-3, 3, allow_subnormal=False)), min_size=2, max_size=30)
)
def test_auc_under_reversal_and_growing_functions(images):
    labels, scores = np.array([label for label, _ in images]), np.array([score for _, score in images])
    assume(0 < labels.sum() < len(labels))
    value = metrics.auc(labels, scores)
    assert metrics.auc(labels, -scores) == pytest.approx(1 - value, abs=1e-12)
    assert metrics.auc(~labels, -scores) == pytest.approx(value, abs=1e-12)
    ranks = np.unique(scores, return_inverse=True)[1]
    assert metrics.auc(labels, ranks**3) == pytest.approx(value, abs=1e-12)
    assert metrics.auc(labels, labels.astype(int)) == 1
    assert metrics.auc(labels, np.zeros(len(labels))) == 0.5
