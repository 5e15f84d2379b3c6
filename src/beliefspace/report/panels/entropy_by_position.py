"""Where in the sequence the model departs from Bayes."""

from __future__ import annotations

from beliefspace.core.registry import register
from beliefspace.report.context import Context, RunView
from beliefspace.report.figures import Profile, edge_note
from beliefspace.report.figures import entropy_by_position as draw
from beliefspace.report.parts import Absent, Figure, Section
from beliefspace.report.wording import plural

_FAINT = "position entropy"


@register("panels", "entropy-by-position")
def entropy_by_position(context: Context) -> Section | Absent:
    """Draw entropies of model and Bayes at each scored position, and the distances below."""
    groups = context.scored()
    if not groups:
        return Absent("no run has a final score")
    figures = [_figure(runs, f"entropy-by-position-{i}") for i, runs in enumerate(groups, start=1)]
    return Section("Entropy by position", tuple(figures))


def _figure(runs: tuple[RunView, ...], name: str) -> Figure:
    score = runs[0].score
    assert score is not None
    profiles = [_profile(run) for run in runs]
    faint = score.ladder.get(_FAINT)
    task = runs[0].described("task")
    drawing = draw(
        score.positions,
        score.bayes_entropy_bits,
        profiles,
        None if faint is None else faint["entropy_bits"].by_position,
    )
    reference = (
        ' "Position entropy" knows the position and nothing else: where it matches Bayes, '
        "entropy alone shows no inference."
        if faint is not None
        else ""
    )
    edges = edge_note([v for p in profiles for v in (*p.kl_bits, *p.entropy_error_bits)])
    return Figure(
        name,
        drawing,
        f"Entropy by position of {plural(len(runs), 'run')} on {task}",
        f"On {task}. Above: entropy of the model's and of the exact predictive at each scored "
        f"position, mean over {score.protocol}.{reference} Below: KL(Bayes ‖ model) and the mean "
        f"over sequences of the absolute difference of entropies, in bits."
        f"{_seeds(runs)}{edges}",
    )


def _profile(run: RunView) -> Profile:
    assert run.score is not None
    one = run.score.measures
    names = ("entropy_bits", "entropy_error_bits", "kl_bits")
    return Profile(run.arm, *(one[name].by_position for name in names))


def _seeds(runs: tuple[RunView, ...]) -> str:
    if len(runs) == 1:
        return " One seed."
    return " One line a run."
