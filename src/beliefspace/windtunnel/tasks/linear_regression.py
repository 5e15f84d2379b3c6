"""Bayesian linear regression in context (2512.22471, tasks; sequences after 2208.01066).

Weights are drawn for a sequence; pairs x, y come one after another, and at each x the model is
asked for y. One sequence with d = 1, L = 3, τ = 1 and σ = 0.5::

    position       0       1       2       3       4
    is a           x       y       x       y       x
    input        0.32      0     -1.83     0     -0.27      (x)
                   0     0.51      0    -1.43      0        (y)
                   0       1       0       1       0        (whether it is a y)
    target       0.51            -1.43           -0.46
    Bayes      0 ± 0.59       -0.84 ± 1.63    -0.21 ± 0.51  (mean ± standard deviation)
    bits         1.29             2.75            1.06      (differential entropy)

Symbols (see :mod:`.sequential_normal` for the rest):
    d        dimensions                                             ``dimensions``
    w        weights, w ~ N(0, τ² I)                                ``[n, d]``
    τ, σ     standard deviation of a weight, and of the noise       ``prior_scale``, ``noise``
    C        covariance of the features, x ~ N(0, C)                ``[d, d]``
    y        outcome, y = w·x + N(0, σ²)                            ``[n, L]``

Without w, the outcomes of a sequence are N(0, τ² X Xᵀ + σ² I). The predictive so found is the one
of the posterior over w, N(x·μ, σ² + xᵀ Σ x) with Σ = (τ⁻² I + σ⁻² XᵀX)⁻¹ and μ = σ⁻² Σ Xᵀ y,
whose mean is ridge regression with penalty σ²/τ².
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from beliefspace.core.checks import as_rows, check_whole, check_within
from beliefspace.core.distributions import Normal
from beliefspace.core.registry import register
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.tasks.base import Batch, Predictive, Primitive, Task
from beliefspace.windtunnel.tasks.sequential_normal import (
    LEAST_SCALE,
    MOST_SCALE,
    Examples,
    RegressionTask,
    check_covariance,
    rounded,
)


@register("tasks", "linear-regression")
@dataclass(frozen=True)
class LinearRegression(RegressionTask):
    """Predict y = w·x + noise from the pairs before it, w being drawn for each sequence.

    Args:
        dimensions: of x and w, d >= 1.
        examples: pairs of a sequence, L, 1 to 256; 2L - 1 positions.
        prior_scale: standard deviation of a weight, τ, 1e-6 to 1e6.
        noise: standard deviation of the noise, σ: at least 1/1000 of the signal's.
        feature_covariance: None for the identity, or C: d rows of d numbers.
        bins: None for a real outcome, or the number of bins that hold it, equally probable under
            the normal of the outcome's variance, τ² tr C + σ²; 2 to 10,000.

    Raises:
        InvalidInput: a setting out of range, or a singular design (C is not positive definite).
    """

    dimensions: int = 4
    examples: int = 16
    prior_scale: float = 1.0
    noise: float = 0.5
    feature_covariance: tuple[tuple[float, ...], ...] | None = None
    bins: int | None = None

    def __post_init__(self) -> None:
        check_whole("dimensions", self.dimensions, 1, most=1000)
        check_within("prior_scale", self.prior_scale, LEAST_SCALE, MOST_SCALE)
        if self.feature_covariance is not None:
            rows = as_rows("feature_covariance", self.feature_covariance)
            object.__setattr__(self, "feature_covariance", rows)
            check_covariance("feature_covariance", rows, self.dimensions)
        self.check()

    @property
    def prior(self) -> str:
        """The laws of weights, features and noise."""
        features = "I" if self.feature_covariance is None else "C as given"
        return (
            f"weights N(0, τ² I) with τ = {self.prior_scale:g}; features N(0, {features}); "
            f"noise N(0, σ²) with σ = {self.noise:g}"
        )

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """Evidence about the weights is folded in, in any order."""
        return ("accumulation",)

    @property
    def coordinates(self) -> int:
        """The dimensions, d."""
        return self.dimensions

    @property
    def signal_variance(self) -> float:
        """τ² tr C."""
        return self.prior_scale**2 * float(np.trace(self._feature_covariance))

    @classmethod
    def tiny(cls) -> tuple[Task, ...]:
        """One to three dimensions, correlated features, one example, little noise, and bins."""
        correlated = ((2.0, 0.6), (0.6, 0.5))
        return (
            cls(1, 3),
            cls(3, 6, 0.7, 0.3),
            cls(2, 5, 1.5, 0.2, correlated),
            cls(2, 1),
            cls(2, 6, noise=0.01),
            cls(1, 4, bins=5),
            cls(2, 4, 1.5, 0.4, correlated, bins=8),
        )

    def covariance(self, x: Float64[np.ndarray, "n L d"]) -> Float64[np.ndarray, "n L L"]:
        """Return τ² X Xᵀ."""
        return np.asarray(self.prior_scale**2 * (x @ x.swapaxes(1, 2)))

    def draw(self, sequences: int, stream: Stream, step: int) -> Examples:
        """Draw weights, features and noise."""
        shape = (sequences, self.examples, self.dimensions)
        weights = self.prior_scale * stream.normals(step, sequences, self.dimensions, "weights")
        white = stream.normals(step, sequences, shape[1] * shape[2], "features").reshape(shape)
        x = rounded(white @ np.linalg.cholesky(self._feature_covariance).T)
        noise = self.noise * stream.normals(step, sequences, self.examples, "noise")
        return Examples(weights, x, rounded((x @ weights[:, :, None])[:, :, 0] + noise))

    def ladder(self, batch: Batch) -> Mapping[str, Predictive]:
        """Three predictors that fall short of Bayes, each in its own way.

        "ridge" has the exact mean but the noise for its variance: it ignores what is left uncertain
        about the weights, which costs more than ignoring the pairs as long as these are few. "least
        squares" plugs in the weights of least norm that fit the pairs best, with the textbook
        variance σ² (1 + xᵀ (XᵀX)⁺ x): it has no prior. "prior" ignores the pairs:
        N(0, σ² + τ² |x|²); late in a sequence it is the worst, and least squares the best.
        """
        examples = batch.latent
        exact = self.exact(examples)
        prior = self.prior_scale**2 * (examples.x**2).sum(axis=2).ravel() + self.noise**2
        rungs = {
            "ridge": Normal(exact.mean, np.full_like(exact.mean, self.noise**2)),
            "least squares": self._least_squares(examples),
            "prior": Normal(np.zeros_like(prior), prior),
        }
        return {name: self.in_bins(rung) for name, rung in rungs.items()}

    def derive(
        self, x: Float64[np.ndarray, "k d"], y: Float64[np.ndarray, " k-1"]
    ) -> tuple[float, float]:
        """Derive the predictive from the posterior over the weights."""
        seen, query = x[:-1], x[-1]
        precision = np.eye(self.dimensions) / self.prior_scale**2 + seen.T @ seen / self.noise**2
        mean = np.linalg.solve(precision, seen.T @ y) / self.noise**2
        left = query @ np.linalg.solve(precision, query)
        return float(query @ mean), float(self.noise**2 + left)

    @property
    def _feature_covariance(self) -> Float64[np.ndarray, "d d"]:
        given = self.feature_covariance
        return np.eye(self.dimensions) if given is None else np.array(given, dtype=np.float64)

    def _least_squares(self, examples: Examples) -> Normal:
        """Least squares as weights on the outcomes so far: x·X⁺ gives mean and variance."""
        x, y = examples.x, examples.y
        mean, spread = np.zeros_like(y), np.zeros_like(y)
        for k in range(1, self.examples):
            gain = (x[:, k, None] @ np.linalg.pinv(x[:, :k]))[:, 0]
            mean[:, k] = (gain * y[:, :k]).sum(axis=1)
            spread[:, k] = (gain**2).sum(axis=1)
        return Normal(mean.ravel(), self.noise**2 * (1 + spread.ravel()))
