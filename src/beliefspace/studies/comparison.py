"""Runs side by side: a row per arm, means over seeds with intervals, paired tests between arms.

Runs that differ in nothing but their seed are one arm. Two arms are compared on the seeds they
share, in which both saw the same data; p-values are adjusted for the number of comparisons (Holm).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from beliefspace.core.config import from_toml, to_dict
from beliefspace.core.errors import InvalidInput, unknown_name
from beliefspace.core.jsonable import jsonable
from beliefspace.core.statistics import Comparison, Estimate, holm, mean_t, paired_comparison
from beliefspace.core.store import Run
from beliefspace.windtunnel.recipe import Recipe, parse_budget

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

    def to_markdown(self) -> str:
        """Return the table of arms, the paired tests, and what limits them."""
        lines = [f"| arm | {self.metric}, mean | 95 % interval | worst seed | seeds | targets |"]
        lines.append("|---|---|---|---|---|---|")
        for arm in self.arms:
            numbers = f"{arm.estimate.mean:.3g} | {arm.bounds} | {arm.worst:.3g}"
            lines.append(f"| {arm.label} | {numbers} | {len(arm.values)} | {arm.targets} |")
        for pair in self.pairs:
            one = pair.comparison
            lines.append(
                f"\n{pair.first} minus {pair.second}: {one.difference:+.3g} "
                f"over {one.count} seeds, p = {pair.adjusted_p_value:.3g} ({one.method}, Holm)"
            )
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)])


def compare(runs: Sequence[Run] | Mapping[str, Run], metric: str = "kl_bits") -> ComparisonTable:
    """Compare finished runs.

    Args:
        runs: two or more, or what :func:`beliefspace.windtunnel.experiment.train` returned.
        metric: a measure of the score, such as "kl_bits", "entropy_error_bits" or
            "total_variation".

    Raises:
        InvalidInput: fewer than two runs, an unfinished one, or one scored on another evaluation
            set.
    """
    listed = list(runs.values()) if isinstance(runs, Mapping) else list(runs)
    if len(listed) < 2:
        raise InvalidInput(f"a comparison needs 2 runs or more; got {len(listed)}")
    results = [_finished(run) for run in listed]
    _check_same_set(listed, results)
    values = [_value(result, metric) for result in results]
    flats = [_flat(_settings(run)) for run in listed]
    seeds = [flat.pop("seed") for flat in flats]
    groups: dict[str, list[int]] = {}
    for index, flat in enumerate(flats):
        groups.setdefault(repr(sorted(flat.items())), []).append(index)
    labels = _labels([flats[members[0]] for members in groups.values()])
    less_is_better = metric not in _MORE_IS_BETTER
    worst = max if less_is_better else min
    arms = [
        _arm(label, [(seeds[i], values[i], results[i]["training"]) for i in members], worst)
        for label, members in zip(labels, groups.values(), strict=True)
    ]
    arms.sort(key=lambda arm: arm.estimate.mean, reverse=not less_is_better)
    pairs, notes = _pairs(arms)
    return ComparisonTable(metric, tuple(arms), pairs, notes)


def _finished(run: Run) -> dict[str, Any]:
    if run.status != "finished":
        raise InvalidInput(
            f"{run.path} is {run.status}, not finished; go on with: beliefspace resume {run.path}"
        )
    return run.result()


def _check_same_set(runs: Sequence[Run], results: Sequence[Mapping[str, Any]]) -> None:
    hashes = [result["score"]["evaluation_hash"] for result in results]
    for run, one in zip(runs, hashes, strict=True):
        if one != hashes[0]:
            raise InvalidInput(
                f"{runs[0].path} and {run.path} were scored on different sequences; "
                "compare runs of one task and one evaluation seed"
            )


def _value(result: Mapping[str, Any], metric: str) -> float:
    measures = {k: v for k, v in result["score"].items() if isinstance(v, dict) and "mean" in v}
    if metric not in measures:
        raise unknown_name("metric", metric, measures)
    return float(measures[metric]["mean"])


def _settings(run: Run) -> dict[str, Any]:
    recipe = from_toml(Recipe, run.config_toml(), where=str(run.path / "config.toml"))
    settings = to_dict(recipe)
    # The steps of a time budget vary with the machine's mood; the budget is the setting.
    if "seconds" in parse_budget(recipe.schedule.budget).unit:
        settings["schedule"].pop("steps", None)
    settings.pop("hardware")
    return settings


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _labels(arms: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name each arm by the settings that set it apart from the others.

    A setting is compared between arms that choose the same kinds: the width of one kind of model
    says nothing beside the memory of another, and the kinds themselves are named.
    """
    every = sorted(set().union(*arms))
    labels = []
    for arm in arms:
        parts = []
        for name in every:
            peers = [other for other in arms if _kinds(other, name) == _kinds(arm, name)]
            if len({repr(other.get(name)) for other in peers}) > 1:
                parts.append(f"{name}={arm.get(name, 'none')}")
        labels.append(", ".join(parts) or arm["model.kind"])
    return labels


def _kinds(arm: Mapping[str, Any], name: str) -> list[Any]:
    """Return the kinds of the tables that a setting stands in."""
    tables = itertools.accumulate(name.split(".")[:-1], "{}.{}".format)
    return [arm.get(f"{table}.kind") for table in tables if f"{table}.kind" != name]


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
