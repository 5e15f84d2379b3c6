"""The main job: train in front of the user, and say how far from Bayes the models are, in bits.

Two transformers learn the full-size bijection side by side, one from sampled outcomes (the
published claim), one from the exact predictive; both are scored on fresh sequences, with the
ladder on the same sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from beliefspace.core.store import Run
from beliefspace.studies.bijection import TASK, recipe
from beliefspace.windtunnel.experiment import run_recipes

__all__ = ["HEADERS", "notes", "rows", "train_arms"]

Observer = Callable[[str, Mapping[str, Any]], None]

HEADERS = ("predictor", "KL(Bayes to it), bits", "entropy error, bits", "worst KL")
"""What stands over :func:`rows`."""

_ARMS = {"sampled": recipe("sampled", "4min"), "posterior": recipe("posterior", "4min")}


def train_arms(out: Path, budget: str, observe: Observer | None = None) -> dict[str, Run]:
    """Train both arms and score them; a second call goes on after a stop, or has nothing to do.

    Args:
        out: directory of the two runs.
        budget: of each arm; they run at once where there are two cores.
        observe: called with an arm's name and its progress.

    Returns:
        The finished runs, by arm.

    Raises:
        RunExists: ``out`` holds a demo of another budget.
        Interrupted: on Ctrl-C; the same call goes on.
    """
    arms = {"sampled": recipe("sampled", budget), "posterior": recipe("posterior", budget)}
    return run_recipes(arms, out, observe=observe)


def rows(results: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return a table as text: the arms, then the ladder from far to near.

    Args:
        results: what each arm's run found (result.json), by arm.
    """
    table: list[tuple[str, ...]] = []
    for name, result in results.items():
        minutes = result["training"]["cpu_seconds"] / 60
        label = f"transformer, {name} targets, {minutes:.1f} CPU min"
        table.append((label, *_cells(result["score"])))
    ladder = next(iter(results.values()))["score"]["ladder"]
    rungs = sorted(ladder.items(), key=lambda item: -float(item[1]["kl_bits"]["mean"]))
    return [*table, *((f"ladder: {name}", *_cells(rung)) for name, rung in rungs)]


def notes(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return how the table was measured, a line each; results as for :func:`rows`."""
    score = next(iter(results.values()))["score"]
    return [
        f"Bijection, V = {TASK.values}, {TASK.shown} pairs; {score['sequences']:,} fresh sequences, "
        "all scored positions; one seed.",
        "Both arms trained on balanced batches: relabellings of one sequence, in which every value "
        "stands equally often at every position.",
        "Brackets: 95 % bootstrap intervals over sequences. Worst KL: at the worst position.",
    ]


def _cells(score: Mapping[str, Any]) -> tuple[str, str, str]:
    worst = f"{float(score['kl_bits']['worst']):.2g}"
    return _number(score["kl_bits"]), _number(score["entropy_error_bits"]), worst


def _number(measure: Mapping[str, Any]) -> str:
    text, interval = f"{float(measure['mean']):.2g}", measure["interval"]
    if interval is None or f"{interval['low']:.2g}" == f"{interval['high']:.2g}":
        return text
    return f"{text} [{interval['low']:.2g}, {interval['high']:.2g}]"
