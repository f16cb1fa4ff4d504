"""Nuclei (40x, 0.25 um/px): which pixels are nucleus, and markers and contours that keep neighbours apart."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsfcnn.tasks.decode import NucleiSettings, decode_nuclei
from dsfcnn.tasks.diamonds import diamond_radius
from dsfcnn.tasks.metrics.results import NUCLEI_MEASURES
from dsfcnn.tasks.targets import CONTOUR, marker_map, penalty_map
from dsfcnn.tasks.task import Segmentation

if TYPE_CHECKING:
    from torch import Tensor

    from dsfcnn.tasks.task import Reduce

EROSION = 0.75  # um: 3 px at 0.25 um/px, the authors' diamond
PENALTY_SIGMA = 1.0  # um: 4 px at 0.25 um/px, the authors' value


class Nuclei(Segmentation):
    """Targets, loss, decoding and measures of nuclear segmentation."""

    name = "nuclei"
    mpp = 0.25
    heads = {"object": ("background", "nucleus"), "marker": ("marker", "contour", "background")}  # noqa: RUF012
    settings = NucleiSettings()
    measures = NUCLEI_MEASURES

    def draw(self, instances: NDArray[Any], mpp: float, seams: bool) -> dict[str, NDArray[Any]]:
        marker = marker_map(instances, diamond_radius(EROSION, mpp))
        return {
            "object": (instances != 0).astype(np.uint8),
            "marker": marker,
            "weight": penalty_map(instances, PENALTY_SIGMA / mpp, seams=marker == CONTOUR if seams else None),
        }

    def loss(self, outputs: "dict[str, Tensor]", targets: "dict[str, Tensor]", reduce: "Reduce | None" = None) -> "Tensor":
        """Weighted cross-entropy and Dice: :func:`dsfcnn.tasks.losses.nuclei_loss`."""
        from dsfcnn.tasks.losses import nuclei_loss

        return nuclei_loss(outputs, targets, reduce)

    def find(self, probabilities: dict[str, NDArray[Any]], mpp: float, settings: NucleiSettings) -> NDArray[np.int32]:
        _, nucleus = probabilities["object"]
        marker, contour, _ = probabilities["marker"]
        return decode_nuclei(nucleus, marker, contour, mpp, settings)


NUCLEI = Nuclei()
