"""Exact filters where each sequence has its own parameters, or where a pool has to be inferred.

Symbols:
    n, K      sequences, observations of each
    S, O      hidden states, symbols
    M         parameter sets that are possible for a sequence: 1, or the whole pool
    b         log P(set, state at t | o_1 ... o_t): the belief          [n, M, K, S]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from beliefspace.core.information import log_probabilities
from beliefspace.windtunnel.tasks.forward import (
    Filtered,
    forward_symbols,
    log_sum,
    normalised,
    stationary,
    windows,
)
from beliefspace.windtunnel.tasks.hmm_parameters import Parameters

LogBelief = Float64[np.ndarray, "n M K S"]


@dataclass(frozen=True)
class Observed:
    """Observations, and what they may have been drawn from; the first state is uniform.

    Attributes:
        parameters: n sets, each sequence's own; or, with ``pool``, M sets, equally likely, of
            which one is true for each sequence.
        pool: which of the two.
        symbols: the observations, ``[n, K]``.
    """

    parameters: Parameters
    pool: bool
    symbols: Int64[np.ndarray, "n K"]

    @property
    def members(self) -> int:
        """M."""
        return len(self.parameters.transition) if self.pool else 1

    def possible(self) -> Bool[np.ndarray, " n"]:
        """Return which sequences some set can produce."""
        evidence = self._filtered().evidence[:, -1].reshape(len(self.symbols), -1)
        return np.asarray(np.isfinite(evidence).any(axis=1))

    def belief(self) -> LogBelief:
        """Return the exact belief after each observation.

        Raises:
            InvalidInput: no set can produce a sequence; the message has its position.
        """
        filtered = self._filtered()
        return (
            filtered.checked().belief[:, None] if self.members == 1 else self._mixed(filtered.joint)
        )

    def windows(self, restart: str) -> Iterator[LogBelief]:
        """Yield the beliefs of filters that saw the last 1, 2, ... K observations only.

        Args:
            restart: the law of the state before them: "uniform" or "stationary".
        """
        states = self.parameters.transition.shape[1]
        before = np.full((1, states), 1 / states)
        if restart == "stationary":
            before = self._repeated(stationary(self.parameters.transition))
        for joint in windows(self._start, before, self._transition, self._log_likelihood):
            yield self._mixed(joint)

    def memoryless(self) -> LogBelief:
        """Return the belief from the stationary distribution and each observation alone."""
        before = log_probabilities(self._repeated(stationary(self.parameters.transition)))
        return self._mixed(before[:, None] + self._log_likelihood)

    def next_symbol(self, belief: LogBelief) -> Float64[np.ndarray, "n K O"]:
        """Return log P(next symbol) under a belief."""
        emitted = log_probabilities(self.parameters.transition @ self.parameters.emission)
        shaped = emitted[None] if self.pool else emitted[:, None]
        paths = belief[..., None] + shaped[:, :, None]
        sequences, _, steps, _, symbols = paths.shape
        return log_sum(paths.transpose(0, 2, 4, 1, 3).reshape(sequences, steps, symbols, -1))

    def state(self, belief: LogBelief) -> Float64[np.ndarray, "n K S"]:
        """Return log P(state), whatever the set, under a belief."""
        return belief[:, 0] if self.members == 1 else log_sum(belief.transpose(0, 2, 3, 1))

    def _filtered(self) -> Filtered:
        """Filter each sequence with each of its sets: belief ``[n * M, K, S]``."""
        emission = self._repeated(self.parameters.emission)
        symbols = np.repeat(self.symbols, self.members, axis=0)
        return forward_symbols(self._start, self._transition, emission, symbols)

    @property
    def _start(self) -> Float64[np.ndarray, " S"]:
        states = self.parameters.transition.shape[1]
        return np.full(states, 1 / states)

    @property
    def _transition(self) -> Float64[np.ndarray, "nM S S"]:
        return self._repeated(self.parameters.transition)

    @property
    def _log_likelihood(self) -> Float64[np.ndarray, "nM K S"]:
        by_symbol = log_probabilities(self.parameters.emission.transpose(0, 2, 1))
        sets, symbols, states = by_symbol.shape
        own = np.arange(sets) if self.pool else np.arange(sets)[:, None]
        place = own[..., None] * symbols + self.symbols[:, None, :]
        rows = by_symbol.reshape(-1, states).take(place, axis=0)
        return np.asarray(rows.reshape(-1, self.symbols.shape[1], states))

    def _repeated(self, one_a_set: Float64[np.ndarray, "m *any"]) -> Float64[np.ndarray, "nM *any"]:
        """One entry for each pair of sequence and set."""
        if not self.pool:
            return one_a_set
        return np.tile(one_a_set, (len(self.symbols),) + (1,) * (one_a_set.ndim - 1))

    def _mixed(self, joint: Float64[np.ndarray, "nM K S"]) -> LogBelief:
        """Normalise over sets and states together."""
        sequences, steps = self.symbols.shape
        states = joint.shape[2]
        pairs = joint.reshape(sequences, self.members, steps, states)
        if self.members == 1:
            return normalised(joint).belief[:, None]
        together = pairs.transpose(0, 2, 1, 3).reshape(sequences, steps, -1)
        belief = normalised(together).checked().belief.reshape(sequences, steps, -1, states)
        return belief.transpose(0, 2, 1, 3)
