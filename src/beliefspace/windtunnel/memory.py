"""How far back a model remembers, asked in two ways that can disagree; both belong to a score.

window-equivalent
    The smallest w such that the exact filter that saw the last w observations only is at most as
    far from Bayes as the model. It tells what an error is worth, not how it came about.
influence
    The observation j steps back is replaced by another, and the model's change of belief is
    regressed on the exact one. A model that carries its belief forward has slope and correlation
    near 1 at every lag; one that reads a window has none beyond it, although its error may be as
    small, since what lies beyond the window hardly matters.

Symbols, at the last step of a sequence:
    j       lag: how many steps before the last one the observation was replaced
    x, y    change of the exact and of the model's probability of an outcome     [sequences, m]
    slope   sum x y / sum x x, and correlation sum x y / sqrt(sum x x sum y y); the changes of a
            distribution sum to 0, so both are those of a regression with an intercept
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from beliefspace.core.distributions import Categorical
from beliefspace.core.statistics import Interval
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.predictions import Predictor, predict
from beliefspace.windtunnel.tasks.base import Batch, Predictive
from beliefspace.windtunnel.tasks.filtering import FilteringTask

LAGS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)
SLOPES = (0.5, 1.5)
LEAST_CORRELATION = 0.7
"""A lag counts as right if its slope lies between the two and its correlation is at least this."""

_SEQUENCES = 500
_RESAMPLES = 1000
_ALIKE = 1 + 1e-9  # two ways to compute one filter differ by rounding, in either direction
_NO_CHANGE = 1e-12  # total variation below which an exact change is rounding


@dataclass(frozen=True)
class Lag:
    """The model's change of belief against the exact one, for an observation ``lag`` steps back.

    Attributes:
        lag: j.
        exact_change: mean total variation between the exact beliefs before and after.
        slope: of the model's change on the exact one.
        slope_interval: 95 % bootstrap interval over sequences.
        correlation: of the two; 0 for a model that does not change.
        null_correlation: of the model's change with the exact change of another sequence.
    """

    lag: int
    exact_change: float
    slope: float
    slope_interval: Interval
    correlation: float
    null_correlation: float

    @property
    def right(self) -> bool:
        """Whether the model changes as it should, in sign and roughly in size."""
        low, high = SLOPES
        return low <= self.slope <= high and self.correlation >= LEAST_CORRELATION


@dataclass(frozen=True)
class Memory:
    """Both measures of memory.

    Attributes:
        window_equivalent: smallest window, from 1 on, whose filter is as near to Bayes as the
            model, by the filter's restart; K stands for the exact filter.
        steps: observations of a sequence, K.
        influence: by lag; a lag at which the exact belief does not change is left out.
        sequences: how many the influence was measured on.
    """

    window_equivalent: Mapping[str, int]
    steps: int
    influence: tuple[Lag, ...]
    sequences: int

    @property
    def reach(self) -> int | None:
        """Largest lag such that it and every one before it is right; None if lag 0 is not."""
        reach = None
        for lag in self.influence:
            if not lag.right:
                break
            reach = lag.lag
        return reach

    def __str__(self) -> str:
        windows = ", ".join(
            f"{'at most ' * (window == 1)}{window} ({restart} restart)"
            for restart, window in self.window_equivalent.items()
        )
        right = "at no lag" if self.reach is None else f"to lag {self.reach}"
        return f"window-equivalent of {self.steps}: {windows}; influence right {right}"


def measure_memory(
    predictor: Predictor, task: FilteringTask, batch: Batch, error_bits: float, seed: int
) -> Memory:
    """Measure how far back a predictor remembers.

    Args:
        predictor: as for :func:`beliefspace.windtunnel.calibration.score`.
        task: what it is scored on.
        batch: the evaluation set.
        error_bits: mean KL(Bayes || predictor) on it.
        seed: of the sequences whose observations are replaced.
    """
    sequences = min(_SEQUENCES, len(batch.inputs))
    return Memory(
        {name: _window_equivalent(task, batch, error_bits, name) for name in task.restarts},
        task.steps,
        _influence(predictor, task, sequences, Stream(seed, "influence")),
        sequences,
    )


def _window_equivalent(task: FilteringTask, batch: Batch, error_bits: float, restart: str) -> int:
    for window, predictive in enumerate(task.windows(batch, restart), start=1):
        if batch.predictive.kl_bits(predictive).mean() <= error_bits * _ALIKE:
            return window
    return task.steps


def _influence(
    predictor: Predictor, task: FilteringTask, sequences: int, stream: Stream
) -> tuple[Lag, ...]:
    batch = task.batch(sequences, stream)
    exact, believed = _last(batch.predictive, task), _last_of(predictor, task, batch)
    lags = []
    for lag in (lag for lag in LAGS if lag < task.steps):
        changed = task.changed(batch, task.steps - 1 - lag, stream.child("changed"))
        if not changed.kept.any():
            continue
        x = _last(changed.batch.predictive, task) - exact[changed.kept]
        if 0.5 * np.abs(x).sum(axis=1).mean() > _NO_CHANGE:
            y = _last_of(predictor, task, changed.batch) - believed[changed.kept]
            lags.append(_regressed(lag, x, y, stream))
    return tuple(lags)


def _regressed(
    lag: int,
    x: Float64[np.ndarray, "sequences m"],
    y: Float64[np.ndarray, "sequences m"],
    stream: Stream,
) -> Lag:
    xy, xx = (x * y).sum(axis=1), (x * x).sum(axis=1)
    size = np.sqrt(xx.sum() * (y * y).sum())
    elsewhere = (np.roll(x, 1, axis=0) * y).sum()
    generator = stream.generator(lag, lane="bootstrap")
    weights = generator.multinomial(len(x), np.full(len(x), 1 / len(x)), size=_RESAMPLES)
    with np.errstate(invalid="ignore"):
        slopes = (weights @ xy) / (weights @ xx)
    low, high = np.nanquantile(slopes, [0.025, 0.975])
    slope = float(xy.sum() / xx.sum())
    return Lag(
        lag,
        float(0.5 * np.abs(x).sum(axis=1).mean()),
        slope,
        Interval(min(float(low), slope), max(float(high), slope), 0.95, "bootstrap", len(x)),
        float(xy.sum() / size) if size > 0 else 0.0,
        float(elsewhere / size) if size > 0 else 0.0,
    )


def _last_of(
    predictor: Predictor, task: FilteringTask, batch: Batch
) -> Float64[np.ndarray, "sequences m"]:
    """What a predictor believes at the last step; mass outside the support is left out."""
    believed, exact = predict(predictor, task, batch), batch.predictive
    assert isinstance(believed, Categorical)
    assert isinstance(exact, Categorical)
    inside = [believed.support.index(outcome) for outcome in exact.support]
    return _last(believed, task)[:, inside]


def _last(predictive: Predictive, task: FilteringTask) -> Float64[np.ndarray, "sequences m"]:
    """Probabilities at the last step of each sequence."""
    assert isinstance(predictive, Categorical)
    log_probs = predictive.log_probs
    return np.asarray(np.exp(log_probs.reshape(-1, task.steps, log_probs.shape[1])[:, -1]))
