"""What arguments name: registered classes, files that register one, functions, and runs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from beliefspace.cli.console import note
from beliefspace.core import registry
from beliefspace.core.environment import recorded_files
from beliefspace.core.errors import BeliefspaceError, InvalidInput, no_exit, unknown_name
from beliefspace.core.store import Run

__all__ = ["find", "find_callable", "open_run", "open_runs"]


def find(group: str, text: str) -> str:
    """Return the registered name that an argument stands for.

    Args:
        group: where it must be registered, for example "tasks".
        text: a name, or a file that registers one: ``FILE.py``, or ``FILE.py:NAME`` for one of
            several.

    Raises:
        InvalidInput: there is no such file, or it registers none, or several.
        UnknownName: nothing answers to the name.
    """
    file, name = _split_file(text)
    if file is None:
        registry.resolve(group, name)
        return name
    registered = [found for at, found in registry.load_file(file) if at == group]
    kind = group.removesuffix("s")
    if not registered:
        raise InvalidInput(
            f'{file} registers no {kind}; put @register("{group}", "<name>") above its class'
        )
    if name and name not in registered:
        raise unknown_name(f"{kind} in {file}", name, registered)
    if not name and len(registered) > 1:
        choices = ", ".join(f"{file}:{one}" for one in registered)
        raise InvalidInput(f"{file} registers {len(registered)} {group}; say which: {choices}")
    return name or registered[0]


def find_callable(text: str) -> Callable[[Any], Any]:
    """Import the function that an argument names.

    Args:
        text: ``package.module:function`` or ``FILE.py:function``.

    Raises:
        InvalidInput: it cannot be imported, or is not something that can be called on inputs.
    """
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise InvalidInput(
            f"{text!r} is neither a run nor a function; expected a run's directory, "
            "package.module:function or FILE.py:function"
        )
    found: Any = _module(place)
    for part in name.split("."):
        if not hasattr(found, part):
            raise unknown_name(f"function in {place}", name, _public(found))
        found = getattr(found, part)
    if isinstance(found, type) or not callable(found):
        what = "a class" if isinstance(found, type) else f"a {type(found).__name__}"
        raise InvalidInput(f"{text} is {what}; expected a function or a model that can be called")
    checked: Callable[[Any], Any] = found
    return checked


def open_run(path: str | Path) -> Run:
    """Open a run; the user's files that it records are not loaded.

    Args:
        path: the run's directory.

    Raises:
        InvalidInput: there is no run.
    """
    run = Run.open(path)
    files = recorded_files(run.environment())
    recorded = {Path(file).name: digest for file, digest in files.items()}
    for loaded in registry.loaded_files():
        name = Path(loaded["path"]).name
        if recorded.get(name, loaded["sha256"]) != loaded["sha256"]:
            note(f"note: {loaded['path']} is not the {name} that {run.path} was made with")
    return run


def open_runs(paths: Sequence[str]) -> list[Run]:
    """Open every run at or under some directories, each once.

    Args:
        paths: runs, or directories that hold some.

    Raises:
        InvalidInput: there is no run at or under a path.
    """
    runs: dict[Path, Run] = {}
    for path in paths:
        for place in list(_runs_under(Path(path))) or [Path(path)]:
            runs.setdefault(place.resolve(), open_run(place))
    return list(runs.values())


def _split_file(text: str) -> tuple[str | None, str]:
    if text.endswith(".py"):
        return text, ""
    file, _, name = text.rpartition(":")
    return (file, name) if file.endswith(".py") else (None, text)


def _module(place: str) -> Any:
    if place.endswith(".py"):
        registry.load_file(place)
        wanted = str(Path(place).resolve())
        return next(m for m in list(sys.modules.values()) if _file_of(m) == wanted)
    # As with python -m: modules beside the work can be named, installed ones come second.
    sys.path.insert(0, os.getcwd())
    try:
        with no_exit(place):
            return importlib.import_module(place)
    except BeliefspaceError:
        raise
    except Exception as error:
        raise InvalidInput(f"cannot import {place}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(os.getcwd())


def _file_of(module: object) -> str | None:
    file = getattr(module, "__file__", None)
    return str(Path(file).resolve()) if isinstance(file, str) else None


def _public(module: object) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and not isinstance(value, type)
    ]


def _runs_under(path: Path) -> Iterator[Path]:
    for directory, inner, files in os.walk(path):
        # A run that is just being made stands in a hidden directory.
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        if "run.json" in files:
            inner.clear()
            yield Path(directory)
