"""What a task is: data and the exact belief about them, from one object.

Symbols:
    n     sequences in a batch
    T     positions of a sequence
    s     scored positions of the whole batch, in row-major order
    m     outcomes of a categorical task
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from beliefspace.core.checks import check_whole
from beliefspace.core.distributions import Categorical, Normal
from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream

_MOST_ENTRIES = 20_000_000

Predictive = Categorical | Normal
Primitive = Literal["accumulation", "transport", "binding"]


@dataclass(frozen=True)
class TokenInputs:
    """Inputs are token ids 0 ... ``vocabulary`` - 1."""

    vocabulary: int


@dataclass(frozen=True)
class RealInputs:
    """Inputs are vectors of ``features`` real numbers."""

    features: int


@dataclass(frozen=True)
class CategoricalOutputs:
    """The outcome is one of ``support`` (token ids, or plain indices for real inputs)."""

    support: tuple[int, ...]


@dataclass(frozen=True)
class NormalOutputs:
    """The outcome is a real number; a model gives its mean and the logarithm of its variance."""


@dataclass(frozen=True)
class Batch:
    """Sequences, what is asked of them, and the exact answers.

    Attributes:
        inputs: token ids ``[n, T]`` (int64) or features ``[n, T, f]`` (float32).
        scored: which positions are scored, ``[n, T]``.
        targets: the sampled outcome, ``[n, T]``: an index into the support, -1 where not scored;
            for normal outcomes a real number (float64).
        latent: what was drawn: an array with one row a sequence, or a frozen dataclass of such
            arrays, of which the first is the hypothesis itself.
    """

    inputs: Int64[np.ndarray, "n T"] | Float32[np.ndarray, "n T f"]
    scored: Bool[np.ndarray, "n T"]
    targets: Int64[np.ndarray, "n T"] | Float64[np.ndarray, "n T"]
    latent: Any
    _predictive: Callable[[], Predictive] = field(repr=False)
    _belief: Callable[[], Categorical] | None = field(default=None, repr=False)

    @cached_property
    def predictive(self) -> Predictive:
        """The exact posterior predictive at the scored positions, ``s`` rows, float64."""
        return self._predictive()

    @cached_property
    def belief(self) -> Categorical | None:
        """The exact posterior over the latent's current value, ``s`` rows; None if not finite."""
        return None if self._belief is None else self._belief()

    @cached_property
    def outcomes(self) -> Int64[np.ndarray, " s"] | Float64[np.ndarray, " s"]:
        """The sampled outcomes at the scored positions."""
        return np.asarray(self.targets[self.scored])

    @cached_property
    def columns(self) -> Int64[np.ndarray, " s"]:
        """The position 0 ... T - 1 of each scored entry."""
        return np.nonzero(self.scored)[1]


class Task(ABC):
    """A family of sequences whose exact posterior predictive is known.

    A task is a frozen dataclass of its own settings, registered under a short name. It is causal:
    the predictive at a position is a function of the inputs up to and including that position.
    """

    group: ClassVar[str] = "tasks"

    @property
    @abstractmethod
    def prior(self) -> str:
        """What is drawn for a sequence, and how: the prior over the latent, in words."""

    @property
    def prefix(self) -> int:
        """Header positions at the start, visible to all others in both directions."""
        return 0

    @property
    @abstractmethod
    def primitives(self) -> tuple[Primitive, ...]:
        """The inference primitives (2512.22471) that an exact answer needs.

        "accumulation": evidence about something that stays is folded in; "transport": the belief
        about something that changes is carried through its dynamics; "binding": something is
        retrieved by its content. Whatever the sequence states outright has not to be inferred.
        """

    @property
    @abstractmethod
    def inputs(self) -> TokenInputs | RealInputs:
        """What a sequence is made of."""

    @property
    @abstractmethod
    def outputs(self) -> CategoricalOutputs | NormalOutputs:
        """What is predicted."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Positions of a sequence, T."""

    @property
    @abstractmethod
    def hypothesis_bits(self) -> float:
        """Entropy of the prior over the latent, in bits.

        Inf for a continuous one; where it has no closed form, its bound: log2 of the number of
        hypotheses.
        """

    @abstractmethod
    def batch(self, sequences: int, stream: Stream, step: int = 0) -> Batch:
        """Draw ``sequences`` rows; row ``i`` depends on the stream, ``step`` and ``i`` alone."""

    @abstractmethod
    def reference(self, batch: Batch) -> Predictive:
        """Derive ``batch.predictive`` again by an independent, slow route (tiny sizes only)."""

    @classmethod
    @abstractmethod
    def tiny(cls) -> tuple[Task, ...]:
        """Return instances small enough for :meth:`reference`, covering every variant."""

    def ladder(self, batch: Batch) -> Mapping[str, Predictive]:
        """Return the task's own reference predictors by name; the common ones are added."""
        return {}

    def alternatives(self, batch: Batch) -> Mapping[str, Predictive]:
        """Return exact predictives under other priors that a model may have learned instead."""
        return {}

    def balanced(self, sequences: int, stream: Stream, step: int = 0) -> Batch:
        """Draw rows that are each distributed as in :meth:`batch` but together cover a symmetry.

        Averages over such a batch have less variance. Rows are dependent, so it is for training
        only.
        """
        raise InvalidInput(
            f"{type(self).__name__} has no balanced batches; train with balanced = false"
        )


def check_size(task: Task) -> None:
    """Raise if one sequence of a task is too large to work with; call it when all else is checked.

    Raises:
        InvalidInput: more than 20 million positions times outcomes (160 MB of probabilities).
    """
    outcomes = len(task.outputs.support) if isinstance(task.outputs, CategoricalOutputs) else 1
    if task.length * outcomes > _MOST_ENTRIES:
        raise InvalidInput(
            f"{type(task).__name__} has {task.length:,} positions and {outcomes:,} outcomes; "
            f"expected at most {_MOST_ENTRIES:,} of one times the other"
        )


def check_sequences(sequences: int) -> None:
    """Raise unless ``sequences`` is a whole number of at least 1."""
    check_whole("sequences", sequences, 1)
