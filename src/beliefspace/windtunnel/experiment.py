"""Several training runs at once: arms and seeds, each a unit in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal

from beliefspace.core.config import content_hash, from_dict, to_dict
from beliefspace.core.errors import InvalidInput, RunExists
from beliefspace.core.registry import name_of
from beliefspace.core.store import Run
from beliefspace.runs.engines import Engine, Local
from beliefspace.runs.units import Report, Unit
from beliefspace.windtunnel.models.base import ModelSpec
from beliefspace.windtunnel.models.match import resolved
from beliefspace.windtunnel.recipe import (
    Recipe,
    Schedule,
    arm_settings,
    is_time,
    recipe_of,
    with_explicit_steps,
)
from beliefspace.windtunnel.tasks.base import Task

Observer = Callable[[str, Mapping[str, Any]], None]


def train(
    task: Task,
    arms: Sequence[ModelSpec] | ModelSpec | Mapping[str, ModelSpec],
    *,
    seeds: int | Sequence[int] = 3,
    budget: str = "5min",
    targets: Literal["sampled", "posterior"] = "sampled",
    out: str | Path,
    observe: Observer | None = None,
) -> dict[str, Run]:
    """Train every arm with every seed on a task; call it again to go on after a stop.

    Args:
        task: what is learned.
        arms: one model or several; in a mapping the keys name them.
        seeds: how many (0, 1, ...), or which.
        budget: of each run; see :mod:`beliefspace.windtunnel.recipe`.
        targets: see :class:`beliefspace.windtunnel.recipe.Recipe`.
        out: directory of the whole; each run is at ``out/ARM/seed-N``.
        observe: called with a run's name and its progress.

    Returns:
        The finished runs by name.

    Raises:
        InvalidInput: nothing to train, or a task or model that other processes could not import.
        RunExists: as :func:`run_recipes`, and Interrupted likewise.
    """
    seeds = range(seeds) if isinstance(seeds, int) else seeds
    named = _named(arms)
    recipes = {
        f"{name}/seed-{seed}": Recipe(
            task,
            resolved(model, task, named),
            schedule=Schedule(budget),
            targets=targets,
            seed=seed,
        )
        for name, model in named.items()
        for seed in seeds
    }
    return run_recipes(recipes, Path(out), observe=observe)


def run_recipes(
    recipes: Mapping[str, Recipe],
    out: Path,
    *,
    workers: int | None = None,
    observe: Observer | None = None,
) -> dict[str, Run]:
    """Train named recipes side by side; finished ones are kept, stopped ones resumed.

    A time budget is measured out once for all seeds of an arm, which then take as many steps.

    Args:
        recipes: by name; the run is at ``out/NAME`` (at ``out`` itself for the name "").
        out: directory of the whole.
        workers: runs at once; by default one per core.
        observe: called with a run's name and its progress, the fields of ``training.Progress``.

    Raises:
        InvalidInput: if there are no recipes, or a task or model cannot be imported elsewhere.
        RunExists: if a directory holds a run of another recipe; nothing is started then.
        Interrupted: on Ctrl-C; every run can be resumed by the same call.
    """
    if not recipes:
        raise InvalidInput("nothing to train: there is no model or no seed")
    places = {name: _place(out, name) for name in recipes}
    unfinished = {n: r for n, r in recipes.items() if not _is_finished(places[n], r)}
    steps = _steps(recipes, places)
    units = [
        Unit(
            name or out.name,
            f"{__name__}:train_unit",
            {"recipe": to_dict(recipe), "steps": steps[name]},
            places[name],
            _needs(recipe),
        )
        for name, recipe in unfinished.items()
    ]
    threads = max(recipe.hardware.threads for recipe in recipes.values())
    engine: Engine = Local(workers, threads)
    engine.run(units, observe)
    return {name: Run.open(place) for name, place in places.items()}


def train_unit(config: Mapping[str, Any], out: Path, report: Report) -> None:
    """Train or go on with one recipe; the function of a training unit."""
    from beliefspace.windtunnel.training import resume
    from beliefspace.windtunnel.training import train as train_one

    if (out / "run.json").exists():
        resume(out, lambda progress: report(vars(progress)))
    else:
        recipe = from_dict(Recipe, config["recipe"])
        train_one(recipe, out, lambda progress: report(vars(progress)), steps=config["steps"])


def _steps(recipes: Mapping[str, Recipe], places: Mapping[str, Path]) -> dict[str, int | None]:
    """Return the steps of each run where its time budget need not be measured out by itself.

    All seeds of an arm train for as many steps: those of a run of the arm that is there, else what
    is measured now for all of them.
    """
    arms: dict[str, list[str]] = {}
    for name, recipe in recipes.items():
        if recipe.schedule.steps is None:
            arms.setdefault(repr(arm_settings(recipe)), []).append(name)
    steps: dict[str, int | None] = dict.fromkeys(recipes)
    for names in arms.values():
        there = [name for name in names if (places[name] / "run.json").exists()]
        if there:
            shared = recipe_of(Run.open(places[there[0]])).schedule.steps
        elif len(names) > 1 and is_time(recipes[names[0]].schedule.budget):
            from beliefspace.windtunnel.training import resolve

            shared = resolve(recipes[names[0]]).schedule.steps
        else:
            continue
        steps |= dict.fromkeys(names, shared)
    return steps


def _place(out: Path, name: str) -> Path:
    """Return the directory of a named run, which is inside ``out`` or is ``out``."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise InvalidInput(f"a run's name is a path inside {out}; got {name!r}")
    return out / name


def _is_finished(place: Path, recipe: Recipe) -> bool:
    """Return whether a recipe is done; raise unless it can be started at a place, or resumed."""
    if not (place / "run.json").exists():
        Run.check_free(place)
        return False
    found = recipe_of(Run.open(place))
    if recipe.schedule.steps is None:
        found = replace(found, schedule=replace(found.schedule, steps=None))
    same = {content_hash(recipe), content_hash(with_explicit_steps(recipe))}
    if content_hash(found) not in same:
        raise RunExists(f"{place} holds a run of another recipe; give another --out, or remove it")
    return Run.open(place).finished


def _needs(recipe: Recipe) -> tuple[str, ...]:
    """Return what another process must import to know every registered part of a recipe."""
    modules = sorted({type(part).__module__ for part in _parts(recipe)})
    return tuple(_source(name) for name in modules if not name.startswith("beliefspace."))


def _parts(config: object) -> Iterator[object]:
    """Go through a configuration and everything in it that is one, too."""
    if is_dataclass(config):
        yield config
        for field in fields(config):
            yield from _parts(getattr(config, field.name))


def _source(module: str) -> str:
    """Return how another process gets a module: its name, or the file that was loaded as one."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if module == "__main__" and file is None:
        raise InvalidInput(
            "a task or model that is defined in a notebook or at the prompt cannot be trained, "
            "because other processes cannot import it; put it into a .py file and import that"
        )
    return str(file) if module.startswith("beliefspace_file_") else module


def _named(
    arms: Sequence[ModelSpec] | ModelSpec | Mapping[str, ModelSpec],
) -> Mapping[str, ModelSpec]:
    if isinstance(arms, Mapping):
        return arms
    if isinstance(arms, ModelSpec):
        arms = [arms]
    names = [name_of(arm)[1] for arm in arms]
    labels = [
        name if names.count(name) == 1 else f"{name}-{number}"
        for number, name in enumerate(names, start=1)
    ]
    return dict(zip(labels, arms, strict=True))
