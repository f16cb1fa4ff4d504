"""What training minimises."""

import numpy as np
import pytest
import torch

from dsfcnn import tasks
from dsfcnn.tasks.losses import dice_loss, dice_sums, nuclei_loss


def batch(dtype=torch.float64, seed=0):
    random = torch.Generator().manual_seed(seed)
    outputs = {"object": torch.randn(4, 2, 9, 7, generator=random), "marker": torch.randn(4, 3, 9, 7, generator=random)}
    targets = {
        "object": torch.randint(0, 2, (4, 9, 7), generator=random).byte(),
        "marker": torch.randint(0, 3, (4, 9, 7), generator=random).byte(),
        "weight": 1 + 10 * torch.rand(4, 9, 7, generator=random),
    }
    return {head: logits.to(dtype).requires_grad_() for head, logits in outputs.items()}, targets


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_stays(dtype):
    outputs, targets = batch(dtype)
    loss = tasks.get("nuclei").loss(outputs, targets)
    assert loss.dtype == dtype
    loss.backward()
    assert all(torch.isfinite(logits.grad).all() for logits in outputs.values())


def test_gradients():
    outputs, targets = batch()
    small = {head: logits[:1, :, :3, :2].detach().requires_grad_() for head, logits in outputs.items()}
    cut = {name: target[:1, :3, :2] for name, target in targets.items()}
    assert torch.autograd.gradcheck(lambda a, b: nuclei_loss({"object": a, "marker": b}, cut), (small["object"], small["marker"]))


def test_low_precision_keeps_its_sums():
    """65,536 pixels: a sum in float16 would overflow."""
    logits = torch.zeros(1, 2, 256, 256, dtype=torch.float16)
    target = torch.zeros(1, 256, 256, dtype=torch.uint8)
    assert dice_sums(logits, target)[1].tolist() == pytest.approx([98304, 32768])


def test_dice_sums_add_over_processes():
    """Two halves of a batch, their sums added, give the Dice loss of the whole: what ``reduce`` is for."""
    outputs, targets = batch()
    whole = dice_loss(dice_sums(outputs["marker"], targets["marker"]))
    halves = [dice_sums(outputs["marker"][half], targets["marker"][half]) for half in (slice(0, 2), slice(2, 4))]
    torch.testing.assert_close(dice_loss(halves[0] + halves[1]), whole)
    mean_of_halves = (dice_loss(halves[0]) + dice_loss(halves[1])) / 2
    assert not torch.allclose(mean_of_halves, whole)
    called = []
    tasks.get("nuclei").loss(outputs, targets, reduce=lambda sums: called.append(sums.shape) or sums)
    assert called == [(2, 2), (2, 3)]


def test_right_answers_cost_nothing_and_wrong_ones_much():
    random = np.random.default_rng(0)
    for name in tasks.names():
        task = tasks.get(name)
        if name in ("tumour", "digits"):
            labels = torch.tensor([0, 1, 1])
            right = 50 * torch.nn.functional.one_hot(labels, len(task.heads["class"])).double()
            assert task.loss(right, labels) < 1e-9
            assert task.loss(-right, labels) > 10
            continue
        instances = random.integers(0, 3, (40, 40)).repeat(8, 0).repeat(8, 1)
        targets = {key: torch.tensor(value[None]) for key, value in task.targets(instances).items()}
        right = {
            head: 50 * torch.nn.functional.one_hot(targets[head].long(), len(channels)).movedim(-1, 1).double()
            for head, channels in task.heads.items()
        }
        assert task.loss(right, targets) < 1e-6
        assert task.loss({head: -logits for head, logits in right.items()}, targets) > 10


def test_weights_count():
    outputs, targets = batch()
    heavier = {**targets, "weight": 2 * targets["weight"]}
    assert nuclei_loss(outputs, heavier) > nuclei_loss(outputs, targets) + 1
