"""Train what is not measured yet, side by side, and keep each run's figures when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beliefspace.cli.console import Progress
from beliefspace.core.config import content_hash
from beliefspace.core.store import Run
from beliefspace.studies.results import read_result
from beliefspace.windtunnel.experiment import run_recipes
from beliefspace.windtunnel.recipe import Recipe, parse_budget
from benchmarks import results

RUNS = Path(__file__).parents[1] / "runs" / "benchmarks"
WORKERS = 2
AROUND_A_RUN_S = 10.0
"""Wall clock that a run takes beside its training: to start, to time its steps, to be scored."""


@dataclass(frozen=True)
class Job:
    """One training run to be measured.

    Args:
        name: of its result, such as "accuracy/sampled-6min/seed-0".
        recipe: what is trained; its budget is of CPU time.
        facts: what the result is called in tables.
    """

    name: str
    recipe: Recipe
    facts: Mapping[str, Any]

    @property
    def identity(self) -> str:
        """Hash of the recipe."""
        return content_hash(self.recipe)

    @property
    def place(self) -> str:
        """Name of its run; another recipe's run is elsewhere."""
        return f"{self.name}-{self.identity[:8]}"

    @property
    def seconds(self) -> float:
        """About how long it takes on a core of its own."""
        return parse_budget(self.recipe.schedule.budget).amount + AROUND_A_RUN_S


def missing(jobs: list[Job], folder: Path) -> list[Job]:
    """Return the jobs without a result, longest first: so the last ones end together."""
    waiting = [job for job in jobs if not results.is_kept(folder, job.name, job.identity)]
    return sorted(waiting, key=lambda job: -job.seconds)


def seconds_left(jobs: list[Job], folder: Path) -> float:
    """Estimate the wall clock of what is missing, on cores that nothing else wants."""
    waiting = [job.seconds for job in missing(jobs, folder)]
    return max(sum(waiting) / WORKERS, max(waiting, default=0.0))


def train_missing(part: str, jobs: list[Job], folder: Path, runs: Path = RUNS) -> None:
    """Train the jobs without a result, and write each result when it is there.

    Args:
        part: the first word of the jobs' names; its other results are removed.
        jobs: all of the part.
        folder: of results.
        runs: where runs are kept; stopped ones are resumed.

    Raises:
        Interrupted: on Ctrl-C; the same call goes on.
    """
    results.drop_others(folder, part, {job.name: job.identity for job in jobs})
    waiting = {job.place: job for job in missing(jobs, folder)}
    if not waiting:
        return
    recipes = {place: job.recipe for place, job in waiting.items()}
    try:
        with Progress(list(recipes)) as progress:

            def observe(place: str, report: Mapping[str, Any]) -> None:
                progress.observe(place, report)
                # The run that reports goes on; others may have ended since.
                _collect(waiting, folder, runs)

            run_recipes(recipes, runs, workers=WORKERS, observe=observe)
    finally:
        _collect(waiting, folder, runs)


def _collect(waiting: dict[str, Job], folder: Path, runs: Path) -> None:
    """Keep the results of the runs that ended, and wait for them no more."""
    for place, job in list(waiting.items()):
        if not (runs / place / "result.json").exists():
            continue
        run = Run.open(runs / place)
        if run.status == "finished":
            memory = read_result(run).score.memory
            facts = {**job.facts, **figures(run.result()), "memory": memory and str(memory)}
            results.keep(folder, job.name, job.identity, facts)
            del waiting[place]


def figures(result: Mapping[str, Any]) -> dict[str, Any]:
    """Pick from a run's result what the tables show."""
    score = result["score"]
    kept = ("mean", "interval", "worst", "worst_position")
    measures = {
        name: {key: score[name][key] for key in kept} for name in ("kl_bits", "entropy_error_bits")
    }
    return {
        **measures,
        "ladder": {name: rung["kl_bits"]["mean"] for name, rung in score["ladder"].items()},
        "sequences_scored": score["sequences"],
        "training": result["training"],
    }
