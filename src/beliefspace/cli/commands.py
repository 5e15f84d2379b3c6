"""Finds the command, and turns what goes wrong into a line and an exit status.

Exit status: 0 done, 1 failed, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback

import beliefspace
from beliefspace.cli.arguments import HelpShown
from beliefspace.cli.console import Answer, discard, note, show, standard_output
from beliefspace.core.errors import BeliefspaceError, InvalidInput, nearest, no_exit
from beliefspace.core.registry import load_file

__all__ = ["COMMANDS", "run"]

COMMANDS = {
    "list": ("catalog:list_names", "tasks, models and everything else that has a name"),
    "describe": ("catalog:describe", "one of them: settings, shapes, source, an example"),
    "new": ("new:new", "start a task of your own: a file, and a test that passes"),
    "train": ("train:train", "train models on a task and score them against the exact posterior"),
    "resume": ("train:resume", "go on with runs that were stopped"),
    "evaluate": ("evaluate:evaluate", "score a run, or any function, against the exact posterior"),
    "compare": ("results:compare", "runs side by side, with intervals and paired tests"),
    "claims": ("results:claims", "published claims, and what the runs here say about each"),
    "report": ("results:report", "one offline page about runs"),
    "demo": ("demo:demo", "train two small transformers and see how close to Bayes they come"),
    "doctor": ("diagnosis:doctor", "this machine: versions, and known traps"),
}
"""Name -> the function of the command (a module of this package, and its name), and a summary."""

_GLOBAL = """\
Every command takes --help; --debug for the traceback of an error; and --plugin FILE.py, once or
more, to load tasks or models of your own first. Files that a run names are never loaded unasked.
Those that report take --json: one JSON object on standard output, all else on standard error."""


def run(arguments: list[str]) -> int:
    """Run the command that the arguments name.

    Args:
        arguments: without the program's name.

    Returns:
        The exit status.
    """
    debug = "--debug" in arguments
    try:
        with no_exit("the code of a task, a model or a function"):
            _run([word for word in arguments if word != "--debug"])
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        return _failed(error, debug)
    return 0


def _run(arguments: list[str]) -> None:
    if sys.stdout is None:
        raise BeliefspaceError("standard output is closed, and the answer goes there")
    files, (name, *rest) = _plugins(arguments)
    if name in ("--help", "-h", "help"):
        print(_help())
        return
    if name == "--version":
        print(f"beliefspace {beliefspace.__version__}")
        return
    if name not in COMMANDS:
        raise _unknown(name)
    _check_directory()
    module, _, function = COMMANDS[name][0].partition(":")
    with standard_output(reserved="--json" in rest):
        for file in files:
            load_file(file)
        command = getattr(importlib.import_module(f"beliefspace.cli.{module}"), function)
        try:
            answer: Answer = command(rest)
        except HelpShown:
            return
    show(answer)


def _plugins(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the files of ``--plugin FILE``, and the other words (at least one, maybe empty)."""
    files, rest, words = [], [], iter(arguments)
    for word in words:
        flag, given, file = word.partition("=")
        if flag != "--plugin":
            rest.append(word)
            continue
        files.append(file if given else next(words, ""))
        if not files[-1]:
            raise InvalidInput("--plugin takes a file: --plugin FILE.py")
    return files, rest or [""]


def _check_directory() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:
        raise BeliefspaceError(
            "the current directory was removed; change to one that exists"
        ) from None


def _unknown(name: str) -> InvalidInput:
    if not name:
        return InvalidInput("say what to do; the commands: beliefspace --help")
    close = nearest(name, COMMANDS)
    hint = f"; nearest: {', '.join(close)}" if close else ""
    return InvalidInput(f"unknown command {name!r}{hint}; the commands: beliefspace --help")


def _help() -> str:
    commands = "\n".join(f"  {name:<10}{summary}" for name, (_, summary) in COMMANDS.items())
    return (
        f"usage: beliefspace COMMAND ...\n\n{beliefspace.__doc__.splitlines()[0]}\n\n"
        f"{commands}\n\n{_GLOBAL}\n  --version  the version"
    )


def _failed(error: BaseException, debug: bool) -> int:
    """Say in one line what went wrong, and return the exit status for it."""
    if isinstance(error, BrokenPipeError):
        # The reader has seen enough. What is still buffered must not be written at exit.
        discard(1)
        return 1
    if debug:
        note("".join(traceback.format_exception(error)).rstrip())
    line, status = _explained(error)
    note("beliefspace: " + " ".join(line.split()))
    return status


def _explained(error: BaseException) -> tuple[str, int]:
    if isinstance(error, BeliefspaceError):
        return str(error), error.exit_status
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        discard(1)
        where = f" for {error.filename}" if error.filename else ""
        return f"no space is left{where}; free some and try again", 1
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}", 1
    hint = "run with --debug for the traceback"
    return f"{type(error).__name__}: {error}; {hint}", 1
