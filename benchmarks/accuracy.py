"""Time to accuracy: the recommended recipe on the full-size bijection task, against its goals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from beliefspace.studies.bijection import recipe
from benchmarks import results
from benchmarks.training import RUNS, Job, seconds_left, train_missing

SEEDS = (0, 1, 2)
Targets = Literal["sampled", "posterior"]


@dataclass(frozen=True)
class Arm:
    """What is trained, with every seed.

    Args:
        targets: what is trained on.
        minutes: of CPU time.
        balanced: whether batches cover a symmetry of the task.
    """

    targets: Targets
    minutes: int
    balanced: bool = False

    @property
    def label(self) -> str:
        """What tables call it."""
        return f"balanced {self.targets}" if self.balanced else self.targets

    def jobs(self) -> list[Job]:
        """Return its runs."""
        name = f"accuracy/{self.targets}{'-balanced' * self.balanced}-{self.minutes}min"
        budget = f"{self.minutes} cpu-min"
        return [
            Job(
                f"{name}/seed-{seed}",
                recipe(self.targets, budget, seed, balanced=self.balanced),
                {"targets": self.label, "minutes": self.minutes, "seed": seed},
            )
            for seed in SEEDS
        ]


ARMS = (Arm("sampled", 6), Arm("sampled", 6, balanced=True), Arm("posterior", 2))


@dataclass(frozen=True)
class Goal:
    """What every seed of an arm is to reach on one core.

    Args:
        targets: what is trained on, in batches of either kind.
        minutes: of CPU time, at most.
        entropy_error_bits: at most.
        kl_bits: at most.
    """

    targets: Targets
    minutes: int
    entropy_error_bits: float
    kl_bits: float


GOALS = (
    Goal("posterior", 4, 3e-4, 3e-5),
    Goal("sampled", 6, 1.5e-3, 6e-4),
    Goal("sampled", 20, 8e-4, 2e-4),
    Goal("sampled", 40, 5e-4, 1e-4),
)


def jobs() -> list[Job]:
    """Return every run."""
    return [job for arm in ARMS for job in arm.jobs()]


def estimate(folder: Path = results.FOLDER) -> float:
    """Return about how many seconds of wall clock are left to measure."""
    return seconds_left(jobs(), folder)


def measure(folder: Path = results.FOLDER, runs: Path = RUNS) -> None:
    """Measure what is missing."""
    train_missing("accuracy", jobs(), folder, runs)
