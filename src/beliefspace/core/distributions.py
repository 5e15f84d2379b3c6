"""Rows of exact predictive distributions: categorical over named outcomes, or normal.

======== ============================================= =================== ================
symbol   meaning                                       shape               unit
======== ============================================= =================== ================
p_r(k)   probability of outcome k in row r             [rows, outcomes]    nats, as ln p
support  what outcome k is called (a token id)         [outcomes]
m_r, v_r mean and variance of row r                    [rows]
======== ============================================= =================== ================

A row is one scored position. Both classes answer the same questions, each with one number a row;
``p.kl_bits(q)`` is the divergence of q from p, so p is the reference (the exact belief).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Integer

from beliefspace.core import information
from beliefspace.core.errors import InvalidInput

NORMALISATION_TOLERANCE = 1e-9

RowsIndex = Integer[np.ndarray, " k"] | Bool[np.ndarray, " rows"] | slice


@dataclass(frozen=True, eq=False)
class Categorical:
    """Categorical distributions over a shared, named support.

    Args:
        log_probs: log-probabilities in nats, float64, [rows, outcomes]; each row sums to one.
        support: the token id of each outcome, all different; left out, it is 0 to outcomes - 1.

    Raises:
        InvalidInput: another dtype or shape, a row that does not sum to one, a bad support.
    """

    log_probs: Float64[np.ndarray, "rows outcomes"]
    support: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _check_array("log_probs", self.log_probs, dimensions=2)
        outcomes = self.log_probs.shape[1]
        support = tuple(int(name) for name in self.support or range(outcomes))
        object.__setattr__(self, "support", support)
        if outcomes == 0 or len(support) != outcomes or len(set(support)) != outcomes:
            raise InvalidInput(
                f"support names {len(support)} outcomes, {len(set(support))} different, "
                f"for log_probs of shape {self.log_probs.shape}; expected one name for each"
            )
        with np.errstate(over="ignore"):
            totals = np.exp(self.log_probs).sum(axis=1)
            excess = np.abs(totals - 1.0)
        if not np.all(excess <= NORMALISATION_TOLERANCE):
            worst = int(np.argmax(np.nan_to_num(excess, nan=np.inf)))
            raise InvalidInput(
                f"row {worst} of log_probs sums to {totals[worst]}; "
                f"expected 1 within {NORMALISATION_TOLERANCE}"
            )

    @classmethod
    def proportional_to(
        cls, weights: Float64[np.ndarray, "*rows outcomes"], support: tuple[int, ...] = ()
    ) -> Categorical:
        """Return the distributions with these weights; 0 is impossible.

        Args:
            weights: at least 0, of positive sum, [..., outcomes]; leading axes become one.
            support: as above.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            log_probs = np.log(weights / weights.sum(axis=-1, keepdims=True))
        return cls(log_probs.reshape(-1, weights.shape[-1]), support)

    @property
    def rows(self) -> int:
        """How many distributions there are."""
        return len(self.log_probs)

    def take(self, rows_index: RowsIndex) -> Categorical:
        """Return the chosen rows (indices, a mask or a slice), on the same support."""
        return Categorical(self.log_probs[rows_index], self.support)

    def expand(self, vocabulary: int) -> Categorical:
        """Return the same distributions over all ids 0 to vocabulary - 1, ``-inf`` off the support.

        Raises:
            InvalidInput: an id of the support is not in the vocabulary.
        """
        outside = [name for name in self.support if not 0 <= name < vocabulary]
        if outside:
            raise InvalidInput(f"support holds id {outside[0]}; expected 0 to {vocabulary - 1}")
        log_probs = np.full((self.rows, vocabulary), -np.inf)
        log_probs[:, self.support] = self.log_probs
        return Categorical(log_probs)

    def entropy_bits(self) -> Float64[np.ndarray, " rows"]:
        """Return the entropy of each row, bits."""
        return information.entropy_bits(self.log_probs)

    def kl_bits(self, other: Categorical | Normal) -> Float64[np.ndarray, " rows"]:
        """Return KL(self || other) of each row, bits; ``inf`` where other rules out a possibility.

        Raises:
            InvalidInput: other is of another kind, support or number of rows.
        """
        return information.kl_bits(self.log_probs, self._matched(other).log_probs)

    def cross_entropy_bits(self, other: Categorical | Normal) -> Float64[np.ndarray, " rows"]:
        """Return the expected surprisal of other under self, bits; raises as :meth:`kl_bits`."""
        return information.cross_entropy_bits(self.log_probs, self._matched(other).log_probs)

    def total_variation(self, other: Categorical | Normal) -> Float64[np.ndarray, " rows"]:
        """Return the total variation distance of each row; raises as :meth:`kl_bits`."""
        return information.total_variation(self.log_probs, self._matched(other).log_probs)

    def surprisal_bits(self, index: Integer[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
        """Return the surprisal of outcomes given as indices into the support, bits.

        Raises:
            InvalidInput: an index outside the support, or not one for each row.
        """
        return information.surprisal_bits(self.log_probs, index)

    def _matched(self, other: Categorical | Normal) -> Categorical:
        _check_match(self, other)
        assert isinstance(other, Categorical)
        if self.support == other.support:
            return other
        alone = sorted(set(self.support) ^ set(other.support))
        detail = f"id {alone[0]} is in only one of them" if alone else "the order differs"
        raise InvalidInput(
            f"supports of {len(self.support)} and {len(other.support)} outcomes do not match: "
            f"{detail}; expand both to one vocabulary"
        )


@dataclass(frozen=True, eq=False)
class Normal:
    """Normal distributions.

    Args:
        mean: float64, finite, [rows], in the unit of the outcome.
        variance: float64, positive and finite, [rows], in that unit squared.

    Raises:
        InvalidInput: another dtype or shape, or a value out of range.
    """

    mean: Float64[np.ndarray, " rows"]
    variance: Float64[np.ndarray, " rows"]

    def __post_init__(self) -> None:
        _check_array("mean", self.mean, dimensions=1)
        _check_array("variance", self.variance, dimensions=1)
        if self.mean.shape != self.variance.shape:
            raise InvalidInput(
                f"mean has {len(self.mean)} rows and variance {len(self.variance)}; expected equal"
            )
        bad = ~(np.isfinite(self.mean) & (self.variance > 0.0) & (self.variance < np.inf))
        if bad.any():
            row = int(np.argmax(bad))
            raise InvalidInput(
                f"row {row} has mean {self.mean[row]} and variance {self.variance[row]}; "
                "expected a finite mean and a positive, finite variance"
            )

    @property
    def rows(self) -> int:
        """How many distributions there are."""
        return len(self.mean)

    def take(self, rows_index: RowsIndex) -> Normal:
        """Return the chosen rows (indices, a mask or a slice)."""
        return Normal(self.mean[rows_index], self.variance[rows_index])

    def entropy_bits(self) -> Float64[np.ndarray, " rows"]:
        """Return the differential entropy of each row, bits; it can be negative."""
        return information.normal_entropy_bits(self.variance)

    def kl_bits(self, other: Categorical | Normal) -> Float64[np.ndarray, " rows"]:
        """Return KL(self || other) of each row, bits.

        Raises:
            InvalidInput: other is of another kind or number of rows.
        """
        other = self._matched(other)
        return information.normal_kl_bits(self.mean, self.variance, other.mean, other.variance)

    def cross_entropy_bits(self, other: Categorical | Normal) -> Float64[np.ndarray, " rows"]:
        """Return the expected surprisal of other under self, bits; raises as :meth:`kl_bits`."""
        return np.asarray(self.entropy_bits() + self.kl_bits(other))

    def total_variation(self, other: Categorical | Normal) -> Float64[np.ndarray, " rows"]:
        """Return the total variation distance of each row; raises as :meth:`kl_bits`."""
        other = self._matched(other)
        return information.normal_total_variation(
            self.mean, self.variance, other.mean, other.variance
        )

    def surprisal_bits(self, value: Float64[np.ndarray, " rows"]) -> Float64[np.ndarray, " rows"]:
        """Return minus log2 of the density at each row's value, bits.

        Raises:
            InvalidInput: a value that is not finite, or not one for each row.
        """
        return information.normal_surprisal_bits(self.mean, self.variance, value)

    def _matched(self, other: Categorical | Normal) -> Normal:
        _check_match(self, other)
        assert isinstance(other, Normal)
        return other


def _check_array(name: str, array: object, dimensions: int) -> None:
    if not isinstance(array, np.ndarray):
        raise InvalidInput(f"{name} is a {type(array).__name__}; expected a numpy array")
    if array.dtype != np.float64 or array.ndim != dimensions:
        raise InvalidInput(
            f"{name} is {array.dtype} of shape {array.shape}; "
            f"expected float64 with {dimensions} dimension{'s' * (dimensions > 1)}"
        )


def _check_match(one: Categorical | Normal, other: object) -> None:
    if type(other) is not type(one):
        raise InvalidInput(
            f"a {type(one).__name__} cannot be compared with a {type(other).__name__}; "
            "expected two of the same kind"
        )
    assert isinstance(other, Categorical | Normal)
    if other.rows != one.rows:
        raise InvalidInput(f"{one.rows} rows against {other.rows}; expected as many in both")
