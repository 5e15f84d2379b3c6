"""The score in a result file, read back without the code that made it.

The content is that of :class:`beliefspace.windtunnel.calibration.Score`; infinities are the strings
"inf" and "-inf".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beliefspace.core.errors import CorruptFile
from beliefspace.report.wording import clean

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
    """A predictor's measures by name, with the ladder and how they were taken."""

    measures: MeasuresView
    ladder: Mapping[str, MeasuresView]
    alternatives: MeasuresView
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


def read_score(content: Mapping[str, Any], where: Path) -> ScoreView:
    """Read the "score" of a result.

    Args:
        content: its JSON.
        where: the file, for the message.

    Raises:
        CorruptFile: something is missing or of another type; what, is named.
    """
    try:
        return ScoreView(
            measures=_measures(content),
            ladder={clean(name): _measures(rung) for name, rung in content["ladder"].items()},
            alternatives={
                clean(name): _measure(one) for name, one in content["alternatives"].items()
            },
            positions=tuple(int(position) for position in content["positions"]),
            bayes_entropy_bits=_floats(content["bayes_entropy_bits"]),
            support=str(content["support"]),
            sequences=int(content["sequences"]),
            seed=int(content["seed"]),
            evaluation_hash=str(content["evaluation_hash"]),
        )
    except KeyError as error:
        raise CorruptFile(f"the score in {where} lacks {error.args[0]!r}") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise CorruptFile(f"the score in {where} cannot be read: {error}") from None


def _measures(content: Mapping[str, Any]) -> MeasuresView:
    return {name: _measure(content[name]) for name in QUANTITIES}


def _measure(content: Mapping[str, Any]) -> MeasureView:
    interval = content["interval"]
    return MeasureView(
        mean=float(content["mean"]),
        low=None if interval is None else float(interval["low"]),
        high=None if interval is None else float(interval["high"]),
        by_position=_floats(content["by_position"]),
        worst=float(content["worst"]),
        worst_position=int(content["worst_position"]),
    )


def _floats(values: Any) -> tuple[float, ...]:  # noqa: ANN401 - JSON
    return tuple(float(value) for value in values)
