"""An output folder with every kind of result, and the slides it was made from."""

import json
import shutil
import time

import numpy as np
import pytest
import tifffile
from drawn_results import write_nuclei, write_tumour
from PIL import Image
from starlette.testclient import TestClient

from dsfcnn.viewer.server import make_app

SIZE = (1500, 1100)
WORDS = "no slide, only words"


def write_pyramid(path, size=SIZE, mpp=0.25):
    """A slide of two levels; red grows to the right and green downwards, so that every place can be told."""
    y, x = np.mgrid[: size[1], : size[0]]
    picture = np.stack([x * 255 // size[0], y * 255 // size[1], np.full(x.shape, 90)], -1).astype(np.uint8)
    with tifffile.TiffWriter(path) as file:
        for ratio in (1, 2):
            resolution = {"resolution": (1e4 / mpp / ratio,) * 2, "resolutionunit": "CENTIMETER"}
            kind = {"tile": (256, 256), "photometric": "rgb", "compression": "deflate", "metadata": None, "subfiletype": int(ratio > 1)}
            file.write(picture[::ratio, ::ratio], **kind, **resolution)
    return picture


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """``slides`` and ``out``: a nuclei result, a tumour result, an image, a slide that is damaged, one that is lost, a study."""
    folder = tmp_path_factory.mktemp("viewer")
    slides, out = folder / "slides", folder / "out"
    slides.mkdir()
    write_pyramid(slides / "good.tif")
    write_nuclei(out / "good", slides / "good.tif", SIZE, 700)
    write_tumour(out / "heat", slides / "good.tif", SIZE)
    Image.fromarray(np.full((90, 120, 3), (200, 120, 160), np.uint8)).save(slides / "piece.png")
    write_nuclei(out / "piece", slides / "piece.png", (120, 90), 3)
    (slides / "damaged.svs").write_text(WORDS)
    write_nuclei(out / "damaged", slides / "damaged.svs", SIZE, 20)
    write_nuclei(out / "lost", None, SIZE, 20)
    Image.fromarray(np.full((275, 375, 3), (10, 200, 30), np.uint8)).save(out / "lost" / "overlay.png")
    write_study(out / "turning")
    (out / "summary.csv").write_text("input,state,reason\ngood,done,\nbad,failed,bad: <b>damaged</b>; get it again\n")
    return folder


def write_study(folder, side=8, turns=4):
    """Two models; every frame has a grey level of its own."""
    folder.mkdir()
    chances = {"probabilities": [[0.25, 0.75]] * turns}
    feature = {"all_steps": {"ratio": 0.5}, "quarter_turns": {"ratio": 1e-20}}
    models = [
        {"model": "plain", "weights": "random", "passes": 1, "features": {"A": feature, "object": feature}},
        {
            "model": "classes",
            "weights": "folder",
            "passes": 4,
            "features": {"classes": feature | chances},
        },
    ]
    rows = ["input", "plain: A", "plain: object"]
    report = {"angles": [90.0 * turn for turn in range(turns)], "models": models, "frames": {"side": side, "rows": rows}}
    (folder / "variance.json").write_text(json.dumps(report))
    levels = np.arange(len(rows))[:, None] * 40 + np.arange(turns) * 10
    sheet = np.repeat(np.kron(levels, np.ones((side, side)))[..., None], 3, axis=2).astype(np.uint8)
    Image.fromarray(sheet).save(folder / "frames.png")


@pytest.fixture
def copied(made, tmp_path):
    """The same, to be changed."""
    return shutil.copytree(made, tmp_path / "copy", symlinks=True)


@pytest.fixture(scope="session")
def client(made):
    with TestClient(make_app(made / "out", [made / "slides"], {"index.html": ("text/html", b"<p>")}), base_url="http://localhost") as found:
        yield found


def key_of(client, name, kind="results"):
    return next(one["key"] for one in client.get("/api/results").json()[kind] if one["name"] == name)


def described(client, key):
    """A result once everything of it is read."""
    while (found := client.get(f"/api/results/{key}").json())["busy"]:
        time.sleep(0.01)
    return found
