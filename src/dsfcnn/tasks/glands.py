"""Glands (20x, 0.5 um/px): their inner parts, and contours that keep neighbours apart."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsfcnn.tasks.decode import GlandSettings, decode_glands
from dsfcnn.tasks.diamonds import diamond_radius
from dsfcnn.tasks.metrics.results import GLAND_MEASURES
from dsfcnn.tasks.targets import CONTOUR, marker_map, penalty_map
from dsfcnn.tasks.task import Segmentation

if TYPE_CHECKING:
    from torch import Tensor

    from dsfcnn.tasks.task import Reduce

EROSION = 2.0  # um: 4 px at 0.5 um/px, the authors' diamond
SEAM_SIGMA, SEAM_STRENGTH = 6.0, 5.0  # um and w_0 of the weights of seams: guesses, tried once, on 15 held-out images of GlaS


class Glands(Segmentation):
    """Targets, loss, decoding and measures of gland segmentation."""

    name = "glands"
    mpp = 0.5
    heads = {"object": ("inner", "contour", "background")}  # noqa: RUF012
    settings = GlandSettings()
    measures = GLAND_MEASURES

    def draw(self, instances: NDArray[Any], mpp: float, seams: bool) -> dict[str, NDArray[Any]]:
        inner = marker_map(instances, diamond_radius(EROSION, mpp))
        if not seams:
            return {"object": inner}
        return {"object": inner, "weight": penalty_map(instances, SEAM_SIGMA / mpp, SEAM_STRENGTH, seams=inner == CONTOUR)}

    def loss(self, outputs: "dict[str, Tensor]", targets: "dict[str, Tensor]", reduce: "Reduce | None" = None) -> "Tensor":
        """Mean cross-entropy over all pixels, weighed where targets have weights."""
        from dsfcnn.tasks.losses import cross_entropy

        return cross_entropy(outputs["object"], targets["object"], targets.get("weight"))

    def find(self, probabilities: dict[str, NDArray[Any]], mpp: float, settings: GlandSettings) -> NDArray[np.int32]:
        inner, contour, _ = probabilities["object"]
        return decode_glands(inner, contour, mpp, settings)


GLANDS = Glands()
