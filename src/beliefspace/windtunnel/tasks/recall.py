"""Associative recall: pairs are stored, then some of their keys are asked for (2512.22471).

A table from keys to values is drawn and stored pair by pair; after a block of filler its keys are
asked for in random order, with half as much filler between them. One sequence with 3 keys (tokens
10-12), 3 values (13-15), N = 2 pairs, M = 2 queries and F = 2 tokens of filler::

    position   0    1   2    3     4    5   6    7    8    9     10   11   12  13    14   15   16
    input      0    11  1    14    0    10  1    15   8    5     2    11   3   8     2    10   3
    is a     STORE key SEP value STORE key SEP value fill fill QUERY key  PAD fill QUERY key  PAD
    target                                                            1                   2
    Bayes                                                            sure                sure
    bits                                                              0                   0

Symbols:
    N, M     pairs stored, queries                               ``pairs``, ``queries``
    K, V     keys, and values, that there are                    ``keys``, ``values``
    F        tokens of filler before the queries                 ``filler``
    k, v     stored keys and their values, in order              ``[n, N]``
    q        place of each queried key among the stored          ``[n, M]``

Keys start at token 10 and values at 10 + K, as in the released format; below, 0-3 are STORE, SEP,
QUERY and PAD, 4 is kept free for a fifth marker, and 5-9 are filler, drawn uniformly. With tokens
of its own, filler can never look like another pair. The model answers at the queried key, and PAD
stands where the answer would: the value is never shown again. Targets are indices of values.

Queried keys differ from one another and are all stored, so the posterior predictive is certain:
P(v | q) = 1 for the value stored with the key. All uncertainty of a model is a failure to bind;
one that knows the stored values, but not which key each goes with, is left with log2 N bits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from beliefspace.core.checks import check_whole
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

STORE, SEP, QUERY, PAD = range(4)
FILLER = range(5, 10)
FIRST_KEY = 10


@dataclass(frozen=True)
class Stored:
    """What one batch was drawn as.

    Attributes:
        table: the drawn latent, value of each key, -1 for a key that is not stored, ``[n, K]``.
        keys: the stored keys in the order shown, ``[n, N]``.
        values: their values, ``[n, N]``.
        queries: the place of each queried key among the stored ones, ``[n, M]``.
    """

    table: Int64[np.ndarray, "n K"]
    keys: Int64[np.ndarray, "n N"]
    values: Int64[np.ndarray, "n N"]
    queries: Int64[np.ndarray, "n M"]


@register("tasks", "recall")
@dataclass(frozen=True)
class AssociativeRecall(Task):
    """Store pairs of a key and a value, then look some of them up (2512.22471).

    Args:
        pairs: pairs stored in a sequence, N >= 1.
        keys: keys to draw from, K >= N; a sequence stores each at most once.
        values: values to draw from, V >= 2, and V >= N unless they repeat.
        queries: stored keys asked for, each at most once, 1 <= M <= N.
        filler: tokens of filler before the first query, F >= 0; half as many, rounded down,
            between two queries.
        values_repeat: whether values are drawn with replacement, or differ within a sequence.

    Raises:
        InvalidInput: more pairs than keys or than different values, or more queries than pairs.
    """

    pairs: int = 64
    keys: int = 256
    values: int = 256
    queries: int = 3
    filler: int = 32
    values_repeat: bool = False

    def __post_init__(self) -> None:
        check_whole("pairs", self.pairs, 1)
        check_whole("keys", self.keys, 1, most=100_000)
        check_whole("values", self.values, 2, most=100_000)
        check_whole("queries", self.queries, 1)
        check_whole("filler", self.filler, 0)
        if not isinstance(self.values_repeat, bool):
            raise InvalidInput(f"values_repeat is true or false; got {self.values_repeat!r}")
        if self.pairs > self.keys:
            raise InvalidInput(
                f"each key is stored once, so {self.keys} keys allow at most {self.keys} pairs; "
                f"got pairs = {self.pairs}"
            )
        if self.pairs > self.values and not self.values_repeat:
            raise InvalidInput(
                f"{self.values} different values allow at most {self.values} pairs; got pairs = "
                f"{self.pairs} (use values_repeat = true for more)"
            )
        if self.queries > self.pairs:
            raise InvalidInput(
                f"each stored key is asked for once, so {self.pairs} pairs allow at most "
                f"{self.pairs} queries; got queries = {self.queries}"
            )
        check_size(self)

    @property
    def prior(self) -> str:
        """Uniform over all tables with that many keys."""
        kind = "values drawn with replacement" if self.values_repeat else "different values"
        return f"uniform over all tables of {self.pairs} out of {self.keys} keys, with {kind}"

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """Retrieval by content, and nothing else."""
        return ("binding",)

    @property
    def inputs(self) -> TokenInputs:
        """Markers and filler (10 tokens), keys, then values."""
        return TokenInputs(self._first_value + self.values)

    @property
    def outputs(self) -> CategoricalOutputs:
        """The tokens of the values."""
        return CategoricalOutputs(tuple(range(self._first_value, self.inputs.vocabulary)))

    @property
    def length(self) -> int:
        """4 tokens a pair, 3 a query, and the filler before and between the queries."""
        return 4 * self.pairs + self.filler + 3 + (self.queries - 1) * self._spacing

    @property
    def hypothesis_bits(self) -> float:
        """log2 of the number of tables: choices of keys times choices of their values."""
        choices = _log_falling(self.keys, self.pairs) - math.lgamma(self.pairs + 1)
        if self.values_repeat:
            return (choices + self.pairs * math.log(self.values)) / math.log(2)
        return (choices + _log_falling(self.values, self.pairs)) / math.log(2)

    @classmethod
    def tiny(cls) -> tuple[Task, ...]:
        """Different and repeated values, all and some keys stored or asked for, and no filler."""
        return (
            cls(2, 3, 3, 2, 2),
            cls(2, 3, 3, 1, 3, values_repeat=True),
            cls(3, 3, 4, 2, 0),
            cls(3, 4, 2, 3, 1, values_repeat=True),
        )

    def batch(self, sequences: int, stream: Stream, step: int = 0) -> Batch:
        """Draw keys, their values, which of them are asked for, and the filler."""
        check_sequences(sequences)
        stored = self._draw(sequences, stream, step)
        inputs = stream.integers(step, sequences, self.length, len(FILLER), "filler") + FILLER[0]
        first = self._first_value
        for part, token in enumerate((STORE, stored.keys + FIRST_KEY, SEP, first + stored.values)):
            inputs[:, part : 4 * self.pairs : 4] = token
        asked = np.take_along_axis(stored.keys, stored.queries, axis=1)
        for part, token in enumerate((QUERY, asked + FIRST_KEY, PAD)):
            inputs[:, self._query_columns + part] = token
        scored = np.zeros(inputs.shape, dtype=bool)
        scored[:, self._query_columns + 1] = True
        answers = np.take_along_axis(stored.values, stored.queries, axis=1)
        targets = np.full(inputs.shape, -1, dtype=np.int64)
        targets[:, self._query_columns + 1] = answers

        def certain() -> Categorical:
            weights = np.arange(self.values) == answers[:, :, None]
            return Categorical.proportional_to(weights.astype(np.float64), self.outputs.support)

        return Batch(inputs, scored, targets, stored, certain, certain)

    def ladder(self, batch: Batch) -> Mapping[str, Predictive]:
        """Return what a model knows that gathers values without binding them to keys.

        "one of the stored values" gives each value the share of the stored pairs that have it.
        """
        shares = _counts(batch.latent.values, self.values)
        repeated = np.repeat(shares, self.queries, axis=0)
        return {
            "one of the stored values": Categorical.proportional_to(repeated, self.outputs.support)
        }

    def reference(self, batch: Batch) -> Predictive:
        """Bayes' rule over every sequence of pairs: those that agree with the tokens vote."""
        keys = range(FIRST_KEY, FIRST_KEY + self.keys)
        answers = self.outputs.support
        assign = (
            itertools.product(answers, repeat=self.pairs)
            if self.values_repeat
            else itertools.permutations(answers, self.pairs)
        )
        tables = list(itertools.product(itertools.permutations(keys, self.pairs), list(assign)))
        beliefs = []
        for row, scored in zip(batch.inputs.tolist(), batch.scored, strict=True):
            for position in np.flatnonzero(scored):
                past, votes = row[: position + 1], dict.fromkeys(answers, 0.0)
                for shown, given in tables:
                    told = [
                        token
                        for key, value in zip(shown, given, strict=True)
                        for token in (STORE, key, SEP, value)
                    ]
                    if told == past[: len(told)] and past[-1] in shown:
                        votes[given[shown.index(past[-1])]] += 1
                beliefs.append(list(votes.values()))
        return Categorical.proportional_to(np.array(beliefs), answers)

    @property
    def _first_value(self) -> int:
        return FIRST_KEY + self.keys

    @property
    def _spacing(self) -> int:
        """From one query to the next."""
        return 3 + self.filler // 2

    @property
    def _query_columns(self) -> Int64[np.ndarray, " M"]:
        """Where the QUERY markers stand."""
        return 4 * self.pairs + self.filler + self._spacing * np.arange(self.queries)

    def _draw(self, sequences: int, stream: Stream, step: int) -> Stored:
        keys = stream.permutations(step, sequences, self.keys, "keys")[:, : self.pairs]
        if self.values_repeat:
            values = stream.integers(step, sequences, self.pairs, self.values, "values")
        else:
            values = stream.permutations(step, sequences, self.values, "values")[:, : self.pairs]
        queries = stream.permutations(step, sequences, self.pairs, "queries")[:, : self.queries]
        table = np.full((sequences, self.keys), -1, dtype=np.int64)
        np.put_along_axis(table, keys, values, axis=1)
        return Stored(table, keys, values, queries)


def _counts(values: Int64[np.ndarray, "n N"], size: int) -> Float64[np.ndarray, "n V"]:
    """How often each value is stored."""
    counts = np.zeros((len(values), size))
    np.add.at(counts, (np.arange(len(values))[:, None], values), 1.0)
    return counts


def _log_falling(size: int, chosen: int) -> float:
    """Natural logarithm of the number of ordered choices of ``chosen`` out of ``size``."""
    return math.lgamma(size + 1) - math.lgamma(size - chosen + 1)
