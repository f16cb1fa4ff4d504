"""Scores of data sets: per image, means, pooled values, intervals; what is refused; what empty maps give."""

import json
import subprocess
import sys

import numpy as np
import pytest
from instance_maps import blocks
from sklearn.metrics import roc_auc_score

import dsfcnn
from dsfcnn import metrics, tasks
from dsfcnn.errors import DataError, UsageError

OBJECT_MEASURES = [
    metrics.panoptic_quality,
    metrics.aggregated_jaccard,
    metrics.binary_dice,
    metrics.object_f1,
    metrics.object_dice,
    metrics.object_hausdorff,
]


def data_set(images=7, seed=0):
    random = np.random.default_rng(seed)
    truths = [blocks(random, (30, 40), random.integers(1, 9)) for _ in range(images)]
    found = [np.where(random.random(truth.shape) < 0.1, 0, np.roll(truth, 1, axis=1)) for truth in truths]
    return truths, found


def test_rows_are_those_of_the_functions():
    truths, found = data_set()
    nuclei, glands = tasks.get("nuclei").score(truths, found), tasks.get("glands").score(truths, found)
    for i, pair in enumerate(zip(truths, found)):
        assert (nuclei.rows["pq"][i], nuclei.rows["dq"][i], nuclei.rows["sq"][i]) == metrics.panoptic_quality(*pair)
        assert nuclei.rows["aji"][i] == metrics.aggregated_jaccard(*pair)
        assert nuclei.rows["binary_dice"][i] == metrics.binary_dice(*pair)
        assert glands.rows["object_f1"][i] == metrics.object_f1(*pair)
        assert glands.rows["object_dice"][i] == metrics.object_dice(*pair)
        assert glands.rows["object_hausdorff"][i] == metrics.object_hausdorff(*pair)
    for results in (nuclei, glands):
        for name, values in results.rows.items():
            assert results.mean[name].value == pytest.approx(values.mean())


def test_pooled_is_the_data_set_as_one_image():
    """Images side by side, far enough apart and with ids of their own, are one image with the same objects."""
    truths, found = data_set()
    gap = np.zeros((30, 200), np.int64)
    wide = [
        np.hstack([part for i, labels in enumerate(maps) for part in (np.where(labels, labels + 100 * i, 0), gap)])
        for maps in (truths, found)
    ]
    results = metrics.score_instances(truths, found)
    alone = metrics.score_instances(wide[:1], wide[1:])
    for name, estimate in results.pooled.items():
        assert estimate.value == pytest.approx(alone.mean[name].value), name
    assert results.pooled["object_f1"].value != results.mean["object_f1"].value


def test_intervals():
    truths, found = data_set(images=12)
    results = metrics.score_instances(truths, found, seed=3)
    for estimates in (results.mean, results.pooled):
        for name, estimate in estimates.items():
            assert estimate.low < estimate.value < estimate.high, name
    again = metrics.score_instances(truths, found, seed=3)
    assert again.as_dict() == results.as_dict()
    assert metrics.score_instances(truths, found, seed=4).mean != results.mean
    # The bootstrap's deviation of a mean is that of the values over the square root of their number.
    values = results.rows["binary_dice"]
    width = results.mean["binary_dice"].high - results.mean["binary_dice"].low
    assert width == pytest.approx(2 * 1.96 * values.std() / np.sqrt(len(values)), rel=0.15)


def test_one_image_has_no_width():
    truths, found = data_set(images=1)
    for estimate in metrics.score_instances(truths, found).mean.values():
        assert estimate.low == estimate.value == estimate.high


def test_as_dict_and_table():
    truths, found = data_set(images=3)
    results = tasks.get("glands").score(truths, found, names=["a", "b", "c"], resamples=50, seed=1)
    document = json.loads(json.dumps(results.as_dict()))
    assert [row["image"] for row in document["images"]] == ["a", "b", "c"]
    assert document["images"][1]["object_f1"] == results.rows["object_f1"][1]
    assert document["pooled"]["object_dice"] == results.pooled["object_dice"]._asdict()
    assert document["bootstrap"] == {"over": "images", "interval": 0.95, "resamples": 50, "seed": 1}
    lines = results.table().splitlines()
    assert lines[0] == "| measure | mean over 3 images (95 %) | pooled (95 %) |"
    assert len(lines) == 5
    assert f"{results.pooled['object_hausdorff'].value:.4f}" in lines[4]


def test_classification():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 300)
    tumour = np.clip(0.5 + 0.2 * (labels - 0.5) + 0.2 * random.standard_normal(300), 0, 1)
    probabilities = np.stack([1 - tumour, tumour], 1)
    results = tasks.get("tumour").score(labels, probabilities)
    assert results.pooled["auc"].value == pytest.approx(roc_auc_score(labels, tumour))
    assert results.pooled["accuracy"].value == np.mean((tumour > 0.5) == labels)
    for estimate in results.pooled.values():
        assert estimate.low < estimate.value < estimate.high
        assert 0.02 < estimate.high - estimate.low < 0.2
    assert results.rows["p_tumour"].tolist() == tumour.tolist()
    assert json.dumps(results.as_dict())
    digits = tasks.get("digits").score([3, 4], np.eye(10)[[3, 5]])
    assert digits.pooled["accuracy"].value == 0.5
    assert "auc" not in digits.pooled


def test_resampled_auc_is_that_of_the_resampled_images():
    from dsfcnn.tasks.metrics.auc import _weighted

    random = np.random.default_rng(0)
    labels, scores = random.random(40) < 0.4, random.integers(0, 9, 40) / 9
    for _ in range(20):
        drawn = random.integers(40, size=40)
        counts = np.bincount(drawn, minlength=40)[None]
        assert _weighted(labels, scores, counts)[0] == pytest.approx(roc_auc_score(labels[drawn], scores[drawn]))


def test_intervals_of_a_data_set_too_large_for_one_block(monkeypatch):
    random = np.random.default_rng(0)
    labels, scores = random.integers(0, 2, 50), random.random(50)
    whole = metrics.auc_interval(labels, scores, resamples=40)
    monkeypatch.setattr("dsfcnn.tasks.metrics.bootstrap._BLOCK", 160)
    assert metrics.auc_interval(labels, scores, resamples=40) == whole


def test_the_difference_of_two_models():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 400)
    hard = random.standard_normal(400)  # what makes an image hard for both
    good = labels + hard + 0.1 * random.standard_normal(400)
    worse = 0.7 * labels + hard + 0.1 * random.standard_normal(400)
    paired = metrics.auc_difference(labels, good, worse)
    assert paired.value == pytest.approx(roc_auc_score(labels, good) - roc_auc_score(labels, worse))
    assert 0 < paired.low < paired.value < paired.high
    single = metrics.auc_interval(labels, good)
    assert paired.high - paired.low < single.high - single.low  # the pairing helps
    back = metrics.auc_difference(labels, worse, good)
    assert (back.low, back.high) == pytest.approx((-paired.high, -paired.low))
    runs = metrics.auc_difference(labels, [good, worse], worse)  # of two runs, one of which is no better
    assert runs == pytest.approx([half / 2 for half in paired])


def test_empty_maps():
    nothing, something = np.zeros((30, 40), int), blocks(np.random.default_rng(0), (30, 40), 3)
    for measure in OBJECT_MEASURES[1:]:
        empty, missed, invented = measure(nothing, nothing), measure(something, nothing), measure(nothing, something)
        if measure is metrics.object_hausdorff:
            assert (empty, missed, invented) == (0, 50, 50)
        else:
            assert (empty, missed, invented) == (1, 0, 0)
    assert metrics.panoptic_quality(nothing, nothing) == (1, 1, 1)
    assert metrics.panoptic_quality(something, nothing) == (0, 0, 0)
    results = metrics.score_instances([nothing, something, nothing], [nothing, nothing, something])
    assert results.pooled["object_hausdorff"].value == pytest.approx(50)
    assert results.pooled["pq"].value == results.pooled["object_dice"].value == 0
    assert results.mean["pq"].value == pytest.approx(1 / 3)
    assert all(np.isfinite(estimate).all() for estimate in (*results.mean.values(), *results.pooled.values()))


def test_ids_may_be_huge():
    truth, found = (maps[0].astype(np.int64) for maps in data_set())
    huge = np.where(truth, np.iinfo(np.int64).max - truth, 0)
    for measure in OBJECT_MEASURES:
        assert measure(huge, found * 100_000) == measure(truth, found)


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((3, 4)),
        np.full((3, 4), np.nan),
        np.zeros((3, 4), bool),
        np.zeros((3, 4), complex),
        np.zeros((3, 4), "U1"),
        np.zeros((3, 4), object),
        np.zeros((3, 4, 1), int),
        np.zeros((0, 0), int),
        np.full((3, 4), -2),
        np.zeros((4, 3), int),
    ],
)
def test_bad_maps(bad, refused):
    good = np.ones((3, 4), int)
    for measure in OBJECT_MEASURES:
        with refused(DataError, "give" if bad.dtype != np.int64 or bad.min(initial=0) == 0 else "use 0"):
            measure(good, bad)
        with refused(DataError, ""):
            measure(bad, good)


def test_bad_labels_and_scores(refused):
    for labels, scores, fix in [
        ([0, 1, 2], [0.1, 0.2, 0.3], "one integer"),
        ([0.0, 1.0], [0.1, 0.2], "one integer"),
        ([0, 1], [0.1, 0.2, 0.3], "one score"),
        ([0, 1], ["a", "b"], "one score"),
        ([0, 1], [0.1, np.nan], "score them again"),
        ([1, 1], [0.1, 0.2], "both classes"),
        ([], [], "one integer"),
    ]:
        with refused(DataError, fix):
            metrics.auc(labels, scores)


def test_errors_of_a_source_are_its_own():
    def broken():
        yield from data_set(images=1)[0]
        raise DataError("b.png: not a PNG; get it again")

    with pytest.raises(DataError, match=r"b\.png"):
        metrics.score_instances(broken(), data_set(images=2)[1])


def test_bad_data_sets(refused):
    truths, found = data_set(images=2)
    with refused(DataError, "at least one"):
        metrics.score_instances([], [])
    with refused(DataError, "one of each"):
        metrics.score_instances(truths, found[:1])
    with refused(UsageError, "at least 1"):
        metrics.score_instances(truths, found, resamples=0)
    with refused(DataError, "a name for each"):
        metrics.score_instances(truths, found, names=["a"])
    with pytest.raises(DataError, match=r"^second: truth is"):
        metrics.score_instances(truths, [found[0], found[1][1:]], names=["first", "second"])
    with refused(DataError, "one of each"):
        tasks.get("digits").score([1, 2], np.eye(10)[:1])
    with refused(DataError, "from 0 to 1"):
        tasks.get("tumour").score([2], [[0.5, 0.5]])
    with refused(DataError, "softmax of one image"):
        tasks.get("tumour").score([1], [[0.5, 0.5, 0.0]])
    with refused(DataError, "at least one"):
        tasks.get("tumour").score([], [])


def test_tasks(refused):
    assert tasks.names() == ["tumour", "glands", "nuclei", "digits"]
    assert {name: tasks.get(name).mpp for name in tasks.names()} == {"tumour": 0.97, "glands": 0.5, "nuclei": 0.25, "digits": 1.0}
    assert tasks.get("tumour").heads == {"class": ("normal", "tumour")}
    assert tasks.get("tumour").targets(1) == 1
    with refused(DataError, "from 0 to 1"):
        tasks.get("tumour").targets(True)
    assert tasks.get("tumour").decode(np.array([0.25, 0.75])).tolist() == [0.25, 0.75]
    with refused(DataError, "softmax of finite logits"):
        tasks.get("tumour").decode(np.array([0.25, np.nan]))
    with refused(UsageError, "nuclei"):
        tasks.get("nucleus")
    assert dsfcnn.metrics is tasks.metrics


def test_no_torch_is_loaded():
    code = "import sys, dsfcnn; dsfcnn.metrics.auc([0, 1], [0.1, 0.2]); dsfcnn.tasks.get('nuclei'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
