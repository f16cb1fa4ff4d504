"""The learning rate as a function of the step alone: nothing to save, nothing to forget."""

import math

from dsfcnn.training.config import TrainConfig

_FIRST = 1 / 25  # of the highest rate, where one cycle begins; Smith's rule


def learning_rate(config: TrainConfig, step: int) -> float:
    """For step 0, 1, ... of ``config.steps``.

    "steps": the first rate until the first milestone, then that of the last one passed. "cosine": half a cosine down to ``last_rate``.
    "one-cycle": up on half a cosine in the first part (``warm_up``), then down (Smith and Topin, 2018).
    """
    top, done = config.learning_rate, step / config.steps
    if config.schedule == "steps":
        passed = [at for at in config.milestones if at <= step]
        return config.milestones[max(passed)] if passed else top
    if config.schedule == "cosine":
        return top * _between(1.0, config.last_rate, done)
    if done < config.warm_up:
        return top * _between(_FIRST, 1.0, done / config.warm_up)
    return top * _between(1.0, config.last_rate, (done - config.warm_up) / (1 - config.warm_up))


def _between(first: float, last: float, part: float) -> float:
    return last + (first - last) * (1 + math.cos(math.pi * part)) / 2
