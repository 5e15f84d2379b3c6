"""The tables about architectures: scan cores, whole layers, and the cost of points."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.tables import spread, table

Result = Mapping[str, Any]

REFERENCE = "torch.nn.LSTM"
MOST_SCAN_S = {"ours, Mamba-1": 0.20, "ours, SSD": 0.025}
MOST_RATIO = {"transformer block": 2.0, "Mamba-2": 1.7, "Mamba-1": 3.2}
MOST_FOR_NONE, MOST_FOR_ALL = 1.01, 2.0
LEAST_PLAIN_S = 5e-3
"""A run has a fixed cost, which is most of what a cheaper call adds."""


def goals(layers: Sequence[Result]) -> list[tuple[str, ...]]:
    """Return what was wanted with the default allocator, and what was measured."""
    default = next((one for one in layers if one["allocator"] == "default"), None)
    rows: list[tuple[str, ...]] = []
    for core, most in MOST_SCAN_S.items():
        rounds = default["scans"]["64 x 40"]["rounds"] if default else []
        what = f"scan core {core}, 64 x 40, width 512, state 16, s"
        rows.append(_judged(what, most, [one[core] for one in rounds], "{:.3f}"))
    for layer, most in MOST_RATIO.items():
        rounds = default["layers"] if default else []
        what = f"layer of width 256: {layer}, over {REFERENCE}"
        rows.append(_judged(what, most, [one[layer] / one[REFERENCE] for one in rounds], "{:.2f}"))
    return [*rows, _none_goal(default), _all_goal(default)]


def _none_goal(default: Result | None) -> tuple[str, ...]:
    """Judge runs without names among calls that take long enough, and tell the cost of others."""
    points = default["points"] if default else {}
    dear = [name for name, rounds in points.items() if _plain_s(rounds) >= LEAST_PLAIN_S]
    what = f"points: a run with no names, over a plain call of {1e3 * LEAST_PLAIN_S:.0f} ms or more"
    ratios = {name: _ratios(points[name], "no names") for name in dear}
    fixed = [statistics.median(_fixed_us(points[name])) for name in points if name not in dear]
    aside = f"; cheaper calls pay a fixed {max(fixed):.0f} µs at most" if fixed else ""
    return _worst(f"{what}, costliest model", MOST_FOR_NONE, ratios, aside, "{:.3f}")


def _all_goal(default: Result | None) -> tuple[str, ...]:
    points = default["points"] if default else {}
    what = "points: a run with all names, over a plain call, costliest model"
    ratios = {name: _ratios(rounds, "all names") for name, rounds in points.items()}
    return _worst(what, MOST_FOR_ALL, ratios, "", "{:.2f}")


def _worst(
    what: str, most: float, ratios: Mapping[str, list[float]], aside: str, style: str
) -> tuple[str, ...]:
    """Judge the largest median, and name the model."""
    worst = max(ratios, key=lambda name: statistics.median(ratios[name]), default="")
    what, wanted, value, verdict = _judged(what, most, ratios.get(worst, []), style)
    return what, wanted, f"{value} ({worst}{aside})" if worst else "", verdict


def scans_table(layers: Sequence[Result]) -> str:
    """Return the times of the cores, and the memory that a call of each takes."""
    rows = [
        (
            one["allocator"],
            size,
            *(spread([1e3 * r[core] for r in found["rounds"]], "{:.0f}") for core in _cores(one)),
            *(_megabytes(found["added_megabytes"][core]) for core in _cores(one)),
        )
        for one in layers
        for size, found in one["scans"].items()
    ]
    cores = _cores(layers[0]) if layers else []
    headers = (
        "allocator",
        "batch x steps",
        *(f"{core}, ms" for core in cores),
        *(f"{core}, MB" for core in cores),
    )
    return table(headers, rows)


def layers_table(layers: Sequence[Result]) -> str:
    """Return the time of a layer of each kind, over that of torch's LSTM."""
    names = list(layers[0]["layers"][0]) if layers else []
    rows = []
    for name in names:
        cells = []
        for one in layers:
            cells.append(spread([1e3 * each[name] for each in one["layers"]], "{:.0f}"))
            cells.append(spread([each[name] / each[REFERENCE] for each in one["layers"]], "{:.2f}"))
        rows.append((name, *cells))
    columns = [(f"ms, {one['allocator']}", f"over {REFERENCE}") for one in layers]
    return table(("layer", *(cell for pair in columns for cell in pair)), rows)


def points_table(layers: Sequence[Result]) -> str:
    """Return what asking for points costs, with the default allocator."""
    default = next((one for one in layers if one["allocator"] == "default"), None)
    if default is None:
        return table((), ())
    rows = [
        (
            name,
            spread([1e3 * each["plain"] for each in rounds], "{:.1f}"),
            spread(_ratios(rounds, "no names"), "{:.3f}"),
            spread(_fixed_us(rounds), "{:.0f}"),
            spread(_ratios(rounds, "all names"), "{:.2f}"),
        )
        for name, rounds in default["points"].items()
    ]
    headers = (
        "model",
        "plain call, ms",
        "no names / plain",
        "no names - plain, µs",
        "all names / plain",
    )
    return table(headers, rows)


def _cores(one: Result) -> list[str]:
    return list(next(iter(one["scans"].values()))["rounds"][0])


def _megabytes(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f}"


def _plain_s(rounds: Sequence[Mapping[str, float]]) -> float:
    return statistics.median(each["plain"] for each in rounds)


def _ratios(rounds: Sequence[Mapping[str, float]], asked: str) -> list[float]:
    return [each[asked] / each["plain"] for each in rounds]


def _fixed_us(rounds: Sequence[Mapping[str, float]]) -> list[float]:
    return [1e6 * (each["no names"] - each["plain"]) for each in rounds]


def _judged(what: str, most: float, values: Sequence[float], style: str) -> tuple[str, ...]:
    wanted = f"≤ {style.format(most)}"
    if not values:
        return what, wanted, "", "not measured"
    median = statistics.median(values)
    return what, wanted, style.format(median), "met" if median <= most else "missed"
