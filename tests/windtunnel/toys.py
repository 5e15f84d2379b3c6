"""Two small correct tasks that are no part of the package: a coin, and the mean of a normal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from beliefspace.core.distributions import Categorical, Normal
from beliefspace.windtunnel.tasks.base import (
    Batch,
    CategoricalOutputs,
    NormalOutputs,
    RealInputs,
    Task,
    TokenInputs,
    check_sequences,
)


@dataclass(frozen=True)
class Coin(Task):
    """Tosses of a coin whose bias is uniform: the next one by Laplace's rule of succession."""

    tosses: int = 5

    prior = "a bias uniform on 0 to 1"
    primitives = ("accumulation",)
    inputs = TokenInputs(2)
    outputs = CategoricalOutputs((0, 1))
    hypothesis_bits = np.inf

    @property
    def length(self):
        return self.tosses

    def batch(self, sequences, stream, step=0):
        check_sequences(sequences)
        bias = stream.uniforms(step, sequences, 1, "bias")
        tosses = stream.uniforms(step, sequences, self.tosses + 1, "tosses") < bias
        inputs = tosses[:, :-1].astype(np.int64)

        def predictive():
            seen = np.arange(1, self.tosses + 1)
            heads = (inputs.cumsum(axis=1) + 1) / (seen + 2)
            return Categorical(np.log(np.stack([1 - heads, heads], axis=-1)).reshape(-1, 2), (0, 1))

        return Batch(
            inputs,
            np.ones_like(inputs, dtype=bool),
            tosses[:, 1:].astype(np.int64),
            bias,
            predictive,
        )

    def reference(self, batch):
        nodes, weights = np.polynomial.legendre.leggauss(40)
        bias, rows = (nodes + 1) / 2, []
        for row in batch.inputs:
            for end in range(1, self.tosses + 1):
                heads = row[:end].sum()
                posterior = weights * bias**heads * (1 - bias) ** (end - heads)
                heads = (posterior * bias).sum() / posterior.sum()
                rows.append([1 - heads, heads])
        return Categorical(np.log(np.array(rows)), (0, 1))

    @classmethod
    def tiny(cls):
        return (cls(), cls(1))


@dataclass(frozen=True)
class NormalMean(Task):
    """Draws from N(w, 1), w from N(0, 1): the next is N(sum / (t + 1), 1 + 1 / (t + 1)) after t."""

    draws: int = 4

    prior = "a mean from N(0, 1)"
    primitives = ("accumulation",)
    inputs = RealInputs(1)
    outputs = NormalOutputs()
    hypothesis_bits = np.inf

    @property
    def length(self):
        return self.draws

    def batch(self, sequences, stream, step=0):
        check_sequences(sequences)
        mean = stream.normals(step, sequences, 1, "mean")
        values = (mean + stream.normals(step, sequences, self.draws + 1, "noise")).astype(
            np.float32
        )
        inputs = values[:, :-1, None]

        def predictive():
            precision = np.arange(2, self.draws + 2, dtype=np.float64)
            centre = values[:, :-1].astype(np.float64).cumsum(axis=1) / precision
            return Normal(centre.ravel(), np.tile(1 + 1 / precision, sequences))

        targets = values[:, 1:].astype(np.float64)
        return Batch(inputs, np.ones(targets.shape, dtype=bool), targets, mean, predictive)

    def reference(self, batch):
        """Condition the joint normal of all draws, whose covariance is 1 + identity."""
        centre, variance = [], []
        for row in batch.inputs[..., 0].astype(np.float64):
            for end in range(1, self.draws + 1):
                gain = np.linalg.solve(np.ones((end, end)) + np.eye(end), np.ones(end))
                centre.append(gain @ row[:end])
                variance.append(2 - gain.sum())
        return Normal(np.array(centre), np.array(variance))

    @classmethod
    def tiny(cls):
        return (cls(),)
