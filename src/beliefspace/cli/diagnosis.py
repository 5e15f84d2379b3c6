"""``doctor``: what :mod:`beliefspace.cli.doctor` found, as text or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from beliefspace.cli.arguments import parse
from beliefspace.cli.console import Answer

__all__ = ["doctor"]


@dataclass(frozen=True)
class Options:
    """What is printed.

    Args:
        json: one JSON object.
    """

    json: bool = False


def doctor(arguments: Sequence[str]) -> Answer:
    """Describe this machine and environment, with the known traps that it holds."""
    options = parse(Options, arguments, "doctor", str(doctor.__doc__))
    from beliefspace.cli import doctor as machine

    facts = machine.doctor()
    return Answer((machine.render(facts),), facts, options.json)
