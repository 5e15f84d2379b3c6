"""The tasks; every registered class is an attribute of this package under its own name."""

from __future__ import annotations

from beliefspace.core import registry
from beliefspace.core.errors import InvalidInput, unknown_name
from beliefspace.windtunnel.tasks.base import Task


def __getattr__(name: str) -> type[Task]:
    # A submodule, or a name that tools look for ("__wrapped__"), is no class and costs no scan.
    found = _classes() if name[:1].isupper() else {}
    if name not in found:
        raise AttributeError(str(unknown_name("task class", name, found)))
    return found[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_classes()})


def _classes() -> dict[str, type[Task]]:
    """Return the registered classes: all built-in ones, and others once they are imported."""
    registry.names("tasks")  # imports the built-in modules, and loads no entry point
    found, waiting = {}, Task.__subclasses__()
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        try:
            registry.name_of(cls)
        except InvalidInput:
            continue
        # A class of the same name from elsewhere does not hide a built-in one.
        if cls.__name__ not in found or cls.__module__.startswith(__name__):
            found[cls.__name__] = cls
    return found
