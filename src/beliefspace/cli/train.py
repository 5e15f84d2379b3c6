"""``train`` and ``resume``: runs, their progress and their scores."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from beliefspace.cli.arguments import parse
from beliefspace.cli.console import Answer, Progress, Table, number
from beliefspace.cli.names import find, open_runs
from beliefspace.cli.recipes import Named, chosen, read_recipe, value_of
from beliefspace.core.config import to_dict, to_toml
from beliefspace.core.errors import InvalidInput, RunExists, missing_extra
from beliefspace.core.registry import name_of
from beliefspace.core.statistics import mean_t
from beliefspace.studies.results import read_result
from beliefspace.windtunnel.recipe import Recipe, recipe_of

__all__ = ["RunsArgument", "require_torch", "resume", "train"]

_MOST_SEEDS = 10_000

RunsArgument = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RUN ...", help="runs, or directories that hold some"),
]


@dataclass(frozen=True)
class TrainOptions:
    """Which runs, and where.

    Args:
        model: name of the model, or a .py file that registers one; its settings are flags below.
            By default "transformer".
        optimizer: name of the optimizer; its settings are flags below. By default "muon".
        config: TOML file with any part of a recipe; flags win over it.
        seeds: how many runs, with seed, seed + 1, ...
        out: directory of the run, or of all of them; by default runs/TASK-MODEL.
        workers: runs at once; by default one per core.
        dry_run: print the recipe that would be run, and stop.
        json: one JSON object.
    """

    model: str | None = None
    optimizer: str | None = None
    config: str | None = None
    seeds: int = 1
    out: Path | None = None
    workers: int | None = None
    dry_run: bool = False
    json: bool = False


@dataclass(frozen=True)
class ResumeOptions:
    """Which runs.

    Args:
        workers: runs at once; by default one per core.
        json: one JSON object.
    """

    runs: RunsArgument
    workers: int | None = None
    json: bool = False


def train(arguments: Sequence[str]) -> Answer:
    """Train on a task and score the result: beliefspace train TASK [flags].

    TASK is a registered name, or a .py file that registers one. The flags of task, model and
    optimizer are those of the classes chosen; without TASK this help shows the bijection's. The
    same command goes on with what was stopped.
    """
    words = list(arguments)
    task = "bijection" if words[:1] in (["-h"], ["--help"]) else None
    if words and not words[0].startswith("-"):
        task = find("tasks", words.pop(0))
    named = Named(
        task, chosen("models", "--model", words), chosen("optimizers", "--optimizer", words)
    )
    file = value_of("--config", words)
    options, recipe = read_recipe(TrainOptions, named, file, words, str(train.__doc__))
    # Counting checks that the model suits the task, before anything is made.
    parameters = recipe.model.parameters(recipe.task)
    recipes = _with_seeds(recipe, options.seeds)
    _check_workers(options.workers)
    out = options.out or Path("runs") / f"{name_of(recipe.task)[1]}-{name_of(recipe.model)[1]}"
    if options.dry_run:
        places = [out / name for name in recipes]
        lines = [f"# {len(places)} run(s) of {parameters:,} parameters, at:"]
        lines += [f"#   {place}" for place in places]
        data = {"recipe": to_dict(recipe), "parameters": parameters, "places": places}
        return Answer(("\n".join(lines), to_toml(recipe)), data, options.json)
    if len(recipes) > 1 and (out / "run.json").exists():
        raise RunExists(f"{out} holds a run already; give another --out for {len(recipes)} runs")
    return _run(recipes, out, options.workers, options.json)


def resume(arguments: Sequence[str]) -> Answer:
    """Go on with stopped runs from their newest whole checkpoint; finished ones are left alone."""
    options = parse(ResumeOptions, arguments, "resume", str(resume.__doc__))
    if not options.runs:
        raise InvalidInput("say which run: beliefspace resume RUN ...")
    _check_workers(options.workers)
    runs = open_runs(options.runs)
    recipes = {run.path: recipe_of(run) for run in runs}
    if len(runs) == 1:
        return _run({"": recipes[runs[0].path]}, runs[0].path, options.workers, options.json)
    above = Path(os.path.commonpath([run.path.resolve() for run in runs]))
    by_name = {str(path.resolve().relative_to(above)): recipe for path, recipe in recipes.items()}
    return _run(by_name, above, options.workers, options.json)


def require_torch() -> None:
    """Raise unless torch is installed, without importing it.

    Raises:
        MissingExtra: it is not; the message says how to install it.
    """
    if importlib.util.find_spec("torch") is None:
        raise missing_extra("torch", "tunnel")


def _with_seeds(recipe: Recipe, seeds: int) -> dict[str, Recipe]:
    if not 1 <= seeds <= _MOST_SEEDS:
        raise InvalidInput(f"there are 1 to {_MOST_SEEDS:,} seeds; got --seeds {seeds}")
    if seeds == 1:
        return {"": recipe}
    each = range(recipe.seed, recipe.seed + seeds)
    return {f"seed-{seed}": replace(recipe, seed=seed) for seed in each}


def _check_workers(workers: int | None) -> None:
    if workers is not None and workers < 1:
        raise InvalidInput(f"there is 1 worker or more; got --workers {workers}")


def _run(recipes: Mapping[str, Recipe], out: Path, workers: int | None, as_json: bool) -> Answer:
    require_torch()
    from beliefspace.windtunnel.experiment import run_recipes

    with Progress([name or out.name for name in recipes]) as progress:
        runs = run_recipes(recipes, out, workers=workers, observe=progress.observe)
    results = {name or out.name: read_result(run).content for name, run in runs.items()}
    paths = {name or out.name: run.path for name, run in runs.items()}
    data = {
        "runs": [{"name": name, "path": paths[name], **result} for name, result in results.items()],
        "kl_bits": _over_seeds(results, "kl_bits"),
        "entropy_error_bits": _over_seeds(results, "entropy_error_bits"),
    }
    last = next(iter(paths.values())) if len(paths) == 1 else out
    hint = f"\na page about it: beliefspace report {last}"
    return Answer((_table(results), _summary(data, len(results)), hint), data, as_json)


def _over_seeds(results: Mapping[str, Mapping[str, Any]], metric: str) -> dict[str, Any]:
    # Infinities are text in JSON, and float reads them back.
    values = [float(result["score"][metric]["mean"]) for result in results.values()]
    return dataclasses.asdict(mean_t(np.array(values)))


def _table(results: Mapping[str, Mapping[str, Any]]) -> Table:
    headers = ("run", "KL, bits", "worst position", "entropy error, bits", "steps", "targets")
    rows = []
    for name, result in results.items():
        score, training = result["score"], result["training"]
        divergence, error = score["kl_bits"], score["entropy_error_bits"]
        rows.append(
            (
                name,
                number(divergence["mean"]),
                f"{number(divergence['worst'])} at {divergence['worst_position']}",
                number(error["mean"]),
                number(training["steps"]),
                training["targets"],
            )
        )
    return Table(headers, tuple(rows))


def _summary(data: Mapping[str, Any], count: int) -> str:
    estimate = data["kl_bits"]
    if count == 1:
        return "one seed: no interval over seeds"
    interval = estimate["interval"]
    bounds = f", 95 % interval {number(interval['low'])} to {number(interval['high'])}"
    spread = bounds if interval else ""
    return f"KL over {count} seeds: {number(estimate['mean'])} bits{spread}"
