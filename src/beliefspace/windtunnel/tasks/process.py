"""Hidden Markov processes that emit on their edges: the belief simplex (2405.15943).

A machine moves between hidden states and writes one token at each move; the model sees the tokens
alone and predicts the next. One sequence of the even process (p = 1/2), which writes 0 and stays in
state 0, or 1 on the way to state 1, from where it comes back with another 1::

    position        0     1     2     3     4     5
    input           1     1     0     0     1     1
    state           1     0     0     0     1     0    (after writing it; the first one was 0)
    target          1     0     0     1     1     0
    mixed state   1/2   1/3     0     0     1     0    P(state 1 | tokens so far)
    Bayes         3/4   2/3   1/2   1/2     1   1/2    P(next token is 1)
    bits         0.81  0.92     1     1     0     1

Symbols:
    S, V      hidden states, tokens
    T         tokens shown of a sequence                          ``length``
    M_x       M_x[i, j] = P(token x, next state j | state i)      ``machine``, [V, S, S]
    pi        stationary distribution of the states: pi sum_x M_x = pi     ``start``, [S]
    eta_t     mixed state: P(state | x_1 ... x_t)                 ``filtered``, [n, T, S]
    h         entropy rate, bits a token                          ``entropy_rate_bits``

A sequence starts in the stationary distribution, eta_0 = pi. Then eta_t ∝ eta_{t-1} M_{x_t}, and
the next token is x with probability eta_t M_x 1 (2405.15943).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import islice
from typing import get_args

import numpy as np
from jaxtyping import Float64, Int64

from beliefspace.core.checks import as_rows, check_choice, check_whole, check_within
from beliefspace.core.distributions import Categorical
from beliefspace.core.errors import InvalidInput
from beliefspace.core.information import entropy_bits, log_probabilities
from beliefspace.core.registry import register
from beliefspace.core.streams import Stream, pick
from beliefspace.windtunnel.tasks.base import (
    Batch,
    CategoricalOutputs,
    Primitive,
    TokenInputs,
    check_sequences,
    check_size,
)
from beliefspace.windtunnel.tasks.filtering import Changed, FilteringTask, growing
from beliefspace.windtunnel.tasks.forward import advanced, log_sum, stationary
from beliefspace.windtunnel.tasks.machines import (
    Matrices,
    Name,
    binary,
    check_irreducible,
    given,
    mess3,
)

_LETTERS = {"mess3": "xa", "golden-mean": "p", "even": "p"}  # the settings of each machine
_WINDOWS = 4
_MIXED_STATES = 1_000_000  # followed at once: 24 MB with three hidden states
_MOST_STEPS = 10_000
_SMALLEST = 1e-280  # of a belief that products of probabilities reach without losing digits
_LEAST_EDGE = 1e-20  # with smaller edges a belief may jump past that to 0


@register("tasks", "process")
@dataclass(frozen=True)
class Process(FilteringTask):
    """Predict the next token of a hidden Markov process, by tracking where its machine may be.

    Args:
        name: which machine: "mess3", "rrxor", "z1r", "golden-mean", "even", or "custom".
        length: tokens of a sequence, T >= 1.
        x: of mess3: probability of moving to each of the other two states, 0 < x <= 1/2.
        a: of mess3: probability of the token that belongs to the state arrived at, 0 to 1. At
            x = 0.15, a = 0.6, as published, the last two tokens tell nearly all (2405.15943).
        p: of golden-mean and even: probability of staying in the first state, 0 <= p < 1.
        matrices: of custom: M_x for each token, V >= 2 matrices of S rows of S probabilities.

    Raises:
        InvalidInput: a value out of range, a state whose probabilities over (token, next state) do
            not sum to one, or a state that is left for good: no one distribution is stationary.
    """

    name: Name = "mess3"
    length: int = 32
    x: float = 0.05
    a: float = 0.85
    p: float = 0.5
    matrices: Matrices | None = None

    def __post_init__(self) -> None:
        check_choice("name", self.name, get_args(Name))
        check_whole("length", self.length, 1, most=100_000)
        for letter, most in (("x", 0.5), ("a", 1.0), ("p", 1.0)):
            check_within(letter, getattr(self, letter), 0, most)
        _check_used(self)
        if self.matrices is not None:
            if not hasattr(self.matrices, "__len__"):
                raise InvalidInput(f"matrices are one table a token; got {self.matrices!r}")
            tables = tuple(as_rows(f"matrix {x}", one) for x, one in enumerate(self.matrices))
            object.__setattr__(self, "matrices", tables)
        if (self.matrices is not None) != (self.name == "custom"):
            given = "none" if self.matrices is None else "some"
            raise InvalidInput(f'matrices go with name = "custom"; got {self.name}, and {given}')
        check_irreducible(self.machine, self.prior)
        check_size(self)

    @cached_property
    def machine(self) -> Float64[np.ndarray, "V S S"]:
        """M_x[i, j]: probability, in state i, of writing token x and moving to state j."""
        if self.matrices is not None:
            machine = given(self.matrices)
        else:
            machine = mess3(self.x, self.a) if self.name == "mess3" else binary(self.name, self.p)
        machine.flags.writeable = False
        return machine

    @cached_property
    def start(self) -> Float64[np.ndarray, " S"]:
        """The stationary distribution of the hidden states."""
        return stationary(self.machine.sum(axis=0))

    @property
    def prior(self) -> str:
        """The machine, and where it starts."""
        letters = _LETTERS.get(self.name, "")
        values = ", ".join(f"{letter} = {getattr(self, letter):g}" for letter in letters)
        machine = f"{self.name} machine" + (f" ({values})" if values else "")
        return f"the {machine}, started in its stationary distribution"

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """The mixed state is carried through the machine."""
        return ("transport",)

    @property
    def inputs(self) -> TokenInputs:
        """The tokens of the machine."""
        return TokenInputs(len(self.machine))

    @property
    def outputs(self) -> CategoricalOutputs:
        """The tokens of the machine."""
        return CategoricalOutputs(tuple(range(len(self.machine))))

    @property
    def hypothesis_bits(self) -> float:
        """Entropy of the first hidden state."""
        return float(entropy_bits(np.log(self.start)))

    @property
    def steps(self) -> int:
        """T."""
        return self.length

    @property
    def restarts(self) -> tuple[str, ...]:
        """Both: every state has a place in the stationary distribution."""
        return ("uniform", "stationary")

    def entropy_rate_bounds_bits(self, within: float = 1e-6) -> tuple[float, float]:
        """Return a lower and an upper bound of h, bits.

        From above it is H(X_t | X_1 ... X_{t-1}), from below the same given also the state before
        X_1; both close in as t grows.

        Args:
            within: how far apart they may be, bits. They are farther apart only where a million
                mixed states do not reach: for mess3, whose histories all differ, that is t = 12,
                with 2e-7 bits between them.
        """
        below = self._entropies(self.start, np.eye(len(self.start)))
        above = self._entropies(np.ones(1), self.start[None])
        for lower, upper in islice(zip(below, above, strict=False), _MOST_STEPS):
            if upper - lower < within:
                break
        return lower, upper

    @property
    def entropy_rate_bits(self) -> float:
        """h: what the best predictor pays for each token in the long run, bits."""
        return sum(self.entropy_rate_bounds_bits()) / 2

    def myopic_entropy_bits(self, length: int) -> list[float]:
        """Return H(X_t | X_1 ... X_{t-1}) for t = 1 ... ``length``, over all histories, bits.

        Raises:
            InvalidInput: more than a million mixed states would have to be followed.
        """
        check_whole("length", length, 1)
        entropies = list(islice(self._entropies(np.ones(1), self.start[None]), length))
        if len(entropies) < length:
            raise InvalidInput(
                f"position {len(entropies) + 1} has over {_MIXED_STATES:,} mixed states; "
                f"expected length at most {len(entropies)}; got {length}"
            )
        return entropies

    def filtered(self, tokens: Int64[np.ndarray, "n t"]) -> Float64[np.ndarray, "n t S"]:
        """Return the mixed state after each token of sequences from the stationary distribution.

        Raises:
            InvalidInput: tokens of another type or range, or one that is impossible after those
                before it; the message has the sequence and the position.
        """
        tokens = np.asarray(tokens)
        if tokens.ndim != 2 or tokens.dtype.kind not in "iu":
            raise InvalidInput(
                f"tokens are {tokens.dtype} {tokens.shape}; expected integers [sequences, tokens]"
            )
        outside = (tokens < 0) | (tokens >= len(self.machine))
        if outside.any():
            most = len(self.machine) - 1
            raise InvalidInput(f"tokens hold {tokens[outside][0]}; expected 0 to {most}")
        logs = self._filtered(tokens)
        impossible = np.argwhere(np.isnan(logs[..., 0]))
        if len(impossible):
            row, position = impossible[0]
            raise InvalidInput(
                f"token {tokens[row, position]} at position {position} of sequence {row} has "
                f"probability zero after those before it; expected tokens that {self.name} writes"
            )
        return np.asarray(np.exp(logs))

    @classmethod
    def tiny(cls) -> tuple[Process, ...]:
        """Every machine, and one of two states and three tokens that is given."""
        given = (
            ((0.0, 0.5), (0.25, 0.0)),
            ((0.125, 0.125), (0.75, 0.0)),
            ((0.25, 0.0), (0.0, 0.0)),
        )
        return (
            cls("even", 6),
            cls("mess3", 4),
            cls("mess3", 4, x=0.5, a=1.0),
            cls("rrxor", 8),
            cls("z1r", 6),
            cls("golden-mean", 5, p=0.25),
            cls("custom", 5, matrices=given),
        )

    def batch(self, sequences: int, stream: Stream, step: int = 0) -> Batch:
        """Draw the first state from the stationary distribution, then one edge after another."""
        check_sequences(sequences)
        size, uniforms = len(self.start), stream.uniforms(step, sequences, self.length + 2, "path")
        edges = self.machine.transpose(1, 0, 2).reshape(size, -1)
        states = np.empty((sequences, self.length + 2), dtype=np.int64)
        tokens = np.empty((sequences, self.length + 1), dtype=np.int64)
        states[:, 0] = pick(self.start, uniforms[:, 0])
        for t in range(self.length + 1):
            edge = pick(edges[states[:, t]], uniforms[:, t + 1])
            tokens[:, t], states[:, t + 1] = np.divmod(edge, size)
        return self._assemble(tokens, states)

    def ladder(self, batch: Batch) -> Mapping[str, Categorical]:
        """The best tables of the last 1, 2, 3 and 4 tokens.

        What follows the last w tokens, on average over the process, is what a filter predicts that
        believes the stationary distribution just before them: a table of them can do no better.
        """
        windows = islice(self.windows(batch, "stationary"), min(_WINDOWS, self.length - 1))
        return {f"window-{w} stationary": rung for w, rung in enumerate(windows, start=1)}

    def windows(self, batch: Batch, restart: str) -> Iterator[Categorical]:
        """Yield the predictive of filters with a growing window; see :class:`FilteringTask`."""
        check_choice("restart", restart, self.restarts)
        tokens, size = batch.inputs, len(self.start)
        law = self.start if restart == "stationary" else np.full(size, 1 / size)
        before = np.broadcast_to(np.log(law), (*tokens.shape, size)).copy()
        before[:, 0] = np.log(self.start)
        first = self._advanced(before, tokens)
        for window in growing(first, lambda shorter: self._advanced(shorter, tokens[:, 1:])):
            yield self._next(window)

    def changed(self, batch: Batch, step: int, stream: Stream) -> Changed:
        """Replace the token at a step by another one; see :class:`FilteringTask`.

        The other tokens, the last outcome among them, stay as they are, and so does the latent.
        """
        check_whole("step", step, 0, most=self.length - 1)
        tokens = np.concatenate([batch.inputs, batch.targets[:, -1:]], axis=1)
        shift = 1 + stream.integers(step, len(tokens), 1, len(self.machine) - 1, "changed")[:, 0]
        tokens[:, step] = (tokens[:, step] + shift) % len(self.machine)
        kept = ~np.isnan(self._filtered(tokens)[:, -1, 0])
        return Changed(self._assemble(tokens[kept], batch.latent[kept]), kept)

    def reference(self, batch: Batch) -> Categorical:
        """Follow every path of hidden states, edge by edge, from the stationary distribution."""
        machine = self.machine.tolist()
        moves, ones = self.machine.sum(axis=0), np.ones((1, len(machine[0])))
        balance = np.vstack([moves.T - np.eye(len(moves)), ones])
        law = np.linalg.lstsq(balance, np.eye(len(balance))[-1])[0].tolist()
        rows = []
        for tokens in batch.inputs.tolist():
            paths = list(enumerate(law))
            for token in tokens:
                paths = _extended(paths, machine[token])
                ends = [_extended(paths, matrix) for matrix in machine]
                rows.append([sum(weight for _, weight in end) for end in ends])
        return Categorical.proportional_to(np.array(rows), self.outputs.support)

    def _assemble(
        self, tokens: Int64[np.ndarray, "n T+1"], states: Int64[np.ndarray, "n T+2"]
    ) -> Batch:
        inputs, targets = tokens[:, :-1].copy(), tokens[:, 1:].copy()

        def belief() -> Float64[np.ndarray, "n T S"]:
            return self._filtered(inputs)

        return Batch(
            inputs,
            np.ones(inputs.shape, dtype=bool),
            targets,
            states,
            lambda: self._next(belief()),
            lambda: Categorical(belief().reshape(-1, len(self.start))),
        )

    @cached_property
    def _log_machine(self) -> Float64[np.ndarray, "V S S"]:
        return log_probabilities(self.machine)

    def _filtered(self, tokens: Int64[np.ndarray, "n t"]) -> Float64[np.ndarray, "n t S"]:
        """Log mixed states; NaN from the first impossible token on."""
        logs = np.empty((tokens.shape[1], len(self.start), len(tokens)))
        edges = self.machine.transpose(1, 2, 0)
        belief = np.tile(self.start[:, None], len(tokens))
        with np.errstate(divide="ignore", invalid="ignore"):
            for t, written in enumerate(tokens.T):
                joint = np.einsum("sn,stn->tn", belief, edges[:, :, written])
                belief = np.divide(joint, joint.sum(axis=0), out=logs[t])
            # Products lose digits near the smallest floats; such sequences go through logs instead.
            near = (logs > 0) & (logs < _SMALLEST)
            small = np.flatnonzero(near.any(axis=(0, 1)) | (self._least_edge < _LEAST_EDGE))
            np.log(logs, out=logs)
        found = logs.transpose(2, 0, 1)
        if len(small):
            found[small] = self._in_logs(tokens[small])
        return found

    def _in_logs(self, tokens: Int64[np.ndarray, "n t"]) -> Float64[np.ndarray, "n t S"]:
        """The same, whatever the size of the probabilities."""
        logs = np.empty((*tokens.shape, len(self.start)))
        belief = np.broadcast_to(np.log(self.start), (len(tokens), len(self.start)))
        for t in range(tokens.shape[1]):
            joint = self._advanced(belief, tokens[:, t])
            with np.errstate(invalid="ignore"):
                belief = logs[:, t] = joint - log_sum(joint)[:, None]
        return logs

    @cached_property
    def _least_edge(self) -> float:
        """Smallest probability of a possible edge."""
        return float(self.machine[self.machine > 0].min())

    def _advanced(
        self, logs: Float64[np.ndarray, "*rows S"], tokens: Int64[np.ndarray, "*rows"]
    ) -> Float64[np.ndarray, "*rows S"]:
        """Take log weights of the states over the edges that write the tokens."""
        return advanced(logs, self._log_machine[tokens])

    def _next(self, logs: Float64[np.ndarray, "n T S"]) -> Categorical:
        """The next token, from log weights of the states."""
        emitted = log_probabilities(self.machine.sum(axis=2))
        tokens = log_sum(logs[..., None, :] + emitted).reshape(-1, len(emitted))
        return Categorical(tokens - log_sum(tokens)[:, None], self.outputs.support)

    def _entropies(
        self, weights: Float64[np.ndarray, " m"], mixed: Float64[np.ndarray, "m S"]
    ) -> Iterator[float]:
        """Yield the mean entropy of the next token as the mixed states with their weights move on.

        Mixed states that are equal to 12 digits are one.
        """
        while True:
            reached = np.einsum("ms,vst->mvt", mixed, self.machine)
            chance = reached.sum(axis=2)
            yield float(weights @ entropy_bits(log_probabilities(chance)))
            if chance.size > _MIXED_STATES:
                return
            possible = chance > 0
            weights = (weights[:, None] * chance)[possible]
            mixed = reached[possible] / chance[possible][:, None]
            _, first, same = np.unique(
                mixed.round(12), axis=0, return_index=True, return_inverse=True
            )
            weights, mixed = np.bincount(same.ravel(), weights), mixed[first]


def _check_used(task: Process) -> None:
    """Raise if a setting of another machine was given: it would change nothing but the name."""
    defaults = {one.name: one.default for one in fields(task)}
    for letter in "xap":
        unused = letter not in _LETTERS.get(task.name, "")
        if unused and getattr(task, letter) != defaults[letter]:
            raise InvalidInput(f"{letter} is no setting of {task.name}; leave it out")


def _extended(paths: list[tuple[int, float]], matrix: list[list[float]]) -> list[tuple[int, float]]:
    """Every path with each edge of a token added, as its end and its probability."""
    return [
        (following, weight * chance)
        for state, weight in paths
        for following, chance in enumerate(matrix[state])
        if chance > 0
    ]
