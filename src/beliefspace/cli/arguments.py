"""Flags from frozen dataclasses, by tyro; what tyro refuses becomes one line."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from beliefspace.core.errors import InvalidInput

__all__ = ["WIDTH", "HelpShown", "parse"]

WIDTH = 100
"""The most columns that anything printed takes."""

Options = TypeVar("Options")


class HelpShown(Exception):
    """Help was asked for, and has been printed: there is nothing more to do."""


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_REWORDED = (
    (r"^Error parsing (recipe\.)?", ""),
    (r"invalid literal for int\(\) with base 10: ", "expected an integer; got "),
    (r"could not convert string to float: ", "expected a number; got "),
    (r"^Missing from [^:]*: ", "missing "),
    (r" positional \(required\)", ""),
)


def parse(
    options: type[Options], arguments: Sequence[str], command: str, description: str
) -> Options:
    """Read a command's arguments.

    Args:
        options: a frozen dataclass; its fields are the flags, their documentation the help.
        arguments: what stands after the command.
        command: its name, for messages.
        description: for the help.

    Raises:
        InvalidInput: the arguments do not fit; the message names the flag, and the nearest one
            where it is unknown.
        HelpShown: help was asked for, and has been printed.
    """
    # tyro takes a fifth of a second to import: the list of commands must not wait for it.
    import tyro

    refused = io.StringIO()
    try:
        with contextlib.redirect_stderr(refused), _columns():
            made: Any = tyro.cli(
                options,
                prog=f"beliefspace {command}",
                args=list(arguments),
                description=_laid_out(description),
                config=(tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit as stop:
        if not stop.code:
            raise HelpShown from None
        reason = condensed(refused.getvalue())
        raise InvalidInput(f"{reason} (see: beliefspace {command} --help)") from None
    return made  # type: ignore[no-any-return]


def condensed(box: str) -> str:
    """Return the reason in what tyro prints, which is a box with a title, reason and hints.

    Args:
        box: the text, with or without colour.
    """
    lines = [line.strip("│╭╮╰╯ \t") for line in _COLOUR.sub("", box).splitlines()]
    sections: list[list[str]] = [[]]
    for line in filter(None, lines):
        # In a box the title stands in its upper edge; without one it has a rule below it.
        if set(line) <= {"─", "-"} or re.match(r"─+ \S.* ─+$", line):
            sections.append([])
        else:
            sections[-1].append(line)
    filled = [section for section in sections if section]
    untitled = filled[1:] if "╭" not in box and len(filled) > 1 else filled
    first, *hints = untitled or [["the arguments do not fit"]]
    reason = " ".join(first)
    unknown = re.match(r"Unrecognized (?:options|arguments)?:? ?(.*)", reason)
    if unknown:
        return _unknown(unknown[1].split(", "), [line for hint in hints for line in hint])
    for pattern, wording in _REWORDED:
        reason = re.sub(pattern, wording, reason)
    return reason.rstrip(".")


def _unknown(given: list[str], hints: list[str]) -> str:
    flags = [word for word in given if word.startswith("-")]
    if not flags:
        return f"unexpected argument {given[0]!r}"
    known = [match[1] for hint in hints if (match := re.match(r"(--[\w.-]+)", hint))]
    # tyro lists the nearest first; the line that points to the help comes last.
    near = f"; nearest: {', '.join(dict.fromkeys(known))}" if known else ""
    return f"unknown flag {flags[0]}{near}"


def _laid_out(description: str) -> str:
    first, *rest = inspect.cleandoc(description).split("\n\n")
    # tyro joins the lines of what is not indented, and does not break them again.
    return "\n\n".join([first, *(textwrap.indent(paragraph, "  ") for paragraph in rest)])


@contextlib.contextmanager
def _columns() -> Iterator[None]:
    """Keep tyro, which fills the terminal, within :data:`WIDTH`."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
