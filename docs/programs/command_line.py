"""Writes docs/command-line.md from the program itself: python docs/programs/command_line.py

A test compares the page with what this gives, so that it cannot go stale.
"""

from inspect import unwrap
from pathlib import Path
from typing import Any, get_args, get_type_hints

from typer.main import get_command

from dsfcnn.cli.main import app

PAGE = Path(__file__).parents[1] / "command-line.md"
_KINDS = {str: "TEXT", Path: "PATH", int: "INTEGER", float: "NUMBER"}
HEAD = """# Command line

<!-- written by docs/programs/command_line.py; change the program, not this page -->

`dsfcnn COMMAND --help` says the same in a terminal; `python -m dsfcnn` is the same program. `--debug` before or after the name of a command
shows the traceback of an error. Options may stand in any order, before or after the arguments; `--` ends them, for names that begin with a
dash. Exit codes are listed under [faults](faults.md#exit-codes).

| command | |
| --- | --- |
"""


def page() -> str:
    commands = sorted(_commands(get_command(app), ("dsfcnn",)))
    contents = "".join(f"| [`{name}`](#{_anchor(name)}) | {_cell(_first_line(command))} |\n" for name, command in commands)
    return HEAD + contents + "".join(f"\n{_section(name, command)}" for name, command in commands)


def _commands(command: Any, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Every command with its full name; groups are opened."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return [(" ".join(names), command)]
    return [found for name, one in inner.items() for found in _commands(one, (*names, name))]


def _section(name: str, command: Any) -> str:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False) and parameter.name != "help"]
    arguments = [parameter for parameter in shown if parameter.param_type_name == "argument"]
    usage = " ".join([name, *(_argument(one) for one in arguments), "[OPTIONS]"])
    rows = [f"| `{_argument(one)}` | {_cell(one.help)} | {'required' if one.required else ''} |\n" for one in arguments]
    hints = get_type_hints(unwrap(command.callback))
    rows += [f"| {_option(one, hints[one.name])} | {_cell(one.help)} | {_default(one)} |\n" for one in shown if one not in arguments]
    table = "| | | default |\n| --- | --- | --- |\n" + "".join(rows)
    return f"## {name}\n\n`{usage}`\n\n{_first_line(command)}\n\n{table}"


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


def _first_line(command: Any) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _option(option: Any, hint: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    while get_args(hint):  # list[str] | None -> str
        hint = get_args(hint)[0]
    return f"{names} {option.metavar or _KINDS[hint]}"


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if option.default is None or option.default is False or option.default == ():
        return ""
    if option.is_flag:  # one with a name for either choice
        return f"`{(option.opts if option.default else option.secondary_opts)[0]}`"
    return f"`{option.default}`"


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
