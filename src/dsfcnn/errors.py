"""What a user can get wrong, and the exit code that each mistake gives on the command line.

Every message is one sentence: what was expected, what came, and after a semicolon what to do.
Nothing here imports torch, so the command line can answer before torch is loaded.
"""


class DsfcnnError(Exception):
    """A mistake that the caller can mend. ``exit_code`` is what the command line ends with."""

    exit_code = 70


class UsageError(DsfcnnError, ValueError):
    """An argument, option or setting that has no meaning here."""

    exit_code = 2


class GroupError(UsageError):
    """A group name that is not C1, C2, ... or D1, D2, ..."""


class KernelSizeError(UsageError):
    """A kernel size that cannot be turned about a centre pixel."""


class ShapeError(UsageError):
    """A tensor of the wrong shape for a layer."""


class DataError(DsfcnnError, ValueError):
    """A file that is damaged, means nothing or belongs to something else."""

    exit_code = 65


class MissingInputError(DsfcnnError, FileNotFoundError):
    """An input that is not there or cannot be read."""

    exit_code = 66


class OutputError(DsfcnnError, OSError):
    """An output that cannot be created."""

    exit_code = 73


class WriteError(DsfcnnError, OSError):
    """A write that failed half-way, as on a full disk."""

    exit_code = 74


class UnreadableRegion(DataError):
    """A part of a slide, ``region`` = (x, y, width, height) on level 0, that is damaged or missing while the rest may be good."""

    def __init__(self, message: str, region: tuple[int, int, int, int]):
        super().__init__(message, region)
        self.region = region

    def __str__(self) -> str:
        return str(self.args[0])


class FolderInUse(DsfcnnError, OSError):
    """A folder in which another run is at work."""

    exit_code = 75


class Interrupted(BaseException):
    """A run that was asked to stop, and can go on; ``exit_code`` says by which signal.

    It comes at any moment and is no error, like KeyboardInterrupt: whoever takes errors for a damaged file must not take this for one.
    """

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code
