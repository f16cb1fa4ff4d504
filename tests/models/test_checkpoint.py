"""Model folders: what is saved comes back the same, and what is damaged, foreign or hostile is refused in one line.

Nothing in a folder is ever executed, and nothing that it claims is believed before it is checked.
"""

import io
import json
import os
import pickle
import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import dsfcnn
from dsfcnn import __version__
from dsfcnn.cli.main import main
from dsfcnn.errors import DataError, DsfcnnError, MissingInputError, OutputError, UsageError
from dsfcnn.groups import parse_group
from dsfcnn.models import create, load_model, read_config, save_model

CONFIG, WEIGHTS = "config.json", "model.safetensors"


@pytest.fixture
def folder(tmp_path):
    """A tiny model's folder."""
    save_model(create("gcnn-digits", group="C4", width=0.05), tmp_path / "model")
    return tmp_path / "model"


def refuse(folder, error, *words, file=WEIGHTS):
    """Loading fails with this error, which says in one line: the file, what is wrong with it, and what to do."""
    with pytest.raises(DsfcnnError) as caught:
        load_model(folder)
    assert type(caught.value) is error
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{folder / file}: ")
    assert re.search(r"; (get|give|upgrade|this folder) \S+", message), message
    for word in words:
        assert word in message


def edit_config(folder, **changes):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, **changes}))


def edit_architecture(folder, **changes):
    edit_config(folder, architecture={**read_config(folder)["architecture"], **changes})


def state(folder):
    return safetensors.torch.load_file(folder / WEIGHTS)


def edit_state(folder, **changes):
    """Give tensors other values, or take them away (None). Dots of their names are written as two underscores."""
    tensors = {**state(folder), **{name.replace("__", "."): tensor for name, tensor in changes.items()}}
    safetensors.torch.save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, folder / WEIGHTS)


def parts(folder):
    """Header (parsed) and numbers of the weights' file."""
    content = (folder / WEIGHTS).read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def assemble(folder, header, numbers, length=None):
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    (folder / WEIGHTS).write_bytes((len(header) if length is None else length).to_bytes(8, "little") + header + numbers)


# What is saved comes back.


ROUND_TRIPS = [
    ("dsf-nuclei", {}),
    ("dsf-tumour", {"group": "D4", "dropout": 0.1, "checkpointing": True}),
    ("p4m-tumour", {}),
    ("sfcnn-digits", {"classes": 3}),
    ("cnn-tumour", {"centre": 0.4}),
    ("hnet-digits", {"max_frequency": 2}),
    ("vfcnn-glands", {"heads": {"second": 1, "first": 4}}),
    ("gcnn-nuclei", {"group": parse_group("C12")}),
    ("steerable-digits", {"group": "C6"}),
]


@pytest.mark.parametrize(("name", "options"), ROUND_TRIPS, ids=[name for name, _ in ROUND_TRIPS])
def test_a_saved_model_comes_back_the_same(name, options, small, images, outputs, tmp_path):
    model, x = small(name, torch.float32, **options), images(name, 18, 21, dtype=torch.float32)
    save_model(model, tmp_path / "deep" / "model")
    again = load_model(tmp_path / "deep" / "model")
    assert not again.training
    assert again.architecture == model.architecture
    assert type(again) is type(model)
    assert list(again.state_dict()) == list(model.state_dict())
    with torch.no_grad():
        wanted, found = outputs(model, x), outputs(again, x)
    assert list(found) == list(wanted)
    assert all(torch.equal(found[output], values) for output, values in wanted.items())


def test_a_model_in_double_precision_is_saved_in_single(small, tmp_path):
    model = small("p4m-tumour").train()
    save_model(model, tmp_path / "model")
    assert {tensor.dtype for tensor in state(tmp_path / "model").values()} == {torch.float32, torch.int64}
    assert next(load_model(tmp_path / "model").parameters()).dtype == torch.float32
    assert next(model.parameters()).dtype == torch.float64
    assert model.training


def test_what_is_told_of_a_model_is_kept(tmp_path):
    model = create("dsf-nuclei", width=0.1)
    classes = [{"name": "nucleus", "color": "#1f77b4"}]
    save_model(model, tmp_path / "told", task="nuclei", mpp=0.25, classes=classes, tile_margin=40, card="# Mine\n")
    config = read_config(tmp_path / "told")
    assert (config["task"], config["mpp"], config["classes"], config["tile_margin"]) == ("nuclei", 0.25, classes, 40)
    assert config["dsfcnn"] == __version__
    assert (tmp_path / "told" / "README.md").read_text() == "# Mine\n"
    save_model(model, tmp_path / "untold")
    assert read_config(tmp_path / "untold")["task"] == "nuclei"
    card = (tmp_path / "untold" / "README.md").read_text()
    assert card.startswith("# dsf-nuclei\n")
    assert "not for diagnosis" in card
    assert sorted(path.name for path in (tmp_path / "untold").iterdir()) == ["README.md", CONFIG, WEIGHTS]


@pytest.fixture
def default_dtype():
    before = torch.get_default_dtype()
    yield torch.set_default_dtype
    torch.set_default_dtype(before)


def test_the_callers_default_type_is_not_that_of_a_folder(default_dtype, folder):
    image = np.arange(784, dtype=np.uint8).reshape(28, 28)
    wanted = dsfcnn.load(folder).classify(image)
    default_dtype(torch.float64)
    assert next(load_model(folder).parameters()).dtype == torch.float32
    np.testing.assert_array_equal(dsfcnn.load(folder).classify(image), wanted)


# Saving.


def test_loading_waits_for_no_compiler(tmp_path):
    """torch loads sympy or its compiler, seconds of work, for the smallest thing done to tensors without memory."""
    names = ["dsf-nuclei", "cnn-nuclei", "hnet-nuclei"]
    for name in names:
        save_model(create(name, width=0.05), tmp_path / name)
    code = """
import sys
from dsfcnn import load_model
for folder in sys.argv[1:]:
    load_model(folder)
print({"sympy", "torch._dynamo"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code, *(tmp_path / name for name in names)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "set()\n", done.stderr


def test_an_existing_model_is_not_overwritten(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    other = create("gcnn-digits", group="C8", width=0.05)
    with pytest.raises(OutputError, match=r"exists already; .*overwrite") as caught:
        save_model(other, folder)
    assert caught.value.exit_code == 73
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    save_model(other, folder, overwrite=True)
    assert load_model(folder).architecture == other.architecture


def test_a_file_is_no_place_for_a_folder(tmp_path, refused):
    (tmp_path / "file").write_bytes(b"")
    for place in (tmp_path / "file", tmp_path / "file" / "model"):
        with refused(OutputError, fix="give another"):
            save_model(create("cnn-digits", width=0.05), place)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300], ids=["nan", "inf", "too large for float32"])
def test_a_model_that_went_wrong_is_not_saved(value, tmp_path):
    model = create("cnn-digits", width=0.05).double()
    with torch.no_grad():
        model.encoder[3][0].weight[0, 0, 2, 3] = value
    with pytest.raises(DataError, match=r"encoder\.3\.0\.weight has numbers that are not finite; ") as caught:
        save_model(model, tmp_path / "model")
    assert caught.value.exit_code == 65
    assert not (tmp_path / "model").exists()


def test_a_model_from_elsewhere_is_not_saved(tmp_path):
    with pytest.raises(UsageError, match=r"not made by dsfcnn\.create") as caught:
        save_model(nn.Conv2d(3, 2, 1), tmp_path / "model")
    assert caught.value.exit_code == 2
    assert not (tmp_path / "model").exists()


def with_another_head(model):
    model.head[1] = nn.Conv2d(model.head[1].in_channels, 4, 1)
    return model


def with_another_name(model):
    model.classifier = model.head
    del model.head
    return model


@pytest.mark.parametrize("change", [with_another_head, with_another_name, torch.compile])
def test_a_model_that_was_changed_is_not_saved(change, tmp_path, refused):
    with refused(UsageError, fix="unwrap it"):
        save_model(change(create("cnn-digits", width=0.05)), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_resolution_that_is_no_number_is_not_saved(tmp_path, refused):
    with refused(UsageError, fix="save the model with another"):
        save_model(create("cnn-digits", width=0.05), tmp_path / "model", mpp=float("nan"))
    assert not (tmp_path / "model").exists()


def test_a_model_keeps_the_architecture_it_was_made_with(tmp_path):
    heads = {"object": 2}
    model = create("cnn-glands", width=0.05, heads=heads)
    heads["object"] = 9
    save_model(model, tmp_path)
    assert read_config(tmp_path)["architecture"]["heads"] == {"object": 2}
    create("cnn-glands", width=0.05).architecture["heads"]["object"] = 9
    assert create("cnn-glands", width=0.05).architecture["heads"] == {"object": 3}


# What is not there.


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def directory(path):
    path.unlink()
    path.mkdir()


def dangling_link(path):
    path.unlink()
    path.symlink_to("nowhere")


def looping_link(path):
    path.unlink()
    path.symlink_to(path.name)


@pytest.mark.parametrize("file", [CONFIG, WEIGHTS])
@pytest.mark.parametrize(
    "fault", [lambda path: path.unlink(), pipe, directory, dangling_link, looping_link], ids=["none", "pipe", "folder", "dangling", "loop"]
)
def test_a_missing_file(folder, file, fault):
    """A pipe is not opened: nobody may ever write into it."""
    fault(folder / file)
    refuse(folder, MissingInputError, "give a model folder", file=file)
    assert MissingInputError.exit_code == 66


def test_no_folder(tmp_path):
    refuse(tmp_path / "nowhere", MissingInputError, "give a model folder", file=CONFIG)
    (tmp_path / "empty").mkdir()
    refuse(tmp_path / "empty", MissingInputError, "give a model folder", file=CONFIG)


# Weights that are no weights.


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def as_pickle(value):
    return pickle.dumps(value)


def as_torch_file(value):
    stream = io.BytesIO()
    torch.save({"weight": torch.zeros(3), "payload": value}, stream)
    return stream.getvalue()


def as_nested_zip(value):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as outer:
        outer.writestr("inner.zip", as_torch_file(value))
    return stream.getvalue()


@pytest.mark.parametrize("pack", [as_pickle, as_torch_file, as_nested_zip])
def test_pickles_are_not_opened(pack, folder, tmp_path):
    trace = tmp_path / "executed"
    pickle.loads(pickle.dumps(Payload(trace))).close()
    assert trace.exists()  # it would show
    trace.unlink()
    (folder / WEIGHTS).write_bytes(pack(Payload(trace)))
    refuse(folder, DataError, "not a safetensors file", "get the model again")
    (folder / CONFIG).write_bytes(pack(Payload(trace)))
    refuse(folder, DataError, "not JSON", file=CONFIG)
    assert not trace.exists()
    assert DataError.exit_code == 65


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 9, 100, 0.3, 0.6, 0.99, -1])
def test_a_truncated_file(kept, folder):
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    refuse(folder, DataError, "damaged", "get the model again")


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 4096])
def test_bytes_behind_the_end(tail, folder):
    with open(folder / WEIGHTS, "ab") as stream:
        stream.write(tail)
    refuse(folder, DataError, "damaged")


@pytest.mark.parametrize("length", [0, 1, "one less", "one more", "the whole file", 1 << 40, (1 << 63) - 1, (1 << 64) - 1], ids=str)
def test_a_header_that_lies_about_its_length(length, folder):
    header, numbers = parts(folder)
    true = len(json.dumps(header).encode())
    length = {"one less": true - 1, "one more": true + 1, "the whole file": true + len(numbers)}.get(length, length)
    assemble(folder, header, numbers)
    load_model(folder)
    assemble(folder, header, numbers, length)
    refuse(folder, DataError, "damaged")


def test_overlapping_tensors(folder):
    """Two tensors that share their numbers, and a file shortened to fit."""
    header, numbers = parts(folder)
    alike = {}
    for name, entry in header.items():
        alike.setdefault((entry["dtype"], tuple(entry["shape"])), []).append(name)
    first, second = next(names for names in alike.values() if len(names) > 1)[:2]
    header[second]["data_offsets"] = header[first]["data_offsets"]
    assemble(folder, header, numbers)
    refuse(folder, DataError, "damaged")
    one = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    assemble(folder, {**one, "b": one["a"]}, b"\0" * 4)
    refuse(folder, DataError, "damaged")


def test_a_name_that_occurs_twice(folder):
    """Readers differ in which of the two they take."""
    header, numbers = parts(folder)
    name = next(iter(header))
    entries = json.dumps(header).encode()
    doubled = b"{" + json.dumps({name: header[name]}).encode()[1:-1] + b", " + entries[1:]
    assemble(folder, doubled, numbers)
    refuse(folder, DataError, "damaged")


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b"{",
        b"[" * 100_000,
        b'{"a": ' * 50_000,
        b"\xff\xfe\0",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32"}}',
        b"NaN",
    ],
    ids=lambda header: header[:12].decode("latin-1"),
)
def test_a_header_that_means_nothing(header, folder):
    _, numbers = parts(folder)
    assemble(folder, header, numbers)
    refuse(folder, DataError, "damaged")
    assemble(folder, header, b"")
    refuse(folder, DataError)


@pytest.mark.parametrize("dtype", ["F128", "", 32, None])
def test_an_unknown_type_of_numbers(dtype, folder):
    header, numbers = parts(folder)
    header[next(iter(header))]["dtype"] = dtype
    assemble(folder, header, numbers)
    refuse(folder, DataError, "damaged")


@pytest.mark.parametrize("shape", [[-1], [1 << 62, 1 << 62], [0], [1e3], "many"], ids=str)
def test_an_impossible_shape(shape, folder):
    header, numbers = parts(folder)
    header[next(iter(header))]["shape"] = shape
    assemble(folder, header, numbers)
    refuse(folder, DataError, "damaged")


# Weights of something else.


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")], ids=str)
@pytest.mark.parametrize("name", ["encoder.0.0.weight", "encoder.1.1.running_mean", "head.1.bias"])
def test_weights_that_are_not_finite(value, name, folder):
    tensor = state(folder)[name]
    tensor.view(-1)[-1] = value
    edit_state(folder, **{name: tensor})
    refuse(folder, DataError, name, "not finite", "get the model again")


def test_weights_of_another_model(folder, tmp_path):
    """The first three differences, what was expected and what was found, and how many more there are."""
    save_model(create("gcnn-digits", group="C8", width=0.05), tmp_path / "other")
    expected, found = state(folder), state(tmp_path / "other")
    differing = [name for name in load_model(folder).state_dict() if expected[name].shape != found[name].shape]
    assert len(differing) > 3
    (tmp_path / "other" / WEIGHTS).rename(folder / WEIGHTS)
    told = [f"{name}: expected float32 {tuple(expected[name].shape)}, found float32 {tuple(found[name].shape)}" for name in differing[:3]]
    refuse(
        folder,
        DataError,
        "weights of another model",
        *told,
        f"and {len(differing) - 3} more",
        "give the weights that belong to config.json",
    )
    with pytest.raises(DataError) as caught:
        load_model(folder)
    assert str(caught.value).count("expected") == 3


def test_a_missing_and_an_extra_tensor(folder):
    edit_state(folder, head__1__bias=None)
    refuse(folder, DataError, "head.1.bias: expected float32 (10,), found nothing")
    edit_state(folder, head__1__bias=torch.zeros(10), another=torch.zeros(2, 3))
    refuse(folder, DataError, "another: expected nothing, found float32 (2, 3)")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.float8_e4m3fn], ids=str)
def test_another_type_of_numbers(dtype, folder):
    edit_state(folder, head__1__bias=torch.zeros(10, dtype=dtype))
    refuse(folder, DataError, f"head.1.bias: expected float32 (10,), found {str(dtype).removeprefix('torch.')} (10,)")


@pytest.mark.parametrize(("model", "name"), [("gcnn-digits", "encoder.0.1.running_var"), ("vfcnn-digits", "encoder.0.1.mean_square")])
def test_a_negative_variance_is_refused(model, name, tmp_path):
    """Its root is not a number, and then no output is one."""
    save_model(create(model, group="C4", width=0.05), tmp_path)
    edit_state(tmp_path, **{name: -state(tmp_path)[name]})
    refuse(tmp_path, DataError, name)


def test_a_name_with_a_line_break_stays_in_its_line(folder):
    edit_state(folder, **{"two\nlines": torch.zeros(1)})
    refuse(folder, DataError, "found float32 (1,)")


# Configs.


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"model: dsf", b"\xff\xfe\xff", b"[" * 100_000, b'{"a":' * 50_000, b'{"format": ' + b"9" * 5000 + b"}"],
    ids=["empty", "half", "yaml", "not text", "deep list", "deep dict", "long number"],
)
def test_a_config_that_is_not_json(content, folder):
    (folder / CONFIG).write_bytes(content)
    refuse(folder, DataError, "not JSON", "get the model again", file=CONFIG)


def test_a_config_that_is_too_long(folder):
    """Not even read."""
    with open(folder / CONFIG, "ab") as stream:
        stream.truncate(1 << 34)
    refuse(folder, DataError, "too many", file=CONFIG)


@pytest.mark.parametrize(
    "config", [[], 3, None, "text", {}, {"format": 1}, {"format": "1", "architecture": {}}, {"format": 1.0, "architecture": {}}], ids=str
)
def test_json_that_is_no_config(config, folder):
    (folder / CONFIG).write_text(json.dumps(config))
    refuse(folder, DataError, "not the config of a dsfcnn model", file=CONFIG)


@pytest.mark.parametrize("architecture", [[], ["gcnn-digits"], "gcnn-digits", None, 7])
def test_an_architecture_of_the_wrong_type(architecture, folder):
    edit_config(folder, architecture=architecture)
    refuse(folder, DataError, "not the config of a dsfcnn model", file=CONFIG)


WRONG = {
    "task": [None, 3, ["nuclei"]],
    "mpp": [0, -0.25, "0.25", True, [0.25], 10**400],
    "tile_margin": [-1, 0.5, "40", 1 << 20, True],
    "classes": [{}, [], ["nucleus"], [{"name": "nucleus"}], [{"name": " ", "color": "#112233"}], [{"name": "a", "color": "red"}]],
    "decode": [[], {"certainty": "high"}, {"certainty": True}],
    "normalisation": ["ImageNet", None],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in WRONG.items() for value in values], ids=str)
def test_a_setting_that_no_program_could_use(key, value, folder):
    edit_config(folder, **{key: value})
    refuse(folder, DataError, key, "get the model again", file=CONFIG)


@pytest.mark.parametrize(
    "setting", [{"tile_margin": -3}, {"classes": [{"name": "nucleus"}]}, {"decode": {"certainty": float("inf")}}, {"mpp": 0.0}], ids=str
)
def test_a_setting_that_no_program_could_use_is_not_saved(setting, tmp_path, refused):
    with refused(UsageError, fix="save the model with another"):
        save_model(create("cnn-digits", width=0.05), tmp_path / "model", **setting)
    assert not (tmp_path / "model").exists()


def test_a_newer_format(folder):
    edit_config(folder, format=2, dsfcnn="9.8.7")
    refuse(folder, DataError, "made by version 9.8.7", "needs dsfcnn >= 9.8.7", f"this is {__version__}", "upgrade dsfcnn", file=CONFIG)


def test_a_version_with_a_line_break_stays_in_its_line(folder):
    edit_config(folder, format=2, dsfcnn="9\n8")
    refuse(folder, DataError, "upgrade dsfcnn", file=CONFIG)


@pytest.mark.parametrize("version", [0, -1, True])
def test_a_format_that_never_was(version, folder):
    """Nothing is guessed about it."""
    edit_config(folder, format=version)
    refuse(folder, DataError, file=CONFIG)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"name": "gcnn-letters"}, "no model 'gcnn-letters'"),
        ({"name": ["gcnn-digits"]}, ""),
        ({"name": None}, "no model None"),
        ({"depth": 3}, "no option 'depth'"),
        ({"self": 3}, "no option 'self'"),
        ({"a\nb": 3}, "no option"),
        ({"width": 1e9}, "width must be a number"),
        ({"width": 0}, "width must be a number"),
        ({"width": -1}, "width must be a number"),
        ({"width": float("nan")}, "width must be a number"),
        ({"width": "1"}, "width must be a number"),
        ({"width": True}, "width must be a number"),
        ({"width": [1]}, "width must be a number"),
        ({"group": "C0"}, "no group 'C0'"),
        ({"group": "E8"}, "no group 'E8'"),
        ({"group": "C999999999"}, "no group"),
        ({"group": 8}, "no group 8"),
        ({"group": ["C8"]}, "no group"),
        ({"classes": 0}, "output channel"),
        ({"classes": -3}, "output channel"),
        ({"classes": 2.5}, "output channel"),
        ({"classes": "ten"}, "output channel"),
        ({"classes": None}, "output channel"),
        ({"classes": 1 << 60}, ""),
        ({"classes": 10**40}, ""),
    ],
    ids=str,
)
def test_an_architecture_that_cannot_be(change, word, folder):
    edit_architecture(folder, **change)
    refuse(folder, DataError, word, "this folder does not describe a model of this version", file=CONFIG)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *(("cnn-glands", {"heads": heads}) for heads in ([3], 3, None, {}, {"a": 0}, {"a": "b"}, {"a": {}})),
        *(("cnn-glands", {"heads": {head: 3}}) for head in ("", "a.b", "forward")),
        *(("sfcnn-digits", {"dropout": dropout}) for dropout in (2.0, -1, "half", [1], float("nan"))),
        *(("cnn-tumour", {"centre": centre}) for centre in (0, 1.5, -1, "half", [1], None, float("nan"))),
        *(("hnet-digits", {"max_frequency": frequency}) for frequency in (0, 9, 1.5, "1", [1], None)),
    ],
    ids=str,
)
def test_options_that_cannot_be(name, change, tmp_path):
    save_model(create(name, width=0.05), tmp_path)
    edit_architecture(tmp_path, **change)
    refuse(tmp_path, DataError, "this folder does not describe a model of this version", file=CONFIG)


def test_a_head_with_a_line_break_stays_in_its_line(tmp_path):
    save_model(create("cnn-glands", width=0.05), tmp_path)
    edit_architecture(tmp_path, heads={"two\nlines": 3})
    with pytest.raises(DataError) as caught:
        load_model(tmp_path)
    assert "\n" not in str(caught.value)


def test_no_name(folder):
    edit_config(folder, architecture={"width": 1.0})
    refuse(folder, DataError, file=CONFIG)


def test_a_wider_model_than_the_weights(folder):
    """A hundred million parameters are claimed; they are compared without memory for them."""
    edit_architecture(folder, width=16)
    refuse(folder, DataError, "weights of another model")


LOAD_IN_LITTLE_MEMORY = """
import json, resource, sys
import torch
from dsfcnn.errors import DataError
from dsfcnn.models import load_model
torch.set_num_threads(1)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
told = []
for folder in sys.argv[1:]:
    try:
        load_model(folder)
    except BaseException as error:
        told.append(type(error).__name__)
print(json.dumps(told))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the memory of a process")
def test_lies_about_size_cost_no_memory(tmp_path):
    """A group of ten thousand turns, and sixteen gigabytes of weights: refused within one."""
    for name in ("group", "weights"):
        save_model(create("steerable-digits", group="C4", width=0.05), tmp_path / name)
    edit_architecture(tmp_path / "group", group="C9999")
    os.truncate(tmp_path / "weights" / WEIGHTS, 1 << 34)
    arguments = [sys.executable, "-c", LOAD_IN_LITTLE_MEMORY, tmp_path / "group", tmp_path / "weights"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["DataError", "DataError"]


# Anything at all.


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A folder whose files are replaced again and again, and their right contents."""
    folder = tmp_path_factory.mktemp("fuzzed")
    torch.manual_seed(0)
    save_model(create("cnn-digits", width=0.03), folder)
    return folder, {file: (folder / file).read_bytes() for file in (CONFIG, WEIGHTS)}


def load_or_refuse(folder):
    """Either a model that computes, or one line."""
    model, refusal = None, None
    try:
        model = load_model(folder)
    except DsfcnnError as error:
        refusal = error
    if model is None:
        assert refusal.exit_code == 65
        assert "\n" not in str(refusal)
        return
    x = torch.zeros(1, 3 if "digits" not in model.architecture["name"] else 1, 8, 8)
    with torch.no_grad():
        model(x)


MUTATIONS = st.lists(
    st.tuples(st.sampled_from(["flip", "truncate", "insert", "delete"]), st.floats(0, 1), st.binary(min_size=1, max_size=9), st.booleans()),
    min_size=1,
    max_size=4,
)


def mutate(content, mutations):
    """Where: anywhere, or (``early``) in the first tenth, where headers are."""
    for kind, place, value, early in mutations:
        at = int(place * (len(content) // 10 if early else len(content)))
        after = at + len(value)
        content = {
            "flip": content[:at] + bytes(a ^ b for a, b in zip(content[at:after], value)) + content[after:],
            "truncate": content[:at],
            "insert": content[:at] + value + content[at:],
            "delete": content[:at] + content[after:],
        }[kind]
    return content


fuzz = settings(max_examples=120, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("file", [CONFIG, WEIGHTS])
@fuzz
@given(mutations=MUTATIONS)
def test_a_mutated_file_is_refused_or_loads(file, tiny, mutations):
    folder, contents = tiny
    (folder / file).write_bytes(mutate(contents[file], mutations))
    try:
        load_or_refuse(folder)
    finally:
        (folder / file).write_bytes(contents[file])


EXTREME = [
    None, True, 0, -1, 2, 10**9, 10**18, 10**40, 0.5, 1e300, float("nan"), float("inf"), "", "C8", "two\nlines", "cnn-glands",
    [], {}, ["object"], {"object": 10**18}, {"object": None}, {"": 1}, {"a.b": 1}, {"forward": 1}, {"two\nlines": 1},
]  # fmt: skip
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = SCALAR | st.recursive(
    SCALAR,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=5,
)
SETTINGS = [
    *(("cnn-glands", key) for key in ("format", "dsfcnn", "architecture", "task", "mpp", "name", "width", "heads")),
    *(("sfcnn-digits", key) for key in ("group", "classes", "dropout")),
    ("hnet-digits", "max_frequency"),
]


@pytest.fixture(scope="module")
def with_value(tmp_path_factory):
    """Load a folder of this model in which one setting of the config or of its architecture has another value."""
    folders = {}

    def load(name, key, value):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            save_model(create(name, width=0.03), folders[name])
            folders[name, "config"] = (folders[name] / CONFIG).read_text()
        config = json.loads(folders[name, "config"])
        (config if key in config else config["architecture"])[key] = value
        (folders[name] / CONFIG).write_text(json.dumps(config))
        load_or_refuse(folders[name])

    return load


@pytest.mark.parametrize(("name", "key"), SETTINGS, ids=[key for _, key in SETTINGS])
def test_extreme_values_in_a_config_are_refused_or_load(name, key, with_value):
    for value in EXTREME:
        with_value(name, key, value)


@fuzz
@given(setting=st.sampled_from(SETTINGS), value=JSON)
def test_any_value_in_a_config_is_refused_or_loads(setting, value, with_value):
    with_value(*setting, value)


# On the command line.


def expect_one_line(stderr, *words):
    assert stderr.startswith("error: ")
    assert stderr.count("\n") == 1
    assert "Traceback" not in stderr
    for word in words:
        assert word in stderr


def test_the_command_refuses_a_pickle(folder, tmp_path):
    (folder / WEIGHTS).write_bytes(pickle.dumps(Payload(tmp_path / "executed")))
    arguments = [sys.executable, "-m", "dsfcnn", "filters", "--model", folder, "--out", tmp_path / "pictures"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == 65
    assert done.stdout == ""
    expect_one_line(done.stderr, str(folder / WEIGHTS), "not a safetensors file")
    assert not (tmp_path / "executed").exists()
    assert not (tmp_path / "pictures").exists()


@pytest.mark.parametrize(
    ("fault", "code", "word"),
    [
        (lambda folder: (folder / CONFIG).unlink(), 66, "give a model folder"),
        (lambda folder: (folder / CONFIG).write_text("{"), 65, "not JSON"),
        (lambda folder: edit_state(folder, head__1__bias=None), 65, "found nothing"),
        (lambda folder: save_model(create("cnn-digits", width=0.05), folder, overwrite=True), 2, "no group convolutions to draw"),
    ],
    ids=["no config", "half a config", "a tensor too few", "a plain network"],
)
def test_the_command_says_what_is_wrong(fault, code, word, folder, tmp_path, capsys):
    fault(folder)
    with pytest.raises(SystemExit) as ended:
        main(["filters", "--model", str(folder), "--out", str(tmp_path / "pictures")])
    assert ended.value.code == code
    expect_one_line(capsys.readouterr().err, word)
    assert not (tmp_path / "pictures").exists()


def test_the_command_draws_a_saved_model(folder, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["filters", "--model", str(folder), "--out", str(tmp_path / "pictures")])
    assert not ended.value.code, capsys.readouterr().err
    names = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert names == ["basis-11x11.png", "basis-7x7.png", "hidden-layer-C4.png", "input-layer-C4.png"]
