"""The table of models: every model, with the counts that it has and the paper's figure beside it."""

import json

import pytest
import torch

from dsfcnn.cli.main import main
from dsfcnn.models import count_parameters, create, names


@pytest.fixture
def printed(capsys):
    """What ``dsfcnn models`` prints, with its options."""

    def run(*options):
        with pytest.raises(SystemExit) as ended:
            main(["models", *options])
        assert not ended.value.code
        return capsys.readouterr().out

    return run


@pytest.fixture
def rows(printed):
    return json.loads(printed("--json"))


def test_every_model_is_listed_with_its_figures(rows):
    assert {row["name"] for row in rows} == set(names())
    assert all(set(row) == {"name", "group", "paper", "live", "published", "table"} for row in rows)
    found = {(row["table"], row["name"], row["group"]): row for row in rows}
    assert len(found) == len(rows)
    variants = [
        ("I", "cnn-tumour", "C1", {}, 564),
        ("I", "dsf-tumour", "C8", {}, 2200),
        ("I", "p4m-tumour", "D4", {}, 119),
        ("I", "hnet-tumour", "SO(2), k <= 2", {"max_frequency": 2}, 542),
        ("I", "vfcnn-tumour", "C4", {"group": "C4"}, 556),
        ("II", "steerable-glands", "C12", {"group": "C12"}, 976),
        ("III", "dsf-nuclei", "C8", {}, 3700),
        ("III", "gcnn-nuclei", "C4", {"group": "C4"}, 982),
        ("A1", "sfcnn-digits", "C16", {}, 3300),
        ("", "hnet-nuclei", "SO(2), k <= 1", {}, None),
    ]
    for table, name, group, options, published in variants:
        with torch.device("meta"):
            count = count_parameters(create(name, **options))
        row = found[table, name, group]
        assert (row["paper"], row["live"], row["published"]) == (count["paper"], count["live"], published)


def test_the_papers_rows_come_first(rows):
    tables = [row["table"] for row in rows]
    assert tables == sorted(tables, key=["I", "II", "III", "A1", ""].index)
    assert {table: tables.count(table) for table in tables} == {"I": 15, "II": 9, "III": 9, "A1": 11, "": 4}


def test_the_table_to_read(printed, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    lines = printed().splitlines()
    assert "paper count" in lines[0]
    line = next(line for line in lines if line.split()[:2] == ["dsf-nuclei", "C8"])
    assert line.split()[2:] == ["3,657,593", "2,953,441", "3,700K", "III"]
