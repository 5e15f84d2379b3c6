"""How far back a model remembers, asked in two ways that can disagree; both belong to a score.

window-equivalent
    The smallest w such that the exact filter that saw the last w observations only is at most as
    far from Bayes as the model. It tells what an error is worth, not how it came about.
influence
    The observation j steps back is replaced by another, and the model's change of belief is
    regressed on the exact one. A model that reads a window has none beyond it, although its error
    may be as small as that of one that carries its belief forward, since what lies beyond the
    window hardly matters.

What lies far back changes the exact belief by little, and the model's own error drowns it: how far
an influence can be shown depends on the error. So each lag has a control, the exact filter with
independent noise on its logits that brings it as far from Bayes as the model: where its correlation
is low, a low one of the model says nothing about memory. A second, the null, takes the exact change
of another sequence.

Symbols, at the last step of a sequence:
    j       lag: how many steps before the last one the observation was replaced
    x, y    change of the exact and of the model's probability of an outcome     [sequences, m]
    slope   sum x y / sum x x, and correlation sum x y / sqrt(sum x x sum y y); the changes of a
            distribution sum to 0, so both are those of a regression with an intercept
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from beliefspace.core.distributions import Categorical
from beliefspace.core.information import kl_bits, log_softmax
from beliefspace.core.statistics import Interval
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.predictions import Predictor, predict
from beliefspace.windtunnel.tasks.base import Batch, Predictive
from beliefspace.windtunnel.tasks.filtering import FilteringTask

LAGS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)
SLOPES = (0.5, 1.5)
LEAST_CORRELATION = 0.7
"""A lag counts as right if its slope lies between the two and its correlation is at least this: a
convention of this package."""
LEAST_CHANGE = 1e-4
"""Total variation below which an exact change is left out: float32 cannot tell it from rounding."""

_SEQUENCES = 500
_FEWEST = 20  # sequences, below which a lag is left out
_RESAMPLES = 1000
_MOST_WINDOWS = 64
_ALIKE = 1 + 1e-9  # two ways to compute one filter differ by rounding, in either direction
_TRIAL_NOISE, _MOST_NOISE = 1e-3, 100.0


@dataclass(frozen=True)
class Lag:
    """The model's change of belief against the exact one, for an observation ``lag`` steps back.

    Attributes:
        lag: j.
        exact_change: mean total variation between the exact beliefs before and after.
        slope: of the model's change on the exact one.
        slope_interval: 95 % bootstrap interval over sequences.
        correlation: of the two; 0 for a model that does not change.
        control_correlation: that of the exact filter with noise, as far from Bayes as the model.
        null_correlation: of the model's change with the exact change of another sequence.
    """

    lag: int
    exact_change: float
    slope: float
    slope_interval: Interval
    correlation: float
    control_correlation: float
    null_correlation: float

    @property
    def right(self) -> bool:
        """Whether the model changes as it should, in sign and roughly in size."""
        low, high = SLOPES
        return low <= self.slope <= high and self.correlation >= LEAST_CORRELATION

    @property
    def shown(self) -> bool:
        """Whether a perfect memory with the model's error would come out as right."""
        return self.control_correlation >= LEAST_CORRELATION


@dataclass(frozen=True)
class Memory:
    """Both measures of memory.

    Attributes:
        window_equivalent: smallest window, from 1 on, whose filter is as near to Bayes as the
            model, by the filter's restart; K stands for the exact filter (and for windows of more
            than 64).
        window_interval: the same for the two ends of the 95 % interval of the model's KL.
        steps: observations of a sequence, K.
        influence: by lag; left out where the exact belief changes by less than 1e-4 in total
            variation, or fewer than 20 sequences stay possible.
        sequences: how many the influence was measured on.
    """

    window_equivalent: Mapping[str, int]
    window_interval: Mapping[str, tuple[int, int]]
    steps: int
    influence: tuple[Lag, ...]
    sequences: int

    @property
    def reach(self) -> int | None:
        """Largest lag measured such that it and every one before it is right; None if 0 is not."""
        return _reach((lag.lag, lag.right) for lag in self.influence)

    @property
    def shown(self) -> int | None:
        """The reach of a perfect memory with the model's error; None if not even lag 0 is."""
        return _reach((lag.lag, lag.shown) for lag in self.influence)

    def __str__(self) -> str:
        windows = ", ".join(
            f"{'at most ' * (window == 1)}{window} ({restart} restart)"
            for restart, window in self.window_equivalent.items()
        )
        return (
            f"window-equivalent of {self.steps}: {windows}; influence right {_to(self.reach)} "
            f"(a perfect memory with the same error: {_to(self.shown)})"
        )


def measure_memory(
    predictor: Predictor,
    task: FilteringTask,
    batch: Batch,
    error_bits: Float64[np.ndarray, " 3"],
    seed: int,
) -> Memory:
    """Measure how far back a predictor remembers.

    Args:
        predictor: as for :func:`beliefspace.windtunnel.calibration.score`.
        task: what it is scored on.
        batch: the evaluation set.
        error_bits: mean KL(Bayes || predictor) on it, and the ends of its interval.
        seed: of the sequences whose observations are replaced.
    """
    sequences = min(_SEQUENCES, len(batch.inputs))
    found = {name: _windows(task, batch, error_bits, name) for name in task.restarts}
    return Memory(
        {name: windows[0] for name, windows in found.items()},
        {name: (windows[2], windows[1]) for name, windows in found.items()},
        task.steps,
        _influence(predictor, task, sequences, Stream(seed, "influence")),
        sequences,
    )


def _windows(
    task: FilteringTask, batch: Batch, error_bits: Float64[np.ndarray, " 3"], restart: str
) -> list[int]:
    """The smallest window that is at most so far from Bayes, for each of several errors."""
    found = np.full(len(error_bits), task.steps)
    left = np.ones(len(error_bits), dtype=bool)
    for window, predictive in enumerate(task.windows(batch, restart), start=1):
        reached = left & (batch.predictive.kl_bits(predictive).mean() <= error_bits * _ALIKE)
        found[reached] = window
        left &= ~reached
        if not left.any() or window == _MOST_WINDOWS:
            break
    return [int(window) for window in found]


def _reach(lags: Iterable[tuple[int, bool]]) -> int | None:
    reach = None
    for lag, right in lags:
        if not right:
            break
        reach = lag
    return reach


def _to(lag: int | None) -> str:
    return "at no lag" if lag is None else f"to lag {lag}"


def _influence(
    predictor: Predictor, task: FilteringTask, sequences: int, stream: Stream
) -> tuple[Lag, ...]:
    batch = task.batch(sequences, stream)
    exact, believed = _last(batch.predictive, task), _last_of(predictor, task, batch)
    noise = _matching_noise(exact, believed, stream)
    noisy = _noisy(exact, noise, stream.child("before"))
    lags = []
    for lag in (lag for lag in LAGS if lag < task.steps):
        changed = task.changed(batch, task.steps - 1 - lag, stream.child("changed"))
        if changed.kept.sum() < min(_FEWEST, sequences):
            continue
        after = _last(changed.batch.predictive, task)
        x = np.exp(after) - np.exp(exact[changed.kept])
        if 0.5 * np.abs(x).sum(axis=1).mean() < LEAST_CHANGE:
            continue
        y = np.exp(_last_of(predictor, task, changed.batch)) - np.exp(believed[changed.kept])
        control = np.exp(_noisy(after, noise, stream.child(f"after {lag}")))
        z = control - np.exp(noisy[changed.kept])
        lags.append(_regressed(lag, x, y, z, stream))
    return tuple(lags)


def _regressed(
    lag: int,
    x: Float64[np.ndarray, "sequences m"],
    y: Float64[np.ndarray, "sequences m"],
    control: Float64[np.ndarray, "sequences m"],
    stream: Stream,
) -> Lag:
    xy, xx = (x * y).sum(axis=1), (x * x).sum(axis=1)
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
        _correlation(x, y),
        _correlation(x, control),
        _correlation(np.roll(x, 1, axis=0), y),
    )


def _correlation(
    x: Float64[np.ndarray, "sequences m"], y: Float64[np.ndarray, "sequences m"]
) -> float:
    size = np.sqrt((x * x).sum() * (y * y).sum())
    return float((x * y).sum() / size) if size > 0 else 0.0


def _matching_noise(
    exact: Float64[np.ndarray, "sequences m"],
    believed: Float64[np.ndarray, "sequences m"],
    stream: Stream,
) -> float:
    """Deviation of a noise on the exact logits that costs as much KL as the model's error.

    For small noise the cost grows with its square, which is what the trial is scaled by.
    """
    trial = _noisy(exact, _TRIAL_NOISE, stream.child("trial"))
    error, cost = float(kl_bits(exact, believed).mean()), float(kl_bits(exact, trial).mean())
    # Beliefs that are nearly certain make the cost of noise vanish; then the noise is bounded.
    most = (_MOST_NOISE / _TRIAL_NOISE) ** 2
    ratio = min(error / cost, most) if cost > 0 else most * (error > 0)
    return float(_TRIAL_NOISE * np.sqrt(ratio))


def _noisy(
    exact: Float64[np.ndarray, "sequences m"], deviation: float, stream: Stream
) -> Float64[np.ndarray, "sequences m"]:
    """Log-probabilities with independent normal noise on the logits."""
    return log_softmax(exact + deviation * stream.normals(0, *exact.shape))


def _last_of(
    predictor: Predictor, task: FilteringTask, batch: Batch
) -> Float64[np.ndarray, "sequences m"]:
    """What a predictor believes at the last step, among the outcomes of the support."""
    believed, exact = predict(predictor, task, batch), batch.predictive
    assert isinstance(believed, Categorical)
    assert isinstance(exact, Categorical)
    inside = [believed.support.index(outcome) for outcome in exact.support]
    return _last(believed, task)[:, inside]


def _last(predictive: Predictive, task: FilteringTask) -> Float64[np.ndarray, "sequences m"]:
    """Log-probabilities at the last step of each sequence."""
    assert isinstance(predictive, Categorical)
    log_probs = predictive.log_probs
    return np.asarray(log_probs.reshape(-1, task.steps, log_probs.shape[1])[:, -1])
