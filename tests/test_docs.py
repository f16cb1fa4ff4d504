"""What the documentation shows is what the program does.

Code blocks are ```python and ```bash; all of them run, but for those after a comment ``<!-- not run: reason -->``. On a page with
```bash blocks that run, all blocks are steps of one story: they run one after the other in one folder, which has the project's configs/ as
a clone has. On other pages every block runs in a folder of its own.
"""

import os
import re
import shlex
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.main import get_command

from dsfcnn.cli.main import app
from dsfcnn.models import shipped
from dsfcnn.training.config import read_config

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
FENCE = re.compile(r"^(?:<!-- not run: (?P<reason>\S.*?) -->\n)?```(?P<language>.*?)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
MODEL = re.compile(r"""--model (nuclei|glands|tumour)\b|load\("(nuclei|glands|tumour)"\)""")


class Block(NamedTuple):
    language: str
    code: str
    reason: str | None  # why it is not run


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(page):
    return [Block(found["language"], found["code"], found["reason"]) for found in FENCE.finditer(page.read_text())]


def is_story(page):
    return any(block.language == "bash" and not block.reason for block in blocks(page))


def run(block, folder):
    """The block in a process of its own; a model that this version does not ship ends the test."""
    for names in MODEL.findall(block.code):
        name = next(filter(None, names))
        if name not in shipped():
            pytest.skip(f"this version does not ship the model {name}")
    shell = ["bash", "-euo", "pipefail", "-c"] if block.language == "bash" else [sys.executable, "-c"]
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        [*shell, block.code], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, errors="replace", timeout=600
    )
    assert done.returncode == 0, f"{block.code}\n{done.stdout}\n{done.stderr}"


def lone_blocks():
    for page in PAGES:
        for number, block in enumerate(blocks(page)):
            if block.language == "python" and not block.reason and not is_story(page):
                yield pytest.param(block, id=f"{name_of(page)}-{number}")


@pytest.mark.parametrize("block", list(lone_blocks()))
def test_a_code_block_runs(block, tmp_path):
    run(block, tmp_path)


@pytest.mark.parametrize("page", [page for page in PAGES if is_story(page)], ids=name_of)
def test_the_steps_of_a_page_run(page, tmp_path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    for block in blocks(page):
        if block.language in ("bash", "python") and not block.reason:
            run(block, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page):
    for block in blocks(page):
        assert block.language in ("python", "bash", "text"), block.code
        assert block.language != "text" or not re.search(r"^(dsfcnn|python|pip|import) ", block.code, re.MULTILINE), block.code
    assert len(re.findall(r"^<!-- not run", page.read_text(), re.MULTILINE)) == sum(block.reason is not None for block in blocks(page))


def command_lines(text):
    """Every use of the program, and whether it is whole, as in blocks, indented or fenced; between backticks in the text it need not be."""
    text = text.replace("\\\n", " ")
    for found in re.finditer(r"^(?: {4})?(dsfcnn .*)$|`(dsfcnn [^`]*)`", text, re.MULTILINE):
        yield shlex.split(re.sub(r"[][]", " ", found[1] or found[2]), comments=True)[1:], bool(found[1])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_options_exist(page):
    for line, is_whole in command_lines(page.read_text()):
        command, words = get_command(app), iter(line)
        while hasattr(command, "commands"):
            word = next((word for word in words if not word.startswith("--")), None)
            if word is None or word == "COMMAND":
                break
            assert word in command.commands, line
            command = command.commands[word]
        options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        rest = list(words)
        assert {word for word in rest if word.startswith("--")} <= options | {"--help", "--debug"}, line
        needed = [set(option.opts) for option in command.params if option.required and option.param_type_name == "option"]
        assert not is_whole or "--help" in rest or all(names & set(rest) for names in needed), line
        if line[:1] == ["train"] and rest and (ROOT / rest[0]).is_file():
            read_config(ROOT / rest[0], [word for word in rest[1:] if "=" in word and not word.startswith("--")])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as ``make docs`` builds it: links, anchors and navigation are checked by mkdocs, whose warnings are errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # an announcement of the theme, as in the Makefile
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def test_the_site_builds_and_has_every_page(site):
    for page in (ROOT / "docs").glob("*.md"):
        assert (site / page.with_suffix(".html").name).is_file()


def test_the_site_needs_no_network(site):
    assert list(site.glob("assets/stylesheets/*.css"))
    for page in site.glob("**/*.html"):
        loaded = re.findall(r"<(?:script|img|iframe|source|link)\b[^>]*\s(?:src|href)=[\"']?([^\"'\s>]+)", page.read_text())
        assert loaded
        assert [address for address in loaded if "//" in address] == [], page
    for sheet in site.glob("**/*.css"):
        assert re.findall(r"@import|url\([\"']?(?:https?:)?//", sheet.read_text()) == [], sheet


def test_formulas_need_no_script(site):
    page = (site / "mathematics.html").read_text()
    assert page.count("<math") > 20
    assert "arithmatex" not in page


def test_a_link_to_a_source_leads_to_the_function(site):
    assert 'id="radial_profile"' in (site / "project" / "src" / "dsfcnn" / "basis" / "rings.py.html").read_text()


def test_the_page_of_commands_is_the_programs():
    specification = spec_from_file_location("command_line", ROOT / "docs" / "programs" / "command_line.py")
    program = module_from_spec(specification)
    specification.loader.exec_module(program)
    assert program.PAGE.read_text() == program.page(), "run: python docs/programs/command_line.py"


def test_the_parameter_table_is_the_programs():
    done = subprocess.run([sys.executable, "-m", "dsfcnn", "models", "--markdown"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") > 40
    assert done.stdout in (ROOT / "docs" / "models.md").read_text()
