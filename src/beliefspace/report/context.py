"""What panels are given: the runs of a page, read from their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from beliefspace.core.config import read_toml
from beliefspace.core.errors import CorruptFile, InvalidInput
from beliefspace.core.store import Run
from beliefspace.report.wording import clean
from beliefspace.studies.arms import canonical, flat, setting_apart
from beliefspace.studies.results import ScoreView, read_result
from beliefspace.windtunnel.recipe import parse_budget

_LONGEST_LABEL = 48


@dataclass(frozen=True)
class RunView:
    """One run as its files tell it.

    Attributes:
        name: the directory's name.
        label: what tells it from the other runs of the page.
        arm: what tells its arm (all but the seed) from the other arms.
        header: run.json.
        config_toml: config.toml, as text.
        config: the same, parsed.
        environment: environment.json.
        metrics: the rows of metrics.jsonl.
        result: result.json, or None while there is none.
        score: the score in it, if it holds one.
    """

    name: str
    label: str
    arm: str
    header: Mapping[str, Any]
    config_toml: str
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    metrics: tuple[Mapping[str, Any], ...]
    result: Mapping[str, Any] | None
    score: ScoreView | None

    @property
    def status(self) -> str:
        """What became of the run: running, interrupted, finished or failed."""
        return str(self.header["status"])

    @property
    def seed(self) -> int | None:
        """The seed of its data and initial weights, if its config names one."""
        seed = self.config.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def training(self) -> Mapping[str, Any]:
        """What its training took; empty while it is not known."""
        training = (self.result or {}).get("training")
        return training if isinstance(training, Mapping) else {}

    def kind_of(self, table: str) -> str | None:
        """Return the registered name in a table of the config ("task", "model"), if any."""
        content = self.config.get(table)
        kind = content.get("kind") if isinstance(content, Mapping) else None
        return None if kind is None else clean(str(kind))

    def described(self, table: str) -> str:
        """Return the kind and settings of a table of the config in one line, or nothing."""
        content = self.config.get(table)
        return described(content) if isinstance(content, Mapping) else ""


@dataclass(frozen=True)
class Context:
    """What a panel may show.

    Attributes:
        runs: one or more, in the order they were given.
    """

    runs: tuple[RunView, ...]

    def scored(self) -> tuple[tuple[RunView, ...], ...]:
        """Return the runs that have a score, those on the same evaluation set together."""
        return _grouped(
            (run.score.evaluation_hash, run) for run in self.runs if run.score is not None
        )

    def by_task(self) -> tuple[tuple[RunView, ...], ...]:
        """Return the runs, those of the same task together."""
        return _grouped((canonical(run.config.get("task")), run) for run in self.runs)


def arms(runs: Iterable[RunView]) -> dict[str, tuple[RunView, ...]]:
    """Return the runs by arm, in order."""
    return {group[0].arm: group for group in _grouped((run.arm, run) for run in runs)}


def read_context(runs: Sequence[Run]) -> Context:
    """Read the files of runs and find what tells them apart.

    Raises:
        CorruptFile: a file cannot be read; it is named.
    """
    views = [_read(run) for run in runs]
    settings = [settings_of_arm(view.config) for view in views]
    flats = [flat(one) for one in settings]
    with_seeds = [{**one, "seed": view.seed} for one, view in zip(flats, views, strict=True)]
    labels, arm_labels = _labels(views, with_seeds), _labels(views, flats)
    arms_taken: set[str] = set()
    taken: set[str] = set()
    by_arm: dict[str, str] = {}
    named = []
    for view, one, label, arm_label in zip(views, settings, labels, arm_labels, strict=True):
        arm = canonical(one)
        if arm not in by_arm:
            by_arm[arm] = _unused(arm_label, view.name, arms_taken)
        named.append(replace(view, label=_unused(label, view.name, taken), arm=by_arm[arm]))
    return Context(tuple(named))


def settings_of_arm(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run shares with its repetitions: the rule of ``arm_settings``, on plain values.

    A page is made of any run, also of one whose task or model is in code that is not loaded.
    """
    settings = {name: value for name, value in config.items() if name not in ("seed", "hardware")}
    schedule = settings.get("schedule")
    if isinstance(schedule, Mapping) and _is_time(schedule.get("budget")):
        settings["schedule"] = {k: v for k, v in schedule.items() if k != "steps"}
    return settings


def _is_time(budget: object) -> bool:
    try:
        return parse_budget(str(budget)).unit in ("seconds", "cpu-seconds")
    except InvalidInput:
        return False


def described(table: Mapping[str, Any]) -> str:
    """Return the kind and settings of a table of a config in one line; what is off is left out."""
    settings = flat(table)
    kind = settings.pop("kind", None)
    inside = ", ".join(
        name if value is True else f"{name} {_value(value)}"
        for name, value in ((_words(key), value) for key, value in settings.items())
        if value is not False
    )
    words = ["" if kind is None else str(kind), f"({inside})" if inside else ""]
    return clean(" ".join(word for word in words if word))


def _words(key: str) -> str:
    return key.replace("_", " ").replace(".", " ")


def _read(run: Run) -> RunView:
    text = run.config_toml()
    try:
        config = read_toml(text, str(run.path / "config.toml"))
    except InvalidInput as error:
        raise CorruptFile(str(error)) from None
    has_result = (run.path / "result.json").exists()
    found = read_result(run) if has_result and run.kind == "train" else None
    return RunView(
        name=clean(run.path.resolve().name),
        label="",
        arm="",
        header=run.header(),
        config_toml=text,
        config=config,
        environment=run.environment(),
        metrics=tuple(run.metrics()),
        result=run.result() if has_result else None,
        score=None if found is None else _printable(found.score),
    )


def _printable(score: ScoreView) -> ScoreView:
    """Return the score with names that can stand in a page."""
    memory = score.memory
    if memory is not None:
        memory = replace(
            memory,
            window_equivalent={clean(n): one for n, one in memory.window_equivalent.items()},
            window_interval={clean(n): one for n, one in memory.window_interval.items()},
        )
    return replace(
        score,
        memory=memory,
        ladder={clean(name): rung for name, rung in score.ladder.items()},
        alternatives={clean(name): one for name, one in score.alternatives.items()},
    )


def _labels(views: Sequence[RunView], flats: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name each run by its kind of model and the settings that set it apart."""
    labels = []
    for view, own in zip(views, setting_apart(flats), strict=True):
        # The seed comes last: it tells the runs of one arm apart.
        differing = sorted(own, key=lambda name: name == "seed")
        parts = [
            f"{_words(name.rpartition('.')[2])} {_value(own[name])}".removeprefix("kind ")
            for name in differing
            if name != "model.kind" and own[name] is not None
        ]
        kind = view.kind_of("model") or view.name
        labels.append(_shortened(clean(", ".join([kind, *parts]))))
    return labels


def _unused(label: str, name: str, taken: set[str]) -> str:
    candidates = [label, _shortened(f"{label} ({name})")]
    candidates += [f"{label} #{number}" for number in range(2, len(taken) + 3)]
    chosen = next(candidate for candidate in candidates if candidate not in taken)
    taken.add(chosen)
    return chosen


def _shortened(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "…"


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _grouped(keyed: Iterable[tuple[str, RunView]]) -> tuple[tuple[RunView, ...], ...]:
    groups: dict[str, list[RunView]] = {}
    for key, run in keyed:
        groups.setdefault(key, []).append(run)
    return tuple(tuple(group) for group in groups.values())
