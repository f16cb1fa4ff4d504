"""Layers on G-feature maps (N, C, G, H, W): C fields, each with its G orientations."""

from dsfcnn.layers.dense import GDenseBlock, GDenseUnit
from dsfcnn.layers.gconv import GConv2d
from dsfcnn.layers.lift import LiftConv2d
from dsfcnn.layers.norm import GBatchNorm
from dsfcnn.layers.pool import AntialiasedPool, GPool, MaxPool, MeanPool
from dsfcnn.layers.resample import Upsample
from dsfcnn.layers.sequential import FieldSequential

__all__ = [
    "AntialiasedPool",
    "FieldSequential",
    "GBatchNorm",
    "GConv2d",
    "GDenseBlock",
    "GDenseUnit",
    "GPool",
    "LiftConv2d",
    "MaxPool",
    "MeanPool",
    "Upsample",
]
