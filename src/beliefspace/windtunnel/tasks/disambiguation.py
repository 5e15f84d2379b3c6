"""Delayed disambiguation: which of the candidates shown is meant is only told later (2512.22471).

Candidates are shown one after another; after a block of filler, evidence says which place of the
list is meant, and from the last candidate on the model is asked who stands there. One sequence
with 5 ids (tokens 0-4), C = 2 candidates, F = 2 tokens of filler (7), and a cue that names the
place (5 for the first, 6 for the second)::

    position    0     1      2      3      4
    input       2     1      7      7      6
    is a      first second filler filler  cue
    target            1      1      1      1      (the id that is meant)
    P(id 1)          1/2    1/2    1/2     1
    P(id 2)          1/2    1/2    1/2     0
    bits              1      1      1      0

With ``concentration`` the evidence is soft: E tokens are drawn from the place's own row of a fixed
table of likelihoods, and the belief narrows token by token. :meth:`DelayedDisambiguation.hard` is
that version with 16 candidates.

Symbols:
    C, I     candidates of a sequence, ids to draw them from     ``candidates``, ``identities``
    F, E     tokens of filler, tokens of evidence                ``filler``, ``evidence``
    K        kinds of evidence                                   ``kinds``
    L[c, e]  P(evidence e | place c), fixed by the task          ``likelihood``, ``[C, K]``
    a        ids of the candidates, in order                     ``[n, C]``
    c        place that is meant, uniform                        ``[n]``

Posterior: P(c | e_1 ... e_k) = prod_j L[c, e_j] / sum_c' prod_j L[c', e_j], uniform while k = 0;
the predictive puts it on the ids a_c. A cue that names its place is L = identity.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from jaxtyping import Float64, Int64

from beliefspace.core.checks import check_whole
from beliefspace.core.distributions import Categorical
from beliefspace.core.errors import InvalidInput
from beliefspace.core.information import log_softmax
from beliefspace.core.registry import register
from beliefspace.core.streams import Stream, check_concentration, pick
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


@dataclass(frozen=True)
class Meant:
    """What one batch was drawn as.

    Attributes:
        hypothesis: the drawn latent: the candidates' ids in the order shown, then the place of
            the one that is meant, ``[n, C + 1]``.
        evidence: the kinds of evidence in the order shown, ``[n, E]``.
    """

    hypothesis: Int64[np.ndarray, "n C_and_place"]
    evidence: Int64[np.ndarray, "n E"]

    @property
    def candidates(self) -> Int64[np.ndarray, "n C"]:
        """The ids of the candidates, in the order shown."""
        return self.hypothesis[:, :-1]

    @property
    def place(self) -> Int64[np.ndarray, " n"]:
        """The place of the candidate that is meant, from 0."""
        return self.hypothesis[:, -1]


@register("tasks", "disambiguation")
@dataclass(frozen=True)
class DelayedDisambiguation(Task):
    """Keep several candidates in mind until evidence says which is meant (2512.22471).

    Most scored positions come before the evidence, where every candidate is as likely: what a model
    makes of the evidence is at the last positions, so look at the worst one, not at the mean.

    Args:
        candidates: ids shown in a sequence, all different, C >= 2.
        identities: ids to draw them from, I >= C.
        filler: tokens of filler between candidates and evidence, F >= 0.
        evidence: tokens of evidence, E >= 1.
        concentration: None for a cue that names the place that is meant, or the parameter of the
            symmetric Dirichlet (0.001 to 1e6) of the rows of likelihoods: the smaller, the more
            each token of evidence tells.
        kinds: with a concentration, the different tokens of evidence, K >= 2; by default as many
            as candidates.
        likelihood_seed: which table of likelihoods.

    Raises:
        InvalidInput: more candidates than ids, kinds without a concentration, or out of range.
    """

    candidates: int = 2
    identities: int = 100
    filler: int = 16
    evidence: int = 1
    concentration: float | None = None
    kinds: int | None = None
    likelihood_seed: int = 0

    def __post_init__(self) -> None:
        check_whole("candidates", self.candidates, 2, most=10_000)
        check_whole("identities", self.identities, 2, most=100_000)
        check_whole("filler", self.filler, 0)
        check_whole("evidence", self.evidence, 1)
        check_whole("likelihood_seed", self.likelihood_seed, 0, most=2**63)
        if self.candidates > self.identities:
            raise InvalidInput(
                f"candidates are all different, so {self.identities} ids allow at most "
                f"{self.identities}; got candidates = {self.candidates}"
            )
        if self.kinds is not None:
            check_whole("kinds", self.kinds, 2, most=10_000)
            if self.concentration is None:
                raise InvalidInput(
                    "a cue that names the place has as many kinds as there are candidates; got "
                    f"kinds = {self.kinds} (set a concentration for soft evidence)"
                )
        if self.concentration is not None:
            check_concentration(self.concentration)
            table = self.candidates * (self.kinds or self.candidates)
            if table > 1_000_000:
                raise InvalidInput(
                    f"candidates times kinds of evidence is at most 1,000,000; got {table:,}"
                )
        check_size(self)

    @classmethod
    def hard(cls) -> DelayedDisambiguation:
        """Return the hard version: 16 candidates and 5 soft tokens, rows from Dirichlet(0.3)."""
        return cls(candidates=16, evidence=5, concentration=0.3)

    @property
    def likelihood(self) -> Float64[np.ndarray, "C K"]:
        """P(kind of evidence | place), a row for each place; read-only."""
        return _likelihood(self)

    @property
    def prior(self) -> str:
        """Candidates uniform, and the place uniform among them."""
        told = (
            "a cue that names it"
            if self.concentration is None
            else f"evidence from rows of Dirichlet({self.concentration:g})"
        )
        return (
            f"{self.candidates} different ids out of {self.identities}, one of them meant, all "
            f"uniform; told by {told}"
        )

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """The place is bound to its id; evidence about it accumulates where it is soft."""
        return ("binding",) if self.concentration is None else ("accumulation", "binding")

    @property
    def inputs(self) -> TokenInputs:
        """Ids, then the kinds of evidence, then one token of filler."""
        return TokenInputs(self.identities + self.likelihood.shape[1] + 1)

    @property
    def outputs(self) -> CategoricalOutputs:
        """The ids."""
        return CategoricalOutputs(tuple(range(self.identities)))

    @property
    def length(self) -> int:
        """C + F + E tokens."""
        return self.candidates + self.filler + self.evidence

    @property
    def hypothesis_bits(self) -> float:
        """log2 of the number of ordered choices of candidates, plus log2 C for the place."""
        ordered = math.lgamma(self.identities + 1) - math.lgamma(
            self.identities - self.candidates + 1
        )
        return ordered / math.log(2) + math.log2(self.candidates)

    @classmethod
    def tiny(cls) -> tuple[Task, ...]:
        """A cue once and twice, and soft evidence with fewer and with more kinds than places."""
        return (
            cls(2, 5, 2),
            cls(3, 3, 0, 2),
            cls(3, 6, 1, 4, concentration=0.3),
            cls(4, 5, 2, 3, concentration=1.0, kinds=2),
            cls(2, 4, 0, 6, concentration=0.05, kinds=5, likelihood_seed=1),
        )

    def batch(self, sequences: int, stream: Stream, step: int = 0) -> Batch:
        """Draw the candidates, the place that is meant, and evidence from its row."""
        check_sequences(sequences)
        meant = self._draw(sequences, stream, step)
        filler = np.full((sequences, self.filler), self.inputs.vocabulary - 1, dtype=np.int64)
        inputs = np.hstack([meant.candidates, filler, meant.evidence + self.identities])
        scored = np.zeros(inputs.shape, dtype=bool)
        scored[:, self.candidates - 1 :] = True
        answer = np.take_along_axis(meant.candidates, meant.place[:, None], axis=1)
        targets = np.where(scored, answer, -1)

        def belief() -> Categorical:
            return Categorical(self._log_belief(meant).reshape(-1, self.candidates))

        return Batch(
            inputs,
            scored,
            targets,
            meant,
            lambda: self._on_ids(meant, self._log_belief(meant)),
            belief,
        )

    def ladder(self, batch: Batch) -> Mapping[str, Predictive]:
        """Return predictors that know the candidates and lose some or all of the evidence.

        "one of the candidates" holds all alike throughout; "latest evidence only" weighs them by
        the latest token of evidence alone (left out where there is one token only: it is exact).
        """
        logs = self._log_likelihoods(batch.latent)
        rungs = {"one of the candidates": np.zeros_like(logs)}
        if self.evidence > 1:
            rungs["latest evidence only"] = logs
        return {name: self._on_ids(batch.latent, log_softmax(rung)) for name, rung in rungs.items()}

    def reference(self, batch: Batch) -> Predictive:
        """Exact fractions, sequence by sequence: multiply out the likelihood of every place."""
        rows = []
        for tokens, scored in zip(batch.inputs.tolist(), batch.scored, strict=True):
            for position in np.flatnonzero(scored).tolist():
                past = tokens[: position + 1]
                told = [t - self.identities for t in past[self.candidates + self.filler :]]
                weights = {}
                for place, identity in enumerate(past[: self.candidates]):
                    likelihoods = (Fraction(float(self.likelihood[place, e])) for e in told)
                    weights[identity] = math.prod(likelihoods, start=Fraction(1))
                total = sum(weights.values(), start=Fraction(0))
                shares = [weights.get(i, Fraction(0)) / total for i in range(self.identities)]
                rows.append([_log(share) for share in shares])
        return Categorical(np.array(rows), self.outputs.support)

    def _draw(self, sequences: int, stream: Stream, step: int) -> Meant:
        order = stream.permutations(step, sequences, self.identities, "candidates")
        place = stream.integers(step, sequences, 1, self.candidates, "place")
        rows = self.likelihood[np.repeat(place, self.evidence, axis=1)]
        uniforms = stream.uniforms(step, sequences, self.evidence, "evidence")
        hypothesis = np.hstack([order[:, : self.candidates], place])
        return Meant(hypothesis, pick(rows, uniforms))

    def _log_likelihoods(self, meant: Meant) -> Float64[np.ndarray, "n S C"]:
        """Log of L[c, token] at each scored position; 0 up to the end of the filler."""
        silent = np.zeros((len(meant.place), 1 + self.filler, self.candidates))
        with np.errstate(divide="ignore"):
            told = np.log(self.likelihood).T[meant.evidence]
        return np.concatenate([silent, told], axis=1)

    def _log_belief(self, meant: Meant) -> Float64[np.ndarray, "n S C"]:
        """Log posterior over the places; logs add where products of likelihoods would underflow."""
        return log_softmax(np.cumsum(self._log_likelihoods(meant), axis=1))

    def _on_ids(self, meant: Meant, log_places: Float64[np.ndarray, "n S C"]) -> Categorical:
        """Carry distributions over places to the ids that stand there."""
        rows, positions, _ = log_places.shape
        log_probs = np.full((rows, positions, self.identities), -np.inf)
        np.put_along_axis(log_probs, meant.candidates[:, None, :], log_places, axis=2)
        return Categorical(log_probs.reshape(-1, self.identities), self.outputs.support)


@lru_cache(maxsize=8)
def _likelihood(task: DelayedDisambiguation) -> Float64[np.ndarray, "C K"]:
    """The fixed table of a task: the identity, or drawn once from a stream of its own."""
    size = task.candidates
    if task.concentration is None:
        table = np.eye(size)
    else:
        stream = Stream(task.likelihood_seed, "likelihood")
        table = stream.dirichlet(0, size, task.kinds or size, task.concentration, "rows")
    table.flags.writeable = False
    return table


def _log(share: Fraction) -> float:
    """Natural logarithm of an exact share, finite even where a float would be 0."""
    return math.log(share.numerator) - math.log(share.denominator) if share else -math.inf
