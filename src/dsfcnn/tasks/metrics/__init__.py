"""Every measure of the paper, as functions of (truth, prediction) for one image and as results for a data set.

Instance maps are integer arrays (H, W), 0 for background; ids may have gaps and any size. Every measure is defined and finite for maps
without objects; each function says how.
"""

from dsfcnn.tasks.metrics.auc import auc, auc_difference, auc_interval
from dsfcnn.tasks.metrics.bootstrap import Estimate
from dsfcnn.tasks.metrics.dice import binary_dice
from dsfcnn.tasks.metrics.glas import object_dice, object_f1, object_hausdorff
from dsfcnn.tasks.metrics.jaccard import aggregated_jaccard
from dsfcnn.tasks.metrics.panoptic import PanopticQuality, panoptic_quality
from dsfcnn.tasks.metrics.results import Results, score_classes, score_instances

__all__ = [
    "Estimate",
    "PanopticQuality",
    "Results",
    "aggregated_jaccard",
    "auc",
    "auc_difference",
    "auc_interval",
    "binary_dice",
    "object_dice",
    "object_f1",
    "object_hausdorff",
    "panoptic_quality",
    "score_classes",
    "score_instances",
]
