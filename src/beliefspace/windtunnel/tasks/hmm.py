"""Filtering a hidden Markov chain whose parameters stand in a header, or have to be inferred.

Parameters are drawn for each sequence; after each observation the model is asked for the hidden
state there, or for the next symbol. One sequence with S = O = 2, K = 4, and a header of rows that
states T = (0.06 0.94 / 0.72 0.28) and E = (0.20 0.80 / 0.90 0.10)::

    position     0     1     2     3      4      5      6      7
    is a       row of T    row of E     symbol
    input      T[0]  T[1]  E[0]  E[1]     1      0      1      0
    target                                0      1      0      1    (the hidden state)
    Bayes                                0.11   0.97   0.05   0.98  P(state 1 | symbols so far)
    bits                                 0.50   0.21   0.29   0.16

Symbols:
    S, O      hidden states, symbols                              ``states``, ``symbols``
    K         observations of a sequence                          ``observations``
    T, E      T[s, s'] = P(s' | s), E[s, o] = P(o | s)             rows of probabilities
    N         pool of parameters, equally likely                  ``pool``
    b_t       P(member, state at t | o_1 ... o_t)                 ``belief``

The first state is uniform and no transition precedes the first observation:
b_1(s) ∝ E[s, o_1] / S, b_t(s') ∝ E[s', o_t] sum_s b_{t-1}(s) T[s, s'] (2512.22471, tasks). With a
pool and no header, the exact belief is the mixture of the members' filters, each weighted by the
evidence for it. Parameters from a continuous prior that are not shown have no tractable posterior,
and are refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float64, Int64

from beliefspace.core.checks import as_rows, check_choice, check_finite, check_whole
from beliefspace.core.distributions import Categorical
from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import register
from beliefspace.core.streams import Stream, check_concentration, pick
from beliefspace.windtunnel.tasks import hmm_header, hmm_parameters
from beliefspace.windtunnel.tasks.base import (
    Batch,
    CategoricalOutputs,
    Primitive,
    RealInputs,
    TokenInputs,
    check_sequences,
    check_size,
)
from beliefspace.windtunnel.tasks.filtering import Changed, FilteringTask
from beliefspace.windtunnel.tasks.forward import stationary
from beliefspace.windtunnel.tasks.hmm_filter import LogBelief, Observed
from beliefspace.windtunnel.tasks.hmm_parameters import CENTS, FINE, FLOOR_CENTS, Parameters

Target = Literal["state", "symbol"]

_WINDOWS = (1, 2, 4, 8)
_MOST_FOLLOWED = 5_000_000
_ENTRIES = 8_000_000  # of the largest array that filtering a part makes: 64 MB


@dataclass(frozen=True)
class HiddenChains:
    """What one batch was drawn as.

    Attributes:
        parameters: T and E side by side, ``[n, S, S + O]``.
        states: the hidden states, ``[n, K + 1]``.
        observations: the symbols, ``[n, K + 1]``; the last one is not shown.
    """

    parameters: Float64[np.ndarray, "n S S+O"]
    states: Int64[np.ndarray, "n K+1"]
    observations: Int64[np.ndarray, "n K+1"]


@register("tasks", "hmm")
@dataclass(frozen=True)
class HMM(FilteringTask):
    """Filter a hidden Markov chain: after each symbol, predict the hidden state or the next symbol.

    Args:
        states: hidden states, S >= 2.
        symbols: O >= 2.
        observations: symbols of a sequence, K >= 1.
        header: "rows", one vector for each row of T and E; "tokens", a token for each of their
            entries, as released; "hidden", none at all. By default "rows" where parameters are
            drawn for each sequence, and "hidden" where there is a pool or they are given.
        target: "state", the hidden state now, or "symbol", the next one.
        generator: "released" (rows floored at 0.05 and rounded to cents) or "dirichlet".
        stay: rho of the dirichlet generator, 0 to less than 1: T = rho I + (1 - rho) R.
        concentration: c of the dirichlet generator: rows of E are Dirichlet(c).
        pool: None, or the number N of fixed parameter sets, equally likely. Without a header they
            have to be inferred.
        pool_seed: which pool.
        transition: None, or T itself, fixed and not shown, S rows of S probabilities.
        emission: E likewise, S rows of O probabilities.

    Raises:
        InvalidInput: the settings do not go together, or rows that are no distributions.
    """

    states: int = 5
    symbols: int = 5
    observations: int = 20
    header: hmm_header.Header | None = None
    target: Target = "state"
    generator: hmm_parameters.Generator = "released"
    stay: float = 0.0
    concentration: float = 1.0
    pool: int | None = None
    pool_seed: int = 0
    transition: tuple[tuple[float, ...], ...] | None = None
    emission: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        check_whole("states", self.states, 2, most=1000)
        check_whole("symbols", self.symbols, 2, most=1000)
        check_whole("observations", self.observations, 1, most=100_000)
        check_whole("pool_seed", self.pool_seed, 0, most=2**63)
        if self.pool is not None:
            check_whole("pool", self.pool, 1, most=10_000)
        check_choice("target", self.target, get_args(Target))
        check_choice("generator", self.generator, get_args(hmm_parameters.Generator))
        check_choice("header", self.shown, get_args(hmm_header.Header))
        for name in ("transition", "emission"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, as_rows(name, getattr(self, name)))
        check_finite("stay", self.stay)
        check_concentration(self.concentration)
        _check_source(self)
        _check_header(self)
        check_size(self)

    @property
    def fixed(self) -> bool:
        """Whether the parameters are members of a pool (or the one set that was given)."""
        return self.pool is not None or self.transition is not None

    @property
    def shown(self) -> hmm_header.Header:
        """The kind of header, resolved."""
        if self.header is not None:
            return self.header
        return "hidden" if self.fixed else "rows"

    @property
    def layout(self) -> hmm_header.Layout:
        """How sequences are written down."""
        grid = CENTS if self.generator == "released" else FINE
        return hmm_header.Layout(self.shown, self.states, self.symbols, self.observations, grid)

    @property
    def prior(self) -> str:
        """Where T and E come from."""
        if self.transition is not None:
            return "T and E given; the first state uniform"
        rows = "rows of T and E Dirichlet(1), floored at 0.05, rounded to cents"
        if self.generator == "dirichlet":
            rows = f"rows of E Dirichlet({self.concentration:g}), of T Dirichlet(1)"
            if self.stay:
                rows += f" mixed with staying, {self.stay:g}"
        among = "" if self.pool is None else f"one of a pool of {self.pool}: "
        return f"{among}{rows}; the first state uniform"

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """The state is carried through the dynamics; a pool is inferred besides."""
        inferred = self.shown == "hidden" and (self.pool or 1) > 1
        return ("accumulation", "transport") if inferred else ("transport",)

    @property
    def inputs(self) -> TokenInputs | RealInputs:
        """Vectors with a header of rows, else tokens; see :mod:`.hmm_header`."""
        return self.layout.inputs

    @property
    def outputs(self) -> CategoricalOutputs:
        """The states by index, or the symbols by token (by index where inputs are vectors)."""
        first = 0 if self.target == "state" else self.layout.first_symbol
        count = self.states if self.target == "state" else self.symbols
        return CategoricalOutputs(tuple(range(first, first + count)))

    @property
    def length(self) -> int:
        """Header and observations."""
        return self.layout.length

    @property
    def prefix(self) -> int:
        """A header of rows; that of tokens is read in order, as released."""
        return 2 * self.states if self.shown == "rows" else 0

    @property
    def hypothesis_bits(self) -> float:
        """log2 of the number of parameter sets that can be drawn; inf for the dirichlet ones."""
        if self.transition is not None:
            return 0.0
        if self.pool is not None:
            return math.log2(self.pool)
        if self.generator == "dirichlet":
            return math.inf
        return hmm_parameters.released_bits(self.states, self.symbols)

    @property
    def steps(self) -> int:
        """K."""
        return self.observations

    @property
    def restarts(self) -> tuple[str, ...]:
        """Uniform, and stationary unless a given chain leaves some state for good."""
        transient = self.transition is not None and stationary(_pool(self).transition).min() < 1e-9
        return ("uniform",) if transient else ("uniform", "stationary")

    @classmethod
    def tiny(cls) -> tuple[HMM, ...]:
        """Every header and target, both generators, a pool, and given parameters with zeros."""
        zeros = ((0.5, 0.5, 0.0), (0.0, 0.25, 0.75), (1.0, 0.0, 0.0))
        emits = ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0))
        return (
            cls(2, 2, 3),
            cls(2, 3, 3, "tokens"),
            cls(3, 2, 3, "rows", "symbol"),
            cls(2, 3, 3, "tokens", "symbol"),
            cls(3, 3, 3, "rows", "state", "dirichlet"),
            cls(2, 2, 4, "rows", "state", "dirichlet", 0.8, 0.3),
            cls(2, 3, 3, pool=3),
            cls(2, 2, 4, target="symbol", pool=4, generator="dirichlet"),
            cls(2, 2, 3, "tokens", pool=2),
            cls(3, 2, 4, transition=zeros, emission=emits),
            cls(3, 2, 4, target="symbol", transition=zeros, emission=emits),
        )

    def batch(self, sequences: int, stream: Stream, step: int = 0) -> Batch:
        """Draw parameters, then hidden states, then what they emit."""
        check_sequences(sequences)
        if self.fixed:
            pool = _pool(self)
            size = len(pool.transition)
            member = stream.integers(step, sequences, 1, size, "member")[:, 0]
            parameters = Parameters.split(pool.joined[member])
        else:
            parameters = _drawn(self, stream, step, sequences)
        hidden = stream.uniforms(step, sequences, self.steps + 1, "states")
        states = _hidden(parameters.transition, hidden)
        emission = parameters.emission[np.arange(sequences)[:, None], states]
        symbols = pick(emission, stream.uniforms(step, sequences, self.steps + 1, "symbols"))
        return self._assemble(HiddenChains(parameters.joined, states, symbols))

    def ladder(self, batch: Batch) -> Mapping[str, Categorical]:
        """Filters that saw the last w observations only.

        They start from a uniform distribution of the state, or from the stationary one; "window-1"
        is the emission alone. "emission x stationary", of which values are published, differs from
        the stationary window of 1 at the first symbol alone, where the state is in fact uniform.
        """
        rungs = {}
        for restart in self.restarts:
            suffix = "" if restart == "uniform" else f" {restart}"
            windows = enumerate(self.windows(batch, restart), start=1)
            for window, predictive in itertools.islice(windows, max(_WINDOWS)):
                if window in _WINDOWS and window < self.steps:
                    rungs[f"window-{window}{suffix}"] = predictive
        if "stationary" in self.restarts:
            answers = (self._answer(one, one.memoryless()) for one in self._observed(batch.latent))
            rungs["emission x stationary"] = _joined(answers)
        return rungs

    def windows(self, batch: Batch, restart: str) -> Iterator[Categorical]:
        """Yield the predictive of filters with a growing window; see :class:`FilteringTask`."""
        check_choice("restart", restart, self.restarts)
        parts = [(one, one.windows(restart)) for one in self._observed(batch.latent)]
        for _ in range(self.steps):
            yield _joined(self._answer(one, next(beliefs)) for one, beliefs in parts)

    def changed(self, batch: Batch, step: int, stream: Stream) -> Changed:
        """Replace the symbol at a step by another one; see :class:`FilteringTask`."""
        check_whole("step", step, 0, most=self.steps - 1)
        chains = batch.latent
        symbols = chains.observations.copy()
        shift = 1 + stream.integers(step, len(symbols), 1, self.symbols - 1, "changed")[:, 0]
        symbols[:, step] = (symbols[:, step] + shift) % self.symbols
        other = replace(chains, observations=symbols)
        kept = np.concatenate([one.possible() for one in self._observed(other)])
        parts = (chains.parameters, chains.states, symbols)
        return Changed(self._assemble(HiddenChains(*(part[kept] for part in parts))), kept)

    def reference(self, batch: Batch) -> Categorical:
        """Sum over every path of hidden states, for parameters read off the inputs or the pool."""
        support, rows = self.outputs.support, []
        shown = batch.inputs[:, self.layout.columns]
        vectors = shown.ndim == 3
        symbols = shown[:, :, -self.symbols :].argmax(axis=2) if vectors else shown
        symbols = symbols - (0 if vectors else self.layout.first_symbol)
        own = None if self.shown == "hidden" else self.layout.read(batch.inputs)
        for row, seen in enumerate(symbols):
            sets = _pool(self) if own is None else own.take(slice(row, row + 1))
            for end in range(1, self.steps + 1):
                pairs = zip(sets.transition, sets.emission, strict=True)
                rows.append(sum(_by_paths(self, *pair, seen[:end]) for pair in pairs))
        return Categorical.proportional_to(np.array(rows), support)

    def _assemble(self, chains: HiddenChains) -> Batch:
        parameters = Parameters.split(chains.parameters)
        seen, columns = chains.observations[:, :-1], self.layout.columns
        inputs = self.layout.write(parameters, seen)
        scored = np.zeros(inputs.shape[:2], dtype=bool)
        scored[:, columns] = True
        targets = np.full(scored.shape, -1, dtype=np.int64)
        outcome = chains.states[:, :-1] if self.target == "state" else chains.observations[:, 1:]
        targets[:, columns] = outcome
        return Batch(
            inputs,
            scored,
            targets,
            chains,
            lambda: self._predictive(chains),
            lambda: self._belief(chains),
        )

    def _observed(self, chains: HiddenChains) -> list[Observed]:
        """What is seen and what it may have been drawn from, in parts that memory can hold."""
        most = max(1, _ENTRIES // ((self.pool or 1) * self.steps * self.states**2))
        parts = []
        for first in range(0, max(1, len(chains.states)), most):
            part = slice(first, first + most)
            seen = chains.observations[part, :-1]
            if self.shown == "hidden":
                parts.append(Observed(_pool(self), True, seen))
            else:
                parts.append(Observed(Parameters.split(chains.parameters[part]), False, seen))
        return parts

    def _answer(self, observed: Observed, belief: LogBelief) -> Categorical:
        asked = observed.state if self.target == "state" else observed.next_symbol
        support = self.outputs.support
        return Categorical(asked(belief).reshape(-1, len(support)), support)

    def _predictive(self, chains: HiddenChains) -> Categorical:
        return _joined(self._answer(one, one.belief()) for one in self._observed(chains))

    def _belief(self, chains: HiddenChains) -> Categorical:
        """Posterior over the state; without a header over pairs (member of the pool, state)."""
        beliefs = (one.belief().transpose(0, 2, 1, 3) for one in self._observed(chains))
        return _joined(Categorical(one.reshape(-1, one.shape[2] * one.shape[3])) for one in beliefs)


def _joined(parts: Iterable[Categorical]) -> Categorical:
    """The rows of several parts, one after another."""
    together = list(parts)
    return Categorical(np.concatenate([one.log_probs for one in together]), together[0].support)


def _check_source(task: HMM) -> None:
    """Raise unless it is clear where the parameters come from."""
    if (task.transition is None) != (task.emission is None):
        raise InvalidInput("transition and emission are given together, or neither is")
    if task.transition is not None and task.emission is not None:
        if task.pool is not None:
            raise InvalidInput("parameters are given, or they come from a pool; got both")
        hmm_parameters.given(task.transition, task.emission, task.states, task.symbols)
    elif task.generator == "released":
        most = CENTS // FLOOR_CENTS
        if max(task.states, task.symbols) > most:
            raise InvalidInput(
                f"the released generator floors each entry at 0.05, so a row has at most {most}; "
                f'got {task.states} states, {task.symbols} symbols (use generator = "dirichlet")'
            )
        if task.stay != 0 or task.concentration != 1:
            raise InvalidInput(
                "the released generator has no stay and no concentration; got "
                f'{task.stay:g} and {task.concentration:g} (use generator = "dirichlet")'
            )
    if task.stay >= 1:
        raise InvalidInput(f"stay is less than 1; got {task.stay:g}")


def _check_header(task: HMM) -> None:
    """Raise unless a model can know what the exact answer needs."""
    if task.shown == "hidden" and not task.fixed:
        raise InvalidInput(
            "without a header, parameters drawn for each sequence have no tractable posterior; "
            "use a header, a pool, or give transition and emission"
        )
    weight = (task.pool or 0) * task.observations * task.states**2
    if task.shown == "hidden" and weight > _MOST_FOLLOWED:
        raise InvalidInput(
            f"inferring the parameters takes pool x observations x states² = {weight:,} numbers a "
            f"sequence; expected at most {_MOST_FOLLOWED:,}"
        )
    if task.shown != "hidden" and task.transition is not None:
        raise InvalidInput(f"parameters that are given need no header; got {task.header!r}")
    if task.shown == "tokens" and task.generator != "released":
        raise InvalidInput(
            "a header of tokens states parameters to the cent, so they must be rounded to it: "
            'use generator = "released", or header = "rows"'
        )


def _drawn(task: HMM, stream: Stream, step: int, sets: int) -> Parameters:
    sizes = (task.states, task.symbols)
    if task.generator == "released":
        return hmm_parameters.released(stream, step, sets, *sizes)
    return hmm_parameters.dirichlet(stream, step, sets, *sizes, task.stay, task.concentration)


@lru_cache(maxsize=8)
def _pool(task: HMM) -> Parameters:
    """The parameter sets of a pool, drawn once from its own stream; or the one that was given."""
    if task.transition is not None and task.emission is not None:
        return hmm_parameters.given(task.transition, task.emission, task.states, task.symbols)
    assert task.pool is not None
    return _drawn(task, Stream(task.pool_seed, "pool"), 0, task.pool)


def _hidden(
    transition: Float64[np.ndarray, "n S S"], uniforms: Float64[np.ndarray, "n K"]
) -> Int64[np.ndarray, "n K"]:
    """Walk the chains; the first state is uniform."""
    rows, steps = uniforms.shape
    thresholds = transition.cumsum(axis=2)
    states = np.empty((rows, steps), dtype=np.int64)
    states[:, 0] = uniforms[:, 0] * transition.shape[1]
    for t in range(1, steps):
        from_here = thresholds[np.arange(rows), states[:, t - 1]]
        scaled = uniforms[:, t, None] * from_here[:, -1:]
        states[:, t] = (scaled >= from_here).sum(axis=1)
    return states


def _by_paths(task: HMM, transition: np.ndarray, emission: np.ndarray, seen: np.ndarray) -> Any:
    """P(observations, outcome) for each outcome, from every path of hidden states."""
    ahead = 0 if task.target == "state" else 1
    weights = np.zeros(len(task.outputs.support))
    for path in itertools.product(range(task.states), repeat=len(seen) + ahead):
        weight = math.prod(emission[path[t], symbol] for t, symbol in enumerate(seen))
        weight *= math.prod(transition[pair] for pair in itertools.pairwise(path))
        if ahead:
            weights += weight * emission[path[-1]]
        else:
            weights[path[-1]] += weight
    return weights
