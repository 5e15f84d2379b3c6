"""What a run found, read back strictly and without the code that made it.

A ``result.json`` may come from anywhere. Its score is that of
:class:`beliefspace.windtunnel.calibration.Score`; infinities are the strings "inf" and "-inf".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from beliefspace.core.config import content_hash
from beliefspace.core.errors import CorruptFile, UnknownName
from beliefspace.core.statistics import Interval
from beliefspace.core.store import Run
from beliefspace.windtunnel.memory import Lag, Memory
from beliefspace.windtunnel.recipe import recipe_of

__all__ = ["MeasureView", "MeasuresView", "Result", "ScoreView", "read_result"]

Json: TypeAlias = Any

QUANTITIES = (
    "kl_bits",
    "entropy_error_bits",
    "total_variation",
    "excess_cross_entropy_bits",
    "accuracy",
    "leaked_inside",
    "leaked_outside",
    "entropy_bits",
)


@dataclass(frozen=True)
class MeasureView:
    """One quantity over an evaluation set; ``low`` and ``high`` are None without an interval."""

    mean: float
    low: float | None
    high: float | None
    by_position: tuple[float, ...]
    worst: float
    worst_position: int


MeasuresView = Mapping[str, MeasureView]


@dataclass(frozen=True)
class ScoreView:
    """A predictor's measures by name, with the ladder and how they were taken.

    Its memory is None where the exact belief is no filter, and in results older than the measure.
    """

    measures: MeasuresView
    ladder: Mapping[str, MeasuresView]
    alternatives: MeasuresView
    memory: Memory | None
    positions: tuple[int, ...]
    bayes_entropy_bits: tuple[float, ...]
    support: str
    sequences: int
    seed: int
    evaluation_hash: str

    @property
    def protocol(self) -> str:
        """How the score was taken, as the end of a sentence."""
        return f"{self.sequences:,} fresh sequences of evaluation seed {self.seed}"


@dataclass(frozen=True)
class Result:
    """What a training run found.

    Attributes:
        content: result.json; what the score and the training hold is of the right types.
        score: the score in it.
    """

    content: dict[str, Any]
    score: ScoreView


def read_result(run: Run) -> Result:
    """Read what a training run found, and check that it is a result, and this run's.

    Where the code of the run's task or model is not loaded, whose it is cannot be checked.

    Args:
        run: one that has a result.

    Raises:
        CorruptFile: something is missing or of another type, or the result belongs to another
            recipe; the file is named.
        BeliefspaceError: there is no result.
    """
    content, file = run.result(), run.path / "result.json"
    if "recipe" in content and not _is_of(run, content["recipe"]):
        raise CorruptFile(f"{file} belongs to another recipe than the config.toml beside it")
    try:
        _check_training(content["training"])
        return Result(content, _score(content["score"]))
    except KeyError as error:
        raise CorruptFile(f"{file} lacks {error.args[0]!r}") from None
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise CorruptFile(f"{file} has not the shape of a result: {error}") from None


def _is_of(run: Run, digest: Json) -> bool:
    try:
        return bool(digest == content_hash(recipe_of(run)))
    except UnknownName:
        return True


def _check_training(content: Json) -> None:
    _text(content["targets"])
    for name in ("steps", "predictions", "cpu_seconds"):
        _number(content[name])
    for value in content.values():
        if not isinstance(value, str | bool):
            _number(value)


def _score(content: Json) -> ScoreView:
    return ScoreView(
        measures=_measures(content),
        ladder={name: _measures(rung) for name, rung in content["ladder"].items()},
        alternatives={name: _measure(one) for name, one in content["alternatives"].items()},
        memory=None if content.get("memory") is None else _memory(content["memory"]),
        positions=tuple(map(_whole, content["positions"])),
        bayes_entropy_bits=tuple(map(_number, content["bayes_entropy_bits"])),
        support=_text(content["support"]),
        sequences=_whole(content["sequences"]),
        seed=_whole(content["seed"]),
        evaluation_hash=_text(content["evaluation_hash"]),
    )


def _measures(content: Json) -> MeasuresView:
    """Read the measures of a predictor; those of categorical outcomes alone can be null."""
    return {name: _measure(content[name]) for name in QUANTITIES if content[name] is not None}


def _measure(content: Json) -> MeasureView:
    interval = content["interval"]
    return MeasureView(
        mean=_number(content["mean"]),
        low=None if interval is None else _number(interval["low"]),
        high=None if interval is None else _number(interval["high"]),
        by_position=tuple(map(_number, content["by_position"])),
        worst=_number(content["worst"]),
        worst_position=_whole(content["worst_position"]),
    )


def _memory(content: Json) -> Memory:
    return Memory(
        {name: _whole(window) for name, window in content["window_equivalent"].items()},
        {name: _ends(windows) for name, windows in content["window_interval"].items()},
        _whole(content["steps"]),
        tuple(map(_lag, content["influence"])),
        _whole(content["sequences"]),
    )


def _lag(content: Json) -> Lag:
    interval = content["slope_interval"]
    return Lag(
        _whole(content["lag"]),
        _finite(content["exact_change"]),
        _finite(content["slope"]),
        Interval(
            _finite(interval["low"]),
            _finite(interval["high"]),
            _finite(interval["level"]),
            _text(interval["method"]),
            _whole(interval["count"]),
        ),
        *(_finite(content[f"{name}correlation"]) for name in ("", "control_", "null_")),
    )


def _ends(content: Json) -> tuple[int, int]:
    low, high = map(_whole, content)
    return low, high


def _finite(value: Json) -> float:
    number = _number(value)
    if math.isinf(number):
        raise ValueError(f"expected a finite number; got {_shown(value)}")
    return number


def _number(value: Json) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number or value in ("inf", "-inf")) or math.isnan(float(value)):
        raise ValueError(f"expected a number; got {_shown(value)}")
    return float(value)


def _whole(value: Json) -> int:
    if type(value) is not int:
        raise ValueError(f"expected a whole number; got {_shown(value)}")
    return value


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text; got {_shown(value)}")
    return value


def _shown(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
