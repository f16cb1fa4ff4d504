"""Learning rates: functions of the step alone."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsfcnn.training.config import TrainConfig
from dsfcnn.training.schedule import learning_rate


def config(**more):
    return TrainConfig(task="nuclei", model="dsf-nuclei", **{"steps": 100, "learning_rate": 0.01, **more})


def rates(**more):
    made = config(**more)
    return [learning_rate(made, step) for step in range(made.steps)]


def test_steps_change_at_their_milestones():
    found = rates(milestones={60: 1e-4, 30: 1e-3})
    assert found == [0.01] * 30 + [1e-3] * 30 + [1e-4] * 40
    assert rates() == [0.01] * 100


def test_cosine_falls_from_the_rate_to_nearly_nothing():
    found = rates(schedule="cosine")
    assert found[0] == pytest.approx(0.01)
    assert found[50] == pytest.approx(0.01 * (1 + 1e-3) / 2)
    assert found[-1] < 0.01 * (1e-3 + 1e-3)
    assert found == sorted(found, reverse=True)


def test_one_cycle_rises_and_falls():
    found = rates(schedule="one-cycle", warm_up=0.25)
    assert found[0] == pytest.approx(0.01 / 25)
    assert found[25] == pytest.approx(0.01)
    assert found[:26] == sorted(found[:26])
    assert found[25:] == sorted(found[25:], reverse=True)
    assert max(rates(schedule="one-cycle", warm_up=0.0)) == pytest.approx(0.01)


@pytest.mark.parametrize("schedule", ["cosine", "one-cycle"])
def test_the_last_rate_can_be_chosen(schedule):
    found = rates(schedule=schedule, steps=1000, last_rate=0.3)
    assert found[-1] == pytest.approx(0.003, rel=1e-3)
    assert max(found) == pytest.approx(0.01)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.sampled_from(["cosine", "one-cycle"]), st.integers(1, 50), st.floats(0, 0.99), st.floats(0, 0.99), st.floats(1e-6, 1))
def test_no_rate_leaves_its_bounds(schedule, steps, warm_up, last_rate, top):
    for rate in rates(schedule=schedule, steps=steps, warm_up=warm_up, last_rate=last_rate, learning_rate=top):
        assert 0 < rate <= top * (1 + 1e-12)
        assert math.isfinite(rate)
