"""Where the small default transformer comes to stand on each task's ladder in one CPU minute."""

from __future__ import annotations

from pathlib import Path

from beliefspace.core import registry
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.recipe import Recipe, Schedule
from benchmarks import results
from benchmarks.training import RUNS, Job, seconds_left, train_missing

BUDGET = "1 cpu-min"


def jobs() -> list[Job]:
    """Return a run for each registered task at its default settings."""
    return [
        Job(
            f"tasks/{name}",
            Recipe(registry.resolve("tasks", name)(), Transformer(), schedule=Schedule(BUDGET)),
            {"task": name},
        )
        for name in registry.names("tasks")
    ]


def estimate(folder: Path = results.FOLDER) -> float:
    """Return about how many seconds of wall clock are left to measure."""
    return seconds_left(jobs(), folder)


def measure(folder: Path = results.FOLDER, runs: Path = RUNS) -> None:
    """Measure what is missing."""
    train_missing("tasks", jobs(), folder, runs)
