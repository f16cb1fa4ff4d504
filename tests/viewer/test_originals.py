"""The slide is found again by what is in it."""

import pytest

from dsfcnn.errors import MissingInputError
from dsfcnn.viewer.folder import look
from dsfcnn.viewer.originals import Originals


def record(folder, name):
    return next(one.record for one in look(folder / "out").results if one.name == name)


def test_by_name(made):
    assert Originals([made / "slides"]).find(record(made, "good")) == made / "slides" / "good.tif"
    assert Originals([made / "slides" / "good.tif"]).find(record(made, "good")) == made / "slides" / "good.tif"


def test_under_another_name(made):
    """``--id`` gave the results a name that the file does not have."""
    assert Originals([made / "slides"]).find(record(made, "heat")) == made / "slides" / "good.tif"


def test_a_file_of_the_right_name_with_other_contents(copied, refused):
    with (copied / "slides" / "piece.png").open("ab") as stream:
        stream.write(b"more")
    with refused(MissingInputError, "--slides"):
        Originals([copied / "slides"]).find(record(copied, "piece"))


def test_a_slide_that_is_nowhere(made, refused):
    with refused(MissingInputError, "--slides"):
        Originals([made / "slides"]).find(record(made, "lost"))
    with refused(MissingInputError, "--slides"):
        Originals([]).find(record(made, "good"))


def test_a_place_that_is_not_there(tmp_path):
    with pytest.raises(MissingInputError, match="cannot be read"):
        Originals([tmp_path / "none"])
