"""Reference predictors that tell what an error means, scored on the same batch as a model.

Four are common to all categorical tasks, and none of them reads the evidence:

    uniform            every outcome alike
    best constant      one distribution for all: the mean predictive, which no other constant beats
                       in KL
    best by position   one distribution per position: the mean predictive there
    position entropy   one distribution per position with the median Bayes entropy there. Where
                       entropy is a function of position its entropy error is 0 although it knows
                       nothing, which is why entropy error never stands alone

A task adds its own, such as filters with a short memory. For normal outcomes the constants match
mean and variance.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float64, Int64
from scipy.optimize import brentq

from beliefspace.core.distributions import Categorical, Normal
from beliefspace.core.information import entropy_bits, log_softmax
from beliefspace.windtunnel.tasks.base import Batch, Predictive, Task

_STEEPEST = 700.0  # rate of a geometric distribution, just short of underflow


def ladder(task: Task, batch: Batch) -> Mapping[str, Predictive]:
    """Return every reference predictor of a task on a batch, at its scored positions.

    Args:
        task: the task that drew the batch.
        batch: any batch of it; the "best" ones are fitted to this very batch.
    """
    exact = batch.predictive
    _, position = np.unique(batch.columns, return_inverse=True)
    everywhere = np.zeros_like(position)
    if isinstance(exact, Normal):
        rungs: dict[str, Predictive] = {
            "best constant": _matched(exact, everywhere),
            "best by position": _matched(exact, position),
        }
    else:
        outcomes = exact.log_probs.shape[1]
        flat = np.full_like(exact.log_probs, -np.log(outcomes))
        rungs = {
            "uniform": Categorical(flat, exact.support),
            "best constant": _mean(exact, everywhere),
            "best by position": _mean(exact, position),
            "position entropy": _entropy_matched(exact, position),
        }
    return {**rungs, **task.ladder(batch)}


def _mean(exact: Categorical, group: Int64[np.ndarray, " s"]) -> Categorical:
    """The mean predictive of each group: the closest single distribution in KL."""
    totals = np.zeros((group.max() + 1, exact.log_probs.shape[1]))
    np.add.at(totals, group, np.exp(exact.log_probs))
    with np.errstate(divide="ignore"):
        log_means = np.log(totals / totals.sum(axis=1, keepdims=True))
    return Categorical(log_means[group], exact.support)


def _entropy_matched(exact: Categorical, group: Int64[np.ndarray, " s"]) -> Categorical:
    """A geometric distribution per group with the median entropy of the exact ones there."""
    entropies = exact.entropy_bits()
    medians = [float(np.median(entropies[group == g])) for g in range(group.max() + 1)]
    outcomes = exact.log_probs.shape[1]
    shapes = np.stack([_geometric(outcomes, median) for median in medians])
    return Categorical(shapes[group], exact.support)


def _geometric(outcomes: int, bits: float) -> Float64[np.ndarray, " outcomes"]:
    """Log-probabilities proportional to -rate x index, of the given entropy in bits."""
    index = np.arange(outcomes, dtype=np.float64)
    if bits <= 0:
        return np.where(index == 0, 0.0, -np.inf)
    if bits >= np.log2(outcomes):
        return np.full(outcomes, -np.log(outcomes))

    def excess(rate: float) -> float:
        return float(entropy_bits(log_softmax(-rate * index))) - bits

    if excess(_STEEPEST) > 0:  # an entropy of about 1e-301 bits: nothing, for any purpose
        return log_softmax(-_STEEPEST * index)
    return log_softmax(-brentq(excess, 0.0, _STEEPEST, xtol=1e-14) * index)


def _matched(exact: Normal, group: Int64[np.ndarray, " s"]) -> Normal:
    """The normal with each group's overall mean and variance: the closest single one in KL."""
    count = np.bincount(group)
    mean = np.bincount(group, exact.mean) / count
    spread = np.bincount(group, (exact.mean - mean[group]) ** 2) / count
    variance = np.bincount(group, exact.variance) / count + spread
    return Normal(mean[group], variance[group])
