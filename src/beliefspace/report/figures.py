"""Figures of results, for the page and for print.

Each function returns a matplotlib figure one column wide; ``figure.savefig("figure.pdf")`` makes a
file for a paper. On a log axis an exact zero is a triangle on the lower edge and an infinite value
one on the upper edge, so that neither is lost nor moved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from beliefspace.core.errors import missing_extra
from beliefspace.report.wording import power_of_ten, short
from beliefspace.windtunnel.memory import LEAST_CORRELATION, SLOPES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, FAINT, GRID = "#1b1f27", "#5c6470", "#9aa2ae", "#e4e7ec"
SERIES = ("#1d5fa6", "#c4501b", "#13795b", "#87479c", "#9c7100", "#2b8fb0")

THEME = MappingProxyType(
    {INK: "ink", MUTED: "muted", FAINT: "faint", GRID: "grid"}
    | {colour: f"series-{number}" for number, colour in enumerate(SERIES, start=1)}
)
"""Every colour drawn, and the page's variable that takes its place there."""

_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
_DOTTED: Any = (0, (1, 1.6))
_SHORT_DASHES: Any = (0, (1.4, 1.4))
_NULL: Any = {"color": FAINT, "linestyle": _DOTTED, "linewidth": 1.2}
_CONTROL: Any = {"color": MUTED, "linestyle": (0, (5, 2)), "linewidth": 1.0}
_WIDEST_SLOPES = (-1.0, 3.0)  # a slope on hardly any change is mostly noise, and can be huge
_MOST_MARKED = 64

_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.unicode_minus": True,
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.5,
    "lines.markersize": 3.6,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "xtick.minor.size": 0,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.minor.size": 0,
}

_Values = Sequence[float]


@dataclass(frozen=True)
class Curve:
    """How far one run was from Bayes as it learned.

    Attributes:
        arm: the name of its arm; runs of one arm share a colour and a line in the legend.
        predictions: scored positions seen at each look.
        kl_bits: KL(Bayes || model) then.
        entropy_error_bits: mean entropy error then.
    """

    arm: str
    predictions: _Values
    kl_bits: _Values
    entropy_error_bits: _Values


@dataclass(frozen=True)
class Profile:
    """One predictor by position; each sequence has one value a scored position.

    Attributes:
        arm: the name of its arm.
        entropy_bits: its entropy.
        entropy_error_bits: mean over sequences of the absolute difference of entropies.
        kl_bits: KL(Bayes || predictor).
    """

    arm: str
    entropy_bits: _Values
    entropy_error_bits: _Values
    kl_bits: _Values


@dataclass(frozen=True)
class Influence:
    """How a replaced observation changes the belief of one run, and how it should, by lag.

    Attributes:
        arm: the name of its arm.
        lags: how many steps before the last one the observation stands, ``[L]``.
        exact_change: mean total variation between the exact beliefs before and after.
        slope: of the run's change on the exact one; with the bounds of its interval, ``low`` and
            ``high``.
        correlation: of the two.
        control_correlation: of the exact filter with noise, as far from Bayes as the run.
        null_correlation: of the run's change with the exact one of another sequence.
    """

    arm: str
    lags: Sequence[int]
    exact_change: _Values
    slope: _Values
    low: _Values
    high: _Values
    correlation: _Values
    control_correlation: _Values
    null_correlation: _Values


def learning_curves(curves: Sequence[Curve], references: Mapping[str, float]) -> Figure:
    """Draw distance from Bayes against predictions seen, both on log axes.

    Args:
        curves: one a run.
        references: KL of reference predictors in bits, faint lines where they are in the axes.
    """
    with style():
        figure, (above, below) = _stacked((1.25, 1.0))
        for axes, quantity in ((above, "kl_bits"), (below, "entropy_error_bits")):
            for curve, look in zip(curves, _looks([c.arm for c in curves]), strict=True):
                _log_line(axes, curve.predictions, getattr(curve, quantity), **look)
            _log_scale(axes, [value for c in curves for value in getattr(c, quantity)])
        _log_scale(below, [x for c in curves for x in c.predictions], which="x")
        _reference_lines(above, references, curves)
        above.set_ylabel("KL(Bayes ‖ model), bits")
        below.set_ylabel("entropy error, bits")
        below.set_xlabel("predictions seen (scored positions)")
        _legend_of_arms(above, [curve.arm for curve in curves])
        return figure


def entropy_by_position(
    positions: Sequence[int],
    bayes_entropy_bits: _Values,
    profiles: Sequence[Profile],
    position_entropy_bits: _Values | None = None,
) -> Figure:
    """Draw entropies by position, and below them the distances from Bayes on a log axis.

    Args:
        positions: the scored positions, ``[P]``.
        bayes_entropy_bits: mean entropy of the exact predictive, ``[P]``.
        profiles: one a predictor, ``[P]`` each.
        position_entropy_bits: entropy of the reference predictor that knows the position alone.
    """
    names = [profile.arm for profile in profiles]
    with style():
        from matplotlib.ticker import MaxNLocator

        figure, (above, below) = _stacked((1.0, 1.1))
        above.plot(positions, bayes_entropy_bits, color=FAINT, linewidth=4.5, alpha=0.55)
        if position_entropy_bits is not None:
            above.plot(
                positions,
                position_entropy_bits,
                color=MUTED,
                linewidth=0.9,
                linestyle=_DOTTED,
            )
        for profile, look in zip(profiles, _looks(names), strict=True):
            marker = "o" if len(positions) <= _MOST_MARKED else ""
            above.plot(positions, profile.entropy_bits, marker=marker, **look)
            _log_line(below, positions, profile.kl_bits, **look)
            _log_line(
                below,
                positions,
                profile.entropy_error_bits,
                **{**look, "linestyle": _SHORT_DASHES},
            )
        every = [v for p in profiles for v in (*p.kl_bits, *p.entropy_error_bits)]
        _log_scale(below, every)
        lowest = min(0.0, *bayes_entropy_bits, *_all_entropies(profiles))
        above.set_ylim(bottom=lowest - 0.02 * max(bayes_entropy_bits))
        below.xaxis.set_major_locator(MaxNLocator(integer=True))
        above.set_ylabel("entropy, bits")
        below.set_ylabel("distance from Bayes, bits")
        below.set_xlabel("position in the sequence")
        _legend_of_entropies(above, names, position_entropy_bits is not None)
        _legend(
            below,
            ["KL(Bayes ‖ model)", "|entropy difference|"],
            [{"color": MUTED}, {"color": MUTED, "linestyle": _SHORT_DASHES}],
        )
        return figure


def influence_by_lag(runs: Sequence[Influence]) -> Figure:
    """Draw slope and correlation of each run's change of belief on the exact one, by lag.

    The lowest axes have the size of the exact change: where it is small, little is at stake. The
    grey areas are where a lag counts as right.

    Args:
        runs: one a run, ``[L]`` each.
    """
    names = [run.arm for run in runs]
    with style():
        from matplotlib.ticker import MaxNLocator

        figure, (above, middle, below) = _stacked((1.0, 1.0, 0.7), height=5.6)
        above.axhspan(*SLOPES, color=FAINT, alpha=0.15, linewidth=0)
        middle.axhspan(LEAST_CORRELATION, 1.0, color=FAINT, alpha=0.15, linewidth=0)
        _limit_slopes(above, runs)
        for run, look in zip(runs, _looks(names), strict=True):
            above.fill_between(
                run.lags, run.low, run.high, color=look["color"], alpha=0.18, linewidth=0
            )
            _bounded_line(above, run.lags, run.slope, **look)
            middle.plot(run.lags, run.null_correlation, **_NULL)
            middle.plot(run.lags, run.control_correlation, **_CONTROL)
            middle.plot(run.lags, run.correlation, marker="o", **look)
            # The exact change is the task's, not the run's: on the same sequences it is one line.
            _log_line(below, run.lags, run.exact_change, color=MUTED, linestyle="-")
        _log_scale(below, [change for run in runs for change in run.exact_change])
        lowest = min((v for r in runs for v in (*r.correlation, *r.null_correlation)), default=0)
        middle.set_ylim(min(-0.1, lowest - 0.05), 1.05)
        below.xaxis.set_major_locator(MaxNLocator(integer=True))
        above.set_ylabel("slope")
        middle.set_ylabel("correlation")
        below.set_ylabel("exact change")
        below.set_xlabel("lag: steps from the replaced observation to the last")
        _legend_of_arms(above, names)
        _legend(
            middle,
            ["with the exact change", "of a filter with noise", "with that of another sequence"],
            [{"color": MUTED}, _CONTROL, _NULL],
        )
        return figure


def slope_note(slopes: Sequence[float]) -> str:
    """Return the sentence that a caption needs where slopes lie beyond the widest axis."""
    low, high = _WIDEST_SLOPES
    below, above = any(slope < low for slope in slopes), any(slope > high for slope in slopes)
    notes = [f"▽ on the lower edge: a slope below {short(low, 1)}."] if below else []
    notes += [f"△ on the upper edge: a slope above {short(high, 1)}."] if above else []
    return "".join(f" {note}" for note in notes)


def edge_note(values: Iterator[float] | Sequence[float]) -> str:
    """Return the sentence that a caption needs where a log axis has values that it cannot place."""
    every = np.asarray(list(values), dtype=np.float64)
    notes = ["▽ on the lower edge: exactly 0."] if (every == 0).any() else []
    notes += ["△ on the upper edge: infinite."] if np.isposinf(every).any() else []
    return "".join(f" {note}" for note in notes)


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Set the house style for what is drawn inside.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise missing_extra("matplotlib", "plots") from None
    with matplotlib.rc_context(_STYLE):
        yield


def _stacked(heights: tuple[float, ...], height: float = 4.9) -> tuple[Figure, Sequence[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, height), layout="constrained")
    axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights)
    return figure, list(axes)


def _looks(arms: Sequence[str]) -> list[dict[str, Any]]:
    """Give each run the colour of its arm; beyond the colours there are, another dash as well."""
    order = list(dict.fromkeys(arms))
    return [_look(order.index(arm)) for arm in arms]


def _look(index: int) -> dict[str, Any]:
    dash = _DASHES[index // len(SERIES) % len(_DASHES)]
    return {"color": SERIES[index % len(SERIES)], "linestyle": dash}


def _log_line(axes: Axes, x: _Values, y: _Values, **look: Any) -> None:
    """Draw a line on a log axis; zeros and infinities go to the edges."""
    places, values = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    shown = np.where(np.isfinite(values) & (values > 0), values, np.nan)
    marker = "o" if len(values) <= _MOST_MARKED else ""
    axes.plot(places, shown, marker=marker, **look)
    _on_the_edges(axes, places, values == 0, np.isposinf(values), look["color"])


def _bounded_line(axes: Axes, x: Sequence[int], y: _Values, **look: Any) -> None:
    """Draw slopes; those beyond the widest axis go to the edges, and the line leaves there."""
    places, values = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    low, high = _WIDEST_SLOPES
    axes.plot(places, values, marker="o", **look)
    _on_the_edges(axes, places, values < low, values > high, look["color"])


def _limit_slopes(axes: Axes, runs: Sequence[Influence]) -> None:
    """Hold all slopes, 0 and 1; the noise of slopes on hardly any change must not set the scale."""
    low, high = _WIDEST_SLOPES
    slopes = [slope for run in runs for slope in run.slope]
    axes.set_ylim(max(low, min([0.0, *slopes]) - 0.1), min(high, max([1.6, *slopes]) + 0.1))


def _on_the_edges(
    axes: Axes, places: np.ndarray, lower: np.ndarray, upper: np.ndarray, color: str
) -> None:
    edge: Any = {"color": color, "linestyle": "", "clip_on": False, "fillstyle": "none"}
    for which, height, shape in ((lower, 0.0, "v"), (upper, 1.0, "^")):
        if which.any():
            heights = np.full(which.sum(), height)
            transform = axes.get_xaxis_transform()
            axes.plot(places[which], heights, marker=shape, transform=transform, ms=5, **edge)


def _log_scale(axes: Axes, values: Sequence[float], which: str = "y") -> None:
    """Make one axis logarithmic, with labels that are read without mathematics being set."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    every = np.asarray(list(values), dtype=np.float64)
    placed = every[np.isfinite(every) & (every > 0)]
    low, high = (placed.min(), placed.max()) if len(placed) else (1e-3, 1.0)
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log"})
    margin = 1.12 if which == "x" else 1.35
    axes.set(**{f"{which}lim": (low / margin, high * margin)})
    decades = np.log10(high / low)
    subs = (1.0, 2.0, 5.0) if decades < 2 else (1.0,)
    axis.set_major_locator(LogLocator(10.0, subs=subs, numticks=7 if decades > 2 else 12))
    axis.set_major_formatter(FuncFormatter(_log_label))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(LogLocator(10.0, subs=(), numticks=2))


def _log_label(value: float, _: int) -> str:
    exponent = int(np.floor(np.log10(value) + 1e-9))
    mantissa = round(value / 10.0**exponent)
    if -3 < exponent < 3:
        return f"{mantissa * 10.0**exponent:g}"
    return power_of_ten(exponent) if mantissa == 1 else f"{mantissa}×{power_of_ten(exponent)}"


def _reference_lines(axes: Axes, references: Mapping[str, float], curves: Sequence[Curve]) -> None:
    """Draw the references inside the axes; a label that would cover another is left out."""
    low, high = axes.get_ylim()
    inside = {name: kl for name, kl in references.items() if low < kl < high}
    last = np.inf
    for name, kl in sorted(inside.items(), key=lambda item: -item[1]):
        axes.axhline(kl, color=FAINT, linewidth=0.9, linestyle=_DOTTED, zorder=1.5)
        height = np.log(kl / low) / np.log(high / low)
        if last - height > 0.06:
            # The curves fall: left of where they cross the line there is room, or right of it.
            left = _late_crossing(axes, kl, curves)
            axes.text(
                0.012 if left else 1.0,
                kl,
                name,
                transform=axes.get_yaxis_transform(),
                color=MUTED,
                size=7.5,
                ha="left" if left else "right",
                va="bottom" if height < 0.93 else "top",
            )
            last = height


def _late_crossing(axes: Axes, level: float, curves: Sequence[Curve]) -> bool:
    """Whether the curves, on average, come below a level in the right half of the axes."""
    first, last = axes.get_xlim()
    crossings = []
    for curve in curves:
        below = [x for x, kl in zip(curve.predictions, curve.kl_bits, strict=True) if kl < level]
        crossings.append(min(below, default=last))
    return bool(np.mean(np.log(crossings)) > np.log(first * last) / 2)


def _legend_of_arms(axes: Axes, arms: Sequence[str]) -> None:
    counts = {arm: arms.count(arm) for arm in dict.fromkeys(arms)}
    if len(counts) == 1 and len(arms) == 1:
        return
    labels = [arm if count == 1 else f"{arm} ({count} runs)" for arm, count in counts.items()]
    _legend(axes, labels, [_look(index) for index in range(len(labels))])


def _legend_of_entropies(axes: Axes, arms: Sequence[str], with_position: bool) -> None:
    order = list(dict.fromkeys(arms))
    labels = ["Bayes", *order]
    looks: list[dict[str, Any]] = [{"color": FAINT, "linewidth": 4.5, "alpha": 0.55}]
    looks += [_look(index) for index in range(len(order))]
    if with_position:
        labels.append("position entropy")
        looks.append({"color": MUTED, "linewidth": 0.9, "linestyle": _DOTTED})
    _legend(axes, labels, looks)


def _legend(axes: Axes, labels: Sequence[str], looks: Sequence[Mapping[str, Any]]) -> None:
    """Put the legend above the axes, where it covers nothing."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **look) for look in looks]
    columns = 2 if sum(map(len, labels)) > 50 else 3
    # A label that starts with an underscore would be left out of a legend.
    shown = [f" {label}" if label.startswith("_") else label for label in labels]
    axes.legend(
        handles,
        shown,
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=columns if max(map(len, labels)) < 34 else 1,
        borderaxespad=0.2,
        columnspacing=1.4,
    )


def _all_entropies(profiles: Sequence[Profile]) -> list[float]:
    return [value for profile in profiles for value in profile.entropy_bits]
