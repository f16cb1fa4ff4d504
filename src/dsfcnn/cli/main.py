"""The program: finds the command, runs it, and turns a user's mistake into one line and the right exit code.

Commands import torch and the rest of the package when they run, so that ``--help`` answers at once.
"""

import sys
from typing import Annotated, Any

import typer

from dsfcnn import __version__
from dsfcnn.cli.bench import bench
from dsfcnn.cli.data import data
from dsfcnn.cli.doctor import doctor
from dsfcnn.cli.equivariance import equivariance
from dsfcnn.cli.evaluate import evaluate
from dsfcnn.cli.export import export
from dsfcnn.cli.filters import filters
from dsfcnn.cli.info import info
from dsfcnn.cli.models import models
from dsfcnn.cli.predict import predict
from dsfcnn.cli.study import study
from dsfcnn.cli.train import train
from dsfcnn.cli.view import view
from dsfcnn.errors import DsfcnnError, Interrupted, UsageError

app = typer.Typer(name="dsfcnn", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(models)
app.command()(train)
app.command()(evaluate)
app.command()(study)
app.command()(predict)
app.command()(view)
app.command()(export)
app.command()(filters)
app.command()(equivariance)
app.command()(bench)
app.command()(info)
app.command()(doctor)
app.add_typer(data, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"dsfcnn {__version__}")
        raise typer.Exit()


@app.callback()
def _program(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Rotation-equivariant CNNs for histology."""


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    debug = "--debug" in options
    # --debug is a setting of the program; taken out here, it may also stand behind the command's name.
    arguments = [a for a in options if a != "--debug"] + arguments[len(options) :]
    sys.exit(_run(arguments, debug))


def _run(arguments: list[str], debug: bool) -> int:
    try:
        _expect_no_empty(arguments)
        return app(arguments, prog_name="dsfcnn", standalone_mode=False) or 0
    except typer.Abort:
        return 130
    except (DsfcnnError, Interrupted) as error:
        if debug:
            raise
        return _say(str(error), error.exit_code)
    except Exception as error:
        if debug:
            raise
        if hasattr(error, "format_message"):  # a mistake in the command line, told by typer
            return _say_usage(error)
        if _is_out_of_memory(error):
            return _say("there is not enough memory for this; give a smaller batch, crop or tile, or fewer workers", 70)
        return _say(f"{type(error).__name__}: {error}; this is a bug of dsfcnn, run again with --debug to see where", 70)


def _is_out_of_memory(error: Exception) -> bool:
    """As Python, numpy and torch say it, of the machine and of a GPU."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in ("can't allocate memory", "CUDA out of memory"))


def _expect_no_empty(arguments: list[str]) -> None:
    """An unset variable of a shell; as the name of a file it would mean the current folder."""
    for before, argument in zip(["", *arguments], arguments):
        if not argument or (argument.startswith("--") and argument.endswith("=")):
            where = argument.rstrip("=") or (before if before.startswith("-") else "an argument")
            raise UsageError(f"{where} is empty; give a value, or leave it out")


def _say_usage(error: Any) -> int:
    message = " ".join(error.format_message().split()).rstrip(".")
    if not message:  # the bare command, which has printed its help
        return 2
    context = getattr(error, "ctx", None)
    return _say(f"{message}; see {context.command_path if context else 'dsfcnn'} --help", 2)


def _say(message: str, exit_code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return exit_code
