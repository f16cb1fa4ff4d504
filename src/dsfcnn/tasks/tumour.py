"""Tumour or normal tissue: one class per patch, as in PatchCamelyon (10x, 0.97 um/px)."""

from dsfcnn.tasks.task import Classification

TUMOUR = Classification("tumour", mpp=0.97, classes=("normal", "tumour"))
