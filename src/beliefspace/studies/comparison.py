"""Runs side by side: one row per arm, means over seeds with intervals, and paired tests between arms.

Runs that differ in nothing but their seed are one arm. Two arms are compared on the seeds they share, in which both saw the same
data; p-values are adjusted for the number of comparisons (Holm).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from beliefspace.core.config import from_toml, to_dict
from beliefspace.core.errors import InvalidInput, unknown_name
from beliefspace.core.jsonable import jsonable
from beliefspace.core.statistics import Comparison, Estimate, holm, mean_t, paired_comparison
from beliefspace.core.store import Run
from beliefspace.windtunnel.recipe import Recipe


@dataclass(frozen=True)
class Arm:
    """Runs that differ in their seed alone.

    Attributes:
        label: the settings in which the arms differ.
        values: the metric by seed.
        estimate: its mean over seeds, with a t interval where there are two seeds or more.
        worst: the largest value over seeds.
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
        plain: dict[str, Any] = jsonable(self)
        return plain

    def to_markdown(self) -> str:
        """Return the table of arms, the paired tests, and what limits them."""
        lines = [f"| arm | {self.metric}, mean | 95 % interval | worst seed | seeds | targets |"]
        lines.append("|---|---|---|---|---|---|")
        for arm in self.arms:
            interval = arm.estimate.interval
            bounds = f"{interval.low:.3g} to {interval.high:.3g}" if interval else "one seed"
            numbers = f"{arm.estimate.mean:.3g} | {bounds} | {arm.worst:.3g} | {len(arm.values)}"
            lines.append(f"| {arm.label} | {numbers} | {arm.targets} |")
        for pair in self.pairs:
            one = pair.comparison
            lines.append(
                f"\n{pair.first} minus {pair.second}: {one.difference:+.3g} over {one.count} seeds, "
                f"p = {pair.adjusted_p_value:.3g} ({one.method}, Holm)"
            )
        return "\n".join([*lines, *(f"\n{note}" for note in self.notes)])


def compare(runs: Sequence[Run] | Mapping[str, Run], metric: str = "kl_bits") -> ComparisonTable:
    """Compare finished runs.

    Args:
        runs: two or more, or what :func:`beliefspace.windtunnel.experiment.train` returned.
        metric: a measure of the score, such as "kl_bits", "entropy_error_bits" or "total_variation".

    Raises:
        InvalidInput: fewer than two runs, an unfinished one, or one scored on another evaluation set.
    """
    listed = list(runs.values()) if isinstance(runs, Mapping) else list(runs)
    if len(listed) < 2:
        raise InvalidInput(f"a comparison needs 2 runs or more; got {len(listed)}")
    results = [_finished(run) for run in listed]
    _check_same_set(listed, results)
    values = [_value(result, metric) for result in results]
    flats = [_flat(_settings(run)) for run in listed]
    groups: dict[tuple[tuple[str, Any], ...], list[int]] = {}
    for index, flat in enumerate(flats):
        key = tuple(sorted((k, repr(v)) for k, v in flat.items() if k != "seed"))
        groups.setdefault(key, []).append(index)
    labels = _labels(groups, listed)
    arms = [
        _arm(label, [(flats[i], results[i], values[i]) for i in members])
        for label, members in zip(labels, groups.values(), strict=True)
    ]
    arms.sort(key=lambda arm: arm.estimate.mean)
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
                f"{runs[0].path} and {run.path} were scored on different sequences; compare runs of one "
                "task and one evaluation seed"
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


def _labels(
    groups: Mapping[tuple[tuple[str, Any], ...], list[int]], runs: Sequence[Run]
) -> list[str]:
    """Name each arm by the settings that not all arms share."""
    if len(groups) == 1:
        return [runs[0].path.name]
    shared = set.intersection(*(set(key) for key in groups))
    return [
        ", ".join(f"{k}={v.strip(chr(39))}" for k, v in key if (k, v) not in shared) or "default"
        for key in groups
    ]


def _arm(label: str, members: list[tuple[dict[str, Any], dict[str, Any], float]]) -> Arm:
    values = {flat["seed"]: value for flat, _, value in members}
    if len(values) < len(members):
        raise InvalidInput(f"two runs of the arm {label!r} have the same seed; give each run once")
    training = [result["training"] for _, result, _ in members]
    return Arm(
        label,
        values,
        mean_t(np.array(list(values.values()))),
        max(values.values()),
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
        if np.isfinite(a).all() and np.isfinite(b).all():
            found.append((one.label, other.label, paired_comparison(a, b)))
    if not found:
        return (), tuple(notes)
    adjusted = holm(np.array([comparison.p_value for _, _, comparison in found]))
    pairs = tuple(Pair(*one, float(p)) for one, p in zip(found, adjusted, strict=True))
    return pairs, tuple(notes)
