"""Learning a Boolean function from examples: look up, or find the bits that matter (2512.22471).

A function of B bits is drawn; examples are shown one after another, and at the last bit of each the
model is asked for the output. One sequence with B = 2, of a function of one bit only (k = 1; here
the output is 1 where the second bit is 0), with the outputs 0 and 1 written 2 and 3::

    position     0    1    2    3    4    5    6    7    8    9   10
    input        0    0    3    0    1    2    1    1    2    1    0
    is a        bit  bit  out  bit  bit  out  bit  bit  out  bit  bit
    target            1              0              0              1
    P(1)             1/2            3/4             0              1
    bits              1            0.81             0              0

Symbols:
    B        bits of an input; inputs are numbers 0 ... 2^B - 1   ``bits``
    L        examples of a sequence                               ``examples``
    k        bits that the function may depend on                 ``relevant``
    R        subsets of k bits that may be the relevant ones, C(B, k) of them
    c        cell: value of the k bits of a subset in an input    ``[R, 2^B]``

Each subset is equally likely, and so is each of the 2^(2^k) tables of outputs by cell. Examples
have, given a subset, the probability 2^-(cells seen) where each cell has shown one output only, and
else 0. Given a subset the next output is the one seen in its cell, and a fair coin if there is
none; the predictive averages this over the posterior of the subsets. With k = B there is one
subset: certain for an input that was seen, else a coin, so after j distinct examples a random
input has the mean entropy 1 - j / 2^B. The belief is over the subsets; with all bits relevant it is
the predictive itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float64, Int64

from beliefspace.core.checks import check_choice, check_whole
from beliefspace.core.distributions import Categorical
from beliefspace.core.errors import InvalidInput
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

Draws = Literal["repeated", "distinct"]

_OUTPUTS = (2, 3)
_UNSEEN = -1
_REACHES = (2, 4, 8)


@dataclass(frozen=True)
class Function:
    """What one batch was drawn as.

    Attributes:
        table: output of each input, ``[n, 2^B]``.
        subset: which bits it was drawn as a function of, ``[n, k]``.
        examples: the inputs in the order shown, ``[n, L]``.
    """

    table: Int64[np.ndarray, "n 2**B"]
    subset: Int64[np.ndarray, "n k"]
    examples: Int64[np.ndarray, "n L"]

    @property
    def shown(self) -> Int64[np.ndarray, "n L"]:
        """The output of each example."""
        return np.take_along_axis(self.table, self.examples, axis=1)


@register("tasks", "boolean")
@dataclass(frozen=True)
class BooleanFunction(Task):
    """Learn a Boolean function from its examples (2512.22471: BFI-5, a function of 5 bits).

    Args:
        bits: of an input, B, 1 to 10.
        examples: of a sequence, L; the last one ends at its last bit.
        draws: "repeated", inputs drawn with replacement, or "distinct", each at most once. Of a
            function of all bits distinct examples tell nothing: every output is a fair coin.
        relevant: None for all functions alike, or k, the number of bits that the output depends on,
            a subset drawn with each sequence.

    Raises:
        InvalidInput: a value out of range, or more distinct examples than there are inputs.
    """

    bits: int = 5
    examples: int = 16
    draws: Draws = "repeated"
    relevant: int | None = None

    def __post_init__(self) -> None:
        # Up to 10 bits the likelihoods of two subsets, 2^-1024 apart at most, are floats.
        check_whole("bits", self.bits, 1, most=10)
        check_whole("examples", self.examples, 1)
        check_choice("draws", self.draws, get_args(Draws))
        if self.relevant is not None:
            check_whole("relevant", self.relevant, 1, most=self.bits)
        if self.draws == "distinct" and self.examples > 2**self.bits:
            raise InvalidInput(
                f"{self.bits} bits have {2**self.bits} distinct inputs; got examples = "
                f'{self.examples} (use draws = "repeated" for more)'
            )
        check_size(self)

    @property
    def depends_on(self) -> int:
        """Bits that the function may depend on, k."""
        return self.bits if self.relevant is None else self.relevant

    @property
    def prior(self) -> str:
        """Uniform over functions, of all bits or of a subset."""
        if self.depends_on == self.bits:
            return f"uniform over all functions of {self.bits} bits"
        return f"uniform over all functions of {self.relevant} out of {self.bits} bits"

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """The output of an input seen before is looked up; evidence about the subset adds up."""
        return ("binding",) if self.depends_on == self.bits else ("accumulation", "binding")

    @property
    def inputs(self) -> TokenInputs:
        """The bits 0 and 1, and the outputs as 2 and 3."""
        return TokenInputs(4)

    @property
    def outputs(self) -> CategoricalOutputs:
        """The outputs 0 and 1, as tokens."""
        return CategoricalOutputs(_OUTPUTS)

    @property
    def length(self) -> int:
        """B + 1 tokens an example; the output of the last is not shown."""
        return self.examples * (self.bits + 1) - 1

    @property
    def hypothesis_bits(self) -> float:
        """Choice of the subset, and 2^k outputs of a function of it."""
        return math.log2(math.comb(self.bits, self.depends_on)) + 2.0**self.depends_on

    @classmethod
    def tiny(cls) -> tuple[Task, ...]:
        """Functions of one, of some and of all bits, with inputs drawn in both ways."""
        return (
            cls(2, 4, "distinct", 1),
            cls(2, 6),
            cls(3, 10, "repeated", 1),
            cls(3, 8, "distinct", 2),
            cls(3, 9, "repeated", 3),
            cls(2, 4, "distinct"),
            cls(1, 3, "repeated", 1),
        )

    def batch(self, sequences: int, stream: Stream, step: int = 0) -> Batch:
        """Draw the subset, the outputs of its cells, and the inputs of the examples."""
        check_sequences(sequences)
        function = self._draw(sequences, stream, step)
        tokens = np.empty((sequences, self.examples, self.bits + 1), dtype=np.int64)
        tokens[..., :-1] = _spelled(self.bits)[function.examples]
        tokens[..., -1] = function.shown + _OUTPUTS[0]
        scored = np.zeros((sequences, self.length), dtype=bool)
        scored[:, self.bits - 1 :: self.bits + 1] = True
        targets = np.full(scored.shape, -1, dtype=np.int64)
        targets[scored] = function.shown.ravel()

        def predictive() -> Categorical:
            return self._predictive(function, self.depends_on)

        def belief() -> Categorical:
            subsets, _ = self._followed(function, self.depends_on)
            return Categorical.proportional_to(subsets)

        return Batch(
            tokens.reshape(sequences, -1)[:, :-1].copy(),
            scored,
            targets,
            function,
            predictive,
            predictive if self.depends_on == self.bits else belief,
        )

    def ladder(self, batch: Batch) -> Mapping[str, Predictive]:
        """Predictors that recall less, or do not look for the bits that matter.

        Of functions of all bits, "look-up in the last w" knows the inputs of the last w examples
        and takes all others for coins. Where only some bits matter, "majority so far" is the share
        of each output among the examples before, with one more of each (Laplace), and "look-up"
        knows all inputs seen before; where inputs hardly come again, it can be the worse of the
        two.
        """
        function = batch.latent
        if self.depends_on == self.bits:
            return {
                f"look-up in the last {reach}": self._recalled(function, reach)
                for reach in _REACHES
                if reach < self.examples - 1
            }
        ones = np.cumsum(function.shown, axis=1) - function.shown
        seen = np.arange(self.examples)
        counts = np.stack([1.0 + seen - ones, 1.0 + ones], axis=2)
        return {
            "majority so far": Categorical.proportional_to(counts, _OUTPUTS),
            "look-up": self._predictive(function, self.bits),
        }

    def _recalled(self, function: Function, reach: int) -> Categorical:
        """Certain of inputs that were among the last examples, a coin for all others."""
        distance = np.subtract.outer(np.arange(self.examples), np.arange(self.examples))
        near = (distance > 0) & (distance <= reach)
        same = function.examples[:, :, None] == function.examples[:, None, :]
        known = (same & near).any(axis=2)[..., None]
        certain = np.arange(2) == function.shown[..., None]
        return Categorical.proportional_to(np.where(known, certain, 0.5), _OUTPUTS)

    def reference(self, batch: Batch) -> Predictive:
        """Count, among all functions of all subsets, those that agree with every example."""
        candidates = [
            {point: table[sum(point[b] << i for i, b in enumerate(subset))] for point in points}
            for points in [list(itertools.product((0, 1), repeat=self.bits))]
            for subset in itertools.combinations(range(self.bits), self.depends_on)
            for table in itertools.product((0, 1), repeat=2**self.depends_on)
        ]
        rows = []
        for tokens in batch.inputs.tolist():
            left = candidates
            for start in range(0, self.length, self.bits + 1):
                point = tuple(tokens[start : start + self.bits])
                ones = sum(candidate[point] for candidate in left)
                rows.append([len(left) - ones, ones])
                output = tokens[start + self.bits : start + self.bits + 1]
                left = [c for c in left if [c[point] + 2] == output]
        return Categorical.proportional_to(np.array(rows, dtype=np.float64), self.outputs.support)

    def _draw(self, sequences: int, stream: Stream, step: int) -> Function:
        inputs, subsets = 2**self.bits, _subsets(self.bits, self.depends_on)
        which = stream.integers(step, sequences, 1, len(subsets), "subset")[:, 0]
        by_cell = stream.integers(step, sequences, 2**self.depends_on, 2, "outputs")
        table = np.take_along_axis(by_cell, _cells(self.bits, self.depends_on)[which], axis=1)
        if self.draws == "distinct":
            examples = stream.permutations(step, sequences, inputs, "examples")[:, : self.examples]
        else:
            examples = stream.integers(step, sequences, self.examples, inputs, "examples")
        return Function(table, subsets[which], examples)

    def _followed(
        self, function: Function, relevant: int
    ) -> tuple[Float64[np.ndarray, "n L R"], Float64[np.ndarray, "n L R"]]:
        """Follow every subset of so many bits through the examples.

        Returns:
            Before each output: the likelihood of the earlier ones given each subset, relative to
            the best; and given each subset the probability of a 1.
        """
        rows, shown = np.arange(len(function.examples))[:, None], function.shown
        cells = _cells(self.bits, relevant)
        subsets = np.arange(len(cells))
        known = np.full((len(rows), len(cells), 2**relevant), _UNSEEN, dtype=np.int8)
        exponent = np.zeros((len(rows), len(cells)))
        weights, chances = np.empty((2, len(rows), self.examples, len(cells)))
        for place in range(self.examples):
            here = (rows, subsets, cells[:, function.examples[:, place]].T)
            expected, output = known[here], shown[:, place, None]
            unseen = expected == _UNSEEN
            weights[:, place] = np.exp2(exponent - exponent.max(axis=1, keepdims=True))
            chances[:, place] = np.where(unseen, 0.5, expected)
            exponent -= unseen
            exponent[~unseen & (expected != output)] = -np.inf
            known[here] = output
        return weights, chances

    def _predictive(self, function: Function, relevant: int) -> Categorical:
        """The outputs that the subsets expect, weighted by their likelihoods."""
        weights, chances = self._followed(function, relevant)
        outputs = [(weights * (1 - chances)).sum(axis=2), (weights * chances).sum(axis=2)]
        return Categorical.proportional_to(np.stack(outputs, axis=2), _OUTPUTS)


@lru_cache(maxsize=8)
def _spelled(bits: int) -> Int64[np.ndarray, "2**B B"]:
    """The bits of each input, the highest first."""
    return (np.arange(2**bits)[:, None] >> np.arange(bits)[::-1]) & 1


@lru_cache(maxsize=8)
def _subsets(bits: int, relevant: int) -> Int64[np.ndarray, "R k"]:
    """Every choice of so many bits, counted from 0 for the first token."""
    return np.array(list(itertools.combinations(range(bits), relevant)))


@lru_cache(maxsize=8)
def _cells(bits: int, relevant: int) -> Int64[np.ndarray, "R 2**B"]:
    """The number that the bits of each subset spell in each input."""
    chosen = _spelled(bits)[:, _subsets(bits, relevant)]
    return np.asarray((chosen << np.arange(relevant)[::-1]).sum(axis=2).T)
