"""The loop: what a step does to the weights."""

import copy
import csv

import numpy as np
import pytest
import torch
from torch import nn

from dsfcnn.data import Sample
from dsfcnn.errors import DataError, UsageError
from dsfcnn.models import create
from dsfcnn.tasks import get
from dsfcnn.training import loop
from dsfcnn.training.config import TrainConfig
from dsfcnn.training.distributed import Processes
from dsfcnn.training.progress import PlainProgress

PATCHES = {"task": "tumour", "model": "cnn-tumour", "width": 0.05, "steps": 3}


def config(**more):
    return TrainConfig(**{**PATCHES, **more})


def batch(seed=0, count=4):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return loop.Batch(images, np.arange(count) % 2, [f"{seed}-{number}.png" for number in range(count)])


def run(settings, batches):
    state = loop.start(settings)
    before = copy.deepcopy(state.model)
    losses = list(loop.steps(state, settings, get("tumour"), iter(batches), state.model, Processes()))
    return state, before, losses


def test_a_step_is_that_of_plain_pytorch():
    settings = config(learning_rate=0.01, precision="float64")
    state, model, losses = run(settings, [batch(0), batch(1)])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for number in range(2):
        images, labels = loop.tensors(batch(number), settings)
        loss = nn.functional.cross_entropy(model(images), labels)
        assert losses[number] == pytest.approx(loss.item(), rel=1e-12)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert state.step == 2
    assert state.losses == losses
    for ours, theirs in zip(state.model.parameters(), model.parameters()):
        torch.testing.assert_close(ours, theirs)


def test_the_rate_follows_the_schedule():
    still = config(milestones={1: 1e-30}, precision="float64")
    once, _, _ = run(still, [batch(0)])
    twice, _, _ = run(still, [batch(0), batch(1)])
    assert all(a.sub(b).abs().max() < 1e-20 for a, b in zip(once.model.parameters(), twice.model.parameters()))


def test_clipping_bounds_the_gradient():
    def norm(**more):
        state, _, _ = run(config(**more), [batch(0)])
        return nn.utils.get_total_norm([weight.grad for weight in state.model.parameters()]).item()

    free = norm()
    assert norm(clip=free / 10) == pytest.approx(free / 10, rel=1e-3)
    assert norm(clip=free * 10) == pytest.approx(free, rel=1e-6)


def test_the_moving_average_follows_the_weights():
    state, _, _ = run(config(average=0.5, precision="float64"), [batch(0), batch(1)])
    plain = [run(config(precision="float64"), [batch(0), batch(1)][:number])[0].model for number in (0, 1, 2)]
    # Decay of step s is at most (s + 1) / (s + 10).
    for average, *weights in zip(state.averaged.parameters(), *(model.parameters() for model in plain)):
        expected = weights[0]
        for number, weight in enumerate(weights[1:]):
            decay = min(0.5, (number + 1) / (number + 10))
            expected = decay * expected + (1 - decay) * weight
        torch.testing.assert_close(average, expected)
    assert state.judged() is state.averaged
    assert not state.averaged.training


def test_class_weights_are_those_of_pytorch():
    settings = config(class_weights=[1.0, 3.0], precision="float64")
    _, model, (loss,) = run(settings, [batch(0, count=3)])
    images, labels = loop.tensors(batch(0, count=3), settings)
    expected = nn.functional.cross_entropy(model(images), labels, torch.tensor([1.0, 3.0], dtype=torch.float64))
    assert loss == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float64"])
def test_precisions(precision):
    state, before, losses = run(config(precision=precision), [batch(0)])
    assert losses[0] == pytest.approx(run(config(), [batch(0)])[2][0], rel=0.05)
    weight = next(state.model.parameters())
    assert weight.dtype == (torch.float64 if precision == "float64" else torch.float32)
    assert not weight.equal(next(before.parameters()))


class Poisoned(nn.Module):
    """A finite output whose gradient is not: the square root at 0."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        y = self.model(x)
        return y + (y - y).sqrt()


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_what_is_not_finite_never_reaches_the_weights(what, refused):
    settings = config()
    state = loop.start(settings)
    if what == "loss":
        with torch.no_grad():
            model = nn.Sequential(state.model, nn.Linear(2, 2).requires_grad_(False))
            model[1].weight.fill_(float("inf"))
    else:
        model = Poisoned(state.model)
    before = {name: weight.detach().clone() for name, weight in state.model.named_parameters()}
    with refused(DataError, "learning_rate"):
        next(loop.steps(state, settings, get("tumour"), iter([batch(7)]), model, Processes()))
    with pytest.raises(DataError, match=f"step 0: the {what}.* on 7-0.png, 7-1.png, "):
        next(loop.steps(state, settings, get("tumour"), iter([batch(7)]), model, Processes()))
    assert all(weight.equal(before[name]) for name, weight in state.model.named_parameters())


@pytest.mark.parametrize("model", [{"model": "cnn-tumour"}, {"model": "dsf-tumour", "group": "C4", "width": 0.1}])
def test_batch_norm_needs_more_than_one_crop(model, refused):
    with refused(UsageError, "use 2 or more"):
        run(config(**model), [batch(count=1)])


def test_the_penalty_can_be_left_out():
    instances = np.zeros((16, 16), np.int32)
    instances[2:7, 2:7], instances[2:7, 9:14] = 1, 2
    sample = Sample(np.zeros((16, 16, 3), np.uint8), instances, None, 0.25, "a.png")
    assert loop.Prepare("nuclei", 0.25, penalty=True)([sample]).targets["weight"].max() > 1
    assert (loop.Prepare("nuclei", 0.25, penalty=False)([sample]).targets["weight"] == 1).all()
    assert "weight" not in loop.Prepare("glands", 0.25, penalty=True)([sample]).targets
    assert loop.Prepare("glands", 0.25, penalty="seams")([sample]).targets["weight"].max() > 1


def test_weights_of_seams_reach_the_loss_of_glands():
    logits = torch.randn(1, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    classes, weight = torch.zeros(1, 4, 4, dtype=torch.uint8), torch.ones(1, 4, 4)
    plain = get("glands").loss({"object": logits}, {"object": classes})
    assert get("glands").loss({"object": logits}, {"object": classes, "weight": weight}) == plain
    weight[0, 0, 0] = 5
    entropy = -logits[0, :, 0, 0].log_softmax(0)[0]
    torch.testing.assert_close(get("glands").loss({"object": logits}, {"object": classes, "weight": weight}), plain + 4 * entropy / 16)


def test_lines_come_every_thirty_seconds_at_most():
    now, lines = [0.0], []
    progress = PlainProgress(100, 8, lines.append, clock=lambda: now[0])
    for step in range(41, 100):  # a run that goes on at 40; two seconds a step
        now[0] += 2
        progress(step, 0.5)
    assert lines[0] == "step 55 of 100: loss 0.500, 4.0 samples/s, 0:01:30 left"
    assert len(lines) == 3
    quick = []
    PlainProgress(100, 8, quick.append, clock=lambda: 0.0)(1, 0.5)
    assert quick == []


def test_a_csv_row_has_six_digits(tmp_path):
    from dsfcnn.training.report import write_metrics

    write_metrics(tmp_path / "m.csv", [{"step": 5, "loss": 1 / 3}, {"step": 10, "loss": 2.0, "pq": 0.1}])
    assert list(csv.reader((tmp_path / "m.csv").open())) == [["step", "loss", "pq"], ["5", "0.333333", ""], ["10", "2", "0.1"]]


def test_the_models_of_all_tasks_are_known():
    for task in ("tumour", "glands", "nuclei", "digits"):
        settings = TrainConfig(task=task, model=f"steerable-{task}", group="C4", width=0.05, steps=1)
        assert create(**settings.architecture()) is not None
