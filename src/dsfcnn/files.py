"""Files that are whole or not there, and folders that are not overwritten by accident."""

import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dsfcnn.errors import FolderInUse, OutputError, UsageError, WriteError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_UNFINISHED = ".part"  # end of the name of a file that is being written
_held: set[tuple[int, Path]] = set()  # by which process, and which file


def expect_outside(out: Path, data: Path, option: str = "--out") -> None:
    """Nothing is written into the data; ``option`` says where to write otherwise."""
    if out.resolve().is_relative_to(data.resolve()):
        raise UsageError(f"{out}: lies in the data {data}, where nothing is written; give another {option}")


def claim_outputs(folder: Path, names: list[str], overwrite: bool) -> None:
    """Make the folder and see that the files can be written there, before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: cannot make this folder ({error.strerror}); give another --out") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{folder}: not writable; give another --out")
    for name in names:
        if (folder / name).is_dir():
            raise OutputError(f"{folder / name}: a folder, where a file is to be written; give another --out")
    existing = [name for name in names if (folder / name).exists()]
    if existing and not overwrite:
        raise OutputError(f"{folder / existing[0]}: exists already; give another --out, or --overwrite")


@contextmanager
def telling_full_disk(path: Path) -> Iterator[None]:
    """A write that fails inside for want of room says so."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise WriteError(f"{path}: the disk is full; make room and run again") from error
        raise


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name when it is complete and on disk, and leaves nothing behind when it is not."""
    temporary = None
    try:
        with telling_full_disk(path):
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=_UNFINISHED, delete=False) as stream:
                temporary = stream.name
                yield stream  # type: ignore[misc]
                stream.flush()
                os.fsync(stream.fileno())
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)  # temporary files are private; this one is the user's
            os.replace(temporary, path)
            temporary = None
            _sync_folder(path.parent)
    finally:
        if temporary is not None:
            os.unlink(temporary)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One run in a folder at a time; made if it is not there. The lock goes with the process, however that ends.

    It is of the kind (fcntl) that forked workers do not inherit: with flock's, one that outlives a killed run by seconds would keep the
    folder. That kind knows processes only, and lets go when any descriptor of the file is closed; so a second run in the same
    process is kept out by name, before it opens the file.
    """
    in_use = FolderInUse(f"{folder}: another run is at work there; wait for it, or give another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mine = os.getpid(), folder.resolve() / ".lock"
        if mine in _held:
            raise in_use
        stream = mine[1].open("w")
    except FolderInUse:
        raise
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror}); give another --out") from error
    with stream:
        try:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise in_use from None
        _held.add(mine)
        try:
            yield
        finally:
            _held.discard(mine)


def make_folder(folder: Path) -> None:
    """A folder for outputs, in the midst of work."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise WriteError(f"{folder}: cannot make this folder ({error.strerror}); make room and run again") from error


def remove_unfinished(folder: Path) -> None:
    """What ``atomic_write`` left in a folder and those in it when its process was killed. Nobody else may be writing there."""
    for path in folder.rglob(f".*.*{_UNFINISHED}"):
        if path.is_file():
            path.unlink()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
