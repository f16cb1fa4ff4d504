"""Data: the paper's data sets, users' own, and drawn tissue, all as samples; cuts and augmentation for training."""

from dsfcnn.data.augment import Augment
from dsfcnn.data.crops import Crops
from dsfcnn.data.loader import load_batches
from dsfcnn.data.masks import read_instances
from dsfcnn.data.open import FORMATS, open_dataset, splits
from dsfcnn.data.sample import Dataset, Sample

__all__ = ["FORMATS", "Augment", "Crops", "Dataset", "Sample", "load_batches", "open_dataset", "read_instances", "splits"]
