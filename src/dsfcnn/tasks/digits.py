"""Handwritten digits, turned: one class per image."""

from dsfcnn.tasks.task import Classification

DIGITS = Classification("digits", mpp=1.0, classes=tuple("0123456789"))  # digits have no size; 1 leaves every length as it is
