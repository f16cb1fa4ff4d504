"""Imports go one way: a lower package never imports a higher one, and neighbours do not know each other."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dsfcnn

SOURCE = Path(dsfcnn.__file__).parent

# The packages that each one stands directly upon; it may import those, and all that they stand upon.
BELOW = {
    "basis": [],
    "groups": ["basis"],
    "filters": ["groups"],
    "kernels": ["filters"],
    "layers": ["kernels"],
    "models": ["layers"],
    "tasks": [],
    "slides": [],
    "data": ["slides"],
    "training": ["models", "tasks", "data", "testing"],
    "inference": ["models", "tasks", "data"],
    "study": ["training", "inference"],
    "viewer": ["inference"],
    "cli": ["study", "viewer"],
    "testing": ["groups"],
    "__main__": ["cli"],
    "__init__": [],
}
FOR_ALL = {"errors", "files", "__version__"}  # these import none of the others


def allowed(package):
    """What ``package`` may import: itself, what is for all, and everything below it."""
    if package in FOR_ALL:
        return FOR_ALL
    reach, waiting = {package} | FOR_ALL, list(BELOW[package])
    while waiting:
        lower = waiting.pop()
        reach.add(lower)
        waiting += BELOW[lower]
    return reach


def imported(tree, parts):
    """First names below dsfcnn that a module (``parts`` of its path) imports anywhere, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # One dot is the module's own folder, each further dot one further out.
            folder = ["dsfcnn", *parts[: len(parts) - node.level]] if node.level else []
            prefix = ".".join([*folder, *([node.module] if node.module else [])])
            names = [f"{prefix}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "dsfcnn":
                yield (*name.split("."), "__init__")[1], node.lineno


def violations(source):
    """A sentence for each import against the order in the package at ``source``."""
    found = []
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        package = parts[0]
        if package not in BELOW and package not in FOR_ALL:
            found.append(f"{'/'.join(parts)} belongs to no known package; give '{package}' a place in the order")
            continue
        for name, line in imported(ast.parse(path.read_text()), parts):
            if name not in allowed(package):
                found.append(f"{'/'.join(parts)}:{line} imports {name}, which is not below {package}")
    return found


def test_imports_follow_the_order():
    assert violations(SOURCE) == []


def test_the_sources_are_seen():
    """The check reads every module, and finds imports that are known to be there."""
    steered = SOURCE / "layers" / "steered.py"
    names = {name for name, _ in imported(ast.parse(steered.read_text()), ("layers", "steered"))}
    assert {"errors", "filters", "groups"} <= names
    assert len(list(SOURCE.rglob("*.py"))) > 20


def test_the_order_is_that_of_the_design():
    assert allowed("filters") == {"filters", "groups", "basis"} | FOR_ALL
    assert not {"models", "layers"} & allowed("tasks")
    assert not {"tasks", "data"} & allowed("models")
    assert "tasks" not in allowed("data")
    assert "inference" not in allowed("training")
    assert allowed("testing") == {"testing", "groups", "basis"} | FOR_ALL
    assert allowed("cli") >= set(BELOW) - {"testing", "__main__", "__init__"}


@pytest.mark.parametrize(
    ("module", "line", "name"),
    [
        ("groups/group.py", "from dsfcnn.layers import GConv2d", "layers"),
        ("groups/group.py", "import dsfcnn.filters.bank", "filters"),
        ("basis/atoms.py", "from dsfcnn import groups", "groups"),
        ("filters/bank.py", "from ..layers.gconv import GConv2d", "layers"),
        ("filters/__init__.py", "from .. import layers", "layers"),
        ("filters/bank.py", "def later():\n    from dsfcnn.models import create", "models"),
        ("tasks/nuclei.py", "from dsfcnn.models import create", "models"),
        ("models/dsf.py", "import torch, dsfcnn.tasks.nuclei as nuclei", "tasks"),
        ("errors.py", "from dsfcnn.groups import Group", "groups"),
        ("testing.py", "from dsfcnn.layers import GPool", "layers"),
        ("__init__.py", "from dsfcnn.layers import GPool", "layers"),
        ("layers/gconv.py", "import dsfcnn", "__init__"),
    ],
)
def test_a_planted_violation_is_found(module, line, name, tmp_path):
    path = tmp_path / module
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"import math\n{line}\n")
    (found,) = violations(tmp_path)
    assert module.removesuffix(".py") in found
    assert f"imports {name}," in found


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("filters/bank.py", "from dsfcnn.basis.rings import ring_widths"),
        ("filters/bank.py", "from .init import weight_deviation"),
        ("filters/__init__.py", "from . import bank"),
        ("cli/main.py", "from ..study import tables"),
        ("groups/parse.py", "from dsfcnn.errors import GroupError"),
        ("basis/rings.py", "import dsfcnnother.layers"),
    ],
)
def test_imports_along_the_order_pass(module, line, tmp_path):
    path = tmp_path / module
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{line}\n")
    assert violations(tmp_path) == []


def test_a_package_without_a_place_is_found(tmp_path):
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "new.py").touch()
    assert "give 'extra' a place" in violations(tmp_path)[0]


def test_the_package_and_its_errors_load_without_torch():
    code = "import sys, dsfcnn, dsfcnn.errors; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
