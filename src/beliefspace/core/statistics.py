"""Means with intervals, paired comparisons, and corrections for many comparisons.

====== ================================================= ======== ==========================
symbol meaning                                           shape    source
====== ================================================= ======== ==========================
n      independent values (seeds, sequences): ``count``  scalar
level  coverage of a two-sided interval                  scalar
d      paired differences ``a - b``                      [n]
p      p-values, two-sided                               [m]      Holm 1979;
                                                                  Benjamini & Hochberg 1995
====== ================================================= ======== ==========================

A single value has no interval, and is marked so by ``None``. A mean that is infinite (one infinite
divergence is enough) has none either. NaN is never averaged away: it is an error.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64
from scipy.special import stdtr, stdtrit

from beliefspace.core.errors import InvalidInput

if TYPE_CHECKING:
    from beliefspace.core.streams import Stream

MOST_EXACT_PAIRS = 12
"""Up to this many pairs all 2^n sign flips are enumerated."""


@dataclass(frozen=True)
class Interval:
    """A two-sided confidence interval for a mean: bounds, coverage, method, number of values."""

    low: float
    high: float
    level: float
    method: str
    count: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain Python values."""
        return asdict(self)


@dataclass(frozen=True)
class Estimate:
    """A mean over ``count`` values; ``interval`` is None for one value or an infinite mean."""

    mean: float
    interval: Interval | None
    count: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain Python values, the interval as a dict or None."""
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """A mean paired difference, its t interval (None for one pair), and a two-sided p-value.

    ``method`` is how the p-value was found: "sign-flip" (exact) or "t".
    """

    difference: float
    interval: Interval | None
    p_value: float
    method: str
    count: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain Python values, the interval as a dict or None."""
        return asdict(self)


def mean_t(values: Float64[np.ndarray, " n"], level: float = 0.95) -> Estimate:
    """Estimate a mean with Student's t interval.

    Args:
        values: independent values, [n]; ``inf`` is allowed and makes the mean ``inf``.
        level: coverage, between 0 and 1.

    Raises:
        InvalidInput: no values, a NaN or ``-inf``, another shape, a level out of range.
    """
    values = _checked(values, dimensions=1)
    _check_level(level)
    count, mean = len(values), float(values.mean())
    if count == 1 or mean == np.inf:
        return Estimate(mean, None, count)
    half = float(stdtrit(count - 1, 0.5 * (1.0 + level))) * _standard_error(values)
    return Estimate(mean, Interval(mean - half, mean + half, level, "t", count), count)


def mean_bootstrap(
    values: Float64[np.ndarray, " n"],
    stream: Stream,
    level: float = 0.95,
    resamples: int = 2000,
) -> Estimate:
    """Estimate a mean with the percentile bootstrap interval.

    Args:
        values: independent values, [n]; ``inf`` is allowed and makes the mean ``inf``.
        stream: where the resampling is drawn from, in its lane "bootstrap".
        level: coverage, between 0 and 1.
        resamples: how many times the values are drawn again.

    Raises:
        InvalidInput: as :func:`mean_t`, or no resamples.
    """
    return curve_bootstrap(_checked(values, dimensions=1)[:, None], stream, level, resamples)[0]


def curve_bootstrap(
    values: Float64[np.ndarray, "n positions"],
    stream: Stream,
    level: float = 0.95,
    resamples: int = 2000,
) -> tuple[Estimate, ...]:
    """Estimate the mean at each position, resampling whole rows: positions of one row depend.

    Args:
        values: independent rows, [n, positions].
        stream: where the resampling is drawn from, in its lane "bootstrap".
        level: coverage at each position, between 0 and 1.
        resamples: how many times the rows are drawn again.

    Returns:
        One estimate a position: up to rounding, what :func:`mean_bootstrap` gives for that column.

    Raises:
        InvalidInput: as :func:`mean_bootstrap`.
    """
    values = _checked(values, dimensions=2)
    _check_level(level)
    if resamples < 1:
        raise InvalidInput(f"{resamples} resamples given; expected at least 1")
    count, means = len(values), values.mean(axis=0)
    generator = stream.generator(lane="bootstrap")
    finite = np.isfinite(means)
    columns = np.where(finite, values, 0.0)
    # One resample at a time: the memory stays that of one row of weights.
    draws = np.empty((resamples, len(means)))
    for draw in draws:
        weights = np.bincount(generator.integers(count, size=count), minlength=count)
        draw[:] = weights @ columns / count
    low, high = np.quantile(draws, [0.5 * (1.0 - level), 0.5 * (1.0 + level)], axis=0)

    def estimate(position: int) -> Estimate:
        interval = None
        if count > 1 and finite[position]:
            # Where all values are alike, rounding must not put the mean outside.
            mean = means[position]
            bounds = float(min(low[position], mean)), float(max(high[position], mean))
            interval = Interval(*bounds, level, "bootstrap", count)
        return Estimate(float(means[position]), interval, count)

    return tuple(estimate(position) for position in range(len(means)))


def paired_comparison(
    a: Float64[np.ndarray, " n"], b: Float64[np.ndarray, " n"], level: float = 0.95
) -> Comparison:
    """Compare paired values by the mean of ``a - b``.

    The p-value is exact up to 12 pairs: the share of all 2^n sign flips of the differences whose
    mean is at least as far from 0. Its smallest value is 2^(1-n), so few pairs cannot be
    significant. Beyond 12 pairs it is that of the paired t-test.

    Args:
        a: finite values of one arm, [n].
        b: finite values of the other, [n], in the same order (same seed, same sequence).
        level: coverage of the t interval, between 0 and 1.

    Raises:
        InvalidInput: different lengths, no pairs, a value that is not finite.
    """
    if np.shape(a) != np.shape(b):
        raise InvalidInput(f"{np.shape(a)} values against {np.shape(b)}; expected pairs")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise InvalidInput("a comparison was given NaN or infinite values; expected finite ones")
    differences = np.subtract(a, b, dtype=np.float64)
    estimate = mean_t(differences, level)
    exact = estimate.count <= MOST_EXACT_PAIRS
    return Comparison(
        difference=estimate.mean,
        interval=estimate.interval,
        p_value=_sign_flip_p(differences) if exact else _t_test_p(differences),
        method="sign-flip" if exact else "t",
        count=estimate.count,
    )


def holm(p_values: Float64[np.ndarray, " m"]) -> Float64[np.ndarray, " m"]:
    """Adjust p-values so that the chance of any false rejection is controlled (Holm 1979).

    Raises:
        InvalidInput: a p-value outside 0 to 1.
    """
    order, ascending = _sorted_p(p_values)
    adjusted = np.maximum.accumulate(ascending * np.arange(len(order), 0, -1))
    return _unsorted(np.minimum(adjusted, 1.0), order)


def benjamini_hochberg(p_values: Float64[np.ndarray, " m"]) -> Float64[np.ndarray, " m"]:
    """Adjust p-values so that the expected share of false rejections is controlled.

    Source: Benjamini & Hochberg 1995; valid for independent or positively dependent tests.

    Raises:
        InvalidInput: a p-value outside 0 to 1.
    """
    order, ascending = _sorted_p(p_values)
    scaled = ascending * len(order) / np.arange(1, len(order) + 1)
    return _unsorted(np.minimum.accumulate(scaled[::-1])[::-1], order)


def _sign_flip_p(differences: Float64[np.ndarray, " n"]) -> float:
    count = len(differences)
    signs = 1.0 - 2.0 * ((np.arange(2**count)[:, None] >> np.arange(count)) & 1)
    # Flips that tie exactly must count as ties although they are summed with different rounding.
    tie = 1e-12 * np.abs(differences).sum()
    return float(np.mean(np.abs(signs @ differences) >= abs(differences.sum()) - tie))


def _t_test_p(differences: Float64[np.ndarray, " n"]) -> float:
    distance, error = abs(float(differences.mean())), _standard_error(differences)
    if error == 0.0:
        return 1.0 if distance == 0.0 else 0.0
    return 2.0 * float(stdtr(len(differences) - 1, -distance / error))


def _standard_error(values: Float64[np.ndarray, " n"]) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _sorted_p(p_values: Float64[np.ndarray, " m"]) -> tuple[np.ndarray, np.ndarray]:
    p_values = np.asarray(p_values, dtype=np.float64)
    if p_values.ndim != 1 or not np.all((p_values >= 0.0) & (p_values <= 1.0)):
        raise InvalidInput(f"p-values {p_values.tolist()} given; expected a list of values 0 to 1")
    order = np.argsort(p_values, kind="stable")
    return order, p_values[order]


def _unsorted(ascending: np.ndarray, order: np.ndarray) -> np.ndarray:
    out = np.empty_like(ascending)
    out[order] = ascending
    return out


def _checked(values: np.ndarray, dimensions: int) -> np.ndarray:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != dimensions or values.shape[0] == 0:
        expected = "[n]" if dimensions == 1 else "[n, positions]"
        raise InvalidInput(f"values of shape {values.shape} given; expected {expected}, n >= 1")
    bad = ~(values > -np.inf)
    if bad.any():
        raise InvalidInput(f"{int(bad.sum())} of {values.size} values are NaN or -inf")
    return values


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise InvalidInput(f"level {level} given; expected between 0 and 1")
