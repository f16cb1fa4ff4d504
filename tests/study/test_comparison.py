"""A study trains its rows alike, goes on where it stopped, and writes tables and plots."""

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from dsfcnn.errors import DataError, Interrupted, UsageError
from dsfcnn.models import count_parameters, create, names
from dsfcnn.study.comparison import Line, configuration, lines, plot_curves, plot_scores, run_study, write_table
from dsfcnn.study.plans import STUDIES
from dsfcnn.tasks.metrics.auc import auc

TINY = {
    "format": "synthetic-digits",
    "data": None,
    "width": 0.1,
    "steps": 2,
    "batch": 4,
    "validate_every": 1,
    "checkpoint_every": 1,
    "images": 8,
    "workers": 0,
}
ROWS = ["CNN", "steerable C8"]
DRAWN = Path("somewhere/digits")  # not read: the data are drawn


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study of two rows that was interrupted in its second one, and went on."""
    out = tmp_path_factory.mktemp("study")
    said, scored = [], []

    def interrupt(what, done, total):
        if what.startswith("steerable C8, loss"):
            raise Interrupted("stop", 130)
        if what == "CNN, scored":
            scored.append((done, total))

    with pytest.raises(Interrupted, match="give the same command again"):
        run_study(STUDIES["rotmnist"], DRAWN, out, changes=TINY, rows=ROWS, tell=said.append, progress=interrupt)
    before = (out / "runs" / "cnn-digits-seed0" / "best" / "model.safetensors").stat().st_mtime_ns
    first_table = (out / "table.md").read_text()
    assert scored == [(number, len(scored)) for number in range(1, len(scored) + 1)] != []
    run_study(STUDIES["rotmnist"], DRAWN, out, changes=TINY, rows=ROWS, tell=said.append)
    return out, said, before, first_table


def test_rows_are_done_once(finished):
    out, said, before, first_table = finished
    assert (out / "runs" / "cnn-digits-seed0" / "best" / "model.safetensors").stat().st_mtime_ns == before
    assert said.count("CNN, seed 0") == 1
    assert said.count("steerable C8, seed 0") == 2
    assert "steerable" not in first_table


def test_the_table_has_what_was_measured_and_what_the_paper_says(finished):
    out = finished[0]
    test = json.loads((out / "runs" / "steerable-digits-C8-seed0" / "test.json").read_text())
    row = next(line for line in (out / "table.md").read_text().splitlines() if "steerable C8" in line)
    assert f"{test['scores']['error']:.4g}" in row
    assert "0.82" in row
    assert test["split"] == "test"
    assert test["scores"]["error"] == pytest.approx(100 * (1 - test["scores"]["accuracy"]))
    assert {path.name for path in out.iterdir()} >= {"table.md", "table.csv", "orientations.png", "convergence.png", "runs"}


def test_rows_left_away_stay_in_the_table(finished):
    out = finished[0]
    table = (out / "table.md").read_bytes()
    run_study(STUDIES["rotmnist"], DRAWN, out, changes=TINY, rows=["steerable C8"])
    assert (out / "table.md").read_bytes() == table


@pytest.mark.parametrize(("budget", "changes", "named"), [("small", {"width": 0.2}, "width: is 0.2 but cnn"), ("paper", {}, "optimiser")])
def test_a_row_that_was_finished_with_other_settings_is_not_taken_for_this_one(finished, budget, changes, named):
    with pytest.raises(UsageError, match=named):
        run_study(STUDIES["rotmnist"], DRAWN, finished[0], budget, changes={**TINY, **changes}, rows=ROWS)


def test_rows_of_other_settings_do_not_join_the_table(finished, refused):
    with refused(UsageError, "give another --out"):
        run_study(STUDIES["rotmnist"], DRAWN, finished[0], changes={**TINY, "steps": 3}, rows=["G-CNN C4"], tell=str)


def test_records_alone_make_the_table(finished, tmp_path):
    """As those of rows that were trained on different days, or machines."""
    out = finished[0]
    for row in ("cnn-digits", "steerable-digits-C8"):
        (tmp_path / "runs" / f"{row}-seed0").mkdir(parents=True)
        shutil.copy(out / "runs" / f"{row}-seed0" / "test.json", tmp_path / "runs" / f"{row}-seed0")
    write_table(STUDIES["rotmnist"], tmp_path)
    for name in ("table.md", "table.csv", "orientations.png", "convergence.png"):
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes()
    test = json.loads((tmp_path / "runs" / "cnn-digits-seed0" / "test.json").read_text())
    command = f"dsfcnn study rotmnist --data digits --out {out.name} --budget small --row CNN format=synthetic-digits data=null width=0.1"
    assert test["command"].startswith(command)
    assert test["settings"]["steps"] == 2
    assert not {"data", "cache"} & set(test["settings"]), "no paths of a machine"
    assert test["curve"]["steps"] == [1, 2]


def test_rows_of_tumour_stand_beside_the_first_on_the_same_images(tmp_path):
    """Untrained rows differ by chance; the interval of a row's lead holds it, and the first row has none."""
    changes = {**TINY, "format": "synthetic-tumour", "crop": 32, "steps": 1}
    run_study(STUDIES["pcam"], DRAWN, tmp_path, changes=changes, rows=["CNN", "steerable C8"], tell=lambda line: None)
    tests = [json.loads((tmp_path / "runs" / f"{name}-seed0" / "test.json").read_text()) for name in ("cnn-tumour", "steerable-tumour-C8")]
    assert tests[0]["label"] == tests[1]["label"]
    assert len(tests[0]["label"]) > tests[0]["images"], "validation and test together"
    table = (tmp_path / "table.md").read_text().splitlines()
    header, _, cnn, steerable = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    column = header.index("auc minus that of CNN, valid and test (95 % over images)")
    assert cnn[column] == ""
    value, low, high = (float(number) for number in re.findall(r"[+-][\d.]+", steerable[column]))
    assert low <= value <= high
    lead = auc(tests[0]["label"], tests[1]["p_tumour"]) - auc(tests[0]["label"], tests[0]["p_tumour"])
    assert value == pytest.approx(lead, abs=1e-4)
    shutil.copytree(tmp_path / "runs" / "steerable-tumour-C8-seed0", tmp_path / "runs" / "steerable-tumour-C8-seed1")
    again = tmp_path / "runs" / "steerable-tumour-C8-seed1" / "test.json"
    again.write_text(json.dumps({**tests[1], "p_tumour": tests[0]["p_tumour"]}))  # a second seed that leads by nothing
    assert lines(STUDIES["pcam"], tmp_path)[1].ahead.value == pytest.approx(lead / 2)
    write_table(STUDIES["pcam"], tmp_path)
    both = f"{tests[1]['scores']['auc']:.4g}, {tests[1]['scores']['auc']:.4g}"
    assert both in (tmp_path / "table.md").read_text(), "of two seeds both scores"


def test_rows_of_fewer_images_are_trained_on_so_many(tmp_path):
    changes = {key: value for key, value in TINY.items() if key != "images"}
    rows = [f"{network}, {images} images" for network in ("CNN", "steerable C8") for images in ("500", "2,000")]
    run_study(STUDIES["efficiency"], DRAWN, tmp_path, changes=changes, rows=rows, tell=lambda line: None)
    assert re.findall(r"\| ([^|]* images) \|", (tmp_path / "table.md").read_text()) == rows
    for images in (500, 2000):
        settings = yaml.safe_load((tmp_path / "runs" / f"cnn-digits-{images}images-seed0" / "config.yaml").read_text())
        assert settings["images"] == images
        assert settings["final_fit"]
    assert (tmp_path / "images.png").exists()
    assert not (tmp_path / "convergence.png").exists(), "a final fit has no validation"


def test_a_test_split_of_one_class_is_told_before_training(tmp_path, refused):
    for split in ("train", "valid", "test"):
        for name in ("normal", "tumour"):
            (tmp_path / "data" / split / name).mkdir(parents=True)
            Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(tmp_path / "data" / split / name / "a.png")
    (tmp_path / "data" / "test" / "normal" / "a.png").unlink()
    with refused(DataError, "give a test split with both"):
        run_study(STUDIES["pcam"], tmp_path / "data", tmp_path, changes={"format": "folder", "data_mpp": 0.97}, rows=["CNN"], tell=str)
    assert not list((tmp_path / "runs").iterdir())


def test_an_unknown_row_is_refused(tmp_path):
    with pytest.raises(UsageError, match="steerable C8"):
        run_study(STUDIES["rotmnist"], DRAWN, tmp_path, rows=["steerable C9"])


def test_a_study_in_a_folder_whose_name_is_no_text(tmp_path):
    out = tmp_path / os.fsdecode(b"\xffstudy")
    run_study(STUDIES["rotmnist"], DRAWN, out, changes={**TINY, "steps": 1}, rows=["CNN"], tell=str)
    assert r"\udcffstudy" in (out / "runs" / "cnn-digits-seed0" / "best" / "README.md").read_text()


def test_a_row_that_is_named_twice_is_done_once(finished):
    out, _, _, first_table = finished
    run_study(STUDIES["rotmnist"], DRAWN, out, changes=TINY, rows=["CNN", "CNN"], tell=str)
    assert (out / "table.md").read_text().startswith(first_table)


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("budget", ["small", "paper"])
def test_every_row_has_a_valid_configuration_that_differs_by_its_network_or_images_only(name, budget, tmp_path):
    study = STUDIES[name]
    seen = set()
    for row in study.rows:
        config = configuration(study, row, budget, 0, tmp_path, tmp_path, {}).model_dump()
        assert config["model"] in names()
        seen.add(json.dumps({key: value for key, value in config.items() if key not in ("model", "group", "options", "width", "images")}))
    assert len(seen) == 1
    assert len({row.folder for row in study.rows}) == len(study.rows)


def test_what_all_networks_share_does_not_hide_what_a_row_asks_for(tmp_path):
    study = STUDIES["pcam"]
    options = [configuration(study, row, "small", 0, tmp_path, tmp_path, {}).options for row in study.rows]
    assert {each["centre"] for each in options} == {0.3333}
    assert [each.get("dropout") for each in options] == [None, None, None, 0.1, 0.1]
    assert all(configuration(study, row, "paper", 0, tmp_path, tmp_path, {}).options == {} for row in study.rows)


@pytest.mark.parametrize("change", [{"model": "cnn-digits"}, {"group": "C4"}, {"seed": 5}, {"images": 100}], ids=str)
def test_what_rows_and_seeds_differ_in_cannot_be_changed(change, tmp_path, refused):
    with refused(UsageError, "leave it away"):
        run_study(STUDIES["efficiency"], DRAWN, tmp_path, changes=change, tell=str)
    assert not list((tmp_path / "runs").iterdir())


def test_changed_options_leave_a_row_its_own(tmp_path):
    for row, frequency in zip(STUDIES["rotmnist"].rows[1:3], (1, 2)):
        made = configuration(STUDIES["rotmnist"], row, "small", 0, tmp_path, tmp_path, {"options": {"dropout": 0.1}})
        assert made.options == {"dropout": 0.1, "max_frequency": frequency}


def test_networks_with_mirrors_are_a_family_of_their_own():
    study = STUDIES["pcam"]
    found = [Line(row, 1, {"auc": [0.9]}, [], None) for row in study.rows if row.label.startswith("DSF-CNN")]
    (axes,) = plot_scores(study, found).axes
    families = {line.get_label(): line.get_xdata() for line in axes.lines if not line.get_label().startswith("_")}
    assert families == {"dsf": (8,), "dsf with mirrors": (4,)}


def test_curves_are_means_over_seeds():
    curves = [{"steps": [10.0, 20.0], "scores": scores} for scores in ([0.5, 0.8], [0.7, 0.9])]
    line = Line(STUDIES["pcam"].rows[0], 1, {"auc": [0.8, 0.9]}, curves, None)
    (axes,) = plot_curves([line]).axes
    assert [list(drawn.get_ydata()) for drawn in axes.lines] == [pytest.approx([0.6, 0.85]), [0.5, 0.8], [0.7, 0.9]]


@pytest.mark.parametrize("name", STUDIES)
def test_small_rows_have_about_equally_many_parameters(name, tmp_path):
    study, counts = STUDIES[name], []
    for row in study.rows:
        with torch.device("meta"):
            model = create(**configuration(study, row, "small", 0, tmp_path, tmp_path, {}).architecture())
        counts.append(count_parameters(model)["paper"])
    assert counts == pytest.approx([counts[0]] * len(counts), rel=0.07)
