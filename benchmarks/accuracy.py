"""Time to accuracy: the recommended recipe on the full-size bijection task, against its goals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from beliefspace.studies.bijection import recipe
from benchmarks import results
from benchmarks.training import RUNS, Job, seconds_left, train_missing

SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Goal:
    """What every seed is to reach on one core.

    Args:
        targets: what is trained on.
        minutes: of CPU time.
        entropy_error_bits: at most.
        kl_bits: at most.
        balanced: whether batches cover a symmetry of the task.
    """

    targets: Literal["sampled", "posterior"]
    minutes: int
    entropy_error_bits: float
    kl_bits: float
    balanced: bool = False

    @property
    def targets_named(self) -> str:
        """The targets, and how batches were drawn where that is special."""
        return f"balanced {self.targets}" if self.balanced else self.targets


GOALS = (
    Goal("posterior", 4, 3e-4, 3e-5),
    Goal("sampled", 6, 1.5e-3, 6e-4),
    Goal("sampled", 6, 1.5e-3, 6e-4, balanced=True),
    Goal("sampled", 20, 8e-4, 2e-4),
    Goal("sampled", 40, 5e-4, 1e-4),
)


def jobs() -> list[Job]:
    """Return every run: each goal's budget with each seed."""
    return [
        Job(
            f"accuracy/{goal.targets}{'-balanced' * goal.balanced}-{goal.minutes}min/seed-{seed}",
            recipe(goal.targets, f"{goal.minutes} cpu-min", seed, balanced=goal.balanced),
            {"targets": goal.targets_named, "minutes": goal.minutes, "seed": seed},
        )
        for goal in GOALS
        for seed in SEEDS
    ]


def estimate(folder: Path = results.FOLDER) -> float:
    """Return about how many seconds of wall clock are left to measure."""
    return seconds_left(jobs(), folder)


def measure(folder: Path = results.FOLDER, runs: Path = RUNS) -> None:
    """Measure what is missing."""
    train_missing("accuracy", jobs(), folder, runs)
