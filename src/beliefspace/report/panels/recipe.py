"""What was run: everything that the result depends on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from beliefspace.core.jsonable import to_json
from beliefspace.core.registry import register
from beliefspace.report.context import Context, RunView, arms
from beliefspace.report.parts import Absent, Cell, Code, Row, Section, Table, Text
from beliefspace.report.wording import ABSENT, clean, duration, plural, short, whole

_TARGETS = {
    "sampled": "sampled outcomes",
    "posterior": "the exact posterior predictive",
}

_Line = tuple[str, str, Callable[[RunView], Cell]]


@register("panels", "recipe")
def recipe(context: Context) -> Section | Absent:
    """List what each run was made of and what it took, with its whole config."""
    columns = (Cell("quantity"), *(Cell(run.label) for run in context.runs))
    by_arm = arms(context.runs)
    seed: _Line = ("seed", "", lambda run: _seed(run, len(by_arm[run.arm])))
    lines = (*_LINES[:_SEED_AT], seed, *_LINES[_SEED_AT:])
    rows = [
        Row((Cell(name, detail), *map(cell, context.runs)))
        for name, detail, cell in lines
        if any(cell(run).text != ABSENT for run in context.runs)
    ]
    table = Table("recipe", columns, tuple(rows), _caption(context), numeric=False)
    listings = [
        Code(f"{title} of {run.label}", text)
        for run in context.runs
        for title, text in (
            ("config.toml", run.config_toml),
            ("environment.json", to_json(run.environment, indent=2)),
        )
    ]
    return Section("Recipe", (table, *(Text(note) for note in _notes(context)), *listings))


def _caption(context: Context) -> str:
    if not any(run.training for run in context.runs):
        return "The configuration of each run; what training took is written when it ends."
    return (
        "What was trained and what it took. CPU time counts training with its data and optimizer, "
        "not evaluation. 2·KL·n: KL in nats times twice the predictions seen; an asymptotically "
        "efficient estimator of d parameters has about d."
    )


def _notes(context: Context) -> list[str]:
    notes = []
    if any(run.training.get("targets") == "posterior" for run in context.runs):
        notes.append(
            "Trained on the exact posterior predictive: the same expected gradient as sampled "
            "outcomes with less variance. This shows what the model can represent and reach, not "
            "what it would learn from as much sampled data; 2·KL·n is then no measure of "
            "statistical efficiency."
        )
    if all(len(members) == 1 for members in arms(context.runs).values()):
        notes.append(
            "One seed: intervals here are over evaluation sequences and say nothing about how "
            "other seeds would end."
        )
    return notes


def _trained(name: str, write: Callable[[float], str]) -> Callable[[RunView], Cell]:
    def cell(run: RunView) -> Cell:
        value = run.training.get(name)
        if value is None:
            return Cell(ABSENT)
        number = float(value)
        return Cell(write(number), value=number if math.isinf(number) else value)

    return cell


def _described(table: str) -> Callable[[RunView], Cell]:
    return lambda run: Cell(run.described(table) or ABSENT)


def _targets(run: RunView) -> Cell:
    targets = run.training.get("targets", run.config.get("targets"))
    return Cell(ABSENT if targets is None else _TARGETS.get(str(targets), clean(str(targets))))


def _seed(run: RunView, seeds: int) -> Cell:
    if run.seed is None:
        return Cell(ABSENT)
    return Cell(str(run.seed), "one seed" if seeds == 1 else f"one of {plural(seeds, 'seed')}")


def _evaluation(run: RunView) -> Cell:
    return Cell(ABSENT if run.score is None else run.score.protocol)


def _versions(run: RunView) -> Cell:
    packages = run.environment.get("packages")
    found: Mapping[str, Any] = packages if isinstance(packages, Mapping) else {}
    names = [f"{name} {found[name]}" for name in ("beliefspace", "torch", "numpy") if name in found]
    python = run.environment.get("python")
    names += [f"Python {python}"] if python is not None else []
    return Cell(clean(", ".join(names)) or ABSENT)


def _environment(name: str) -> Callable[[RunView], Cell]:
    return lambda run: Cell(clean(str(run.environment.get(name, ABSENT))))


_LINES: tuple[_Line, ...] = (
    ("task", "", _described("task")),
    ("model", "", _described("model")),
    ("parameters", "", _trained("parameters", whole)),
    ("targets", "", _targets),
    ("optimizer", "", _described("optimizer")),
    ("steps", "", _trained("steps", whole)),
    ("sequences", "trained on", _trained("sequences", whole)),
    ("predictions", "trained on", _trained("predictions", whole)),
    ("CPU time", "", _trained("cpu_seconds", duration)),
    ("operations", "floating point, of matrix products", _trained("operations", whole)),
    ("2·KL·n", "nats", _trained("efficiency", short)),
    ("evaluation", "", _evaluation),
    ("status", "", lambda run: Cell(run.status)),
    ("started", "UTC", lambda run: Cell(clean(str(run.header.get("created", ABSENT))))),
    ("processor", "", _environment("processor")),
    ("versions", "", _versions),
)

_SEED_AT = [name for name, _, _ in _LINES].index("evaluation")
