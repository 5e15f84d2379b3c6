"""The tables about tasks: what their data cost, how fast the filter is, what a minute brings."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from beliefspace.cli.console import number
from benchmarks.tables import spread, table

Result = Mapping[str, Any]

MOST_SHARE = 0.15
LEAST_LEAD = {"scaled recursion": 2.0, "hmmlearn, public interface": 20.0}
CLOSEST = 1e-10


def goals(drawing: Sequence[Result], filtering: Sequence[Result]) -> list[tuple[str, ...]]:
    """Return what was wanted of data and filter, and what was measured."""
    rows: list[tuple[str, ...]] = []
    what = "drawing a batch with its predictive, share of a training step, costliest task"
    wanted = f"< {100 * MOST_SHARE:.0f} %"
    if drawing:
        shares = {one["task"]: statistics.median(_shares(one)) for one in drawing}
        worst = max(shares, key=lambda name: shares[name])
        met = "met" if shares[worst] < MOST_SHARE else "missed"
        rows.append((what, wanted, f"{100 * shares[worst]:.0f} % ({worst})", met))
    else:
        rows.append((what, wanted, "", "not measured"))
    for peer, least in LEAST_LEAD.items():
        what, wanted = f"filtering: {peer}, over ours, worst size", f"≥ {least:g}"
        leads = [statistics.median(_leads(one, peer)) for one in filtering]
        if leads:
            verdict = "met" if min(leads) >= least else "missed"
            rows.append((what, wanted, f"{min(leads):.1f}", verdict))
        else:
            rows.append((what, wanted, "", "not measured"))
    what, wanted = "filtering: largest difference of a probability from a peer", f"≤ {CLOSEST:g}"
    gaps = [gap for one in filtering for gap in one["difference"].values()]
    if gaps:
        verdict = "met" if max(gaps) <= CLOSEST else "missed"
        rows.append((what, wanted, f"{max(gaps):.0e}", verdict))
    else:
        rows.append((what, wanted, "", "not measured"))
    return rows


def drawing_table(drawing: Sequence[Result]) -> str:
    """Return what a batch of each task costs."""
    headers = ("task", "positions", "drawn, ms", "with predictive, ms", "step, ms", "share")
    rows = [
        (
            one["task"],
            str(one["length"]),
            *(spread([1e3 * each[name] for each in one["rounds"]], "{:.1f}") for name in _TIMED),
            spread([100 * share for share in _shares(one)], "{:.0f} %"),
        )
        for one in drawing
    ]
    return table(headers, rows)


def filtering_table(filtering: Sequence[Result]) -> str:
    """Return the filter's times beside those of its peers."""
    peers = [name for name in filtering[0]["rounds"][0] if name != "ours"] if filtering else []
    headers = ("size", "ours, ms", *(f"{peer} / ours" for peer in peers), "largest difference")
    rows = [
        (
            one["size"],
            spread([1e3 * each["ours"] for each in one["rounds"]], "{:.1f}"),
            *(spread(_leads(one, peer), "{:.1f}") for peer in peers),
            f"{max(one['difference'].values()):.0e}",
        )
        for one in filtering
    ]
    return table(headers, rows)


def tasks_table(tasks: Sequence[Result]) -> str:
    """Return where the small transformer stands after a minute."""
    headers = (
        "task", "KL, bits", "entropy error, bits", "next nearer to Bayes", "next farther",
        "memory", "sequences", "CPU s",
    )  # fmt: skip
    return table(headers, [_tasks_row(one) for one in tasks])


def _tasks_row(one: Result) -> tuple[str, ...]:
    training = one["training"]
    return (
        one["task"],
        number(float(one["kl_bits"]["mean"])),
        number(float(one["entropy_error_bits"]["mean"])),
        *(_rung(one["ladder"], name) for name in _place(one)),
        one["memory"] or "",
        f"{training['sequences']:,}",
        f"{training['cpu_seconds']:.0f}",
    )


def _place(one: Result) -> tuple[str | None, str | None]:
    """The reference predictors next to the model, nearer to Bayes and farther."""
    kl, ladder = float(one["kl_bits"]["mean"]), {k: float(v) for k, v in one["ladder"].items()}
    nearer = {name: value for name, value in ladder.items() if value < kl}
    farther = {name: value for name, value in ladder.items() if value >= kl}
    above = max(nearer, key=lambda name: nearer[name], default=None)
    return above, min(farther, key=lambda name: farther[name], default=None)


def _rung(ladder: Mapping[str, Any], name: str | None) -> str:
    return "none" if name is None else f"{name} ({number(float(ladder[name]))})"


_TIMED = ("drawn", "with predictive", "step")


def _shares(one: Result) -> list[float]:
    return [each["with predictive"] / each["step"] for each in one["rounds"]]


def _leads(one: Result, peer: str) -> list[float]:
    return [each[peer] / each["ours"] for each in one["rounds"]]
