"""The setting of where a task's header goes, and what it costs."""

from __future__ import annotations

from typing import Literal

from beliefspace.core.errors import InvalidInput
from beliefspace.windtunnel.tasks.base import RealInputs, Task

Side = Literal["prefix", "inject"]


def check_side(side: Side, task: Task) -> None:
    """Raise unless a task has a header of vectors to inject, where that is wanted.

    Raises:
        InvalidInput: it has none.
    """
    if side == "inject" and (not task.prefix or not isinstance(task.inputs, RealInputs)):
        raise InvalidInput(
            'side = "inject" needs a task with a header of vectors (such as hmm with '
            f'header = "rows"); {type(task).__name__} has {task.prefix} header positions; use '
            'side = "prefix"'
        )


def side_parameters(side: Side, task: Task, width: int) -> int:
    """Count the map that injects a header."""
    if side == "prefix":
        return 0
    assert isinstance(task.inputs, RealInputs)
    return task.prefix * task.inputs.features * width


def positions_seen(side: Side, task: Task) -> int:
    """Return how many positions a network sees: all, or those after an injected header."""
    return task.length - (task.prefix if side == "inject" else 0)
