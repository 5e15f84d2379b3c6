"""Modular recurrence or noise: is there a rule, and which one (2512.22471)?

Half of the sequences follow x_{t+1} = a x_t + b (mod p) with unknown a and b, the others are noise;
after each token the model is asked for the next. One sequence with p = 5 that follows 2 x + 1::

    position     0      1      2      3      4      5
    input        0      1      3      2      0      1
    target       1      3      2      0      1      3
    P(noise)    1/2    1/2    1/2    1/6   1/26   1/126
    P(target)   1/5    1/5    3/5   13/15  0.969  0.994  (the other four tokens share the rest)
    bits        2.32   2.32   1.77   0.83   0.26   0.07

Symbols:
    p        modulus: tokens are 0 ... p - 1                      ``modulus``
    T        tokens shown                                         ``length``
    nu       prior probability of noise                           ``noise_prior``
    x_t      token at position t = 0 ... T - 1                    ``[n, T]``
    d_t      step x_t - x_{t-1} (mod p)                           ``[n, T]``
    a, b     the program: multiplier and offset, uniform          ``[n, 2]``

Noise gives t tokens after the first the probability p^-t; each of the p^2 programs gives them 1 or
0, and has the prior (1 - nu) p^-2. So noise stands at nu p^-t against (1 - nu) p^-2 for each
program left. Eliminating b leaves one condition on a at each step, a d_{t-1} = d_t: from the first
step on there is one program for each multiplier left, and it says x_{t+1} = x_t + a d_t. Where d is
a unit (any d other than 0 if p is prime), three tokens leave one program. The belief is over the
multipliers 0 ... p - 1 and noise, p; the offset follows from the multiplier.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Bool, Float64, Int64
from numpy.lib.stride_tricks import sliding_window_view

from beliefspace.core.checks import check_whole, check_within
from beliefspace.core.distributions import Categorical
from beliefspace.core.information import entropy_bits, log_probabilities, log_softmax
from beliefspace.core.registry import register
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.tasks.base import (
    Batch,
    CategoricalOutputs,
    Predictive,
    Primitive,
    Task,
    TokenInputs,
    check_sequences,
    check_size,
)

_HARDLY = 0.001  # prior of noise for one who hardly believes in it; at 0 the KL is infinite
_MEMORY = 3  # tokens that a predictor of short memory sees: two steps


@register("tasks", "recurrence")
@dataclass(frozen=True)
class ModularRecurrence(Task):
    """Tell a modular recurrence from noise, find its program, and predict the next token.

    Args:
        modulus: p >= 2, prime or not; as published 17.
        length: tokens shown, T >= 1.
        noise_prior: probability that a sequence is noise, independent and uniform, 0 to 1.

    Raises:
        InvalidInput: a value out of range.
    """

    modulus: int = 17
    length: int = 16
    noise_prior: float = 0.5

    def __post_init__(self) -> None:
        check_whole("modulus", self.modulus, 2, most=1000)
        check_whole("length", self.length, 1, most=100_000)
        check_within("noise_prior", self.noise_prior, 0, 1)
        check_size(self)

    @property
    def prior(self) -> str:
        """Noise, or a program."""
        return (
            f"noise with probability {self.noise_prior:g}, else a x + b mod {self.modulus} with a, "
            "b and the first x uniform"
        )

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """Each token is evidence about a program that stays the same."""
        return ("accumulation",)

    @property
    def inputs(self) -> TokenInputs:
        """The residues."""
        return TokenInputs(self.modulus)

    @property
    def outputs(self) -> CategoricalOutputs:
        """The residues."""
        return CategoricalOutputs(tuple(range(self.modulus)))

    @property
    def hypothesis_bits(self) -> float:
        """Entropy of the prior over noise and the p^2 programs."""
        kinds = float(
            entropy_bits(log_probabilities(np.array([self.noise_prior, 1 - self.noise_prior])))
        )
        return kinds + (1 - self.noise_prior) * 2 * math.log2(self.modulus)

    @classmethod
    def tiny(cls) -> tuple[Task, ...]:
        """Moduli that are prime and not, other priors, and each kind alone."""
        return (
            cls(5, 6),
            cls(3, 4),
            cls(4, 5),
            cls(6, 4, 0.1),
            cls(2, 5, 0.9),
            cls(4, 4, 0.0),
            cls(3, 3, 1.0),
        )

    def batch(self, sequences: int, stream: Stream, step: int = 0) -> Batch:
        """Draw the kind, a program, and tokens; a program keeps the first one only."""
        check_sequences(sequences)
        p = self.modulus
        noise = stream.uniforms(step, sequences, 1, "kind")[:, 0] < self.noise_prior
        program = stream.integers(step, sequences, 2, p, "program")
        tokens = stream.integers(step, sequences, self.length + 1, p, "tokens")
        for t in range(self.length):
            follows = (program[:, 0] * tokens[:, t] + program[:, 1]) % p
            tokens[:, t + 1] = np.where(noise, tokens[:, t + 1], follows)
        inputs, targets = tokens[:, :-1].copy(), tokens[:, 1:].copy()
        return Batch(
            inputs,
            np.ones(inputs.shape, dtype=bool),
            targets,
            np.where(noise[:, None], -1, program),
            lambda: self._predictive(inputs, self.noise_prior),
            lambda: Categorical(
                self._log_belief(inputs, self.noise_prior).reshape(-1, self.modulus + 1)
            ),
        )

    def ladder(self, batch: Batch) -> Mapping[str, Predictive]:
        """A short memory, and a wrong prior.

        "last two steps" is Bayes on the last three tokens, as if the sequence began there.
        "noise prior 0.001" hardly believes in noise, so it takes the first steps of noise for a
        program.
        """
        exact = batch.predictive
        assert isinstance(exact, Categorical)
        recent = exact.log_probs.reshape(*batch.inputs.shape, self.modulus).copy()
        if self.length > _MEMORY:
            windows = sliding_window_view(batch.inputs, _MEMORY, axis=1)[:, 1:]
            ends = self._predictive(windows.reshape(-1, _MEMORY), self.noise_prior)
            by_window = ends.log_probs.reshape(-1, _MEMORY, self.modulus)[:, -1]
            recent[:, _MEMORY:] = by_window.reshape(*windows.shape[:2], self.modulus)
        return {
            "last two steps": Categorical(recent.reshape(exact.log_probs.shape)),
            f"noise prior {_HARDLY:g}": self._predictive(batch.inputs, _HARDLY),
        }

    def reference(self, batch: Batch) -> Predictive:
        """Exact fractions: run every program on every sequence, and noise beside them."""
        p, rows = self.modulus, []
        noise = Fraction(self.noise_prior)
        for tokens in batch.inputs.tolist():
            for seen in range(1, self.length + 1):
                weights = [noise / p ** (seen + 1)] * p
                for a, b in itertools.product(range(p), repeat=2):
                    told = [(a * token + b) % p for token in tokens[:seen]]
                    if told[:-1] == tokens[1:seen]:
                        weights[told[-1]] += (1 - noise) / p**3
                total = sum(weights)
                rows.append([float(weight / total) for weight in weights])
        return Categorical.proportional_to(np.array(rows), self.outputs.support)

    def _log_belief(
        self, tokens: Int64[np.ndarray, "n t"], noise_prior: float
    ) -> Float64[np.ndarray, "n t p+1"]:
        """Log posterior over the multiplier of a program, and last over noise.

        In logs, since p^-t of a long sequence is no float.
        """
        p, seen = self.modulus, np.arange(tokens.shape[1])
        log_noise, log_program = log_probabilities(np.array([noise_prior, 1 - noise_prior]))
        # Up to the first step a multiplier stands for p programs, one for each offset.
        each = log_program - np.minimum(seen + 1, 2) * math.log(p)
        weights = np.empty((*tokens.shape, p + 1))
        weights[..., :-1] = np.where(_consistent_multipliers(tokens, p), each[:, None], -np.inf)
        weights[..., -1] = log_noise - seen * math.log(p)
        return log_softmax(weights)

    def _predictive(self, tokens: Int64[np.ndarray, "n t"], noise_prior: float) -> Categorical:
        """Each program that is left says one token, noise says them all alike."""
        p = self.modulus
        belief = self._log_belief(tokens, noise_prior)
        # While the offset is open all tokens are alike: any step but 0 spreads them, so 1 will do.
        steps = np.diff(tokens, axis=1, prepend=tokens[:, :1] - 1)
        follows = (tokens[..., None] + np.arange(p) * steps[..., None]) % p
        cells = np.arange(tokens.size).reshape(*tokens.shape, 1) * p + follows
        programs = np.bincount(cells[np.isfinite(belief[..., :-1])], minlength=tokens.size * p)
        each = belief[..., :-1].max(axis=2, keepdims=True)
        by_program = log_probabilities(programs.reshape(*tokens.shape, p)) + each
        log_probs = np.logaddexp(by_program, belief[..., -1:] - math.log(p))
        return Categorical(log_probs.reshape(-1, p), self.outputs.support)


def _consistent_multipliers(
    tokens: Int64[np.ndarray, "n t"], modulus: int
) -> Bool[np.ndarray, "n t p"]:
    """Which multipliers no step has contradicted, after each token."""
    steps = np.diff(tokens, axis=1) % modulus
    holds = np.ones((*tokens.shape, modulus), dtype=bool)
    said = steps[:, :-1, None] * np.arange(modulus) % modulus
    holds[:, 2:] = said == steps[:, 1:, None]
    return np.asarray(np.logical_and.accumulate(holds, axis=1))
