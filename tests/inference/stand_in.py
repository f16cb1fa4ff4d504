"""A network that needs no training: the colours of the picture are its probabilities, smoothed over a few pixels.

``paint`` draws the colours that make it see given objects. It looks 3 pixels far, so a margin of 16 is enough, and a test can tell
exactly what is due to tiles.
"""

import numpy as np
from scipy.ndimage import uniform_filter

from dsfcnn import tasks
from dsfcnn.inference.network import cut_out
from dsfcnn.inference.predictor import Predictor

REACH = 3


class StandIn:
    device = "cpu"

    def __init__(self, task="nuclei"):
        self.task = tasks.get(task)
        self.calls = []

    def logits(self, batch, part=None):
        self.calls.append(batch.shape)
        height, width = batch.shape[2:]
        assert height % 16 == width % 16 == 0
        smooth = uniform_filter(batch, (0, 0, 2 * REACH - 1, 2 * REACH - 1), mode="constant")  # zeros outside, as in a network
        mixed = np.clip(0.7 * batch + 0.3 * smooth, 1e-4, 1)
        if self.task.name == "glands":
            planes = {"object": [mixed[:, 0], mixed[:, 1], None]}
        else:
            planes = {"object": [None, mixed[:, 0]], "marker": [mixed[:, 1], mixed[:, 2], None]}
        outputs = {}
        for head, channels in planes.items():
            known = [plane for plane in channels if plane is not None]
            rest = np.clip(1 - sum(known), 1e-4, 1)
            outputs[head] = np.log(np.stack([rest if plane is None else plane for plane in channels], 1))
        return cut_out(outputs, part)

    def largest_tile(self, margin):
        return 4096


def predictor(task="nuclei", mpp=None, margin=16):
    return Predictor(StandIn(task), {"task": task, "mpp": mpp, "tile_margin": margin})


def paint(instances, mpp, task="nuclei", noise=0, seed=0):
    """uint8 RGB that the stand-in reads as these objects; with ``noise`` in grey levels, since ties hide mistakes."""
    targets = tasks.get(task).targets(instances, mpp)
    if task == "glands":
        picture = np.stack([targets["object"] == 0, targets["object"] == 1, np.zeros(instances.shape, bool)], -1)
    else:
        picture = np.stack([targets["object"] == 1, targets["marker"] == 0, targets["marker"] == 1], -1)
    random = np.random.default_rng(seed)
    return np.clip(picture * 235.0 + random.normal(0, noise, picture.shape) + 5, 0, 255).astype(np.uint8)
