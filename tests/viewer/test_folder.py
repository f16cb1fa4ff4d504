"""What is found in an output folder, and what is not followed."""

import json

import pytest
from drawn_results import write_record

from dsfcnn.errors import MissingInputError
from dsfcnn.viewer.folder import look


def test_everything_is_listed(made):
    contents = look(made / "out")
    assert [one.name for one in contents.results] == ["damaged", "good", "heat", "lost", "piece"]
    assert [one.name for one in contents.studies] == ["turning"]
    assert contents.failures == {"bad": "bad: <b>damaged</b>; get it again"}
    keys = [one.key for one in (*contents.results, *contents.studies)]
    assert len(set(keys)) == 6
    assert keys != [one.key for one in look(made / "out").results]  # drawn anew


def test_one_result_or_study_by_itself(made):
    assert [one.name for one in look(made / "out" / "good").results] == ["good"]
    assert [one.name for one in look(made / "out" / "turning").studies] == ["turning"]


def test_what_is_damaged_or_unfinished_is_a_failure_with_a_reason(copied):
    out = copied / "out"
    (out / "good" / "run.json").write_text('{"settings": {}}')
    (out / "piece" / "run.json").write_text("no JSON")
    (out / "heat" / "run.json").unlink()
    (out / "heat" / ".state").mkdir()
    record = json.loads((out / "lost" / "run.json").read_text())
    record["input"]["width"] = 0
    (out / "lost" / "run.json").write_text(json.dumps(record))
    contents = look(out)
    assert [one.name for one in contents.results] == ["damaged"]
    assert "--resume" in contents.failures["heat"]
    for name in ("good", "piece", "lost"):
        assert "again" in contents.failures[name]
        assert str(copied) not in contents.failures[name]


def test_links_out_of_the_folder_are_not_followed(copied, tmp_path):
    out, elsewhere = copied / "out", tmp_path / "elsewhere"
    (out / "good").rename(elsewhere)
    (out / "good").symlink_to(elsewhere, target_is_directory=True)
    (out / "lost" / "nuclei.geojson.gz").unlink()
    (out / "lost" / "nuclei.geojson.gz").symlink_to(elsewhere / "nuclei.geojson.gz")
    contents = look(out)
    assert "good" not in [one.name for one in contents.results]
    lost = next(one for one in contents.results if one.name == "lost")
    assert lost.file("nuclei.geojson.gz") is None
    assert lost.file("nothing", "tissue_mask.png") == out / "lost" / "tissue_mask.png"


def test_older_records_have_no_bounds(tmp_path):
    write_record(tmp_path, None, (10, 10))
    record = json.loads((tmp_path / "run.json").read_text())
    del record["input"]["bounds"]
    (tmp_path / "run.json").write_text(json.dumps(record))
    assert look(tmp_path).results[0].record.input.bounds == (0, 0)


@pytest.mark.parametrize("name", ["", "nothing"])
def test_a_folder_without_results_is_refused(name, tmp_path, refused):
    with refused(MissingInputError, "give one that"):
        look(tmp_path / name)
