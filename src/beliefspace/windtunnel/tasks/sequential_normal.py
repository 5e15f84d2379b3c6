"""Regression as a sequence x_1 y_1 x_2 y_2 ... x_L: each outcome from the pairs before it.

Given the features, the outcomes are jointly normal, with what generates them (weights, a function)
integrated out. So the posterior predictive of every y_k given y_1 ... y_{k-1} is read off one
Cholesky factor: y = R z with z standard normal, hence

    mean_k = sum_{j<k} R[k, j] z_j      variance_k = R[k, k]²      z_k = (y_k - mean_k) / R[k, k]

Symbols:
    L        examples of a sequence                                     ``examples``
    f        numbers in an x                                            ``coordinates``
    x, y     features and outcomes; what float32 holds is what they are ``[n, L, f]``, ``[n, L]``
    σ        standard deviation of the noise on y                       ``noise``
    K        covariance of the noiseless outcomes, given x              ``[n, L, L]``
    R        lower Cholesky factor, K + σ² I = R Rᵀ                     ``[n, L, L]``

Sequences alternate as in 2208.01066; two more features hold y and mark its positions: (x, 0, 0),
then (0, y, 1).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from beliefspace.core.checks import check_whole, check_within
from beliefspace.core.distributions import Normal
from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.tasks.base import (
    Batch,
    CategoricalOutputs,
    NormalOutputs,
    Predictive,
    RealInputs,
    Task,
    check_sequences,
    check_size,
)
from beliefspace.windtunnel.tasks.binning import (
    bin_edges,
    bin_index,
    binned,
    binned_by_quadrature,
)

_LEAST_NOISE = 1e-3  # of the signal; for less, the factor of K + σ² I loses more than nine digits
_MOST_EXAMPLES = 256  # K of an evaluation set of 2,048 sequences then fills a gigabyte
LEAST_SCALE, MOST_SCALE = 1e-6, 1e6  # well inside what float32 holds


@dataclass(frozen=True)
class Examples:
    """What one batch was drawn as.

    Attributes:
        hypothesis: what generates the outcomes, one row a sequence: weights ``[n, d]``, or the
            function at each x ``[n, L]``.
        x: features, ``[n, L, f]``.
        y: outcomes, ``[n, L]``; the last one is not shown.
    """

    hypothesis: Float64[np.ndarray, "n h"]
    x: Float64[np.ndarray, "n L f"]
    y: Float64[np.ndarray, "n L"]


class RegressionTask(Task):
    """A task of pairs x, y whose outcomes are jointly normal given the features."""

    examples: int
    noise: float
    bins: int | None

    @property
    @abstractmethod
    def coordinates(self) -> int:
        """Numbers in an x, f."""

    @property
    @abstractmethod
    def signal_variance(self) -> float:
        """Variance of a noiseless outcome, over all that is drawn."""

    @abstractmethod
    def covariance(self, x: Float64[np.ndarray, "n L f"]) -> Float64[np.ndarray, "n L L"]:
        """Return K: the covariance of the noiseless outcomes at these x."""

    @abstractmethod
    def draw(self, sequences: int, stream: Stream, step: int) -> Examples:
        """Draw hypotheses, features and outcomes, both rounded to float32."""

    @abstractmethod
    def derive(
        self, x: Float64[np.ndarray, "k f"], y: Float64[np.ndarray, " k-1"]
    ) -> tuple[float, float]:
        """Derive mean and variance of the next outcome by a route that shares nothing with K, R."""

    @property
    def inputs(self) -> RealInputs:
        """An x, then a place for y and its mark."""
        return RealInputs(self.coordinates + 2)

    @property
    def outputs(self) -> CategoricalOutputs | NormalOutputs:
        """A real number, or the index of its bin."""
        return NormalOutputs() if self.bins is None else CategoricalOutputs(tuple(range(self.bins)))

    @property
    def length(self) -> int:
        """2L - 1: the last y is not shown."""
        return 2 * self.examples - 1

    @property
    def hypothesis_bits(self) -> float:
        """Infinite: the hypotheses are a continuum."""
        return math.inf

    @property
    def marginal_deviation(self) -> float:
        """Standard deviation of an outcome, over all that is drawn; it sets the bins."""
        return math.sqrt(self.signal_variance + self.noise**2)

    def check(self) -> None:
        """Raise unless examples, noise and bins are in range; call it last."""
        check_whole("examples", self.examples, 1, most=_MOST_EXAMPLES)
        if self.bins is not None:
            check_whole("bins", self.bins, 2, most=10_000)
        check_within("noise", self.noise, 0, MOST_SCALE)
        signal = math.sqrt(self.signal_variance)
        check_within("the signal's standard deviation", signal, LEAST_SCALE, MOST_SCALE)
        if not _LEAST_NOISE * signal <= self.noise <= MOST_SCALE:
            why = "zero noise leaves" if self.noise == 0 else "less leaves"
            raise InvalidInput(
                f"noise is from {_LEAST_NOISE:g} of the signal's standard deviation ({signal:g}) "
                f"to {MOST_SCALE:g}; got {self.noise!r} ({why} the covariance of outcomes singular)"
            )
        check_size(self)

    def batch(self, sequences: int, stream: Stream, step: int = 0) -> Batch:
        """Draw hypotheses, then features, then outcomes with noise."""
        check_sequences(sequences)
        drawn = self.draw(sequences, stream, step)
        inputs = np.zeros((sequences, self.length, self.coordinates + 2), dtype=np.float32)
        inputs[:, 0::2, :-2] = drawn.x
        inputs[:, 1::2, -2] = drawn.y[:, :-1]
        inputs[:, 1::2, -1] = 1
        scored = np.zeros((sequences, self.length), dtype=bool)
        scored[:, 0::2] = True
        if self.bins is None:
            targets = np.zeros(scored.shape)
            targets[scored] = drawn.y.ravel()
        else:
            targets = np.full(scored.shape, -1, dtype=np.int64)
            targets[scored] = bin_index(drawn.y.ravel(), self._edges)
        return Batch(inputs, scored, targets, drawn, lambda: self.in_bins(self.exact(drawn)))

    def exact(self, examples: Examples) -> Normal:
        """Return the posterior predictive of each outcome given those before it, ``n L`` rows."""
        noisy = self.covariance(examples.x) + self.noise**2 * np.eye(self.examples)
        return sequential(noisy, examples.y)

    def reference(self, batch: Batch) -> Predictive:
        """The predictive of one outcome at a time, and bins by integrating its density."""
        rows = []
        for sequence in batch.inputs.astype(np.float64):
            x, y = sequence[0::2, :-2], sequence[1::2, -2]
            rows += [self.derive(x[: k + 1], y[:k]) for k in range(self.examples)]
        normal = Normal(*np.array(rows).T)
        if self.bins is None:
            return normal
        return binned_by_quadrature(normal, self.bins, self.marginal_deviation)

    @property
    def _edges(self) -> Float64[np.ndarray, " m+1"]:
        assert self.bins is not None
        return bin_edges(self.bins, self.marginal_deviation)

    def in_bins(self, normal: Normal) -> Predictive:
        """Return a predictive of real outcomes as what is asked for: itself, or mass in bins."""
        return normal if self.bins is None else binned(normal, self._edges)


def sequential(
    covariance: Float64[np.ndarray, "n L L"], outcomes: Float64[np.ndarray, "n L"]
) -> Normal:
    """Return the law of each outcome given those before it.

    Args:
        covariance: of the outcomes of each sequence, positive definite; their mean is 0.
        outcomes: the values that occurred.

    Returns:
        ``n L`` rows, sequence by sequence.
    """
    factor = np.linalg.cholesky(covariance)
    mean, whitened = np.zeros_like(outcomes), np.zeros_like(outcomes)
    for k in range(outcomes.shape[1]):
        mean[:, k] = (factor[:, k, :k] * whitened[:, :k]).sum(axis=1)
        whitened[:, k] = (outcomes[:, k] - mean[:, k]) / factor[:, k, k]
    deviation = np.diagonal(factor, axis1=1, axis2=2)
    return Normal(mean.ravel(), deviation.ravel() ** 2)


def rounded(values: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """Return what float32 makes of values, which is what a model is given."""
    return values.astype(np.float32).astype(np.float64)


def check_covariance(
    name: str, matrix: tuple[tuple[float, ...], ...], size: int
) -> Float64[np.ndarray, "size size"]:
    """Return a matrix as an array, if it is a covariance that can be inverted.

    Raises:
        InvalidInput: another shape, a value that is not finite, or a matrix that is not symmetric
            or not positive definite; the message has its smallest eigenvalue.
    """
    lengths = sorted({len(row) for row in matrix})
    if len(matrix) != size or lengths != [size]:
        raise InvalidInput(
            f"{name} has {len(matrix)} rows of {lengths} numbers; expected {size} rows of {size}"
        )
    array = np.array(matrix, dtype=np.float64)
    large = ~(np.abs(array) <= MOST_SCALE**2)
    if large.any():
        raise InvalidInput(f"{name} holds {array[large][0]}; expected numbers up to 1e12 in size")
    if not np.array_equal(array, array.T):
        row, column = np.argwhere(array != array.T)[0]
        raise InvalidInput(
            f"{name} is not symmetric: {float(array[row, column])!r} at ({row}, {column}) "
            f"but {float(array[column, row])!r} at ({column}, {row})"
        )
    eigenvalues = np.linalg.eigvalsh(array)
    if eigenvalues[0] <= 1e-10 * eigenvalues[-1]:
        raise InvalidInput(
            f"{name} is singular or not positive definite: its smallest eigenvalue is "
            f"{eigenvalues[0]:.3g}, its largest {eigenvalues[-1]:.3g}"
        )
    return array
