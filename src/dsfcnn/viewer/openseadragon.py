"""OpenSeadragon, the library of the page. It is not ours: it is fetched once, when a user asks for it, and then lies beside the page.

It comes from PyPI: the source package of openslide-python, which reads slides here anyway, has it among its examples. pip compares that
package with the checksum below; no other part of it is kept. The licence (BSD-3-Clause) stands at the head of the file.
"""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from dsfcnn.errors import DsfcnnError, MissingInputError, OutputError
from dsfcnn.files import atomic_write

NAME = "openseadragon.js"
VENDOR = Path(__file__).parent / "page" / "vendor"
_WANTED = "openslide-python==1.4.7 --hash=sha256:730fed798de683b00c8ef4d956f3d429cc02f2c449eb0d58944e1769ba7983cc"
_MEMBER = f"openslide_python-1.4.7/examples/deepzoom/static/{NAME}"  # OpenSeadragon 6.1.1


def fetch() -> Path:
    """Put OpenSeadragon beside the page, if it is not there; its place."""
    path = VENDOR / NAME
    if path.is_file():
        return path
    with tempfile.TemporaryDirectory() as folder:
        content = _member(_download(Path(folder)))
    try:
        VENDOR.mkdir(exist_ok=True)
        with atomic_write(path) as stream:
            stream.write(content)
    except OSError as error:
        if isinstance(error, DsfcnnError):
            raise
        raise OutputError(f"{VENDOR}: not writable; fetch OpenSeadragon as the user who installed dsfcnn") from error
    return path


def _download(folder: Path) -> Path:
    wanted = folder / "wanted.txt"
    wanted.write_text(_WANTED + "\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps", "--no-binary=openslide-python"]
    done = subprocess.run([*pip, "--require-hashes", "--requirement", wanted, "--dest", folder], capture_output=True, text=True)
    packages = list(folder.glob("*.tar.gz"))
    if done.returncode or not packages:
        reason = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no file came").strip()
        raise MissingInputError(
            f"OpenSeadragon: pip cannot get openslide-python 1.4.7 as source ({reason}); check the network and try again"
        )
    return packages[0]


def _member(package: Path) -> bytes:
    with tarfile.open(package) as archive:
        stream = archive.extractfile(_MEMBER)
        assert stream is not None, _MEMBER  # the checksum has been compared
        return stream.read()


if __name__ == "__main__":
    print(fetch())
