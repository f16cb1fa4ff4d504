"""What the documentation shows is what the program does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def python_blocks():
    for page in PAGES:
        for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)):
            yield pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")


@pytest.mark.parametrize("block", list(python_blocks()))
def test_a_code_block_runs(block, tmp_path):
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_the_parameter_table_is_the_programs():
    done = subprocess.run([sys.executable, "-m", "dsfcnn", "models", "--markdown"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") > 40
    assert done.stdout in (ROOT / "docs" / "models.md").read_text()
