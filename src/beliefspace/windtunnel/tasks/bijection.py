"""Bijection elimination: each pair that is shown rules values out (2512.22471, tasks).

A bijection of V keys onto V values is drawn; its pairs are shown one after another, and at each key
the model is asked for the value. One sequence with V = 4, in format B (values have tokens of their
own, V ... 2V - 1, written 4-7 here)::

    position     0    1    2    3    4    5    6
    input        2    5    0    7    3    4    1
    is a        key value key value key value key
    target       1         3         0         2          (index of the value)
    Bayes     1/4,1/4,..   1/3 on {0,2,3}  1/2 on {0,2}   certain
    bits         2        1.58      1         0

In format A keys and values share the tokens 0 ... V - 1, all pairs are complete, and a last key
from the context asks for recall.

Symbols:
    V        keys, and values                                    ``values``
    L        pairs in a sequence                                 ``pairs``
    x, y     keys and values of the pairs, in order              ``[n, L]``
    q        queries: every key, and in format A the last one    ``[n, S]``, S = L or L + 1
    m        distinct values seen before a query                 ``[n, S]``

The posterior predictive (2512.22471): certain where the key was seen, else uniform over the V - m
values not seen (a bijection) or over all V (an independent map, which isolates binding). With a
finite pool of N fixed latents it is the vote of the members that agree with every pair so far, so a
model that memorised its training latents can be told from one that learned the rule.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Int64

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
from beliefspace.windtunnel.tasks.finite_pool import Evidence, agreement, votes
from beliefspace.windtunnel.tasks.orbits import stabiliser

Format = Literal["B", "A"]
Keys = Literal["distinct", "repeated"]
Mapped = Literal["bijection", "map"]


@dataclass(frozen=True)
class Pairs:
    """What one batch was drawn as.

    Attributes:
        table: the drawn latent, value of each key, ``[n, V]``.
        keys: the keys in the order shown, ``[n, L]``.
        queries: the keys at the scored positions, ``[n, S]``.
        member: index of the latent in the pool ``[n]``, or None.
    """

    table: Int64[np.ndarray, "n V"]
    keys: Int64[np.ndarray, "n L"]
    queries: Int64[np.ndarray, "n S"]
    member: Int64[np.ndarray, " n"] | None

    @property
    def values(self) -> Int64[np.ndarray, "n L"]:
        """The value of each key shown."""
        return np.take_along_axis(self.table, self.keys, axis=1)


@register("tasks", "bijection")
@dataclass(frozen=True)
class Bijection(Task):
    """Learn a mapping from its pairs, by elimination or by look-up.

    Args:
        values: number of keys and of values, V >= 2.
        pairs: pairs in a sequence, L; by default as many as values.
        format: "B", values with their own tokens, ending at a key (2L - 1 tokens), or "A", shared
            tokens, then one key from the context (2L + 1 tokens).
        keys: "distinct", each key once, or "repeated", drawn with replacement.
        mapping: "bijection", or "map", values drawn independently (with repeated keys: the binding
            variant).
        pool: None for the full prior, or the number N of fixed latents, equally likely. They are
            drawn from the full prior, so a small space can give one twice; each counts as a member.
        pool_seed: which pool.
    """

    values: int = 20
    pairs: int | None = None
    format: Format = "B"
    keys: Keys = "distinct"
    mapping: Mapped = "bijection"
    pool: int | None = None
    pool_seed: int = 0

    def __post_init__(self) -> None:
        check_whole("values", self.values, 2, most=100_000)
        check_whole("pool_seed", self.pool_seed, 0, most=2**63)
        for name in ("pairs", "pool"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)
        for name, choices in (("format", Format), ("keys", Keys), ("mapping", Mapped)):
            check_choice(name, getattr(self, name), get_args(choices))
        if self.keys == "distinct" and self.shown > self.values:
            raise InvalidInput(
                f"distinct keys allow at most {self.values} pairs; got pairs = {self.pairs} "
                '(use keys = "repeated" for more)'
            )
        check_size(self)

    @property
    def shown(self) -> int:
        """Pairs in a sequence, L."""
        return self.values if self.pairs is None else self.pairs

    @property
    def prior(self) -> str:
        """Uniform over all mappings of the kind, or over the members of the pool."""
        kind = "bijections of keys onto values" if self.mapping == "bijection" else "maps to values"
        among = "all" if self.pool is None else f"a pool of {self.pool}"
        return f"uniform over {among} {kind}"

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """Elimination accumulates; a key that comes again must be bound to its value."""
        needs: list[Primitive] = []
        if self.mapping == "bijection" or self.pool is not None:
            needs.append("accumulation")
        if self.keys == "repeated" or self.format == "A":
            needs.append("binding")
        return tuple(needs)

    @property
    def inputs(self) -> TokenInputs:
        """V tokens shared (format A), or V for keys and V for values (format B)."""
        return TokenInputs(self.values if self.format == "A" else 2 * self.values)

    @property
    def outputs(self) -> CategoricalOutputs:
        """The tokens of the values."""
        first = 0 if self.format == "A" else self.values
        return CategoricalOutputs(tuple(range(first, first + self.values)))

    @property
    def length(self) -> int:
        """2L + 1 tokens in format A, 2L - 1 in format B."""
        return 2 * self.shown + (1 if self.format == "A" else -1)

    @property
    def hypothesis_bits(self) -> float:
        """log2 of V!, of V**V, or of the size of the pool."""
        if self.pool is not None:
            return math.log2(self.pool)
        if self.mapping == "bijection":
            return math.lgamma(self.values + 1) / math.log(2)
        return self.values * math.log2(self.values)

    @classmethod
    def tiny(cls) -> tuple[Task, ...]:
        """Every format, way of drawing keys, and mapping, at V = 4 and 5; and two pools."""
        variants = itertools.product(get_args(Format), get_args(Keys), get_args(Mapped))
        full = [cls(4, None, *variant) for variant in variants]
        pools = [cls(5, 4, "B", "distinct", pool=7), cls(4, 6, "A", "repeated", "map", pool=5)]
        return (*full, cls(6, 3), *pools)

    def batch(self, sequences: int, stream: Stream, step: int = 0) -> Batch:
        """Draw latents from the prior, then keys, then (format A) the key to recall."""
        check_sequences(sequences)
        return self._assemble(self._draw(sequences, stream, step))

    def balanced(self, sequences: int, stream: Stream, step: int = 0) -> Batch:
        """Draw one sequence under many relabellings of its values; see the module orbits.

        A set of V rows shares its keys and runs through a cycle, so every value stands once at
        every position. With distinct keys the sets, within a step and over steps, run through the
        rest of the group in random order, each with its keys renamed; then a new sequence is drawn.
        Which sets a step holds follows from ``sequences``.

        Raises:
            InvalidInput: with a finite pool, which has no such symmetry.
        """
        check_sequences(sequences)
        if self.pool is not None:
            raise InvalidInput("a finite pool has no symmetry to balance; use balanced = false")
        rows = np.arange(step * sequences, (step + 1) * sequences)
        numbers = np.unique(rows // self.values).tolist()
        sets = [_orbit_set(self, number, stream) for number in numbers]
        mine = rows - rows[0] // self.values * self.values
        table, keys, queries = (
            np.concatenate([getattr(one, part) for one in sets])[mine]
            for part in ("table", "keys", "queries")
        )
        return self._assemble(Pairs(table, keys, queries, None))

    def ladder(self, batch: Batch) -> Mapping[str, Predictive]:
        """Bags of seen values: a logit of -c for each value seen, whatever the key."""
        seen = self._seen_values(batch.latent)
        support = self.outputs.support
        rungs = {}
        for penalty in (5, 10, 20):
            log_probs = np.where(seen, -float(penalty), 0.0).reshape(-1, self.values)
            log_probs -= np.logaddexp.reduce(log_probs, axis=1, keepdims=True)
            rungs[f"bag-of-values c={penalty}"] = Categorical(log_probs, support)
        return rungs

    def alternatives(self, batch: Batch) -> Mapping[str, Predictive]:
        """With a pool: the predictive of the full prior, which a model that generalises follows."""
        if self.pool is None:
            return {}
        return {"full prior": self._full_prior(batch.latent)}

    def reference(self, batch: Batch) -> Categorical:
        """Bayes' rule over every latent of the prior, one sequence and one query at a time."""
        hypotheses = list(self._every_latent())
        first_value = self.outputs.support[0]
        rows = []
        for tokens, scored in zip(batch.inputs.tolist(), batch.scored.tolist(), strict=True):
            for position in np.flatnonzero(scored):
                shown = list(zip(tokens[:position:2], tokens[1:position:2], strict=True))
                votes = [0] * self.values
                for hypothesis in hypotheses:
                    if all(hypothesis[key] == value - first_value for key, value in shown):
                        votes[hypothesis[tokens[position]]] += 1
                rows.append(votes)
        return Categorical.proportional_to(np.array(rows, dtype=np.float64), self.outputs.support)

    def _every_latent(self) -> Iterator[tuple[int, ...]]:
        if self.pool is not None:
            return (tuple(member) for member in _pool(self).tolist())
        if self.mapping == "bijection":
            return itertools.permutations(range(self.values))
        return itertools.product(range(self.values), repeat=self.values)

    def _draw(self, rows: int, stream: Stream, step: int) -> Pairs:
        if self.keys == "distinct":
            keys = stream.permutations(step, rows, self.values, "keys")[:, : self.shown]
        else:
            keys = stream.integers(step, rows, self.shown, self.values, "keys")
        queries = self._queries(keys, stream, step)
        if self.pool is None:
            return Pairs(_latents(self, rows, stream, step), keys, queries, None)
        member = stream.integers(step, rows, 1, self.pool, "member")[:, 0]
        return Pairs(_pool(self)[member], keys, queries, member)

    def _queries(
        self, keys: Int64[np.ndarray, "n L"], stream: Stream, step: int
    ) -> Int64[np.ndarray, "n S"]:
        """Every key, and in format A one of them again."""
        if self.format == "B":
            return keys
        again = stream.integers(step, len(keys), 1, self.shown, "recall")
        return np.concatenate([keys, np.take_along_axis(keys, again, axis=1)], axis=1)

    def _assemble(self, pairs: Pairs) -> Batch:
        rows = len(pairs.keys)
        inputs = np.empty((rows, self.length), dtype=np.int64)
        inputs[:, 0::2] = pairs.queries
        complete = inputs[:, 1::2].shape[1]
        inputs[:, 1::2] = pairs.values[:, :complete] + self.outputs.support[0]
        scored = np.zeros((rows, self.length), dtype=bool)
        scored[:, 0::2] = True
        targets = np.full((rows, self.length), -1, dtype=np.int64)
        targets[:, 0::2] = np.take_along_axis(pairs.table, pairs.queries, axis=1)
        return Batch(
            inputs,
            scored,
            targets,
            pairs,
            lambda: self._predictive(pairs),
            lambda: self._belief(pairs),
        )

    def _predictive(self, pairs: Pairs) -> Categorical:
        if self.pool is None:
            return self._full_prior(pairs)
        return Categorical.proportional_to(
            votes(_pool(self), _evidence(pairs)), self.outputs.support
        )

    def _belief(self, pairs: Pairs) -> Categorical:
        """Posterior over the pool's members; else over the value of the key in question."""
        if self.pool is None:
            return self._predictive(pairs)
        return Categorical.proportional_to(
            agreement(_pool(self), _evidence(pairs)), tuple(range(self.pool))
        )

    def _full_prior(self, pairs: Pairs) -> Categorical:
        seen = self._seen_values(pairs)
        free = ~seen if self.mapping == "bijection" else np.ones_like(seen)
        value = np.take_along_axis(pairs.table, pairs.queries, axis=1)
        certain = np.arange(self.values) == value[:, :, None]
        free = np.where(_seen_keys(pairs)[:, :, None], certain, free)
        return Categorical.proportional_to(free.astype(np.float64), self.outputs.support)

    def _seen_values(self, pairs: Pairs) -> Bool[np.ndarray, "n S V"]:
        rows, queries = pairs.queries.shape
        seen = np.zeros((rows, queries + 1, self.values), dtype=bool)
        shown = pairs.values
        for pair in range(shown.shape[1]):
            seen[:, pair + 1] = seen[:, pair]
            seen[np.arange(rows), pair + 1, shown[:, pair]] = True
        return seen[:, :queries]


def _orbit_set(task: Bijection, number: int, stream: Stream) -> Pairs:
    """Return the V rows of a set: a sequence with its keys renamed and its values moved.

    With distinct keys the sets of a block move one sequence by one relabelling after another. With
    repeated keys each set has its own, lest a block show one pattern of repetitions only.
    """
    size = task.values
    relabellings = stabiliser(size) if task.keys == "distinct" else np.arange(size)[None, :]
    block, place = divmod(number, len(relabellings))
    base = task._draw(1, stream, block)
    names = stream.permutations(block, 1, size, "names")[0]
    order = stream.permutations(block, 1, len(relabellings), "relabellings")[0]
    moved = relabellings[order[place]][base.table]
    new_keys = stream.permutations(number, 1, size, "new keys")[0]
    table = np.empty((size, size), dtype=np.int64)
    table[:, new_keys] = names[(moved + np.arange(size)[:, None]) % size]
    keys = np.repeat(new_keys[base.keys], size, axis=0)
    return Pairs(table, keys, task._queries(keys, stream, number), None)


def _seen_keys(pairs: Pairs) -> Bool[np.ndarray, "n S"]:
    """Whether each query's key was shown in an earlier pair."""
    queries, shown = pairs.queries.shape[1], pairs.keys.shape[1]
    earlier = np.arange(shown)[None, :] < np.arange(queries)[:, None]
    same = pairs.queries[:, :, None] == pairs.keys[:, None, :]
    return np.asarray((same & earlier).any(axis=2))


def _evidence(pairs: Pairs) -> Evidence:
    return Evidence(pairs.keys, pairs.values, pairs.queries)


def _latents(task: Bijection, rows: int, stream: Stream, step: int) -> Int64[np.ndarray, "n V"]:
    if task.mapping == "bijection":
        return stream.permutations(step, rows, task.values, "latent")
    return stream.integers(step, rows, task.values, task.values, "latent")


@lru_cache(maxsize=8)
def _pool(task: Bijection) -> Int64[np.ndarray, "N V"]:
    """The fixed latents of a pool task; drawn once from the pool's own stream."""
    assert task.pool is not None
    pool = _latents(task, task.pool, Stream(task.pool_seed, "pool"), 0)
    pool.flags.writeable = False
    return pool
