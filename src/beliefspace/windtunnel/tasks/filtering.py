"""What a task offers whose exact belief is a filter: each observation updates the one before.

Two questions can be asked of a model on such a task, and their answers can disagree (see
:mod:`beliefspace.windtunnel.memory`): how much of the past its error needs, and how far back its
belief really changes when an observation does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from beliefspace.core.streams import Stream
from beliefspace.windtunnel.tasks.base import Batch, Predictive, Task


@dataclass(frozen=True)
class Changed:
    """Sequences in which the observation at one step was replaced by another.

    Attributes:
        batch: the sequences that stay possible, with their exact answers.
        kept: which rows of the original batch those are, ``[n]``.
    """

    batch: Batch
    kept: Bool[np.ndarray, " n"]


class FilteringTask(Task):
    """A task whose sequences hold one observation a step, each step scored once, in order."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Observations of a sequence, K."""

    @property
    @abstractmethod
    def restarts(self) -> tuple[str, ...]:
        """The beliefs that a windowed filter can start from: "stationary", "uniform"."""

    @abstractmethod
    def windows(self, batch: Batch, restart: str) -> Iterator[Predictive]:
        """Yield the predictive of filters that saw the last 1, 2, ... K observations only.

        The last, and any whose window covers all observations so far, is exact.

        Args:
            batch: the sequences.
            restart: what a filter believes just before the first observation that it sees, one of
                :attr:`restarts`.
        """

    @abstractmethod
    def changed(self, batch: Batch, step: int, stream: Stream) -> Changed:
        """Return the sequences with the observation at ``step`` (0 ... K - 1) replaced.

        Args:
            batch: the sequences.
            step: of the observation.
            stream: where the other observation is drawn from.
        """


def growing(
    first: Float64[np.ndarray, "n K S"],
    longer: Callable[[Float64[np.ndarray, "n K-1 S"]], Float64[np.ndarray, "n K-1 S"]],
) -> Iterator[Float64[np.ndarray, "n K S"]]:
    """Yield the log beliefs of filters with windows of 1, 2, ... K observations.

    A window of one more observation that ends at a step is the last one that ended a step before,
    taken one step further; the one that ends at the first step has nothing to grow by.

    Args:
        first: of windows of one observation.
        longer: takes windows that end at steps 1 ... K - 1 to the next step.
    """
    window = first
    yield window
    for _ in range(1, first.shape[1]):
        window = np.concatenate([window[:, :1], longer(window[:, :-1])], axis=1)
        yield window
