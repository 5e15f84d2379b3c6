"""What finished runs say about a claim.

Symbols:
    p             the published value; t its tolerance in the same unit, 0 where none is given
    low, high     bounds of the measured value: Student's 95 % interval over seeds; with one seed
                  the bootstrap interval over evaluation sequences that stands beside the value in
                  the result (the verdict is marked "one seed"); where there is none, the value

Which runs. A run counts if its task equals one of the protocol's in every field and it has the
protocol's settings (so one trained on posterior targets does not count where the claim says
sampled). Unfinished runs never count. Runs of different arms (windtunnel.recipe.arm_settings) are
different experiments and are not pooled: of several groups one decides, by what is known beforehand
and never by its result. It is the one with, in this order, the higher of the levels standard and
paper that its recipe reaches; more training sequences; more seeds; the first path. Within it each
seed counts once (its first path); where a time budget came to different numbers of steps, the
smallest says what the group reaches. A recipe reaches a level if it equals that level's in
everything but seed, hardware and evaluation seed, and has at least its steps, batch and evaluation
sequences.

The status:
    not run       no run counts, or no quantity is defined yet
    agrees        at most: high <= p + t;  at least: low >= p - t;
                  about: p - t <= low and high <= p + t;
                  and the claim's companion quantity, if it has one, is at most its bound
    differs       at most: low > p + t;  at least: high < p - t;
                  about: high < p - t or low > p + t;
                  and the recipe reaches the standard level or more, with that level's seeds
    not shown     anything else: the interval holds the bound; the runs are too small or too few for
                  a miss to count; the companion quantity is too large; or a run that decides has
                  no number to compare, which is never averaged away

Infinity compares as a number: a measured inf is above every finite bound, and "about inf" agrees
with inf alone. An agreement needs no level: a smaller run that is within the bound agrees.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from beliefspace.claims.collection import FinishedRun
from beliefspace.claims.schema import Claim, LevelName, Protocol
from beliefspace.claims.training_free import SEEDS, training_free_result
from beliefspace.core.config import to_dict
from beliefspace.core.jsonable import jsonable
from beliefspace.core.registry import names
from beliefspace.core.statistics import Estimate, Interval, mean_t
from beliefspace.studies.arms import canonical, flat
from beliefspace.windtunnel.recipe import Recipe, arm_settings

Status = Literal["agrees", "differs", "not shown", "not run"]
Side = Literal["inside", "outside", "undecided"]

_RANK: dict[LevelName | None, int] = {"standard": 1, "paper": 2}
_FREE_IN_A_LEVEL = ("task", "seed", "hardware", "evaluation")
_AT_LEAST_IN_A_LEVEL = ("steps", "batch")


@dataclass(frozen=True)
class Verdict:
    """What was found about one claim; see the module's text for the rules.

    Attributes:
        claim: its id.
        status: "agrees", "differs", "not shown" or "not run".
        reason: one sentence.
        measured: mean over seeds with its interval, or the one seed's value with the interval over
            evaluation sequences; None if not run.
        seeds: how many (evaluation sets, where nothing is trained).
        one_seed: whether the value rests on one seed alone.
        balanced: whether the models were trained on balanced batches; the reason says so too.
        level: the largest level that the runs reach, or None.
        paths: the runs that were used.
    """

    claim: str
    status: Status
    reason: str
    measured: Estimate | None = None
    seeds: int = 0
    one_seed: bool = False
    balanced: bool = False
    level: LevelName | None = None
    paths: tuple[Path, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON (infinities as strings)."""
        plain = jsonable(self)
        assert isinstance(plain, dict)
        return plain


@dataclass(frozen=True)
class _Group:
    """Results of one experiment, one a seed."""

    results: tuple[Mapping[str, Any], ...]
    paths: tuple[Path, ...] = ()
    level: LevelName | None = None
    can_miss: bool = False
    balanced: bool = False


def verdict(claim: Claim, runs: Sequence[FinishedRun]) -> Verdict:
    """Compute what runs say about a claim; see the module's text for the rules.

    Args:
        claim: any claim.
        runs: finished runs, of whatever kind; those that do not count are passed over. Claims whose
            study is "ladder" need none.
    """
    if claim.quantity is None:
        return Verdict(claim.id, "not run", "no quantity is defined for this statement yet")
    if claim.protocol.study == "ladder":
        task, quantity = claim.protocol.tasks[0], claim.quantity
        results = [training_free_result(task, quantity, seed) for seed in SEEDS]
        return _judge(claim, claim.quantity, _Group(tuple(results), can_miss=True), others=0)
    matching = [run for run in runs if counts(claim.protocol, run.recipe)]
    if not matching:
        return Verdict(claim.id, "not run", _no_run_reason(claim.protocol))
    group = _deciding(claim.protocol, matching)
    return _judge(claim, claim.quantity, group, others=len(matching) - len(group.paths))


def counts(protocol: Protocol, recipe: Recipe) -> bool:
    """Return whether a run of this recipe is one that the protocol speaks of."""
    if recipe.task not in protocol.tasks:
        return False
    fields = flat(to_dict(recipe))
    return all(
        setting.path in fields and fields[setting.path] == setting.value
        for setting in protocol.settings
    )


def level_reached(protocol: Protocol, recipe: Recipe) -> LevelName | None:
    """Return the largest level whose recipe this one equals, or exceeds in its amounts alone.

    Args:
        protocol: of study "train".
        recipe: resolved, one that the protocol counts.
    """
    order: tuple[LevelName, ...] = ("paper", "standard", "smoke")
    return next((name for name in order if _reaches(recipe, protocol.recipe(name))), None)


def lookup(result: Mapping[str, Any], quantity: str) -> float | None:
    """Return the number at a dotted path of a result ("inf" is one); None if there is none.

    Args:
        result: plain values, as read from ``result.json``.
        quantity: names of nested tables, joined by dots.
    """
    value = _at(result, quantity.split("."))
    if value in ("inf", "-inf"):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    # No measure is minus infinity, and a mean over seeds could not be taken.
    return None if value == -math.inf else float(value)


def _at(result: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not isinstance(result, Mapping) or name not in result:
            return None
        result = result[name]
    return result


def _reaches(recipe: Recipe, asked: Recipe) -> bool:
    mine, wanted = to_dict(recipe), to_dict(asked)
    for table in (mine, wanted):
        for name in _FREE_IN_A_LEVEL:
            del table[name]
        # The budget's text says where the number of steps came from, not what it is.
        del table["schedule"]["budget"]
    amounts = [
        (mine["schedule"].pop(name, 0), wanted["schedule"].pop(name))
        for name in _AT_LEAST_IN_A_LEVEL
    ]
    amounts.append((recipe.evaluation.sequences, asked.evaluation.sequences))
    return mine == wanted and all(have >= want for have, want in amounts)


def _deciding(protocol: Protocol, runs: Sequence[FinishedRun]) -> _Group:
    """Group runs that differ in the seed alone, and return the group that decides."""
    groups: dict[str, dict[int, FinishedRun]] = {}
    for run in sorted(runs, key=lambda run: run.path):
        arm = canonical(arm_settings(run.recipe))
        groups.setdefault(arm, {}).setdefault(run.recipe.seed, run)

    def rank(by_seed: Mapping[int, FinishedRun]) -> tuple[int, int, int]:
        recipe = _shortest(by_seed.values())
        reached = _RANK.get(level_reached(protocol, recipe), 0)
        return reached, (recipe.schedule.steps or 0) * recipe.schedule.batch, len(by_seed)

    # The first of equals wins, and groups stand in the order of their first path.
    best = max(groups.values(), key=rank)
    used = [best[seed] for seed in sorted(best)]
    recipe = _shortest(used)
    level = level_reached(protocol, recipe)
    return _Group(
        results=tuple(run.result for run in used),
        paths=tuple(run.path for run in used),
        level=level,
        can_miss=(
            level is not None and level in _RANK and len(used) >= protocol.level(level).seeds
        ),
        balanced=recipe.balanced,
    )


def _shortest(runs: Iterable[FinishedRun]) -> Recipe:
    """Return the recipe with the fewest steps among runs of one arm."""
    return min((run.recipe for run in runs), key=lambda recipe: recipe.schedule.steps or 0)


def _judge(claim: Claim, quantity: str, group: _Group, others: int) -> Verdict:
    values = _numbers(group.results, quantity)
    if values is None:
        lacking = [
            str(path)
            for path, result in zip(group.paths, group.results, strict=False)
            if lookup(result, quantity) is None
        ]
        reason = f"no number at {quantity} in {', '.join(lacking) or 'the reference results'}"
        return Verdict(claim.id, "not shown", reason, level=group.level, paths=group.paths)
    measured = _estimate(values, group.results[0], quantity)
    side = _side(claim, measured)
    status, why = _status(claim, group, side)
    unused = f"; {_runs(others)} of other recipes or of the same seed not used" if others else ""
    return Verdict(
        claim=claim.id,
        status=status,
        reason=f"{_described(claim, measured, group)} {why}{unused}",
        measured=measured,
        seeds=len(values),
        one_seed=len(values) == 1,
        balanced=group.balanced,
        level=group.level,
        paths=group.paths,
    )


def _numbers(results: Sequence[Mapping[str, Any]], quantity: str) -> list[float] | None:
    """Return the number in each result, or None if one has none."""
    found = [lookup(result, quantity) for result in results]
    numbers = [value for value in found if value is not None]
    return numbers if len(numbers) == len(found) else None


def _estimate(values: list[float], first: Mapping[str, Any], quantity: str) -> Estimate:
    if len(values) > 1:
        return mean_t(np.array(values))
    beside = None
    *outer, last = quantity.split(".")
    if last == "mean":
        beside = _interval(_at(first, [*outer, "interval"]))
    return Estimate(values[0], beside, 1)


def _interval(plain: Any) -> Interval | None:
    try:
        fields = {name: float(plain[name]) for name in ("low", "high", "level")}
        interval = Interval(**fields, method=str(plain["method"]), count=int(plain["count"]))
    except (TypeError, KeyError, ValueError):
        return None
    return interval if interval.low <= interval.high else None


def _side(claim: Claim, measured: Estimate) -> Side:
    interval = measured.interval
    low, high = (interval.low, interval.high) if interval else (measured.mean, measured.mean)
    lower, upper = claim.band
    if claim.relation == "at most":
        lower = -math.inf
    elif claim.relation == "at least":
        upper = math.inf
    if lower <= low and high <= upper:
        return "inside"
    return "outside" if high < lower or low > upper else "undecided"


def _status(claim: Claim, group: _Group, side: Side) -> tuple[Status, str]:
    bound = f"{claim.relation} {claim.published.value:.4g} {claim.published.unit}".rstrip()
    tolerance = ""
    if claim.tolerance:
        slack = f"{claim.tolerance:.3g}"
        if claim.tolerance_kind == "relative":
            slack = f"{100 * claim.tolerance:.3g} %"
        tolerance = f" (tolerance {slack})"
    if side == "inside":
        if (miss := _companion_miss(claim, group)) is not None:
            return "not shown", f"is {bound}{tolerance}, but {miss}"
        return "agrees", f"is {bound}{tolerance}"
    if side == "undecided":
        return "not shown", f"leaves open whether it is {bound}{tolerance}"
    if group.can_miss:
        return "differs", f"is not {bound}{tolerance}"
    small = "smaller than the claim's standard level"
    if group.level in _RANK:
        small = f"fewer than the seeds of the claim's {group.level} level"
    return (
        "not shown",
        f"is not {bound}{tolerance}, but the runs are {small}, so this shows nothing",
    )


def _companion_miss(claim: Claim, group: _Group) -> str | None:
    if claim.companion is None:
        return None
    quantity, most = claim.companion.quantity, claim.companion.at_most
    values = _numbers(group.results, quantity)
    if values is None:
        return f"{quantity} is not a number in every run"
    mean = float(np.mean(values))
    return None if mean <= most else f"{quantity} is {mean:.3g}, more than {most:.3g}"


def _described(claim: Claim, measured: Estimate, group: _Group) -> str:
    value = f"{measured.mean:.4g} {claim.published.unit}".rstrip()
    how = ", trained on balanced batches" if group.balanced else ""
    units = ("evaluation set", "evaluation sets")
    if claim.protocol.study == "train":
        units = ("seed", "seeds")
    over = f"one {units[0]}" if measured.count == 1 else f"{measured.count} {units[1]}"
    if (interval := measured.interval) is None:
        return f"{value} ({over}, no interval{how})"
    bounds = f"{interval.low:.4g} to {interval.high:.4g}"
    return f"{value} ({over}, {100 * interval.level:.3g} % interval {bounds}{how})"


def _no_run_reason(protocol: Protocol) -> str:
    if protocol.model not in names("models"):
        return f"no finished run counts, and this version has no model {protocol.model!r}"
    return "no finished run counts"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
