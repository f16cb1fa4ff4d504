"""Drawn data sets: images that exist as soon as they are asked for."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from dsfcnn.data.sample import Sample, place_in
from dsfcnn.data.synthetic.digits import draw_digit
from dsfcnn.data.synthetic.fields import Window
from dsfcnn.data.synthetic.glands import draw_glands
from dsfcnn.data.synthetic.nuclei import draw_nuclei
from dsfcnn.data.synthetic.tumour import draw_tumour
from dsfcnn.errors import UsageError

# Kind -> microns per pixel (that of the task), pixels a side, classes.
KINDS = {
    "nuclei": (0.25, 512, ("nucleus",)),
    "glands": (0.5, 512, ("gland",)),
    "tumour": (0.97, 96, ("normal", "tumour")),
    "digits": (1.0, 28, tuple("0123456789")),
}


@dataclass(frozen=True)
class Drawn:
    """A split of drawn images. Images of different splits, and of different seeds, share nothing.

    Args:
        kind: "nuclei", "glands", "tumour" or "digits".
        split: "train", "valid" or "test".
        count: number of images; None is a number that a first training can use.
        size: pixels a side; digits have 28.
    """

    kind: str
    split: str
    count: int | None = None
    size: int | None = None
    seed: int = 0
    name: str = field(init=False)
    classes: tuple[str, ...] = field(init=False)
    mpp: float = field(init=False)
    unpaired: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    # Images of a split; forty times as many patches and digits, which are small.
    COUNTS: ClassVar[dict[str, int]] = {"train": 50, "valid": 10, "test": 10}

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"no drawn data {self.kind!r}; use one of {', '.join(KINDS)}")
        if self.split not in self.COUNTS:
            raise UsageError(f"no split {self.split!r} of drawn data; use one of {', '.join(self.COUNTS)}")
        mpp, size, classes = KINDS[self.kind]
        count = self.COUNTS[self.split] * (1 if self.kind in ("nuclei", "glands") else 40)
        for key, value in {
            "name": f"synthetic-{self.kind}",
            "classes": classes,
            "mpp": mpp,
            "size": self.size or size,
            "count": count if self.count is None else self.count,
        }.items():
            object.__setattr__(self, key, value)

    def __len__(self) -> int:
        assert self.count is not None
        return self.count

    def __getitem__(self, index: int) -> Sample:
        index = place_in(len(self), index)
        assert self.size is not None
        # A number of its own for every image of every split and seed.
        seed = (self.seed * len(self.COUNTS) + list(self.COUNTS).index(self.split)) * 1_000_000 + index
        window = Window(0, 0, self.size, self.size, self.mpp)
        label = index % len(self.classes)
        if self.kind == "nuclei":
            return Sample(*draw_nuclei(100 * seed, window, tumour=0.35), None, self.mpp, self.source(index))
        if self.kind == "glands":
            return Sample(*draw_glands(100 * seed, window), None, self.mpp, self.source(index))
        if self.kind == "tumour":
            return Sample(draw_tumour(100 * seed, window, label), None, label, self.mpp, self.source(index))
        return Sample(draw_digit(seed, label), None, label, self.mpp, self.source(index))

    def source(self, index: int) -> str:
        return f"{self.kind} {self.split} {index}"
