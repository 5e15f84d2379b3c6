"""The main job: train in front of the user, and say how far from Bayes the models are, in bits.

Two transformers learn the full-size bijection side by side, one from sampled outcomes (the
published claim), one from the exact predictive; both are scored on fresh sequences, with the
ladder on the same sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beliefspace.core.store import Run
from beliefspace.studies.bijection import TASK, recipe
from beliefspace.studies.results import read_result
from beliefspace.windtunnel.experiment import run_recipes
from beliefspace.windtunnel.recipe import recipe_of

__all__ = ["HEADERS", "Demo", "train_demo"]

Observer = Callable[[str, Mapping[str, Any]], None]

HEADERS = ("predictor", "KL(Bayes to it), bits", "entropy error, bits", "worst KL")
"""What stands over :meth:`Demo.rows`."""


@dataclass(frozen=True)
class Demo:
    """What was trained.

    Attributes:
        runs: the finished runs, by arm ("sampled", "posterior").
    """

    runs: Mapping[str, Run]

    def results(self) -> dict[str, dict[str, Any]]:
        """Return what each run found (result.json), by arm."""
        return {name: read_result(run).content for name, run in self.runs.items()}

    def rows(self) -> list[tuple[str, ...]]:
        """Return a table as text: the arms, then the ladder from far to near."""
        results, table = self.results(), []
        for name, result in results.items():
            minutes = result["training"]["cpu_seconds"] / 60
            label = f"transformer, {name} targets, {minutes:.1f} CPU min"
            table.append((label, *_cells(result["score"])))
        ladder = results["sampled"]["score"]["ladder"]
        rungs = sorted(ladder.items(), key=lambda item: -float(item[1]["kl_bits"]["mean"]))
        return [*table, *((f"ladder: {name}", *_cells(rung)) for name, rung in rungs)]

    def notes(self) -> list[str]:
        """Return how the numbers came about, a sentence or two each."""
        sequences = self.results()["sampled"]["score"]["sequences"]
        notes = [
            f"Bijection, V = {TASK.values}, {TASK.shown} pairs; {sequences:,} fresh sequences, "
            "all scored positions; one seed."
        ]
        if all(recipe_of(run).balanced for run in self.runs.values()):
            notes.append(
                "Both arms trained on balanced batches: relabellings of one sequence, in which "
                "every value stands equally often at every position."
            )
        notes.append(
            "Brackets: 95 % bootstrap intervals over sequences. Worst KL: at the worst position."
        )
        return notes


def train_demo(out: Path, budget: str, observe: Observer | None = None) -> Demo:
    """Train both arms and score them; a second call goes on after a stop, or has nothing to do.

    Args:
        out: directory of the two runs.
        budget: of each arm; they run at once where there are two cores.
        observe: called with an arm's name and its progress.

    Raises:
        RunExists: ``out`` holds a demo of another budget.
        Interrupted: on Ctrl-C; the same call goes on.
    """
    arms = {"sampled": recipe("sampled", budget), "posterior": recipe("posterior", budget)}
    return Demo(run_recipes(arms, out, observe=observe))


def _cells(score: Mapping[str, Any]) -> tuple[str, str, str]:
    worst = f"{float(score['kl_bits']['worst']):.2g}"
    return _number(score["kl_bits"]), _number(score["entropy_error_bits"]), worst


def _number(measure: Mapping[str, Any]) -> str:
    text, interval = f"{float(measure['mean']):.2g}", measure["interval"]
    if interval is None or f"{interval['low']:.2g}" == f"{interval['high']:.2g}":
        return text
    return f"{text} [{interval['low']:.2g}, {interval['high']:.2g}]"
