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
    for asked, most in (("no names", MOST_FOR_NONE), ("all names", MOST_FOR_ALL)):
        what = f"points: a run with {asked}, over a plain call, costliest model"
        ratios = _costs(default, asked) if default else {}
        worst = max(ratios, key=lambda name: statistics.median(ratios[name]), default="")
        row = _judged(what, most, ratios.get(worst, []), "{:.2f}")
        rows.append((*row[:2], f"{row[2]} ({worst})" if worst else "", row[3]))
    return rows


def scans_table(layers: Sequence[Result]) -> str:
    """Return the times of the cores and the memory that they add."""
    rows = [
        (
            one["allocator"],
            size,
            *(spread([1e3 * r[core] for r in found["rounds"]], "{:.0f}") for core in _cores(one)),
            ", ".join(f"{found['added_megabytes'][core]:.0f}" for core in _cores(one)),
        )
        for one in layers
        for size, found in one["scans"].items()
    ]
    cores = _cores(layers[0]) if layers else []
    headers = (
        "allocator",
        "batch x steps",
        *(f"{core}, ms" for core in cores),
        "MB added, in turn",
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
            *(
                spread(_costs(default, asked)[name], "{:.2f}")
                for asked in ("no names", "all names")
            ),
        )
        for name, rounds in default["points"].items()
    ]
    return table(("model", "plain call, ms", "no names / plain", "all names / plain"), rows)


def _cores(one: Result) -> list[str]:
    return list(next(iter(one["scans"].values()))["rounds"][0])


def _costs(one: Result, asked: str) -> dict[str, list[float]]:
    return {
        name: [each[asked] / each["plain"] for each in rounds]
        for name, rounds in one["points"].items()
    }


def _judged(what: str, most: float, values: Sequence[float], style: str) -> tuple[str, ...]:
    wanted = f"≤ {style.format(most)}"
    if not values:
        return what, wanted, "", "not measured"
    median = statistics.median(values)
    return what, wanted, style.format(median), "met" if median <= most else "missed"
