"""Runs side by side: a row per arm, means over seeds with intervals, paired tests between arms.

Runs that differ in nothing but their seed and where they ran are one arm. Two arms are compared on
the seeds they share, in which both saw the same data; p-values are adjusted for the number of
comparisons (Holm).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from beliefspace.core.errors import InvalidInput, unknown_name
from beliefspace.core.jsonable import jsonable
from beliefspace.core.statistics import Comparison, Estimate, holm, mean_t, paired_comparison
from beliefspace.core.store import Run
from beliefspace.studies.arms import canonical, flat, setting_apart
from beliefspace.studies.results import Result, read_result
from beliefspace.windtunnel.recipe import arm_settings, recipe_of

_MORE_IS_BETTER = ("accuracy",)


@dataclass(frozen=True)
class Arm:
    """Runs that differ in their seed alone.

    Attributes:
        label: the settings in which the arms differ; the kind of model where there is one arm.
        values: the metric by seed.
        estimate: its mean over seeds, with a t interval where there are two seeds or more.
        worst: the value of the worst seed.
        targets: "sampled" or "posterior": what the runs were trained on.
        predictions: scored positions seen in training, per run.
        cpu_seconds: of training, mean over runs.
    """

    label: str
    values: Mapping[int, float]
    estimate: Estimate
    worst: float
    targets: str
    predictions: float
    cpu_seconds: float

    @property
    def bounds(self) -> str:
        """The interval in words, or why there is none."""
        interval = self.estimate.interval
        if interval is not None:
            return f"{interval.low:.3g} to {interval.high:.3g}"
        return "one seed" if len(self.values) == 1 else "infinite"


@dataclass(frozen=True)
class Pair:
    """Two arms compared on the seeds that both have."""

    first: str
    second: str
    comparison: Comparison
    adjusted_p_value: float


@dataclass(frozen=True)
class ComparisonTable:
    """What :func:`compare` found; arms in order of the metric, best first."""

    metric: str
    arms: tuple[Arm, ...]
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return cast("dict[str, Any]", jsonable(self))

    @property
    def headers(self) -> tuple[str, ...]:
        """What stands over :meth:`rows`."""
        return ("arm", f"{self.metric}, mean", "95 % interval", "worst seed", "seeds", "targets")

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row an arm, as text."""
        return [
            (
                arm.label,
                f"{arm.estimate.mean:.3g}",
                arm.bounds,
                f"{arm.worst:.3g}",
                str(len(arm.values)),
                arm.targets,
            )
            for arm in self.arms
        ]

    def remarks(self) -> list[str]:
        """Return the paired tests in words, and what limits them."""
        tests = [
            f"{pair.first} minus {pair.second}: {pair.comparison.difference:+.3g} over "
            f"{pair.comparison.count} seeds, p = {pair.adjusted_p_value:.3g} "
            f"({pair.comparison.method}, Holm)"
            for pair in self.pairs
        ]
        return [*tests, *self.notes]

    def to_markdown(self) -> str:
        """Return the table of arms, the paired tests, and what limits them."""
        head = (self.headers, ("---",) * len(self.headers))
        lines = ["| " + " | ".join(row) + " |" for row in (*head, *self.rows())]
        return "\n".join([*lines, *(f"\n{remark}" for remark in self.remarks())])


def compare(runs: Sequence[Run] | Mapping[str, Run], metric: str = "kl_bits") -> ComparisonTable:
    """Compare finished runs.

    Args:
        runs: two or more, or what :func:`beliefspace.windtunnel.experiment.train` returned.
        metric: a measure of the score, such as "kl_bits", "entropy_error_bits" or
            "total_variation".

    Raises:
        InvalidInput: fewer than two runs, an unfinished one, or one scored on another evaluation
            set.
        CorruptFile: a result cannot be read, or belongs to another recipe than the run's.
    """
    listed = list(runs.values()) if isinstance(runs, Mapping) else list(runs)
    if len(listed) < 2:
        raise InvalidInput(f"a comparison needs 2 runs or more; got {len(listed)}")
    results = [_finished(run) for run in listed]
    _check_same_set(listed, results)
    values = [_value(result, metric) for result in results]
    recipes = [recipe_of(run) for run in listed]
    seeds = [recipe.seed for recipe in recipes]
    settings = [arm_settings(recipe) for recipe in recipes]
    groups: dict[str, list[int]] = {}
    for index, one in enumerate(settings):
        groups.setdefault(canonical(one), []).append(index)
    labels = _labels([flat(settings[members[0]]) for members in groups.values()])
    less_is_better = metric not in _MORE_IS_BETTER
    worst = max if less_is_better else min
    arms = [
        _arm(label, [(seeds[i], values[i], results[i].content["training"]) for i in members], worst)
        for label, members in zip(labels, groups.values(), strict=True)
    ]
    arms.sort(key=lambda arm: arm.estimate.mean, reverse=not less_is_better)
    pairs, notes = _pairs(arms)
    return ComparisonTable(metric, tuple(arms), pairs, notes)


def _finished(run: Run) -> Result:
    if run.status != "finished":
        raise InvalidInput(
            f"{run.path} is {run.status}, not finished; go on with: beliefspace resume {run.path}"
        )
    return read_result(run)


def _check_same_set(runs: Sequence[Run], results: Sequence[Result]) -> None:
    hashes = [result.score.evaluation_hash for result in results]
    for run, one in zip(runs, hashes, strict=True):
        if one != hashes[0]:
            raise InvalidInput(
                f"{runs[0].path} and {run.path} were scored on different sequences; "
                "compare runs of one task and one evaluation seed"
            )


def _value(result: Result, metric: str) -> float:
    measures = result.score.measures
    if metric not in measures:
        raise unknown_name("metric", metric, measures)
    return measures[metric].mean


def _labels(arms: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name each arm by the settings that set it apart; a single one by its kind of model."""
    return [
        ", ".join(f"{name}={'none' if value is None else value}" for name, value in own.items())
        or str(arm["model.kind"])
        for arm, own in zip(arms, setting_apart(arms), strict=True)
    ]


def _arm(
    label: str,
    members: Sequence[tuple[int, float, Mapping[str, Any]]],
    worst: Callable[[Iterable[float]], float],
) -> Arm:
    values = {seed: value for seed, value, _ in members}
    if len(values) < len(members):
        raise InvalidInput(f"two runs of the arm {label!r} have the same seed; give each run once")
    training = [one for _, _, one in members]
    return Arm(
        label,
        values,
        mean_t(np.array(list(values.values()))),
        worst(values.values()),
        training[0]["targets"],
        float(np.mean([one["predictions"] for one in training])),
        float(np.mean([one["cpu_seconds"] for one in training])),
    )


def _pairs(arms: Sequence[Arm]) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
    found, notes = [], []
    for one, other in itertools.combinations(arms, 2):
        shared = sorted(set(one.values) & set(other.values))
        if len(shared) < 2:
            notes.append(f"{one.label} and {other.label} share {len(shared)} seeds: no paired test")
            continue
        a, b = (np.array([arm.values[seed] for seed in shared]) for arm in (one, other))
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            notes.append(f"{one.label} or {other.label} is infinite for a seed: no paired test")
            continue
        found.append((one.label, other.label, paired_comparison(a, b)))
    if not found:
        return (), tuple(notes)
    adjusted = holm(np.array([comparison.p_value for _, _, comparison in found]))
    pairs = tuple(Pair(*one, float(p)) for one, p in zip(found, adjusted, strict=True))
    return pairs, tuple(notes)
