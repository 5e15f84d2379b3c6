"""How far back a model remembers: what its error is worth, and what changes its belief."""

from __future__ import annotations

from beliefspace.core.registry import register
from beliefspace.report.context import Context, RunView, arms
from beliefspace.report.figures import Influence, edge_note, influence_by_lag, slope_note
from beliefspace.report.parts import Absent, Cell, Figure, Row, Section, Table
from beliefspace.report.wording import ABSENT, plural
from beliefspace.windtunnel.memory import LEAST_CORRELATION, SLOPES, Memory

_RIGHT = f"slope {SLOPES[0]:g} to {SLOPES[1]:g}, correlation at least {LEAST_CORRELATION:g}"


@register("panels", "memory")
def memory(context: Context) -> Section | Absent:
    """Set the window that a model's error is worth beside the lags at which its belief is right."""
    groups = [tuple(run for run in group if _has_memory(run)) for group in context.scored()]
    parts: list[Table | Figure] = []
    for number, runs in enumerate(filter(None, groups), start=1):
        parts.append(_table(runs, f"memory-{number}"))
        if any(_memory(run).influence for run in runs):
            parts.append(_figure(runs, f"influence-{number}"))
    if not parts:
        return Absent("no run was scored on a task whose exact belief is a filter")
    return Section("Memory", tuple(parts))


def _has_memory(run: RunView) -> bool:
    return run.score is not None and run.score.memory is not None


def _memory(run: RunView) -> Memory:
    assert run.score is not None
    assert run.score.memory is not None
    return run.score.memory


def _table(runs: tuple[RunView, ...], name: str) -> Table:
    assert runs[0].score is not None
    restarts = list(dict.fromkeys(r for run in runs for r in _memory(run).window_equivalent))
    lone = {members[0].name for members in arms(runs).values() if len(members) == 1}
    return Table(
        name,
        (
            Cell("model"),
            *(Cell("window-equivalent", f"{restart} restart") for restart in restarts),
            Cell("influence right", "to lag"),
            Cell("could be shown", "to lag"),
            Cell("sequences", "of influence"),
        ),
        tuple(_row(run, restarts, alone=run.name in lone) for run in runs),
        f"Window-equivalent, over {runs[0].score.protocol}, on {runs[0].described('task')}: the "
        "fewest last observations with which the exact filter, started anew before them, is at "
        "most as far from Bayes as the model; where it is all of them, only the exact filter is. "
        "In brackets: the same at both ends of the 95 % interval of the model's KL. "
        f"Influence is right to a lag if it is at each lag measured up to it ({_RIGHT}); it could "
        "be shown as far as the exact filter is right when noise brings it as far from Bayes as "
        "the model. Window and influence can disagree: an error as small as that of a window need "
        "not come from one.",
    )


def _row(run: RunView, restarts: list[str], *, alone: bool) -> Row:
    own = _memory(run)
    seed = "one seed" if run.seed is None else f"one seed ({run.seed})"
    return Row(
        (
            Cell(run.arm, seed) if alone else Cell(run.label),
            *(_window(own, restart) for restart in restarts),
            *map(_lag, (own.reach, own.shown)),
            Cell(f"{own.sequences:,}", value=own.sequences),
        )
    )


def _lag(lag: int | None) -> Cell:
    return Cell("none") if lag is None else Cell(str(lag), value=lag)


def _window(own: Memory, restart: str) -> Cell:
    window = own.window_equivalent.get(restart)
    if window is None:
        return Cell(ABSENT)
    low, high = own.window_interval.get(restart, (window, window))
    return Cell(f"{window} of {own.steps}", f"[{low}, {high}]", window)


def _figure(runs: tuple[RunView, ...], name: str) -> Figure:
    influences = [_influence(run) for run in runs]
    sizes = sorted({_memory(run).sequences for run in runs})
    task = runs[0].described("task")
    return Figure(
        name,
        influence_by_lag(influences),
        f"Influence of an observation by lag, of {plural(len(runs), 'run')} on {task}",
        f"On {task}. One observation is replaced by another, and the change of the model's belief "
        "at the last step, in probability, is regressed on that of the exact belief, over "
        f"{' or '.join(f'{size:,}' for size in sizes)} fresh sequences. Above: slope, with its "
        "95 % bootstrap interval over sequences. Middle: correlation; dashed: that of the exact "
        "filter with noise that brings it as far from Bayes; where that is low, memory cannot be "
        "shown; dotted: with the exact change of another sequence. Grey: where a lag counts as "
        f"right ({_RIGHT}). Below: mean total variation between the exact beliefs before and "
        "after; where it is small, so is what "
        f"remembering is worth. {'One seed.' if len(runs) == 1 else 'One line a run.'}"
        f"{slope_note([slope for one in influences for slope in one.slope])}"
        f"{edge_note([change for one in influences for change in one.exact_change])}",
    )


def _influence(run: RunView) -> Influence:
    lags = _memory(run).influence
    return Influence(
        run.arm,
        [lag.lag for lag in lags],
        [lag.exact_change for lag in lags],
        [lag.slope for lag in lags],
        [lag.slope_interval.low for lag in lags],
        [lag.slope_interval.high for lag in lags],
        [lag.correlation for lag in lags],
        [lag.control_correlation for lag in lags],
        [lag.null_correlation for lag in lags],
    )
