"""A run over images and slides: its files, its state, and what it does about bad inputs and interruptions."""

import csv
import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from dsfcnn.data.synthetic.fields import Window
from dsfcnn.data.synthetic.glands import draw_glands
from dsfcnn.data.synthetic.nuclei import draw_nuclei
from dsfcnn.errors import DataError, FolderInUse, MissingInputError, OutputError, UsageError
from dsfcnn.files import locked
from dsfcnn.inference import run
from dsfcnn.inference.geojson import rasterise, read_geojson
from dsfcnn.inference.job import Options
from dsfcnn.inference.merge import Found
from dsfcnn.inference.predictor import as_slide
from dsfcnn.inference.results import Pixels
from dsfcnn.inference.stitch import tile_probabilities
from dsfcnn.inference.tiles import Box
from dsfcnn.slides import MissingLibraries
from dsfcnn.tasks.metrics import panoptic_quality

from .stand_in import paint, predictor

PLAIN = Options(workers=0, tile=128, find_mask=False)  # painted background is black, which no tissue is


@pytest.fixture
def model(monkeypatch, tmp_path):
    """Whatever model is named, the stand-in runs."""
    chosen = {"model": predictor(), "digest": "abc"}
    monkeypatch.setattr(run, "load", lambda name, device: chosen["model"])
    monkeypatch.setattr(run, "find_model", lambda name: tmp_path)
    monkeypatch.setattr(run, "model_hash", lambda path: chosen["digest"])
    return chosen


def write_tissue(path, seed=0, shape=(300, 280), mpp=0.25, task="nuclei", tiled=False):
    """A painted picture, as an image or as a slide."""
    draw = {"nuclei": draw_nuclei, "glands": draw_glands}[task]
    _, truth = draw(seed, Window(0, 0, shape[1], shape[0], mpp))
    image = paint(truth, mpp, task, noise=8, seed=seed)
    save(path, image, mpp, 128 if tiled else None)
    return image


def write_discs(path, centres, shape=(256, 384), block=None):
    """Round nuclei of 16 pixels' radius around places x, y; a slide of blocks, if they have a size."""
    truth = np.zeros(shape, np.int32)
    rows, columns = np.indices(shape)
    for name, (x, y) in enumerate(centres, 1):
        truth[(columns - x) ** 2 + (rows - y) ** 2 <= 16**2] = name
    save(path, paint(truth, 0.25, noise=3), 0.25, block)


def save(path, image, mpp, block):
    if block is None:
        Image.fromarray(image).save(path)
    else:
        options = {"resolution": (1e4 / mpp, 1e4 / mpp), "resolutionunit": "CENTIMETER", "metadata": None}
        tifffile.imwrite(path, image, tile=(block, block), photometric="rgb", compression="zlib", **options)


def results(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "run.json"}


def table(path):
    with path.open() as stream:
        return list(csv.DictReader(stream))


def test_an_image_gets_every_file_on_its_own_pixels(model, tmp_path):
    image = write_tissue(tmp_path / "a b.png")
    notices = []
    assert run.predict([tmp_path / "a b.png"], "m", tmp_path / "out", PLAIN, tell=notices.append) == {}
    folder = tmp_path / "out" / "a b"
    names = {path.name for path in folder.iterdir()}
    assert names == {"nuclei.geojson", "instances.png", "overlay.png", "probability.tif", "measurements.csv", "run.json"}
    assert "--slide-mpp" in notices[0]
    labels = np.asarray(Image.open(folder / "instances.png")).astype(int)
    wanted = model["model"].segment(image, tile=128)
    assert panoptic_quality(wanted, labels).pq == 1
    assert (rasterise(read_geojson(folder / "nuclei.geojson"), labels.shape) == labels).all()
    rows = table(folder / "measurements.csv")
    assert len(rows) == labels.max()
    area = np.bincount(labels.ravel())[1:] * 0.25**2
    np.testing.assert_allclose([float(row["Area um^2"]) for row in rows], area, atol=1e-3)
    assert np.asarray(Image.open(folder / "overlay.png")).shape == image.shape
    record = json.loads((folder / "run.json").read_bytes())
    assert (record["counts"]["objects"], record["settings"]["model"]) == (labels.max(), "abc")
    assert str(tmp_path) not in (folder / "run.json").read_text() + (tmp_path / "out" / "summary.csv").read_text()
    (row,) = table(tmp_path / "out" / "summary.csv")
    assert (row["input"], row["state"], int(row["objects"]), row["unreadable_tiles"]) == ("a b", "done", labels.max(), "0")


def test_an_image_of_another_resolution_is_answered_on_its_own_pixels(model, tmp_path):
    write_tissue(tmp_path / "a.png", mpp=0.4)
    run.predict([tmp_path / "a.png"], "m", tmp_path / "out", Options(workers=0, tile=128, slide_mpp=0.4))
    labels = np.asarray(Image.open(tmp_path / "out" / "a" / "instances.png")).astype(int)
    assert labels.shape == (300, 280)
    assert (rasterise(read_geojson(tmp_path / "out" / "a" / "nuclei.geojson"), labels.shape) == labels).all()


def test_an_image_is_taken_at_the_models_resolution_whatever_the_network_sees(model, tmp_path):
    write_discs(tmp_path / "a.png", [(60, 60), (260, 160)])
    areas = {}
    for mpp in (None, 0.5):
        run.predict([tmp_path / "a.png"], "m", tmp_path / str(mpp), Options(workers=0, tile=128, mpp=mpp))
        areas[mpp] = [float(row["Area um^2"]) for row in table(tmp_path / str(mpp) / "a/measurements.csv")]
        record = json.loads((tmp_path / str(mpp) / "a/run.json").read_bytes())
        assert (record["settings"]["slide_mpp"], record["settings"]["mpp"]) == (0.25, mpp or 0.25)
    assert len(areas[None]) == 2
    assert areas[0.5] == pytest.approx(areas[None], rel=0.1)


@pytest.mark.parametrize("task", ["nuclei", "glands"])
def test_a_slide_gets_level_0_polygons_and_a_tiled_map(model, tmp_path, task):
    mpp = {"nuclei": 0.25, "glands": 0.5}[task]
    model["model"] = predictor(task, mpp=2 * mpp)
    write_tissue(tmp_path / "s.tif", task=task, mpp=mpp, shape=(420, 400), tiled=True)
    assert run.predict([tmp_path / "s.tif"], "m", tmp_path / "out", PLAIN) == {}
    folder = tmp_path / "out" / "s"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        f"{task}.geojson.gz",
        "instances.tif",
        "overlay.png",
        "probability.tif",
        "measurements.csv",
        "run.json",
    }
    labels = tifffile.imread(folder / "instances.tif")
    assert labels.shape == (420, 400)  # the network saw half of that, objects are outlined on the task's pixels
    assert labels.max() > 2
    features = list(read_geojson(folder / f"{task}.geojson.gz"))
    assert (rasterise(features, labels.shape) == labels).all()
    assert gzip.decompress((folder / f"{task}.geojson.gz").read_bytes()).startswith(b'{"type":"FeatureCollection"')
    assert tifffile.imread(folder / "probability.tif").shape == (210, 200)


def test_results_end_where_the_slide_does(model, tmp_path):
    """Its size is no whole number of the network's pixels, and the network sees its mirror image beyond the edge."""
    model["model"] = predictor(mpp=1.0)
    write_discs(tmp_path / "s.tif", [(60, 60), (197, 100), (100, 181)], shape=(181, 197), block=64)
    run.predict([tmp_path / "s.tif"], "m", tmp_path / "out", PLAIN)
    labels = tifffile.imread(tmp_path / "out/s/instances.tif")
    assert labels.shape == (181, 197)
    assert labels[-1].any()
    assert labels[:, -1].any()
    rings = [ring for feature in read_geojson(tmp_path / "out/s/nuclei.geojson.gz") for ring in feature["geometry"]["coordinates"]]
    assert np.concatenate(rings).max(0).tolist() == [197, 181]


def test_an_object_beyond_an_image_has_no_place_in_it():
    slide = as_slide(np.zeros((9, 9, 3), np.uint8), 0.25)
    pixels = Pixels(slide, predictor(mpp=1.0).grid(slide))
    assert (pixels.grid.width * pixels.grid.factor, pixels.shape) == (12, (9, 9))
    for left, top in ((10, 0), (0, 10), (10, 10)):
        assert pixels.placed(Found(Box(left, top, left + 2, top + 2), np.ones((2, 2), bool), 1.0)) is None
    assert pixels.placed(Found(Box(8, 7, 10, 9), np.ones((2, 2), bool), 1.0))[2].shape == (2, 1)


@pytest.mark.parametrize(("own", "given", "told"), [(0.25, 0.5, True), (0.25, 0.254, False), (None, 0.5, False)])
def test_a_resolution_other_than_the_slides_own_is_told(model, tmp_path, own, given, told):
    options = {} if own is None else {"resolution": (1e4 / own, 1e4 / own), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(tmp_path / "s.tif", np.zeros((64, 64, 3), np.uint8), tile=(64, 64), photometric="rgb", metadata=None, **options)
    notices = []
    run.predict([tmp_path / "s.tif"], "m", tmp_path / "out", replace(PLAIN, slide_mpp=given), tell=notices.append)
    assert notices == (["s: says 0.25 um per pixel but is taken at --slide-mpp 0.5"] if told else [])


def test_bytes_do_not_depend_on_workers_and_folders_are_read(model, tmp_path):
    (tmp_path / "in").mkdir()
    for seed in (1, 2):
        write_tissue(tmp_path / "in" / f"{seed}.png", seed, shape=(200, 170))
    (tmp_path / "in" / "notes.txt").write_text("no picture")
    run.predict([tmp_path / "in"], "m", tmp_path / "one", PLAIN)
    run.predict([tmp_path / "in"], "m", tmp_path / "two", Options(workers=2, tile=128, find_mask=False))
    assert results(tmp_path / "one") == results(tmp_path / "two")
    assert len(results(tmp_path / "one")) == 2 * 5 + 2  # the lock is a file too


class Stop(Exception):
    pass


@pytest.mark.parametrize("moments", [(1,), (3,), (2, 1, 1)])
def test_a_stopped_run_goes_on_to_the_same_bytes(model, tmp_path, monkeypatch, moments):
    """Stopped before the n-th tile is saved, any number of times: every tile goes through the network once, but for those in flight."""
    write_tissue(tmp_path / "a.png")
    run.predict([tmp_path / "a.png"], "m", tmp_path / "whole", PLAIN)
    calls = len(model["model"].network.calls)
    left = [0]

    def stopping(*arguments):
        left[0] -= 1
        if left[0] == 0:
            raise Stop
        return tile_probabilities(*arguments)

    monkeypatch.setattr("dsfcnn.inference.job.tile_probabilities", stopping)
    model["model"].network.calls.clear()
    for number, moment in enumerate(moments):
        left[0] = moment + 1
        with pytest.raises(Stop):
            run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN, resume=number > 0)
        assert not (tmp_path / "out" / "a" / "run.json").exists()
    left[0] = 1_000
    run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN, resume=True)
    assert len(model["model"].network.calls) == calls
    assert results(tmp_path / "out") == results(tmp_path / "whole")
    run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN, resume=True)
    assert len(model["model"].network.calls) == calls, "finished inputs are skipped"


def test_a_run_stopped_while_writing_goes_on_to_the_same_bytes(model, tmp_path, monkeypatch):
    write_tissue(tmp_path / "a.png", shape=(200, 180))
    run.predict([tmp_path / "a.png"], "m", tmp_path / "whole", PLAIN)
    for step in ("measured", "write_results", "write_probabilities"):
        with monkeypatch.context() as patch:

            def stop(*arguments):
                raise Stop

            patch.setattr(f"dsfcnn.inference.job.{step}", stop)
            with pytest.raises(Stop):
                run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN, resume=True)
    run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN, resume=True)
    assert results(tmp_path / "out") == results(tmp_path / "whole")


def test_other_settings_are_refused_by_name(model, tmp_path, refused):
    write_tissue(tmp_path / "a.png", shape=(60, 50))
    run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN)
    with refused(OutputError, "--resume"):
        run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN)
    with pytest.raises(UsageError, match="begun with tile 128"):
        run.predict([tmp_path / "a.png"], "m", tmp_path / "out", Options(workers=0, tile=64, find_mask=False), resume=True)
    model["digest"] = "def"
    with pytest.raises(UsageError, match="begun with model 'abc'"):
        run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN, resume=True)
    assert run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN, overwrite=True) == {}
    write_tissue(tmp_path / "a.png", seed=5, shape=(60, 50))
    with pytest.raises(UsageError, match="begun with input"):
        run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN, resume=True)


def test_overwriting_keeps_the_results_where_the_place_to_look_at_cannot_be(model, tmp_path):
    write_tissue(tmp_path / "s.tif", shape=(128, 256), tiled=True)
    Image.new("L", (16, 16), 255).save(tmp_path / "square.png")
    run.predict([tmp_path / "s.tif"], "m", tmp_path / "out", PLAIN)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out/s").iterdir()}
    for options in (Options(workers=0, region="300,0,10,10"), Options(workers=0, mask=tmp_path / "square.png")):
        failed = run.predict([tmp_path / "s.tif"], "m", tmp_path / "out", options, overwrite=True)
        assert isinstance(failed["s"], DataError)
        assert {path.name: path.read_bytes() for path in (tmp_path / "out/s").iterdir()} == before


def test_what_the_viewer_keeps_stands_in_no_runs_way(model, tmp_path, monkeypatch):
    write_tissue(tmp_path / "a.png", shape=(60, 50))
    folder, network = tmp_path / "out" / "a", model["model"].network
    assert run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN) == {}
    (folder / ".objects.npz").touch()
    assert run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN, resume=True) == {}
    assert run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN, overwrite=True) == {}
    assert not (folder / ".objects.npz").exists(), "objects of results that are gone"
    (folder / ".objects.npz").touch()
    with monkeypatch.context() as patch:
        logits = network.logits
        patch.setattr(network, "logits", lambda *given: {head: values * np.nan for head, values in logits(*given).items()})
        assert run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN, overwrite=True).keys() == {"a"}
    assert not folder.exists()
    folder.mkdir()
    (folder / ".objects.npz").touch()
    assert run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN) == {}


def test_a_summary_that_is_not_ours_stays(model, tmp_path, refused):
    write_tissue(tmp_path / "a.png", shape=(60, 50))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/summary.csv").write_text("patient,age\n1,60\n")
    for options in ({}, {"resume": True}, {"overwrite": True}):
        with refused(OutputError, "another --out"):
            run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN, **options)
    assert (tmp_path / "out/summary.csv").read_text() == "patient,age\n1,60\n"
    assert not (tmp_path / "out/a").exists(), "told before any work"
    (tmp_path / "out/summary.csv").unlink()
    for name in ("one", "two"):
        run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN, name=name)
    assert [row["input"] for row in table(tmp_path / "out/summary.csv")] == ["two"]


def test_others_files_are_never_touched(model, tmp_path, refused):
    """Not even with --overwrite: a folder of the slide's name may be the slide's own (MIRAX)."""
    for name in ("a", "b"):
        write_tissue(tmp_path / f"{name}.png", shape=(60, 50))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "Data0001.dat").write_bytes(b"pixels")
    inputs = [tmp_path / "a.png", tmp_path / "b.png"]
    with refused(OutputError, "another --out"):
        run.predict(inputs, "m", tmp_path, PLAIN)
    assert not (tmp_path / "a").exists(), "told before any work"
    with refused(OutputError, "another --out"):
        run.predict(inputs, "m", tmp_path, PLAIN, overwrite=True)
    assert not (tmp_path / "a").exists(), "told before any work"
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["Data0001.dat"]
    run.predict(inputs[:1], "m", tmp_path, PLAIN)
    (tmp_path / "a" / "corrected.geojson").write_text("mine")
    run.predict(inputs[:1], "m", tmp_path, PLAIN, overwrite=True)
    assert (tmp_path / "a" / "corrected.geojson").read_text() == "mine"


def test_a_bad_input_does_not_stop_the_others(model, tmp_path):
    write_tissue(tmp_path / "good.png", shape=(60, 50))
    (tmp_path / "bad.png").write_bytes((tmp_path / "good.png").read_bytes()[:300])
    failed = run.predict([tmp_path / "bad.png", tmp_path / "gone.png", tmp_path / "good.png"], "m", tmp_path / "out", PLAIN)
    assert {name: type(error) for name, error in failed.items()} == {"bad": DataError, "gone": MissingInputError}
    rows = table(tmp_path / "out" / "summary.csv")
    assert [(row["input"], row["state"]) for row in rows] == [("bad", "failed"), ("gone", "failed"), ("good", "done")]
    assert "damaged PNG" in rows[0]["reason"]
    assert str(tmp_path) not in (tmp_path / "out" / "summary.csv").read_text()


def test_a_slide_without_its_libraries_does_not_stop_the_images(model, tmp_path, monkeypatch):
    write_tissue(tmp_path / "good.png", shape=(60, 50))
    tifffile.imwrite(tmp_path / "bad.tif", np.zeros((64, 64, 3), np.uint8), tile=(64, 64), photometric="rgb")
    monkeypatch.setattr("dsfcnn.slides.open.find_spec", lambda name: None)
    failed = run.predict([tmp_path / "bad.tif", tmp_path / "good.png"], "m", tmp_path / "out", PLAIN)
    assert {name: (type(error), error.exit_code) for name, error in failed.items()} == {"bad": (MissingLibraries, 2)}
    assert [row["state"] for row in table(tmp_path / "out" / "summary.csv")] == ["failed", "done"]


def test_a_reason_loses_the_path_at_its_beginning_and_no_letter_more(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("e").write_bytes(b"hello")
    failed = run.predict([Path("e")], "m", tmp_path / "out", PLAIN, name="other")
    (row,) = table(tmp_path / "out" / "summary.csv")
    assert row["reason"] == f"other: {str(failed['other']).removeprefix('e: ')}"


def test_a_model_of_digits_is_refused_before_anything_is_written(model, tmp_path, refused):
    write_tissue(tmp_path / "a.png", shape=(28, 28))
    model["model"] = predictor("digits")
    with refused(UsageError, "classify"):
        run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN)
    assert not (tmp_path / "out").exists()


def test_numbers_that_are_not_finite_are_no_answer(model, tmp_path, monkeypatch):
    write_tissue(tmp_path / "a.png", shape=(60, 50))
    network = model["model"].network
    logits = network.logits
    monkeypatch.setattr(network, "logits", lambda *given: {head: values * np.nan for head, values in logits(*given).items()})
    failed = run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN)
    assert "not finite" in str(failed["a"])
    assert not (tmp_path / "out" / "a").exists()


def test_a_folder_in_use_is_left_alone(model, tmp_path):
    write_tissue(tmp_path / "a.png", shape=(20, 20))
    with locked(tmp_path / "out"), pytest.raises(FolderInUse, match="another run"):
        run.predict([tmp_path / "a.png"], "m", tmp_path / "out", PLAIN)


def test_region_and_annotations_choose_objects_by_their_centre(model, tmp_path):
    write_tissue(tmp_path / "a.png", shape=(260, 240))
    run.predict([tmp_path / "a.png"], "m", tmp_path / "all", PLAIN)
    run.predict([tmp_path / "a.png"], "m", tmp_path / "part", Options(workers=0, tile=128, region="40,50,150,140"))
    ring = [[40, 50], [190, 50], [190, 190], [40, 190], [40, 50]]
    feature = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}, "properties": {"objectType": "annotation"}}
    (tmp_path / "area.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    run.predict([tmp_path / "a.png"], "m", tmp_path / "within", Options(workers=0, tile=128, within=tmp_path / "area.geojson"))
    inside = [
        (row["x"], row["y"])
        for row in table(tmp_path / "all/a/measurements.csv")
        if 40 <= float(row["x"]) < 190 and 50 <= float(row["y"]) < 190
    ]
    for folder in ("part", "within"):
        assert [(row["x"], row["y"]) for row in table(tmp_path / folder / "a" / "measurements.csv")] == inside
    assert len(inside) > 3


def test_objects_at_the_edge_of_a_region_are_whole_whatever_the_tiles(model, tmp_path):
    write_discs(tmp_path / "a.png", [(60, 60), (122, 60), (132, 160), (200, 200)])
    found = {}
    for tile, region in ((128, None), (128, "0,0,127,256"), (384, "0,0,127,256")):
        out = tmp_path / f"{tile} {region}"
        run.predict([tmp_path / "a.png"], "m", out, Options(workers=0, tile=tile, region=region))
        found[tile, region] = [(row["x"], row["y"], row["Area um^2"]) for row in table(out / "a/measurements.csv")]
    assert found[128, "0,0,127,256"] == found[384, "0,0,127,256"] == [one for one in found[128, None] if float(one[0]) < 127]
    assert len(found[128, "0,0,127,256"]) == 2


def test_annotations_alone_say_where_to_look(model, tmp_path):
    def square(x, y, half, kind):
        ring = [[x - half, y - half], [x + half, y - half], [x + half, y + half], [x - half, y + half], [x - half, y - half]]
        return {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}, "properties": {"objectType": kind}}

    def predict(*features):
        (tmp_path / "area.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        options = Options(workers=0, tile=128, within=tmp_path / "area.geojson")
        return run.predict([tmp_path / "a.png"], "m", tmp_path / str(len(features)), options)

    write_discs(tmp_path / "a.png", [(60, 60), (300, 160), (200, 60)])
    assert predict(square(60, 60, 50, "annotation"), square(300, 160, 12, "detection")) == {}
    (row,) = table(tmp_path / "2/a/measurements.csv")
    assert (float(row["x"]), float(row["y"])) == pytest.approx((60, 60), abs=2)
    assert "no annotations" in str(predict(square(300, 160, 12, "detection"))["a"])


def test_a_slide_without_tissue_is_empty_with_a_notice(model, tmp_path):
    options = {"resolution": (4e4, 4e4), "resolutionunit": "CENTIMETER", "metadata": None}
    tifffile.imwrite(tmp_path / "s.tif", np.full((600, 600, 3), 243, np.uint8), tile=(256, 256), photometric="rgb", **options)
    notices = []
    assert run.predict([tmp_path / "s.tif"], "m", tmp_path / "out", Options(workers=0), tell=notices.append) == {}
    assert notices == ["s: no tissue found; the result is empty"]
    assert list(read_geojson(tmp_path / "out/s/nuclei.geojson.gz")) == []
    assert tifffile.imread(tmp_path / "out/s/instances.tif").max() == 0
    assert np.asarray(Image.open(tmp_path / "out/s/tissue_mask.png")).max() == 0
    assert model["model"].network.calls == []


def test_a_mask_says_where_to_look(model, tmp_path, refused):
    write_tissue(tmp_path / "s.tif", shape=(256, 512), tiled=True)
    mask = np.zeros((8, 16), np.uint8)
    mask[:, :3] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    run.predict([tmp_path / "s.tif"], "m", tmp_path / "out", Options(workers=0, tile=128, mask=tmp_path / "mask.png"))
    labels = tifffile.imread(tmp_path / "out/s/instances.tif")
    assert labels[:, :128].max() > 0
    assert labels[:, 384:].max() == 0
    run.predict([tmp_path / "s.tif"], "m", tmp_path / "all", PLAIN)
    # The mask ends at pixel 96; 16 um further, at 160, objects end too, although the tile goes on.
    kept, found = ([float(row["x"]) for row in table(tmp_path / name / "s/measurements.csv")] for name in ("out", "all"))
    assert sorted(kept) == sorted(x for x in found if x < 160)
    assert any(160 <= x < 256 for x in found)
    Image.fromarray(mask[:, :9]).save(tmp_path / "mask.png")
    failed = run.predict([tmp_path / "s.tif"], "m", tmp_path / "other", Options(workers=0, tile=128, mask=tmp_path / "mask.png"))
    assert "same proportions" in str(failed["s"])
    assert str(tmp_path) not in (tmp_path / "other" / "summary.csv").read_text()


def test_a_mask_is_opaque(model, tmp_path):
    """What is transparent is white in an image, and so would be tissue."""
    write_tissue(tmp_path / "s.tif", shape=(128, 256), tiled=True)
    failed = {}
    for alpha in (254, 255):
        mask = Image.new("RGBA", (16, 8), (255, 255, 255, 255))
        mask.putpixel((5, 5), (0, 0, 0, alpha))
        mask.save(tmp_path / "mask.png")
        options = Options(workers=0, tile=128, mask=tmp_path / "mask.png")
        failed[alpha] = run.predict([tmp_path / "s.tif"], "m", tmp_path / str(alpha), options)
    assert isinstance(failed[254]["s"], DataError)
    assert "transparent" in str(failed[254]["s"])
    assert failed[255] == {}


@pytest.mark.parametrize("way", [{}, {"mask": True}, {"find_mask": False}])
def test_the_tissue_of_a_part_is_that_inside_it(model, tmp_path, way):
    ring = [[128, 0], [384, 0], [384, 512], [128, 512], [128, 0]]
    feature = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}, "properties": {"objectType": "annotation"}}
    (tmp_path / "area.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    save(tmp_path / "s.tif", np.random.default_rng(0).integers(80, 200, (512, 512, 3), np.uint8), 0.25, 128)  # all is tissue
    Image.new("L", (16, 16), 255).save(tmp_path / "mask.png")
    way = {**way, "mask": tmp_path / "mask.png"} if "mask" in way else way
    for part in ({"region": "128,-50,256,700"}, {"within": tmp_path / "area.geojson"}):
        options = Options(workers=0, **way, **part)
        assert run.predict([tmp_path / "s.tif"], "m", tmp_path / "out", options, overwrite=True) == {}
        (row,) = table(tmp_path / "out/summary.csv")
        assert float(row["tissue_mm2"]) == pytest.approx(256 * 512 * 0.25**2 * 1e-6)


def test_a_mask_has_at_most_as_many_pixels_as_an_image_may_have(model, tmp_path):
    write_tissue(tmp_path / "s.tif", shape=(128, 256), tiled=True)
    Image.new("L", (16, 8), 255).save(tmp_path / "mask.png")
    failed = {}
    for most in (127, 128):
        options = Options(workers=0, tile=128, mask=tmp_path / "mask.png", max_pixels=most)
        failed[most] = run.predict([tmp_path / "s.tif"], "m", tmp_path / str(most), options)
    assert "mask.png: 16 x 8 pixels, more than 127" in str(failed[127]["s"])
    assert isinstance(failed[127]["s"], DataError)
    assert failed[128] == {}


def test_places_are_those_of_one_slide(model, tmp_path, refused):
    write_tissue(tmp_path / "a.png", shape=(60, 50))
    write_tissue(tmp_path / "b.png", shape=(60, 50))
    for options in (Options(mask=tmp_path / "b.png"), Options(within=tmp_path / "b.geojson")):
        with refused(UsageError, "one input at a time"):
            run.predict([tmp_path / "a.png", tmp_path / "b.png"], "m", tmp_path / "out", options)
    with refused(MissingInputError, "check the path"):
        run.predict([tmp_path / "a.png"], "m", tmp_path / "out", Options(mask=tmp_path / "gone.png"))
    (tmp_path / "out" / "a").mkdir(parents=True)
    mask = tmp_path / "out" / "a" / "mask.png"
    shutil.copy(tmp_path / "a.png", mask)
    with refused(UsageError, "give another --out"):
        run.predict([tmp_path / "a.png"], "m", tmp_path / "out", Options(mask=mask))
    mask.unlink()
    mask.parent.rmdir()
    failed = run.predict([tmp_path / "a.png"], "m", tmp_path / "out", Options(workers=0, region="50,0,10,10"))
    assert "outside its 50 x 60 pixels" in str(failed["a"])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".lock", "summary.csv"]


def test_damage_is_counted_and_much_of_it_refused(model, tmp_path):
    options = {"resolution": (4e4, 4e4), "resolutionunit": "CENTIMETER", "metadata": None}
    noise = np.random.default_rng(0).integers(0, 60, (768, 768, 3), np.uint8)
    tifffile.imwrite(tmp_path / "s.tif", noise, tile=(64, 64), photometric="rgb", compression="zlib", **options)
    with tifffile.TiffFile(tmp_path / "s.tif") as tiff:
        offsets, counts = tiff.pages[0].dataoffsets, tiff.pages[0].databytecounts
    content = bytearray((tmp_path / "s.tif").read_bytes())
    content[offsets[30] : offsets[30] + counts[30]] = bytes(counts[30])
    (tmp_path / "s.tif").write_bytes(content)
    options = Options(workers=0, tile=256, find_mask=False)
    assert run.predict([tmp_path / "s.tif"], "m", tmp_path / "out", options) == {}
    (row,) = table(tmp_path / "out" / "summary.csv")
    assert (row["state"], row["unreadable_tiles"]) == ("done", "1")
    overlay = np.asarray(Image.open(tmp_path / "out" / "s" / "overlay.png"))
    assert set(np.unique(overlay[128:192, 384:448])) == {110, 170}, "the lost tile is chequered"
    assert overlay[:128].max() < 110
    for number in range(60, 63):
        content[offsets[number] : offsets[number] + counts[number]] = bytes(counts[number])
    (tmp_path / "s.tif").write_bytes(content)
    failed = run.predict([tmp_path / "s.tif"], "m", tmp_path / "more", options)
    assert "is damaged" in str(failed["s"])
    assert not (tmp_path / "more" / "s").exists()
    tifffile.imwrite(
        tmp_path / "s.tif", noise, tile=(64, 64), photometric="rgb", compression="zlib", resolution=(4e4, 4e4), resolutionunit=3
    )
    assert run.predict([tmp_path / "s.tif"], "m", tmp_path / "more", options, resume=True) == {}, "a whole copy of it is another input"


def test_a_damaged_block_costs_only_its_own_objects_their_stain(model, tmp_path):
    write_discs(tmp_path / "good.tif", [(x, y) for x in range(30, 640, 60) for y in range(30, 640, 60)], (640, 640), block=64)
    with tifffile.TiffFile(tmp_path / "good.tif") as tiff:
        start, length = tiff.pages[0].dataoffsets[22], tiff.pages[0].databytecounts[22]
    content = bytearray((tmp_path / "good.tif").read_bytes())
    content[start : start + length] = bytes(length)
    (tmp_path / "bad.tif").write_bytes(content)
    options = Options(workers=0, tile=640, find_mask=False)
    assert run.predict([tmp_path / "good.tif", tmp_path / "bad.tif"], "m", tmp_path / "out", options) == {}
    good, bad = (
        {
            (row["x"], row["y"]): row["Hematoxylin OD mean"]
            for row in table(tmp_path / "out" / name / "measurements.csv")
            if not (108 <= float(row["x"]) < 212 and 108 <= float(row["y"]) < 212)  # the block is at 128, 128
        }
        for name in ("good", "bad")
    )
    assert bad == good
    assert len(good) > 100
    assert all(float(stain) for stain in good.values()), "white has none"


@pytest.mark.parametrize(
    ("paths", "name", "words"),
    [
        (["a.png", "other/a.png"], None, "would both write to a"),
        (["a.png", "other/b.png"], "x", "names one input"),
        (["a.png"], "../x", "cannot name a folder"),
        (["summary.csv.png"], None, "cannot name a folder"),
        (["other"], None, "no images or slides"),
    ],
)
def test_names_that_cannot_be(model, tmp_path, paths, name, words):
    (tmp_path / "other").mkdir()
    with pytest.raises((UsageError, MissingInputError), match=words):
        run.predict([tmp_path / path for path in paths], "m", tmp_path / "out", PLAIN, name=name)


def test_nothing_is_written_into_the_input(model, tmp_path):
    (tmp_path / "in").mkdir()
    write_tissue(tmp_path / "in" / "a.png", shape=(20, 20))
    for paths, out in [([tmp_path / "in"], tmp_path / "in" / "out"), ([tmp_path / "in" / "a.png"], tmp_path / "in" / "a.png")]:
        with pytest.raises(UsageError, match="--out"):
            run.predict(paths, "m", out, PLAIN)
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["a.png"]
