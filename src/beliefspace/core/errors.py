"""What can go wrong, each with the exit status the command line gives it.

A message is one line: what was given, what was expected, and the nearest thing that works.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class BeliefspaceError(Exception):
    """Base of every error that the package raises on purpose."""

    exit_status = 1


class InvalidInput(BeliefspaceError, ValueError):
    """An argument, a flag or a config value that cannot be used."""

    exit_status = 2


class UnknownName(InvalidInput):
    """A name that nothing answers to; see :func:`unknown_name`."""


class MissingExtra(BeliefspaceError):
    """An optional dependency is not installed; see :func:`missing_extra`."""


class CorruptFile(BeliefspaceError):
    """A file that is truncated, was altered, or does not match what it should hold."""


class RunExists(InvalidInput):
    """The place for a new run is taken; nothing in it was changed."""


class RunBusy(BeliefspaceError):
    """Another process works in the run directory."""


class Interrupted(BeliefspaceError):
    """Stopped on request between two steps; what was done is kept and can be resumed."""

    exit_status = 130


class NoSpace(BeliefspaceError):
    """The disk is full; nothing half-written was left."""


@contextmanager
def no_exit(what: str) -> Iterator[None]:
    """Run code of a user's, whose ``sys.exit`` must not end this program as if all were done.

    Args:
        what: the code, for the message.

    Raises:
        BeliefspaceError: it called ``sys.exit``.
    """
    try:
        yield
    except SystemExit as error:
        raise BeliefspaceError(f"{what} called sys.exit") from error
    except GeneratorExit as error:
        raise BeliefspaceError(f"{what} raised GeneratorExit") from error


def nearest(given: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the at most ``most`` known names closest to ``given``, closest first."""
    by_folded = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(given.casefold(), by_folded, n=most, cutoff=0.5)
    return [by_folded[name] for name in close]


def unknown_name(kind: str, given: str, known: Iterable[str]) -> UnknownName:
    """Build the error for an unknown name, with the nearest names and all there are.

    Args:
        kind: what was looked for, in the singular ("task", "point").
        given: the name as given.
        known: every name that would have worked.
    """
    names = sorted(known)
    close = nearest(given, names)
    hint = f"; nearest: {', '.join(close)}" if close else ""
    every = ", ".join(names) if names else "none"
    return UnknownName(f"unknown {kind} {given!r}{hint}; known: {every}")


def missing_extra(package: str, extra: str) -> MissingExtra:
    """Build the error for an optional package that is absent, with the line that installs it."""
    return MissingExtra(
        f"this needs {package}, which is not installed; "
        f'install it with: python -m pip install "beliefspace[{extra}]"'
    )
