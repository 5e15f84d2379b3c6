"""How far the model was from Bayes as it learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beliefspace.core.registry import register
from beliefspace.report.context import Context, RunView, arms
from beliefspace.report.figures import Curve, edge_note, learning_curves
from beliefspace.report.parts import Absent, Figure, Section
from beliefspace.report.wording import plural

_NEEDED = ("predictions", "kl_bits", "entropy_error_bits")


@register("panels", "learning-curve")
def learning_curve(context: Context) -> Section | Absent:
    """Draw KL and entropy error on validation sequences against predictions seen."""
    figures: list[Figure] = []
    for group in context.by_task():
        runs = tuple(run for run in group if _looks(run))
        if runs:
            figures.append(_figure(runs, f"learning-curve-{len(figures) + 1}"))
    if not figures:
        return Absent("no look at a validation set was recorded")
    return Section("Learning curve", tuple(figures))


def _looks(run: RunView) -> list[Mapping[str, Any]]:
    return [row for row in run.metrics if all(name in row for name in _NEEDED)]


def _figure(runs: tuple[RunView, ...], name: str) -> Figure:
    curves = [_curve(run) for run in runs]
    references = _references(runs)
    edges = edge_note([v for c in curves for v in (*c.kl_bits, *c.entropy_error_bits)])
    task = runs[0].described("task")
    return Figure(
        name,
        learning_curves(curves, references),
        f"Learning curves of {plural(len(runs), 'run')} on {task}",
        f"On {task}. Distance from the exact posterior predictive in bits, on validation "
        f"sequences that stay the same during a run, against the number of predictions trained "
        f"on. {_seeds(runs)}"
        + (" Dotted: reference predictors, on the evaluation set." if references else "")
        + edges,
    )


def _curve(run: RunView) -> Curve:
    rows = _looks(run)
    columns = ([float(row[name]) for row in rows] for name in _NEEDED)
    return Curve(run.arm, *columns)


def _references(runs: tuple[RunView, ...]) -> dict[str, float]:
    """The ladder's KL, where all runs that have a score were scored on the same sequences."""
    scores = [run.score for run in runs if run.score is not None]
    if len({score.evaluation_hash for score in scores}) != 1:
        return {}
    return {name: rung["kl_bits"].mean for name, rung in scores[0].ladder.items()}


def _seeds(runs: tuple[RunView, ...]) -> str:
    counts = {len(group) for group in arms(runs).values()}
    if counts == {1}:
        return "One seed." if len(runs) == 1 else "One seed an arm."
    return "One line a seed."
