"""CPU time of things side by side: what slows the machine for a moment slows all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

Action = Callable[[int], object]

MANY_STEPS = 10**9
"""Of a schedule whose steps are timed, so that they see no end of it."""


def alternate(actions: Mapping[str, Action], rounds: int, slice_s: float) -> list[dict[str, float]]:
    """Run each action in turn, many times over.

    Args:
        actions: by name; each is given a number that it has not had before.
        rounds: how many results.
        slice_s: CPU seconds of a round, about.

    Returns:
        For each round the CPU seconds of one call of each action.
    """
    for action in actions.values():
        action(0)  # the first call also allocates
    once = sum(cpu_seconds(action, 1) for action in actions.values())
    calls = max(2, round(slice_s / once))
    found = []
    for turn in range(rounds):
        figures = dict.fromkeys(actions, 0.0)
        for number in range(calls):
            for name, action in actions.items():
                figures[name] += cpu_seconds(action, 2 + turn * calls + number) / calls
        found.append(figures)
    return found


def cpu_seconds(action: Action, number: int) -> float:
    """Return the CPU seconds of this process in a call, whatever else the machine does."""
    start = time.process_time()
    action(number)
    return time.process_time() - start


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, as a training process of ours does."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
