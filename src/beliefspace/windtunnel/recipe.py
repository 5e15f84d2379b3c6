"""A training run, as settings: everything that its result depends on, and nothing else.

A budget is written as a number and a unit: "4000 steps", "20M predictions" (scored positions seen),
"5 min" (of wall clock) or "6 cpu-min". A time is measured out once, before the run, into a number
of steps; the recorded recipe holds that number, so that a resumed run follows the same schedule.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from beliefspace.core.checks import check_finite, check_whole
from beliefspace.core.config import from_toml, to_dict
from beliefspace.core.environment import code_needed
from beliefspace.core.errors import InvalidInput, UnknownName, unknown_name
from beliefspace.core.store import Run
from beliefspace.windtunnel.models.base import ModelSpec
from beliefspace.windtunnel.models.match import resolved
from beliefspace.windtunnel.optimizers import Muon, OptimizerSpec
from beliefspace.windtunnel.tasks.base import Task

_SECONDS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}
_COUNTS = {"step": "steps", "steps": "steps", "prediction": "predictions"}
_COUNTS["predictions"] = "predictions"
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


@dataclass(frozen=True)
class Budget:
    """How long to train.

    Attributes:
        amount: number of ``unit``.
        unit: "steps", "predictions", "seconds" of wall clock, or "cpu-seconds" of this process.
    """

    amount: float
    unit: Literal["steps", "predictions", "seconds", "cpu-seconds"]


def parse_budget(text: str) -> Budget:
    """Read a budget such as "4000 steps", "20M predictions", "5 min", "90s" or "6 cpu-min".

    Raises:
        InvalidInput: if the text is not a positive number with a known unit.
    """
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kMG]?)\s*(cpu-)?([a-z]+)\s*", text)
    expected = 'expected for example "4000 steps", "20M predictions", "5min" or "6 cpu-min"'
    if match is None:
        raise InvalidInput(f"a budget of {text!r} cannot be read; {expected}")
    number, prefix, cpu, unit = match.groups()
    try:
        amount = float(number) * _PREFIXES[prefix]
    except ValueError:
        raise InvalidInput(f"a budget of {text!r} cannot be read; {expected}") from None
    if not 0 < amount < math.inf:
        raise InvalidInput(f"a budget is more than nothing and finite; got {text!r}")
    if unit in _SECONDS:
        return Budget(amount * _SECONDS[unit], "cpu-seconds" if cpu else "seconds")
    if unit in _COUNTS and not cpu:
        kind: Literal["steps", "predictions"] = (
            "steps" if _COUNTS[unit] == "steps" else "predictions"
        )
        return Budget(amount, kind)
    raise unknown_name("unit of a budget", unit, [*_SECONDS, *_COUNTS])


def is_time(budget: str) -> bool:
    """Whether a budget has to be measured out into steps."""
    return parse_budget(budget).unit in ("seconds", "cpu-seconds")


@dataclass(frozen=True)
class Schedule:
    """How many steps, of which size, at which rate.

    Args:
        budget: such as "4000 steps", "20M predictions" (scored positions), "5 min" of wall clock or
            "6 cpu-min"; a time is that of the steps alone, without start-up and scoring, and is
            measured out once, before the first step.
        steps: the number that the budget came to, worked out when training starts; given
            beforehand, it is the budget.
        batch: sequences per step.
        warmup_steps: over which the rate rises linearly (at most a tenth of all steps).
        decay: shape of the fall to zero, from the end of the warm-up to the last step.
        clip: largest norm of the whole gradient; 0 for no limit.
    """

    budget: str = "5min"
    steps: int | None = None
    batch: int = 60
    warmup_steps: int = 100
    decay: Literal["linear", "cosine", "constant"] = "linear"
    clip: float = 1.0

    def __post_init__(self) -> None:
        parse_budget(self.budget)
        if self.steps is not None:
            check_whole("steps", self.steps, 1, most=10**12)
        check_whole("batch", self.batch, 1)
        check_whole("warmup_steps", self.warmup_steps, 0, most=10**12)
        check_finite("clip", self.clip)

    def rate(self, step: int, steps: int) -> float:
        """Return the fraction of the highest rate at ``step`` of ``steps``, in (0, 1]."""
        if not 0 <= step < steps:
            raise InvalidInput(f"there is no step {step} in a schedule of {steps}")
        warmup = min(self.warmup_steps, steps // 10)
        if step < warmup:
            return (step + 1) / (warmup + 1)
        if self.decay == "constant":
            return 1.0
        left = (steps - step) / (steps - warmup)
        return left if self.decay == "linear" else math.sin(0.5 * math.pi * left) ** 2


@dataclass(frozen=True)
class Evaluation:
    """How the finished model is scored, and how often a running one is looked at.

    Args:
        sequences: fresh sequences of the final score.
        seed: of that evaluation set.
        looks: how often the distance from Bayes is measured during training.
    """

    sequences: int = 2048
    seed: int = 0
    looks: int = 40

    def __post_init__(self) -> None:
        check_whole("sequences", self.sequences, 2, most=10_000_000)
        check_whole("looks", self.looks, 1)


@dataclass(frozen=True)
class Hardware:
    """Where the arithmetic runs; part of the recipe because the last bits depend on it.

    Args:
        device: "cpu", "cuda", "cuda:1", "mps", ...
        threads: of one run; side by side, runs with one thread each get more done than one with
            several.
    """

    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        check_whole("threads", self.threads, 1, most=1024)


@dataclass(frozen=True)
class Recipe:
    """One training run.

    Args:
        task: what is learned.
        model: what learns it.
        optimizer: how.
        schedule: for how long.
        targets: "sampled", the outcome drawn (the scientific claim), or "posterior", the exact
            predictive: the same expected gradient, whose noise vanishes as the model nears Bayes,
                for quick models. Every result says which.
        balanced: draw batches that cover a symmetry of the task (each sequence is still distributed
            as the task says).
        seed: of the data and of the initial weights.
        evaluation: how it is scored.
        hardware: where it runs.
    """

    task: Task
    model: ModelSpec
    optimizer: OptimizerSpec = field(default_factory=Muon)
    schedule: Schedule = field(default_factory=Schedule)
    targets: Literal["sampled", "posterior"] = "sampled"
    balanced: bool = False
    seed: int = 0
    evaluation: Evaluation = field(default_factory=Evaluation)
    hardware: Hardware = field(default_factory=Hardware)

    def __post_init__(self) -> None:
        for part, base in (("task", Task), ("model", ModelSpec), ("optimizer", OptimizerSpec)):
            if not isinstance(getattr(self, part), base):
                given = getattr(self, part)
                raise InvalidInput(f"a recipe's {part} is a {base.__name__}; got {given!r}")
        # A recipe holds the width itself, not the wish for one.
        object.__setattr__(self, "model", resolved(self.model, self.task))


def recipe_of(run: Run) -> Recipe:
    """Read the resolved recipe of a run; no code that the run names is loaded.

    Raises:
        UnknownName: its task or model is in a user's file, which is named, or is nowhere.
        InvalidInput: the config is no recipe.
    """
    try:
        return from_toml(Recipe, run.config_toml(), where=str(run.path / "config.toml"))
    except UnknownName as error:
        raise UnknownName("; ".join([str(error), *code_needed(run.environment())])) from None


def with_explicit_steps(recipe: Recipe) -> Recipe:
    """Return the recipe with its number of steps, where one was given, as its budget too."""
    schedule = recipe.schedule
    if schedule.steps is None:
        return recipe
    return replace(recipe, schedule=replace(schedule, budget=f"{schedule.steps} steps"))


def arm_settings(recipe: Recipe) -> dict[str, Any]:
    """Return what two runs have in common when they are repetitions of one experiment.

    That is everything but the seed, the hardware, and the number of steps that a time budget came
    to, which varies with the machine's mood.

    Args:
        recipe: of one run.

    Returns:
        Nested plain values, as in the run's config.
    """
    settings = to_dict(recipe)
    del settings["seed"], settings["hardware"]
    if is_time(recipe.schedule.budget):
        settings["schedule"].pop("steps", None)
    return settings
