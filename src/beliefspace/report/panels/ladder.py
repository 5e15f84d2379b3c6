"""The model among reference predictors on the same sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from beliefspace.core.registry import register
from beliefspace.core.statistics import mean_t
from beliefspace.report.context import Context, RunView, arms
from beliefspace.report.parts import Absent, Cell, Row, Section, Table
from beliefspace.report.wording import interval, short
from beliefspace.studies.results import MeasuresView, MeasureView, ScoreView

_QUANTITIES = {
    "kl_bits": Cell("KL(Bayes ‖ it)", "bits"),
    "entropy_error_bits": Cell("entropy error", "bits"),
    "total_variation": Cell("total variation"),
    "excess_cross_entropy_bits": Cell("excess cross-entropy", "bits"),
    "accuracy": Cell("accuracy"),
}
"""Heading of each quantity; those of categorical outcomes stand only where there are such."""

_WORST = Cell("worst KL", "bits @ place")
_LEAKED = Cell("leaked mass")


@register("panels", "ladder")
def ladder(context: Context) -> Section | Absent:
    """Set each model beside the reference predictors, closest to Bayes first."""
    groups = context.scored()
    if not groups:
        return Absent("no run has a final score")
    parts: list[Table | None] = []
    for number, runs in enumerate(groups, start=1):
        parts.append(_table(runs, f"ladder-{number}"))
        parts.append(_alternatives(runs, f"other-posteriors-{number}"))
    return Section("Ladder", tuple(part for part in parts if part is not None))


def _table(runs: tuple[RunView, ...], name: str) -> Table:
    score = _score(runs[0])
    models = [row for arm, members in arms(runs).items() for row in _arm_rows(arm, members)]
    rungs = sorted(score.ladder.items(), key=lambda rung: (_nan_last(rung[1]), rung[0]))
    references = [Row(_cells(name, "", rung, with_interval=False)) for name, rung in rungs]
    several = any(len(members) > 1 for members in arms(runs).values())
    return Table(
        name,
        _columns(score.measures),
        (*models, *references),
        f"Mean over {score.protocol}, on {runs[0].described('task')}. Brackets: 95 % bootstrap "
        "interval over sequences"
        + (", and for a mean over seeds Student's t over seeds." if several else ".")
        + " KL to Bayes is 0 only for the exact predictive; entropy error can be 0 for a predictor "
        "that knows the position and nothing else. Worst KL: the largest mean at a position."
        f"{_about_leaks(score)} Evaluation set {score.evaluation_hash[:12]}.",
    )


def _columns(measures: MeasuresView) -> tuple[Cell, ...]:
    headings = (_QUANTITIES[name] for name in _present(measures))
    return (Cell("predictor"), *headings, _WORST, *((_LEAKED,) if _leaks(measures) else ()))


def _present(measures: MeasuresView) -> list[str]:
    return [name for name in _QUANTITIES if name in measures]


def _leaks(measures: MeasuresView) -> list[float]:
    """The leaked mass, or nothing where outcomes are not categorical and none can leak."""
    parts = [
        measures[name].mean for name in ("leaked_inside", "leaked_outside") if name in measures
    ]
    return [sum(parts)] if parts else []


def _about_leaks(score: ScoreView) -> str:
    if not _leaks(score.measures):
        return ""
    outside = ", or outside the task's outcomes" if score.support == "vocabulary" else ""
    return f" Leaked mass: on outcomes that Bayes rules out{outside}."


def _arm_rows(arm: str, members: Sequence[RunView]) -> list[Row]:
    """Return one row for a single run; for several, their mean and then each."""
    if len(members) == 1:
        seed = members[0].seed
        detail = "one seed" if seed is None else f"one seed ({seed})"
        return [Row(_cells(arm, detail, _score(members[0]).measures), strong=True)]
    seeds = {run.seed for run in members}
    by_seed = len(seeds) == len(members) and None not in seeds
    measures = [_score(run).measures for run in members]
    means = [_over_runs([one[name].mean for one in measures]) for name in _present(measures[0])]
    worst = max((one["kl_bits"] for one in measures), key=lambda one: one.worst)
    leaked = np.mean([_leaks(one) for one in measures], axis=0).tolist()
    first = Cell(arm, f"mean of {len(members)} {'seeds' if by_seed else 'runs'}")
    cells = (first, *means, _worst(worst), *map(_mass, leaked))
    each = [
        Row(_cells(f"seed {run.seed}" if by_seed else run.label, "", one))
        for run, one in zip(members, measures, strict=True)
    ]
    return [Row(cells, strong=True), *each]


def _over_runs(values: list[float]) -> Cell:
    if any(math.isnan(value) for value in values):
        return Cell(short(math.nan))
    estimate = mean_t(np.array(values))
    bounds = estimate.interval
    detail = interval(bounds.low, bounds.high) if bounds is not None else ""
    return Cell(short(estimate.mean), detail, estimate.mean)


def _cells(
    name: str, detail: str, measures: MeasuresView, *, with_interval: bool = True
) -> tuple[Cell, ...]:
    return (
        Cell(name, detail),
        *(_cell(measures[quantity], with_interval) for quantity in _present(measures)),
        _worst(measures["kl_bits"]),
        *map(_mass, _leaks(measures)),
    )


def _cell(one: MeasureView, with_interval: bool) -> Cell:
    detail = interval(one.low, one.high) if with_interval and not math.isnan(one.mean) else ""
    return Cell(short(one.mean), detail, one.mean)


def _worst(one: MeasureView) -> Cell:
    place = f"@ {one.worst_position}"
    return Cell(f"{short(one.worst)} {place}", value=f"{one.worst} {place}")


def _mass(leaked: float) -> Cell:
    return Cell(short(leaked), value=leaked)


def _nan_last(rung: MeasuresView) -> float:
    kl = rung["kl_bits"].mean
    return math.inf if math.isnan(kl) else kl


def _alternatives(runs: tuple[RunView, ...], name: str) -> Table | None:
    """Distances from the exact predictives under other priors, where the task has some."""
    names = tuple(_score(runs[0]).alternatives)
    if not names:
        return None
    rows = []
    for run in runs:
        score = _score(run)
        own = _cell(score.measures["kl_bits"], with_interval=True)
        others = (_cell(score.alternatives[other], with_interval=True) for other in names)
        rows.append(Row((Cell(run.label), own, *others), strong=True))
    return Table(
        name,
        (Cell("model"), Cell("task's prior", "bits"), *(Cell(other, "bits") for other in names)),
        tuple(rows),
        "KL(Bayes ‖ model) where Bayes starts from the task's own prior or from another one that "
        f"the model may have learned instead; on {_score(runs[0]).protocol}.",
    )


def _score(run: RunView) -> ScoreView:
    assert run.score is not None
    return run.score
