"""Short names for tasks, models, diagnostics and the other things that a package can add.

A decorator puts a frozen dataclass or a function under a name in a group::

    @register("tasks", "coin")
    @dataclass(frozen=True)
    class Coin(Task): ...

A name is looked for among what is registered already, then among the built-in modules of the group
(imported once), then among the entry points ``beliefspace.<group>`` of installed packages, of which
only the one that matches is loaded.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, TypeVar

from beliefspace.core.errors import BeliefspaceError, InvalidInput, no_exit, unknown_name

__all__ = [
    "GROUPS",
    "exporter",
    "load_file",
    "loaded_files",
    "name_of",
    "names",
    "register",
    "resolve",
]

GROUPS = MappingProxyType(
    {
        "tasks": "beliefspace.windtunnel.tasks",
        "models": "beliefspace.windtunnel.models",
        "optimizers": "beliefspace.windtunnel.optimizers",
        "diagnostics": "beliefspace.geometry",
        "planners": "beliefspace.planning.planners",
        "environments": "beliefspace.planning.environments",
        "adapters": "beliefspace.language.adapters",
        "prompts": "beliefspace.language.prompts",
        "engines": "beliefspace.runs.engines",
        "panels": "beliefspace.report.panels",
    }
)
"""Every group, with the module or package that holds what is built in (it may be absent)."""

NAME_PATTERN = re.compile(r"[a-z0-9]+([-_.][a-z0-9]+)*")

Registered = TypeVar("Registered", bound=Callable[..., Any])


@dataclass(frozen=True)
class _Entry:
    """One registered object, with where the decorator stands."""

    group: str
    name: str
    value: Any
    module: str
    place: str


_entries: dict[tuple[str, str], _Entry] = {}
_by_value: dict[Any, _Entry] = {}
_scanned: set[str] = set()
_files: dict[str, str] = {}


def register(group: str, name: str) -> Callable[[Registered], Registered]:
    """Register the frozen dataclass or function below under a short name; it is returned unchanged.

    Args:
        group: one of :data:`GROUPS`, for example "tasks".
        name: lower-case letters and digits, joined by ``-``, ``_`` or ``.``.

    Returns:
        The decorator.

    Raises:
        InvalidInput: the name is taken (both places are named), is not a short name, or what stands
            below is neither a frozen dataclass nor a function.
        UnknownName: there is no such group.
    """
    _check_group(group)
    if not NAME_PATTERN.fullmatch(name):
        raise InvalidInput(
            f"{name!r} cannot be a name in group {group!r}: "
            "expected lower-case letters and digits, joined by - _ or ."
        )

    def decorate(value: Registered) -> Registered:
        frame = sys._getframe(1)
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        _add(_Entry(group, name, value, str(frame.f_globals.get("__name__")), place))
        return value

    return decorate


def resolve(group: str, name: str) -> Any:
    """Return what is registered under a name, importing only what that needs.

    Args:
        group: one of :data:`GROUPS`.
        name: the short name.

    Raises:
        UnknownName: nothing answers to the name; the nearest names are given.
        BeliefspaceError: the entry point that matches could not be loaded.
    """
    _check_group(group)
    if (group, name) not in _entries:
        _scan(group)
    if (group, name) not in _entries:
        _load_entry_point(group, name)
    if (group, name) not in _entries:
        raise unknown_name(group.removesuffix("s"), name, names(group))
    return _entries[group, name].value


def names(group: str) -> list[str]:
    """Return every name in a group, sorted; entry points are listed without being loaded.

    Args:
        group: one of :data:`GROUPS`.

    Raises:
        UnknownName: there is no such group.
    """
    _check_group(group)
    _scan(group)
    registered = {name for entry_group, name in _entries if entry_group == group}
    return sorted(registered | {point.name for point in _entry_points(group)})


def name_of(value: object) -> tuple[str, str]:
    """Return the group and name of a registered class, an instance of one, or a function.

    Args:
        value: the class, instance or function.

    Raises:
        InvalidInput: it is not registered.
    """
    key = value if isinstance(value, type | FunctionType) else type(value)
    entry = _by_value.get(key)
    if entry is None:
        raise InvalidInput(
            f"{_described(key)} has no registered name; "
            'put @register("<group>", "<name>") above its definition'
        )
    return entry.group, entry.name


def load_file(path: str | Path) -> list[tuple[str, str]]:
    """Import a user's Python file, once, and return the (group, name) pairs that it registers.

    Args:
        path: a ``.py`` file. Its module name is derived from the resolved path, so that every
            process that loads the file gets the same one.

    Raises:
        InvalidInput: there is no such file, or it could not be imported; nothing that it
            registered is kept.
        BeliefspaceError: it called ``sys.exit``; nothing is kept either.
    """
    resolved = Path(path).resolve()
    if not resolved.is_file() or resolved.suffix != ".py":
        raise InvalidInput(f"cannot load {str(path)!r}: expected an existing .py file")
    digest = hashlib.sha256(str(resolved).encode()).hexdigest()[:12]
    module_name = f"beliefspace_file_{digest}"
    if module_name not in sys.modules:
        _run_file(module_name, resolved)
    return [key for key, entry in _entries.items() if entry.module == module_name]


def loaded_files() -> list[dict[str, str]]:
    """Return the ``path`` and ``sha256`` of each file that :func:`load_file` loaded, in order.

    A run records them, so that it can be said later which code it needs.
    """
    return [{"path": path, "sha256": digest} for path, digest in _files.items()]


def exporter(group: str) -> tuple[Callable[[str], type], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a group's package.

    With them every registered class is an attribute of the package under its own name: the
    built-in ones, and others once they are imported. No entry point is loaded.

    Args:
        group: one whose home in :data:`GROUPS` is a package.
    """

    def classes() -> dict[str, type]:
        names(group)  # imports the built-in modules
        home = GROUPS[group]
        found = [e.value for (at, _), e in _entries.items() if at == group]
        of_classes = [value for value in found if isinstance(value, type)]
        # A class of the same name from elsewhere does not hide a built-in one.
        of_classes.sort(key=lambda cls: cls.__module__.startswith(f"{home}."))
        return {cls.__name__: cls for cls in of_classes}

    def get(name: str) -> type:
        # A submodule, or a name that tools look for ("__wrapped__"), is no class and costs no scan.
        found = classes() if name[:1].isupper() else {}
        if name not in found:
            raise AttributeError(str(unknown_name(f"{group.removesuffix('s')} class", name, found)))
        return found[name]

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[GROUPS[group]]), *classes()})

    return get, listed


def _check_group(group: str) -> None:
    if group not in GROUPS:
        raise unknown_name("group", group, GROUPS)


def _described(value: object) -> str:
    module, name = getattr(value, "__module__", "?"), getattr(value, "__qualname__", repr(value))
    return f"{module}.{name}"


def _add(entry: _Entry) -> None:
    value = entry.value
    if isinstance(value, type):
        parameters = value.__dict__.get("__dataclass_params__")
        if parameters is None or not parameters.frozen:
            raise InvalidInput(
                f"{_described(value)} is not a frozen dataclass; "
                f"put @register({entry.group!r}, {entry.name!r}) above @dataclass(frozen=True)"
            )
    elif not isinstance(value, FunctionType):
        raise InvalidInput(
            f"cannot register {value!r} as {entry.name!r} in group {entry.group!r}: "
            "expected a frozen dataclass or a function"
        )
    taken = _entries.get((entry.group, entry.name))
    if taken is not None and not _redefined(taken, entry):
        raise InvalidInput(
            f"{entry.name!r} is registered twice in group {entry.group!r}: "
            f"at {taken.place} and at {entry.place}"
        )
    other = _by_value.get(value)
    if other is not None:
        raise InvalidInput(
            f"{_described(value)} has a name already: {other.name!r} in group {other.group!r} "
            f"(at {other.place}); a second was given at {entry.place}"
        )
    _entries[entry.group, entry.name] = entry
    _by_value[value] = entry


def _redefined(old: _Entry, new: _Entry) -> bool:
    # Running a notebook cell again defines the same thing anew; that is not a clash of two things.
    same_name = _described(old.value) == _described(new.value)
    return same_name and old.module == new.module == "__main__"


def _forget(module_name: str) -> None:
    """Drop what a module registered before its import failed, so that a second try can succeed."""
    for key, entry in list(_entries.items()):
        if entry.module == module_name:
            del _entries[key]
            del _by_value[entry.value]


def _import(module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except BaseException:
        _forget(module_name)
        raise


def _scan(group: str) -> None:
    """Import the built-in modules of a group, once."""
    if group in _scanned:
        return
    # Marked first: a built-in module may itself look a name up while it is being imported.
    _scanned.add(group)
    try:
        package_name = GROUPS[group]
        if not _exists(package_name):
            return
        package = _import(package_name)
        for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
            _import(f"{package_name}.{module.name}")
    except BaseException:
        _scanned.discard(group)
        raise


def _exists(module_name: str) -> bool:
    parent = module_name.rpartition(".")[0]
    if parent and not _exists(parent):
        return False
    return importlib.util.find_spec(module_name) is not None


def _entry_points(group: str) -> list[importlib.metadata.EntryPoint]:
    return list(importlib.metadata.entry_points(group=f"beliefspace.{group}"))


def _load_entry_point(group: str, name: str) -> None:
    """Load the entry point that matches, if there is one; its module may register it itself."""
    matching = {point.value: point for point in _entry_points(group) if point.name == name}
    if not matching:
        return
    if len(matching) > 1:
        raise InvalidInput(
            f"{name!r} is an entry point of beliefspace.{group} twice: "
            f"{' and '.join(sorted(matching))}; uninstall one of the packages"
        )
    (point,) = matching.values()
    try:
        with no_exit(f"entry point {name!r} of beliefspace.{group} ({point.value})"):
            value = point.load()
    except BeliefspaceError:
        raise
    except Exception as error:
        raise BeliefspaceError(
            f"entry point {name!r} of beliefspace.{group} ({point.value}) could not be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error
    if (group, name) not in _entries:
        module_name = getattr(value, "__module__", point.value)
        _add(_Entry(group, name, value, module_name, f"entry point {point.value}"))


def _run_file(module_name: str, path: Path) -> None:
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"cannot load {str(path)!r} as a Python module")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses with postponed annotations look their module up by name while they are made.
    sys.modules[module_name] = module
    try:
        content = path.read_bytes()
        with no_exit(str(path)):
            spec.loader.exec_module(module)
        _files[str(path)] = hashlib.sha256(content).hexdigest()
    except BaseException as error:
        del sys.modules[module_name]
        _forget(module_name)
        if isinstance(error, BeliefspaceError) or not isinstance(error, Exception):
            raise
        raise InvalidInput(f"cannot import {_where(error, path)}: {_first_line(error)}") from error


def _where(error: Exception, path: Path) -> str:
    """Return the file with the line in it that failed."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{path}, line {line}" if line is not None else str(path)


def _first_line(error: Exception) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {text}".splitlines()[0]
