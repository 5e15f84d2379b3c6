"""README.md of the benchmarks, as a function of the results and of nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from beliefspace.cli.console import number
from beliefspace.core.files import write_atomic
from benchmarks import render_layers, render_tasks, results
from benchmarks.accuracy import ARMS, GOALS, SEEDS, Arm, Goal
from benchmarks.efficiency import REFERENCE
from benchmarks.tables import spread, table

TEMPLATE = Path(__file__).parent / "template.md"
README = Path(__file__).parent / "README.md"
Result = Mapping[str, Any]

PERCENT = "{:.0f} %"
LEAST_SHARE = 75.0
MOST_OVER = 1.05
LEAST_LEAD = {"plain loop": 1.0, "transformers": 1.15}

# The published runs: their entropy error in bits, and 6 x parameters x tokens x sequences.
EARLY = (3e-3, 6 * 2.67e6 * 37 * 150_000 * 64)
LATE = (7.8e-4, 6 * 2.67e6 * 37 * 50_000 * 256)


def write(folder: Path = results.FOLDER, path: Path = README) -> None:
    """Write README.md anew."""
    write_atomic(path, render(folder))


def render(folder: Path = results.FOLDER) -> str:
    """Return the text for a folder of results."""
    accuracy, efficiency, step_time = (
        results.read(folder, part) for part in ("accuracy", "efficiency", "step_time")
    )
    drawing, filtering, layers, tasks = (
        results.read(folder, part) for part in ("drawing", "filtering", "layers", "tasks")
    )
    others = [*render_tasks.goals(drawing, filtering), *render_layers.goals(layers)]
    published = next((one for one in step_time if one["size"] == "published"), None)
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        machines=_machines(
            [*accuracy, *efficiency, *step_time, *drawing, *filtering, *layers, *tasks]
        ),
        goals=_goals(accuracy, published, others),
        accuracy=_accuracy(accuracy),
        early=_first_below(accuracy, *EARLY),
        early_operations=f"{EARLY[1]:.1e}",
        late=_first_below(accuracy, *LATE),
        late_operations=f"{LATE[1]:.1e}",
        efficiency_budget=efficiency[0]["budget"] if efficiency else "the same CPU time",
        efficiency=_efficiency(efficiency),
        batch=published["batch"] if published else "some",
        alternations=len(published["alternations"]) if published else "several",
        tokens=f"{published['tokens']:,}" if published else "a batch's",
        computed=PERCENT.format(100 * published["computed_share"]) if published else "a part",
        transformers=published["machine"]["packages"]["transformers"] if published else "pinned",
        step_time=_step_time(step_time),
        drawing=render_tasks.drawing_table(drawing),
        filtering=render_tasks.filtering_table(filtering),
        tasks=render_tasks.tasks_table(tasks),
        scans=render_layers.scans_table(layers),
        layers=render_layers.layers_table(layers),
        points=render_layers.points_table(layers),
    )


def _machines(measured: Sequence[Result]) -> str:
    if not measured:
        return "Nothing is measured yet."
    days = sorted({one["measured"] for one in measured})
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    machines = sorted({_machine(one["machine"]) for one in measured})
    loads = [one["machine"]["load"] for one in measured if one["machine"]["load"] is not None]
    busy = (
        f" Load average when a result was written: {min(loads)} to {max(loads)}." if loads else ""
    )
    return f"Measured {span} on {'; and on '.join(machines)}.{busy}"


def _machine(machine: Result) -> str:
    packages = ", ".join(
        f"{name} {version}"
        for name, version in machine["packages"].items()
        if name != "transformers"
    )
    cores = f"{machine['cores']} core{'s' * (machine['cores'] != 1)}"
    return f"{cores} ({machine['processor']}), Python {machine['python']}, {packages}"


# ------------------------------------------------------------------------------------------- goals


def _goals(
    accuracy: Sequence[Result], published: Result | None, others: Sequence[tuple[str, ...]]
) -> str:
    rows = [_accuracy_goal(goal, accuracy) for goal in GOALS]
    rows += [*_step_goals(published), *others]
    return table(("goal", "wanted", "measured", ""), rows)


def _accuracy_goal(goal: Goal, accuracy: Sequence[Result]) -> tuple[str, ...]:
    """Judge a goal by the arms that were to take no more time; the nearest one stands for it."""
    what = f"{goal.targets} targets, {goal.minutes} CPU-min: entropy error, KL (bits), worst seed"
    wanted = f"≤ {number(goal.entropy_error_bits)}, ≤ {number(goal.kl_bits)}"
    fitting = [arm for arm in ARMS if arm.targets == goal.targets and arm.minutes <= goal.minutes]
    measured = {arm: seeds for arm in fitting if (seeds := _of_arm(accuracy, arm))}
    if not measured:
        return what, wanted, "", "not measured"
    judged = {arm: _verdict(goal, seeds) for arm, seeds in measured.items()}
    # Plain batches come first in ARMS, and stand for the goal where they meet it.
    arm = next((arm for arm, verdict in judged.items() if verdict == "met"), list(judged)[-1])
    seeds = measured[arm]
    error, divergence = _worst(seeds, "entropy_error_bits"), _worst(seeds, "kl_bits")
    seconds = max(_training(seeds, "cpu_seconds"))
    found = f"{number(error)}, {number(divergence)} in {seconds:.0f} s ({arm.label})"
    return what, wanted, found, judged[arm]


def _verdict(goal: Goal, seeds: Sequence[Result]) -> str:
    if len(seeds) < len(SEEDS):
        return "not all seeds measured"
    if _worst(seeds, "entropy_error_bits") > goal.entropy_error_bits:
        return "missed"
    if _worst(seeds, "kl_bits") > goal.kl_bits:
        return "missed"
    in_time = max(_training(seeds, "cpu_seconds")) <= MOST_OVER * 60 * goal.minutes
    return "met" if in_time else "missed: over budget"


def _step_goals(published: Result | None) -> list[tuple[str, ...]]:
    rounds = published["alternations"] if published else []
    share = "step at the published size, share of the ceiling"
    goals = [(share, LEAST_SHARE, _shares(published) if published else [], PERCENT)]
    for peer, least in LEAST_LEAD.items():
        ratios = [one[peer] / one["ours"] for one in rounds]
        goals.append((f"the same step of the {peer}, over ours", least, ratios, "{:.2f}"))
    rows: list[tuple[str, ...]] = []
    for what, least, values, style in goals:
        wanted = ("> " if least == 1 else "≥ ") + style.format(least)
        if not values:
            rows.append((what, wanted, "", "not measured"))
            continue
        median = statistics.median(values)
        met = median > least if least == 1 else median >= least
        rows.append((what, wanted, style.format(median), "met" if met else "missed"))
    return rows


# ---------------------------------------------------------------------------------------- accuracy


def _of_arm(accuracy: Sequence[Result], arm: Arm) -> list[Result]:
    wanted = (arm.label, arm.minutes)
    found = [one for one in accuracy if (one["targets"], one["minutes"]) == wanted]
    return sorted(found, key=lambda one: one["seed"])


def _worst(seeds: Iterable[Result], measure: str) -> float:
    # Infinities are text in JSON, and float reads them back.
    return max(float(one[measure]["mean"]) for one in seeds)


def _accuracy(accuracy: Sequence[Result]) -> str:
    headers = (
        "targets", "CPU-min", "seed", "entropy error, bits", "KL, bits",
        "worst position: error, KL", "steps", "sequences", "predictions", "CPU s", "operations",
        "2 KL n (nats)", "parameters",
    )  # fmt: skip
    rows = []
    for arm in ARMS:
        seeds = _of_arm(accuracy, arm)
        rows += [_accuracy_row(one) for one in seeds]
        if len(seeds) > 1:
            worst = (_worst(seeds, "entropy_error_bits"), _worst(seeds, "kl_bits"))
            name = f"**worst of {len(seeds)}**"
            cells = (
                arm.label,
                str(arm.minutes),
                name,
                *(f"**{number(w)}**" for w in worst),
            )
            rows.append(cells + ("",) * (len(headers) - len(cells)))
    return table(headers, rows)


def _accuracy_row(one: Result) -> tuple[str, ...]:
    error, divergence, training = one["entropy_error_bits"], one["kl_bits"], one["training"]
    return (
        one["targets"],
        str(one["minutes"]),
        str(one["seed"]),
        _with_interval(error),
        _with_interval(divergence),
        f"{_at_worst(error)}, {_at_worst(divergence)}",
        f"{training['steps']:,}",
        _millions(training["sequences"]),
        _millions(training["predictions"]),
        f"{training['cpu_seconds']:.0f}",
        f"{training['operations']:.1e}",
        f"{round(float(training['efficiency']), -2):,.0f}",
        f"{training['parameters']:,}",
    )


def _with_interval(measure: Result) -> str:
    interval = measure["interval"]
    between = f" ({number(interval['low'])} to {number(interval['high'])})" if interval else ""
    return number(float(measure["mean"])) + between


def _at_worst(measure: Result) -> str:
    return f"{number(float(measure['worst']))} at {measure['worst_position']}"


def _millions(count: float) -> str:
    return f"{count / 1e6:.2f} M"


def _first_below(accuracy: Sequence[Result], error: float, operations: float) -> str:
    """Say after which sampled budget every seed is below an error, and compare the operations."""
    for arm in (arm for arm in ARMS if arm.targets == "sampled"):
        seeds = _of_arm(accuracy, arm)
        if len(seeds) == len(SEEDS) and _worst(seeds, "entropy_error_bits") <= error:
            ours = max(_training(seeds, "operations"))
            return (
                f"All our seeds ({arm.label} targets, {arm.minutes} CPU-min) are below that error "
                f"after {ours:.1e} operations: {operations / ours:,.0f} times fewer."
            )
    return "No budget measured so far is below that error with every seed."


# -------------------------------------------------------------------------------------- efficiency


def _efficiency(efficiency: Sequence[Result]) -> str:
    arms: dict[str, list[Result]] = {}
    for one in efficiency:
        arms.setdefault(one["arm"], []).append(one)
    constants = {name: _mean(_training(seeds, "efficiency")) for name, seeds in arms.items()}
    order = sorted(arms, key=lambda name: (name != REFERENCE, constants[name], name))
    rows = [_efficiency_row(name, arms[name], constants.get(REFERENCE)) for name in order]
    headers = (
        "changed", "2 KL n (nats)", "over the recipe's", "KL, bits", "entropy error, bits",
        "sequences", "ms a step", "parameters",
    )  # fmt: skip
    return table(headers, rows)


def _efficiency_row(name: str, seeds: Sequence[Result], reference: float | None) -> tuple[str, ...]:
    constants = _training(seeds, "efficiency")
    step = _mean(_training(seeds, "cpu_seconds")) / _mean(_training(seeds, "steps"))
    return (
        f"**{name}**" if name == REFERENCE else name,
        _mean_of([round(value, -2) for value in constants], "{:,.0f}"),
        f"{_mean(constants) / reference:.2f}" if reference else "",
        _mean_of([float(one["kl_bits"]["mean"]) for one in seeds], "{:.2g}"),
        _mean_of([float(one["entropy_error_bits"]["mean"]) for one in seeds], "{:.2g}"),
        _millions(_mean(_training(seeds, "sequences"))),
        f"{1e3 * step:.1f}",
        f"{seeds[0]['training']['parameters']:,}",
    )


def _training(seeds: Iterable[Result], figure: str) -> list[float]:
    return [float(one["training"][figure]) for one in seeds]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _mean_of(values: Sequence[float], style: str) -> str:
    singles = ", ".join(style.format(value) for value in values)
    return f"{style.format(_mean(values))} ({singles})"


# --------------------------------------------------------------------------------------- step time


def _step_time(step_time: Sequence[Result]) -> str:
    headers = (
        "size", "parameters", "ours, ms", "best product, GF/s", "share of the ceiling",
        "all products", "plain loop / ours", "transformers / ours", "... with GELU / ours",
        "ours with Muon / ours",
    )  # fmt: skip
    rows = []
    for one in sorted(step_time, key=lambda one: -one["parameters"]):
        rounds = one["alternations"]
        ratios = [
            spread([each[name] / each["ours"] for each in rounds], "{:.2f}")
            for name in ("plain loop", "transformers", "transformers with gelu", "ours with Muon")
        ]
        rows.append(
            (
                one["size"],
                f"{one['parameters']:,}",
                spread([1e3 * each["ours"] for each in rounds], "{:.1f}"),
                spread([1e-9 * each["best_rate"] for each in rounds], "{:.0f}"),
                spread(_shares(one), PERCENT),
                spread([100 * each["products"] / each["ours"] for each in rounds], PERCENT),
                *ratios,
            )
        )
    return table(headers, rows)


def _shares(one: Result) -> list[float]:
    """Return the ceiling over our step in each alternation, per cent."""
    operations = one["nominal_operations"]
    return [100 * operations / each["best_rate"] / each["ours"] for each in one["alternations"]]
