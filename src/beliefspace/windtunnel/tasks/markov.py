"""In-context Markov chains: each sequence has a transition table of its own (2402.11004).

A table is drawn, then a sequence from it; the model is asked for the next symbol and has to learn
the table from the transitions it has seen. One sequence with S = 3, k = 1, alpha = 1::

    position      0      1      2      3      4      5      6      7
    input         1      2      1      2      0      1      1      2
    target        2      1      2      0      1      1      2      1
    seen after    -      -      2      1      -     2,2   2,2,1   1,0    (the same symbol, so far)
    Bayes       1,1,1  1,1,1  1,1,2  1,2,1  1,1,1  1,1,3  1,2,3  2,2,1   (for 0, 1, 2, up to scale)

Symbols:
    S, k         symbols, order of the chain                            ``symbols``, ``order``
    T            symbols shown of a sequence                            ``length``
    alpha        each row of the table is Dirichlet(alpha, ..., alpha)  ``concentration``
    i            context, the last k symbols                            one of S**k
    n_ij, n_i    how often i was followed so far by j, and by any

With the table integrated out, the next symbol after context i is j with probability
(n_ij + alpha) / (n_i + S alpha) (2402.11004).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Float64, Int64

from beliefspace.core.checks import check_whole
from beliefspace.core.distributions import Categorical
from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import register
from beliefspace.core.streams import Stream, check_concentration, pick
from beliefspace.windtunnel.tasks.base import (
    Batch,
    CategoricalOutputs,
    Primitive,
    Task,
    TokenInputs,
    check_sequences,
    check_size,
)

_MOST_ENTRIES = 10_000
_GRAMS = ("unigram", "bigram", "trigram")


@dataclass(frozen=True)
class Chains:
    """What one batch was drawn as.

    Attributes:
        table: P(symbol | context), contexts counted in base S, ``[n, S**k, S]``.
        symbols: the sequences, ``[n, T + 1]``; the last symbol is not shown.
    """

    table: Float64[np.ndarray, "n contexts S"]
    symbols: Int64[np.ndarray, "n T+1"]


@register("tasks", "markov-chain")
@dataclass(frozen=True)
class MarkovChain(Task):
    """Learn a Markov chain in context: predict the next symbol from the transitions seen so far.

    Args:
        symbols: S >= 2.
        length: symbols of a sequence, T, at least the order.
        order: symbols that the next one depends on, k >= 1.
        concentration: alpha > 0 of each row of the table; small values give nearly fixed rules.

    Raises:
        InvalidInput: a value out of range, or a table of more than 10,000 entries, S**(k + 1).
    """

    symbols: int = 3
    length: int = 64
    order: int = 1
    concentration: float = 1.0

    def __post_init__(self) -> None:
        check_whole("symbols", self.symbols, 2)
        check_whole("order", self.order, 1, most=100)
        check_whole("length", self.length, self.order, most=100_000)
        check_concentration(self.concentration)
        if self.symbols ** (self.order + 1) > _MOST_ENTRIES:
            raise InvalidInput(
                f"a table of order {self.order} over {self.symbols} symbols has "
                f"{self.symbols ** (self.order + 1):,} entries; expected at most {_MOST_ENTRIES:,}"
            )
        check_size(self)

    @property
    def prior(self) -> str:
        """How table and first symbols are drawn."""
        context = "each symbol" if self.order == 1 else f"each {self.order} symbols"
        first = "first symbol" if self.order == 1 else f"first {self.order} symbols"
        return (
            f"what follows {context} is Dirichlet({self.concentration:g}) over {self.symbols} "
            f"symbols; the {first} uniform"
        )

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """Transitions are counted; those from the present context have to be found."""
        return ("accumulation", "binding")

    @property
    def inputs(self) -> TokenInputs:
        """The symbols."""
        return TokenInputs(self.symbols)

    @property
    def outputs(self) -> CategoricalOutputs:
        """The symbols."""
        return CategoricalOutputs(tuple(range(self.symbols)))

    @property
    def hypothesis_bits(self) -> float:
        """Infinite: tables are continuous."""
        return math.inf

    @classmethod
    def tiny(cls) -> tuple[MarkovChain, ...]:
        """Orders 1 to 3, flat and peaked priors, and no more symbols than the first context."""
        return (
            cls(3, 8),
            cls(2, 12, concentration=0.5),
            cls(3, 10, order=2, concentration=0.1),
            cls(2, 9, order=3, concentration=2.5),
            cls(4, 2, order=2),
        )

    def batch(self, sequences: int, stream: Stream, step: int = 0) -> Batch:
        """Draw tables, then the first k symbols, then each symbol given the k before it."""
        check_sequences(sequences)
        size, contexts = self.symbols, self.symbols**self.order
        table = stream.dirichlet(step, sequences * contexts, size, self.concentration, "table")
        table = table.reshape(sequences, contexts, size)
        symbols = np.empty((sequences, self.length + 1), dtype=np.int64)
        symbols[:, : self.order] = stream.integers(step, sequences, self.order, size, "first")
        uniforms = stream.uniforms(step, sequences, self.length + 1, "symbols")
        rows = np.arange(sequences)
        for t in range(self.order, self.length + 1):
            context = _context(symbols, t, self.order, size)
            symbols[:, t] = pick(table[rows, context], uniforms[:, t])
        return self._assemble(Chains(table, symbols))

    def ladder(self, batch: Batch) -> Mapping[str, Categorical]:
        """Counts as they are, counts after shorter contexts, and counts with another prior.

        "frequencies" trust the counts after the whole context: uniform where it is new, infinitely
        wrong when something comes for the first time. Shorter contexts, down to none at all (the
        unigram), follow the rule of the exact answer. Last comes the whole context with 1/2 added
        to each count, or 1 where 1/2 is exact.
        """
        full, other = _gram(self.order), 1.0 if self.concentration == 0.5 else 0.5
        counts = self._counts(batch.latent, self.order)
        new = counts.sum(axis=2, keepdims=True) == 0
        rungs = {f"{full} frequencies": np.where(new, 1.0, counts)}
        for order in range(self.order):
            rungs[_gram(order)] = self._counts(batch.latent, order) + self.concentration
        rungs[f"{full} add {'1' if other == 1 else '1/2'}"] = counts + other
        support = self.outputs.support
        return {name: Categorical.proportional_to(rung, support) for name, rung in rungs.items()}

    def reference(self, batch: Batch) -> Categorical:
        """Draw from an urn for each context, which gains a ball of the colour drawn: fractions."""
        rows = []
        for tokens in batch.inputs.tolist():
            urns: dict[tuple[int, ...], list[Fraction]] = {}
            for end in range(self.order, len(tokens) + 1):
                full = [Fraction(self.concentration)] * self.symbols
                urn = urns.setdefault(tuple(tokens[end - self.order : end]), full)
                rows.append([float(balls / sum(urn)) for balls in urn])
                if end < len(tokens):
                    urn[tokens[end]] += 1
        return Categorical(np.log(np.array(rows)), self.outputs.support)

    def _assemble(self, chains: Chains) -> Batch:
        inputs = chains.symbols[:, :-1].copy()
        scored = np.broadcast_to(np.arange(self.length) >= self.order - 1, inputs.shape).copy()
        targets = np.where(scored, chains.symbols[:, 1:], -1)
        return Batch(inputs, scored, targets, chains, lambda: self._predictive(chains))

    def _predictive(self, chains: Chains) -> Categorical:
        weights = self._counts(chains, self.order) + self.concentration
        return Categorical.proportional_to(weights, self.outputs.support)

    def _counts(self, chains: Chains, order: int) -> Float64[np.ndarray, "n scored S"]:
        """How often each symbol followed the last ``order`` ones so far, where one is scored."""
        symbols, size = chains.symbols, self.symbols
        rows = np.arange(len(symbols))
        so_far = np.zeros((len(symbols), size**order, size))
        counts = np.empty((len(symbols), self.length + 1, size))
        for t in range(order, self.length + 1):
            context = _context(symbols, t, order, size)
            counts[:, t] = so_far[rows, context]
            so_far[rows, context, symbols[:, t]] += 1
        return counts[:, self.order :]


def _context(
    symbols: Int64[np.ndarray, "n T+1"], t: int, order: int, size: int
) -> Int64[np.ndarray, " n"]:
    """The number, in base ``size``, that the ``order`` symbols before ``t`` write."""
    return symbols[:, t - order : t] @ size ** np.arange(order - 1, -1, -1)


def _gram(order: int) -> str:
    return _GRAMS[order] if order < len(_GRAMS) else f"{order + 1}-gram"
