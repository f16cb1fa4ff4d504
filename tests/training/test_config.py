"""The configuration: every mistake is one line with the key and what is allowed, and exit code 2."""

from dataclasses import replace

import pytest

from dsfcnn.cli.main import main
from dsfcnn.data import Augment
from dsfcnn.errors import MissingInputError, UsageError
from dsfcnn.training.config import TrainConfig, check, parse, read_config, written
from training.conftest import write

NUCLEI = {"task": "nuclei", "model": "dsf-nuclei", "group": "C4", "steps": 10}


@pytest.fixture
def settings(tmp_path):
    def read(*changes, text=None, **more):
        path = write(tmp_path / "c.yaml", **NUCLEI, **more)
        if text is not None:
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_config(path, list(changes))

    return read


BASE = "task: nuclei\nmodel: dsf-nuclei\nsteps: 10\n"


@pytest.mark.parametrize(
    ("lines", "fix"),
    [
        ("batchh: 3", "did you mean 'batch'?"),
        ("learningrate: 3", "did you mean 'learning_rate'?"),
        ("zzz: 3", "use one of task, model"),
        ("batch: many", "input should be a valid integer"),
        ("batch: true", "input should be a valid integer"),
        ("batch: '8'", "input should be a valid integer"),
        ("batch: 2.5", "input should be a valid integer"),
        ("batch: 0", "input should be greater than 0"),
        ("batch: -4", "input should be greater than 0"),
        ("batch:", "input should be a valid integer"),
        ("learning_rate: .nan", "finite"),
        ("learning_rate: .inf", "finite"),
        ("learning_rate: -1e-3", "greater than 0"),
        ("learning_rate: 1e39", "less than or equal to 1000"),
        ("milestones: {5: 1e39}", "less than or equal to 1000"),
        ("weight_decay: 1e39", "less than or equal to 1000"),
        ("weight_decay: -.inf", "finite"),
        ("warm_up: 1.0", "less than 1"),
        ("average: 1", "less than 1"),
        ("seed: -1", "greater than or equal to 0"),
        ("held_out: -1", "greater than or equal to 0"),
        ("held_out: {a: 1}", "valid integer"),
        ("milestones: {5: -1.0}", "greater than 0"),
        ("milestones: {five: 1.0}", "valid integer"),
        ("schedule: linear", "input should be 'steps', 'cosine' or 'one-cycle'"),
        ("options: [1]", "valid dictionary"),
        ("options: {dropout: .nan}", "finite"),
        ("options: {width: 0.5}", "settings of their own"),
        ("augment: {hue: .inf}", "finite"),
        ("augment: {hue: -1}", "strength from 0"),
        ("augment: {hue: red}", "such as 16.0"),
        ("augment: {turn: 1}", "such as True"),
        ("augment: {huee: 1}", "did you mean 'hue'?"),
        ("format: synthetic-nuclei\ndata: mine", "leave data away"),
        ("format: synthetic-nuclei\ndata_mpp: 0.5", "leave data_mpp away"),
        ("augment: {border: blue}", "mirror or black"),
        ("decode: {marker_treshold: 0.4}", "did you mean 'marker_threshold'?"),
        ("decode: {marker_threshold: high}", "such as 0.75"),
        ("decode: {marker_threshold: 75}", "from 0 to 1"),
        ("decode: {smallest_region: -5}", "0 or more"),
        ("schedule: cosine\nmilestones: {5: 0.1}", "give schedule: steps"),
        ("milestones: {-5: 0.1}", "greater than or equal to 0"),
        ("class_weights: [1.0, 2.0]", "nuclei has no classes"),
        ("1: 2", "strings"),
        ("task: nuclei", "keep one"),
        ("options: {a: 1, a: 2}", "keep one"),
        ("data: !!python/object/apply:os.system [echo]", "write plain values"),
        ("data: !!str 3", "write plain values"),
        ("options: !!set {a}", "write plain values"),
        ("options: &a {b: *a}", "write the value out"),
        ("options: " + "{a: " * 60 + "1" + "}" * 60, "write it flatter"),
        ("options: " + "[" * 20_000, "write it flatter"),
        ("images: 2024-13-45", "plain YAML"),
        ("images: " + "9" * 5000, "plain YAML"),
        ("images: [1", "plain YAML"),
        ("? [a, b]\n: 1", "plain YAML"),
        ("#" + " " * (1 << 20), "no configuration"),
    ],
)
def test_a_mistake_is_told_with_its_remedy(lines, fix, settings, refused):
    with refused(UsageError, fix):
        settings(text=BASE + lines + "\n")


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        (b"task: nuclei\nlicence: \xff\n", "UTF-8"),
        (b"\x00\x01", "plain YAML"),
        (b"", "write lines such as"),
        (b"- 1\n", "write lines such as"),
        (b"model: dsf-nuclei\nsteps: 1\n", "every run needs it"),
        (b"task: glands\nmodel: dsf-nuclei\nsteps: 1\n", "ends in -glands"),
        (b"task: tumour\nmodel: dsf-tumour\nsteps: 1\nclass_weights: [1.0]\n", "normal, tumour"),
    ],
)
def test_a_file_that_is_no_configuration(text, fix, settings, refused):
    with refused(UsageError, fix):
        settings(text=text)


def test_the_key_and_its_value_are_named(settings):
    with pytest.raises(UsageError, match=r"c\.yaml: milestones\.5 is -1\.0; "):
        settings(text=BASE + "milestones: {5: -1.0}\n")
    with pytest.raises(UsageError, match=r"options\.rates\.1 is inf; "):
        settings(text=BASE + "options: {rates: [1.0, .inf]}\n")
    with pytest.raises(UsageError) as caught:
        settings(text=BASE + f"batch: {'x' * 100_000}\n")
    assert len(str(caught.value)) < 300


def test_exit_codes(tmp_path, capsys):
    for path, code in ((write(tmp_path / "c.yaml", **NUCLEI, bacth=1), 2), (tmp_path / "none.yaml", 66), (tmp_path, 66)):
        with pytest.raises(SystemExit) as end:
            main(["train", str(path), "--out", str(tmp_path / "run")])
        assert end.value.code == code
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "None" not in said
    assert not (tmp_path / "run").exists()


def test_a_missing_file_says_so(tmp_path, refused):
    with refused(MissingInputError, "give a configuration"):
        read_config(tmp_path / "none.yaml", [])


@pytest.mark.parametrize("text", ["1e3", "5E-2", "12", "1.5", "true", "null", "a: b", "# no", "two\nlines"])
def test_what_a_run_keeps_reads_as_it_was(text):
    given = TrainConfig(**NUCLEI, licence=text, held_out=[text], data=text)
    assert check(parse(written(given), "config.yaml"), "config.yaml") == given


def test_a_step_has_eight_digits(settings, refused):
    """As the names of checkpoints have, or --resume would not find the last ones."""
    assert settings("steps=99999999").steps == 99_999_999
    with refused(UsageError, "less than 100000000"):
        settings("steps=100000000")


def test_changes_go_on_top(settings):
    changed = settings(
        "batch=3", "learning_rate=1e-4", "augment.stain=0.2", "options.dropout=0.1", "group=null", "held_out=[a, b]", batch=9
    )
    assert (changed.batch, changed.learning_rate, changed.group, changed.held_out) == (3, 1e-4, None, ["a", "b"])
    assert changed.augmentation() == Augment(stain=0.2)
    assert changed.architecture() == {"name": "dsf-nuclei", "width": 1.0, "dropout": 0.1}
    kept = settings("augment.stain=0.2", augment={"hue": 3.0}).augmentation()
    assert kept == Augment(stain=0.2, hue=3.0)
    assert settings("licence=a=b").licence == "a=b"
    assert settings("data=../some folder").data == "../some folder"
    for name in ("cohort #2", "2024", "a: b", "[x] y", "*x", "true", "'quoted'"):
        assert settings(f"data={name}").data == name
    assert settings("data=null", "split_file=", data="a", split_file="b").data is None
    assert settings("augment=null").augmentation() is None
    assert settings("milestones.100=0.01", "milestones.200=0.001").milestones == {100: 0.01, 200: 0.001}
    assert settings("held_out=a.png").held_out == ["a.png"]
    assert settings("held_out=[1, b]").held_out == ["1", "b"]


@pytest.mark.parametrize(
    ("change", "fix"),
    [
        ("batch", "write key=value"),
        ("bacth=3", "did you mean 'batch'?"),
        ("batch.size=3", "give it as a whole"),
        ("batch=[", "plain YAML"),
        ("options=*x", "write the value out"),
        ("data=\udcff", "a link to it"),
        ("=3", "use one of"),
    ],
)
def test_changes_that_mean_nothing(change, fix, settings, refused):
    with refused(UsageError, fix):
        settings(change, batch=9)


@pytest.mark.parametrize(
    ("text", "number"), [("1e-3", 1e-3), ("1E5", 1e5), ("1.5e3", 1500.0), ("-2e+1", -20.0), ("3.0e-4", 3e-4), ("7", 7)]
)
def test_numbers_as_people_write_them(text, number):
    assert parse(text.encode(), "here") == number
    assert type(parse(text.encode(), "here")) is type(number)


def test_many_keys_take_no_longer_than_few():
    """A million bytes of keys: compared one by one with all others they would take hours."""
    text = "{" + ", ".join(f"k{number}: 1" for number in range(3000)) + "}"
    assert len(parse(text.encode(), "here")) == 3000


def test_digits_are_only_turned():
    digits = TrainConfig(task="digits", model="steerable-digits", steps=1)
    assert digits.augmentation() == Augment.digits()
    assert digits.model_copy(update={"augment": {"turn": False}}).augmentation() == replace(Augment.digits(), turn=False)
