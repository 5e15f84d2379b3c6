"""What a claim is: a published value, how far it can be trusted, and the runs that can settle it.

Claims are data (see ``ledger/``); a verdict is computed from results and never stored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import floor, isnan
from typing import Any, Literal, TypeAlias, get_args

from beliefspace.core.config import from_dict, merge, to_dict
from beliefspace.core.errors import InvalidInput, unknown_name
from beliefspace.core.registry import names
from beliefspace.windtunnel.recipe import Recipe, parse_budget
from beliefspace.windtunnel.tasks.base import Task

Trust = Literal["paper", "secondary source", "released code", "computed here"]
"""Where a published value was read: the paper's own text, a text about the full paper, the authors'
public repository, or nowhere: then it was computed with this package's definitions."""

Relation = Literal["at most", "about", "at least"]
SettingValue: TypeAlias = int | float | bool | str | tuple[float, ...]
LevelName = Literal["smoke", "standard", "paper"]
LEVELS: tuple[LevelName, ...] = get_args(LevelName)

_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*/[a-z0-9]+(-[a-z0-9]+)*")
_ARXIV = re.compile(r"\d{4}\.\d{4,5}")
_SETTABLE = ("model", "optimizer", "schedule", "targets", "balanced", "evaluation", "hardware")


@dataclass(frozen=True)
class Published:
    """A value in the literature.

    Attributes:
        value: the number; None for a statement that came without one.
        unit: of the number, "bits".
        trust: where it was read; see :data:`Trust`.
        note: what a reader should know before relying on it.
    """

    value: float | None
    unit: str
    trust: Trust
    note: str

    def __post_init__(self) -> None:
        if self.value is not None and isnan(self.value):
            raise InvalidInput("a published value is a number or inf, not NaN")


@dataclass(frozen=True)
class Setting:
    """One field of a recipe: its dotted path ("schedule.batch") and its value."""

    path: str
    value: SettingValue

    def __post_init__(self) -> None:
        first = self.path.partition(".")[0]
        if first not in _SETTABLE:
            raise unknown_name("part of a recipe that a claim can set", first, _SETTABLE)


@dataclass(frozen=True)
class Level:
    """One size of a study.

    Attributes:
        seeds: how many runs.
        settings: fields of the recipe, over those of the protocol; ``schedule.budget`` in steps.
    """

    seeds: int
    settings: tuple[Setting, ...] = ()

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise InvalidInput(f"a study takes 1 seed or more; got seeds = {self.seeds}")


@dataclass(frozen=True)
class Protocol:
    """Which results settle a claim.

    Attributes:
        study: "train", finished training runs; or "ladder", reference predictors without any
            training, computed when the verdict is.
        tasks: the task, and other spellings of the same one; a run's task equals one of them in
            every field. New runs take the first.
        settings: what else a run must have; fields that are not named are free.
        smoke: minutes, to see that everything works; a miss shows nothing.
        standard: the smallest size whose miss counts.
        paper: as published.
    """

    study: Literal["train", "ladder"]
    tasks: tuple[Task, ...]
    settings: tuple[Setting, ...] = ()
    smoke: Level | None = None
    standard: Level | None = None
    paper: Level | None = None

    def __post_init__(self) -> None:
        if not self.tasks:
            raise InvalidInput("a protocol names 1 task or more; got none")
        given = [level for level in LEVELS if getattr(self, level) is not None]
        if self.study == "ladder":
            if given or self.settings or len(self.tasks) > 1:
                raise InvalidInput('study = "ladder" takes one task, no settings and no levels')
            return
        lacking = [level for level in LEVELS if level not in given]
        if lacking:
            raise InvalidInput(f'study = "train" lacks {", ".join(lacking)}')
        if self.model is None:
            raise InvalidInput('study = "train" needs model.kind among its settings')
        # A model that this version lacks cannot be checked; its claims are "not run".
        if self.model in names("models"):
            for level in LEVELS:
                self.recipe(level)

    @property
    def model(self) -> str | None:
        """Registered name of the kind of model that is trained; None where nothing is."""
        kinds = [setting.value for setting in self.settings if setting.path == "model.kind"]
        return str(kinds[0]) if kinds else None

    def level(self, name: LevelName) -> Level:
        """Return the level of a name.

        Raises:
            InvalidInput: the study has no levels.
        """
        found = {"smoke": self.smoke, "standard": self.standard, "paper": self.paper}[name]
        if found is None:
            raise InvalidInput(f'study = "{self.study}" has no {name} level: it trains nothing')
        return found

    def recipe(self, name: LevelName, seed: int = 0) -> Recipe:
        """Return the training run of a level, its schedule in steps.

        Raises:
            UnknownName: this version has no such model.
            InvalidInput: the settings do not fit a recipe, or the budget is not in steps.
        """
        return _recipe(self, name, seed)


@dataclass(frozen=True)
class Companion:
    """A second quantity that must be small for an agreement to mean anything."""

    quantity: str
    at_most: float


@dataclass(frozen=True)
class Claim:
    """A published claim.

    Attributes:
        id: "topic/name".
        label: what a table calls it.
        arxiv: id of the paper.
        statement: what was measured, in this project's words.
        quantity: dotted path into a run's ``result.json``; None where none is defined yet.
        published: the value to compare with.
        relation: what the measured value should be to the published one.
        protocol: which results settle it.
        tolerance: slack, at least 0.
        tolerance_kind: of the published value ("relative") or in its unit ("absolute").
        companion: what else must hold, as entropies can agree by cancellation.
    """

    id: str
    label: str
    arxiv: str
    statement: str
    quantity: str | None
    published: Published
    relation: Relation
    protocol: Protocol
    tolerance: float = 0.0
    tolerance_kind: Literal["relative", "absolute"] = "relative"
    companion: Companion | None = None

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise InvalidInput(f'id = {self.id!r}: expected "topic/name", lower case and hyphens')
        if not _ARXIV.fullmatch(self.arxiv):
            raise InvalidInput(f'arxiv = {self.arxiv!r}: expected an id such as "2512.22471"')
        if not (self.statement.strip() and self.label.strip()):
            raise InvalidInput(f"{self.id} needs a statement and a label")
        if not 0.0 <= self.tolerance < float("inf"):
            raise InvalidInput(f"{self.id} has tolerance {self.tolerance}: expected 0 or more")
        paths = [self.quantity, self.companion.quantity if self.companion else None]
        for path in paths:
            if path is not None and not all(path.split(".")):
                raise InvalidInput(
                    f'{self.id} has quantity {path!r}: expected "score.kl_bits.mean"'
                )
        if self.quantity is not None and self.published.value is None:
            raise InvalidInput(f"{self.id} has a quantity but no published value to compare with")

    @property
    def band(self) -> tuple[float, float]:
        """The published value less and plus the tolerance.

        Raises:
            InvalidInput: no value was published.
        """
        value = self.published.value
        if value is None:
            raise InvalidInput(f"{self.id} has no published value")
        # An infinite value has no slack; inf - inf would be NaN.
        if self.tolerance == 0.0 or abs(value) == float("inf"):
            return value, value
        slack = self.tolerance * (abs(value) if self.tolerance_kind == "relative" else 1.0)
        return value - slack, value + slack


@lru_cache(maxsize=256)
def _recipe(protocol: Protocol, name: LevelName, seed: int) -> Recipe:
    fields = {"task": to_dict(protocol.tasks[0]), "seed": seed}
    table = merge(fields, _nested(protocol.settings))
    table = merge(table, _nested(protocol.level(name).settings))
    recipe = from_dict(Recipe, table, where=f"the {name} level")
    if recipe.schedule.steps is not None:
        return recipe
    budget = parse_budget(recipe.schedule.budget)
    if budget.unit != "steps":
        raise InvalidInput(
            f'the {name} level has schedule.budget = "{recipe.schedule.budget}": '
            "a claim's budget is a number of steps, so that it means the same on every machine"
        )
    return from_dict(Recipe, merge(table, {"schedule": {"steps": max(1, floor(budget.amount))}}))


def _nested(settings: tuple[Setting, ...]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for setting in settings:
        *outer, last = setting.path.split(".")
        value: Any = setting.value
        branch: dict[str, Any] = {last: list(value) if isinstance(value, tuple) else value}
        for name in reversed(outer):
            branch = {name: branch}
        table = merge(table, branch)
    return table
