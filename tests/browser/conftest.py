"""A server with drawn results, a browser, and pictures of what it shows in build/screenshots."""

from pathlib import Path

import numpy as np
import pytest
from browsing import WINDOW, chromium, viewing
from drawn_results import MAP, write_nuclei, write_record
from PIL import Image
from scipy.ndimage import gaussian_filter

from dsfcnn.cli.main import main
from dsfcnn.data.synthetic.slide import SlideScene, write_slide
from dsfcnn.inference.geojson import GeoJsonWriter
from dsfcnn.inference.objects import Classification, find_instances
from dsfcnn.inference.overlay import write_overlay
from dsfcnn.inference.rasters import array_tiles, in_bytes, write_mask, write_probability

SHOTS = Path(__file__).parents[2] / "build" / "screenshots"
SCENE = SlideScene(3008, 2000, 0.25, "nuclei", seed=3, tissue=0.7, period=1024)
NUCLEUS = Classification("Nucleus <b>", "#2ca02c")


def write_truth(folder, slide, scene):
    """What a perfect model would find on a drawn slide."""
    folder.mkdir(parents=True)
    image, instances = scene.draw(0, 0, scene.width, scene.height)
    probability = gaussian_filter((instances > 0).astype(float), 2)
    found = list(find_instances(instances, image, scene.mpp, probability))
    with GeoJsonWriter(folder / "nuclei.geojson.gz", "detection", NUCLEUS, True, slide_id="drawn") as features:
        for one in found:
            features.write(one)
    factor = round(MAP / scene.mpp)
    cells = probability.reshape(scene.height // factor, factor, scene.width // factor, factor).mean((1, 3))
    write_probability(folder / "probability.tif", array_tiles(in_bytes(cells)), cells.shape, MAP)
    write_mask(folder / "tissue_mask.png", gaussian_filter(image.min(2).astype(float), 8)[::8, ::8] < 225)
    write_overlay(folder / "overlay.png", image, found, 1.0, NUCLEUS)
    write_record(folder, slide, (scene.width, scene.height), mpp=scene.mpp, objects=len(found))


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    out, slides = folder / "out", folder / "slides"
    slides.mkdir()
    write_slide(slides / "drawn.tif", SCENE)
    write_truth(out / "drawn", slides / "drawn.tif", SCENE)
    write_truth(out / "lost", None, SlideScene(1008, 800, 0.25, "nuclei", seed=5, tissue=1))
    (slides / "corrupt.svs").write_text("no slide")
    write_nuclei(out / "corrupt", slides / "corrupt.svs", (1500, 1000), 300)
    (out / "summary.csv").write_text("input,state,reason\nbad <i>one</i>,failed,bad: damaged; get it again\n")
    image = folder / "image.png"
    Image.fromarray(SCENE.draw(1000, 600, 128, 128)[0]).save(image)
    models = ["--model", "cnn-nuclei:0.1", "--model", "steerable-nuclei:C4:0.1"]
    with pytest.raises(SystemExit, match="0"):
        main(["equivariance", *models, str(image), "--size", "64", "--steps", "8", "--out", str(out / "turning")])
    return folder


@pytest.fixture(scope="session")
def address(made):
    with viewing(made / "out", "--slides", made / "slides") as found:
        yield found


@pytest.fixture(scope="session")
def running_browser():
    with chromium() as driver:
        yield driver


@pytest.fixture
def browser(running_browser):
    """One browser for all tests, as if it were new."""
    running_browser.get("about:blank")
    running_browser.set_window_size(*WINDOW)
    running_browser.get_log("browser")  # which empties it
    return running_browser


@pytest.fixture
def shot(browser):
    """Save what is seen now."""

    def save(name):
        SHOTS.mkdir(parents=True, exist_ok=True)
        browser.save_screenshot(str(SHOTS / f"{name}.png"))
        return np.asarray(Image.open(SHOTS / f"{name}.png").convert("RGB")).astype(int)

    return save
