"""The page's files, read once; nothing else is ever served as a file."""

from importlib import resources

from dsfcnn.errors import UsageError
from dsfcnn.viewer import openseadragon

_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def page_files() -> dict[str, tuple[str, bytes]]:
    """Media type and contents by name."""
    found = {}
    page = resources.files("dsfcnn.viewer") / "page"
    for folder in (page, page / "vendor"):
        for file in folder.iterdir() if folder.is_dir() else ():
            kind = _TYPES.get(file.name[file.name.rfind(".") :])
            if kind is not None and file.is_file():
                found[file.name] = kind, file.read_bytes()
    return found


def expect_openseadragon(files: dict[str, tuple[str, bytes]]) -> None:
    if openseadragon.NAME not in files:
        raise UsageError("OpenSeadragon, which the page needs, is missing; get it once from PyPI: dsfcnn view OUT --fetch")
