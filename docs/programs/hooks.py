"""What mkdocs does here besides its own work, see ``hooks`` in mkdocs.yml.

- Formulas become MathML, which browsers draw without a script.
- A link out of docs/, such as ../src/dsfcnn/basis/rings.py#radial_profile, leads to a page of the site that shows this file. Its anchors
  are the names of what the file defines.
"""

import ast
import html
import re
from pathlib import Path
from posixpath import normpath
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
_OUTWARD = re.compile(r"\]\(\.\./([^)#\s]+)(#[^)]*)?\)")  # a link to a file of the project that is no page
_INWARD = re.compile(r"(!?)\[([^]]*)\]\((?!https?://)([^)]*)\)")  # a link from such a file to another
_PICTURES = {".png", ".jpg"}
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
_LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".yaml": "yaml", ".toml": "toml"}
_FENCE = "`" * 8  # longer than any in the files
_HIDDEN = "---\nsearch:\n  exclude: true\n---\n\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """A page for every file of the project that a page links to."""
    wanted = [target for page in list(files.documentation_pages()) for target, _ in _OUTWARD.findall(page.content_string)]
    done: set[str] = set()
    while wanted:
        target = normpath(wanted.pop())
        if target not in done and (ROOT / target).exists():  # mkdocs warns of the others
            done.add(target)
            if Path(target).suffix in _PICTURES:
                files.append(File.generated(config, f"project/{target}", abs_src_path=str(ROOT / target)))
                continue
            content, more = _shown(ROOT / target)
            wanted += more
            files.append(File.generated(config, _page(target), content=content, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if page.file.generated_by:
        return markdown
    return _OUTWARD.sub(lambda link: f"]({_page(normpath(link[1]))}{link[2] or ''})", markdown)


def on_page_content(content: str, **_: Any) -> str:
    return _FORMULA.sub(lambda found: _mathml(found[2], "block" if found[1] == "div" else "inline"), content)


def _mathml(formula: str, display: str) -> str:
    drawn = convert(html.unescape(formula), display=display)
    if "\\" in drawn:  # it passes on what it does not know
        raise PluginError(f"a formula that latex2mathml does not know: {formula}")
    return drawn


def _page(target: str) -> str:
    """Where the site shows a file of the project."""
    return f"project/{target}" if target.endswith(".md") else f"project/{target}.md"


def _shown(path: Path) -> tuple[str, list[str]]:
    """A page that shows a file or folder, and further files that it links to."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        inside = sorted(one for one in path.iterdir() if one.suffix in _LANGUAGES)
        links = "\n".join(f"- [{one.name}]({path.name}/{one.name}.md)" for one in inside)
        return f"{_HIDDEN}# {name}\n\n{links}\n", [one.relative_to(ROOT).as_posix() for one in inside]
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return _with_pictures(text, path.parent)
    parts = _definitions(text) if path.suffix == ".py" else [("", text)]
    language = _LANGUAGES.get(path.suffix, "text")
    blocks = [f"{heading}{_FENCE}{language}\n{code.strip(chr(10))}\n{_FENCE}\n" for heading, code in parts if code.strip()]
    return f"{_HIDDEN}# {name}\n\n" + "\n".join(blocks), []


def _with_pictures(text: str, folder: Path) -> tuple[str, list[str]]:
    """A text of the project with its pictures; of its links to other files only the words are kept."""
    pictures = [folder / name for mark, _, name in _INWARD.findall(text) if mark and (folder / name).suffix in _PICTURES]
    kept = _INWARD.sub(lambda link: link[0] if link[1] and folder / link[3] in pictures else link[2], text)
    return kept, [picture.relative_to(ROOT).as_posix() for picture in pictures]


def _definitions(text: str) -> list[tuple[str, str]]:
    """A Python file in parts: a heading for each function and class, with all that stands before the next."""
    lines = text.splitlines(keepends=True)
    starts, headings = [0], [""]
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            starts.append(min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1)
            headings.append(f"## {node.name} {{: #{node.name} }}\n\n")
    return [(heading, "".join(lines[start:end])) for heading, start, end in zip(headings, starts, [*starts[1:], len(lines)], strict=True)]
