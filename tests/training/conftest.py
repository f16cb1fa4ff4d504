"""Tiny data, tiny runs."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from training.launch import Started

TUMOUR = {
    "task": "tumour",
    "model": "dsf-tumour",
    "group": "C4",
    "width": 0.1,
    "options": {"dropout": 0.3},
    "format": "folder",
    "data_mpp": 0.97,
    "valid_split": "valid",
    "crop": 16,
    "batch": 4,
    "steps": 6,
    "average": 0.9,
    "validate_every": 3,
    "checkpoint_every": 2,
    "workers": 1,
}
NUCLEI = {
    "task": "nuclei",
    "model": "dsf-nuclei",
    "group": "C4",
    "width": 0.2,  # two fields or more in each layer: batch norm takes the scale of a single one away, and Adam would amplify rounding
    "format": "folder",
    "data_mpp": 0.25,
    "valid_split": "valid",
    "crop": 32,
    "batch": 2,
    "steps": 2,
    "validate_every": 1,
    "checkpoint_every": 1,
    "workers": 0,
}


@pytest.fixture(scope="session")
def patches(tmp_path_factory):
    """Two classes of 20 x 20 pixels: dark and bright."""
    rng, root = np.random.default_rng(0), tmp_path_factory.mktemp("patches")
    for split, count in (("train", 5), ("valid", 2)):
        for name, mean in (("normal", 190), ("tumour", 90)):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                image = rng.normal(mean, 40, (20, 20, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(image).save(root / split / name / f"$x_{number}^$.png")  # a name that mathematics would choke on
    return root


@pytest.fixture(scope="session")
def squares(tmp_path_factory):
    """Dark squares on bright ground as nuclei, 40 x 44 pixels."""
    rng, root = np.random.default_rng(1), tmp_path_factory.mktemp("squares")
    for split, count in (("train", 4), ("valid", 2)):
        for part in ("images", "labels"):
            (root / split / part).mkdir(parents=True)
        for number in range(count):
            labels = np.zeros((40, 44), np.int32)
            labels[5:16, 6:17], labels[22:33, 20 + number : 31 + number] = 1, 2
            image = (200 - 110 * (labels > 0))[..., None] + rng.normal(0, 10, (40, 44, 3))
            Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(root / split / "images" / f"case {number}.png")
            np.save(root / split / "labels" / f"case {number}.npy", labels)
    return root


@pytest.fixture(scope="session")
def tumour(patches, tmp_path_factory):
    """A configuration file with dropout, shuffling, augmentation, a worker and a moving average."""
    return write(tmp_path_factory.mktemp("tumour") / "config.yaml", **TUMOUR, data=str(patches))


@pytest.fixture(scope="session")
def nuclei(squares, tmp_path_factory):
    return write(tmp_path_factory.mktemp("nuclei") / "config.yaml", **NUCLEI, data=str(squares))


def write(path, **settings):
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.fixture(scope="session")
def train(tmp_path_factory):
    """Run ``dsfcnn train`` in a process of its own, with mishaps: how it ended and what it said."""
    logs = tmp_path_factory.mktemp("logs")

    def run(config, out, *arguments, mishaps=(), environment=None):
        log = logs / f"{len(list(logs.iterdir()))}.txt"
        return Started(log, ["train", config, *arguments, "--out", out], mishaps, environment).wait()

    return run


def contents(folder):
    """All bytes of a run but its times."""
    files = {str(path.relative_to(folder)): path for path in sorted(Path(folder).rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name not in ("run.json",) and not name.startswith("events/")}


@pytest.fixture(scope="session")
def whole(train, tumour, tmp_path_factory):
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    done = train(tumour, folder)
    assert done.code == 0, done.said
    return folder
