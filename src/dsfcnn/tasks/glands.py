"""Glands (20x, 0.5 um/px): their inner parts, and contours that keep neighbours apart."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsfcnn.tasks.decode import GlandSettings, decode_glands
from dsfcnn.tasks.diamonds import diamond_radius
from dsfcnn.tasks.metrics.results import GLAND_MEASURES
from dsfcnn.tasks.targets import marker_map
from dsfcnn.tasks.task import Segmentation

if TYPE_CHECKING:
    from torch import Tensor

    from dsfcnn.tasks.task import Reduce

EROSION = 2.0  # um: 4 px at 0.5 um/px, the authors' diamond


class Glands(Segmentation):
    """Targets, loss, decoding and measures of gland segmentation."""

    name = "glands"
    mpp = 0.5
    heads = {"object": ("inner", "contour", "background")}  # noqa: RUF012
    settings = GlandSettings()
    measures = GLAND_MEASURES

    def draw(self, instances: NDArray[Any], mpp: float) -> dict[str, NDArray[Any]]:
        return {"object": marker_map(instances, diamond_radius(EROSION, mpp))}

    def loss(self, outputs: "dict[str, Tensor]", targets: "dict[str, Tensor]", reduce: "Reduce | None" = None) -> "Tensor":
        """Mean cross-entropy over all pixels."""
        from dsfcnn.tasks.losses import cross_entropy

        return cross_entropy(outputs["object"], targets["object"])

    def find(self, probabilities: dict[str, NDArray[Any]], mpp: float, settings: GlandSettings) -> NDArray[np.int32]:
        inner, contour, _ = probabilities["object"]
        return decode_glands(inner, contour, mpp, settings)


GLANDS = Glands()
