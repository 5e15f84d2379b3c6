"""The forward algorithm for hidden Markov chains, for many sequences at once, exact in log space.

Symbols:
    n      sequences
    K      observations of each
    S      hidden states
    p_1    probability of each state at the first observation          ``start``, [S]
    T      T[s, s'] = P(next state s' | state s)                        ``transition``
    l_t    log P(o_t | state s)                                        ``log_likelihood``, [n, K, S]
    b_t    log P(state at t | o_1 ... o_t): the belief                 [n, K, S]
    e_t    log P(o_1 ... o_t): the evidence                            [n, K]

There is no transition before the first observation: b_1 + e_1 = log p_1 + l_1, and then
b_t(s') + e_t = l_t(s') + e_{t-1} + log sum_s exp(b_{t-1}(s)) T[s, s']. (Rabiner, Proc. IEEE 77,
1989.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from beliefspace.core.errors import InvalidInput
from beliefspace.core.information import log_probabilities
from beliefspace.windtunnel.tasks.filtering import growing

Transition = Float64[np.ndarray, "S S"] | Float64[np.ndarray, "n S S"]
LogStates = Float64[np.ndarray, "n K S"]
Likelihood = Float64[np.ndarray, "S K n"]
Rows = Int64[np.ndarray, " rows"]

_IN_CACHE = 2**17  # entries of transition matrices that are worked on together
_RESCALED_EVERY = 4
_SMALLEST = 1e-280  # below this, products lose digits: such sequences are done again in log space


@dataclass(frozen=True)
class Filtered:
    """What a filter knows after each observation.

    Attributes:
        belief: log P(state at t | o_1 ... o_t), nats, exactly -inf for an impossible state; NaN
            where the observations are impossible.
        evidence: log P(o_1 ... o_t), nats, -inf where they are impossible.
    """

    belief: LogStates
    evidence: Float64[np.ndarray, "n K"]

    @property
    def joint(self) -> LogStates:
        """Log P(state at t, o_1 ... o_t), nats."""
        possible = np.isfinite(self.evidence)[..., None]
        return np.where(possible, self.belief + self.evidence[..., None], -np.inf)

    def checked(self) -> Filtered:
        """Return this, if every observation is possible.

        Raises:
            InvalidInput: an observation has probability zero after those before it; the message has
                the sequence and the position.
        """
        impossible = np.argwhere(np.isneginf(self.evidence))
        if len(impossible):
            row, position = impossible[0]
            raise InvalidInput(
                f"the observation at position {position} of sequence {row} has probability zero "
                "after those before it; expected sequences that the model can produce"
            )
        return self


def forward(
    start: Float64[np.ndarray, " S"], transition: Transition, log_likelihood: LogStates
) -> Filtered:
    """Filter many sequences of any kind of observations.

    Args:
        start: probabilities of the first state, [S].
        transition: rows of probabilities, one matrix for all sequences or one for each.
        log_likelihood: nats, [n, K, S].
    """
    top = log_likelihood.max(axis=2)
    if not (top < np.inf).all():
        row, position = np.argwhere(~(top < np.inf))[0]
        raise InvalidInput(
            f"the log likelihood at position {position} of sequence {row} holds NaN or +inf; "
            "expected finite numbers or -inf"
        )
    top[np.isneginf(top)] = 0.0

    scaled = log_likelihood - top[:, :, None]
    likelihood = np.exp(scaled.transpose(2, 1, 0), order="C")
    found = _filtered(start, transition, likelihood, scaled.__getitem__)
    return Filtered(found.belief, found.evidence + top.cumsum(axis=1))


def forward_symbols(
    start: Float64[np.ndarray, " S"],
    transition: Transition,
    emission: Float64[np.ndarray, "n S O"],
    symbols: Int64[np.ndarray, "n K"],
) -> Filtered:
    """Filter many sequences of symbols; each has its own emission matrix."""
    sequences, states, count = emission.shape
    if symbols.min(initial=0) < 0 or symbols.max(initial=0) >= count:
        row, position = np.argwhere((symbols < 0) | (symbols >= count))[0]
        raise InvalidInput(
            f"symbol {symbols[row, position]} at position {position} of sequence {row}; "
            f"expected 0 to {count - 1}"
        )
    place = symbols.T + np.arange(0, sequences * count, count)
    likelihood = np.empty((states, *place.shape))
    for state, one in enumerate(likelihood):
        # With the symbols in range, clipping does nothing but is faster than checking again.
        np.ravel(emission[:, state]).take(place, out=one, mode="clip")

    def logs(rows: Rows) -> LogStates:
        own = np.arange(len(rows))[:, None]
        return log_probabilities(emission[rows].transpose(0, 2, 1)[own, symbols[rows]])

    return _filtered(start, transition, likelihood, logs)


def normalised(joint: LogStates) -> Filtered:
    """Turn log P(state at t, observations so far) into belief and evidence."""
    evidence = log_sum(joint)
    with np.errstate(invalid="ignore"):
        return Filtered(joint - evidence[..., None], evidence)


def windows(
    start: Float64[np.ndarray, " S"],
    restart: Float64[np.ndarray, "#n S"],
    transition: Transition,
    log_likelihood: LogStates,
) -> Iterator[LogStates]:
    """Yield the log joints of filters that saw the last 1, 2, ... K observations only.

    Args:
        start: as above; a window that reaches back to the first observation starts there, exactly.
        restart: probabilities of the state at the first observation of any other window.
        transition: as above.
        log_likelihood: as above.
    """
    before = np.broadcast_to(restart[:, None, :], log_likelihood.shape).copy()
    before[:, 0] = start
    log_transition = log_probabilities(transition)
    if log_transition.ndim == 3:
        log_transition = log_transition[:, None]
    first = log_probabilities(before) + log_likelihood
    yield from growing(
        first, lambda shorter: advanced(shorter, log_transition) + log_likelihood[:, 1:]
    )


def stationary(transition: Float64[np.ndarray, "*n S S"]) -> Float64[np.ndarray, "*n S"]:
    """Return the share of time spent in each state in the long run, from a uniform start, [..., S].

    For an irreducible chain it is the stationary distribution, whatever the start.
    """
    power = 0.5 * (transition + np.eye(transition.shape[-1]))  # lazy: no period to oscillate with
    for _ in range(80):
        power = power @ power
        power /= power.sum(axis=-1, keepdims=True)
    return np.asarray(power.mean(axis=-2))


def log_sum(logs: Float64[np.ndarray, "*rows S"]) -> Float64[np.ndarray, "*rows"]:
    """Return log of the sum of exponentials over the last axis; -inf where all are -inf."""
    top = logs.max(axis=-1)
    top = np.where(np.isneginf(top), 0.0, top)
    return np.asarray(log_probabilities(np.exp(logs - top[..., None]).sum(axis=-1)) + top)


def _filtered(
    start: Float64[np.ndarray, " S"],
    transition: Transition,
    likelihood: Likelihood,
    log_likelihood: Callable[[Rows], LogStates],
) -> Filtered:
    """Work in products of probabilities, and again in logs where they came near to underflow.

    All terms are positive, so products lose no digits as long as they stay in range. Sequences are
    the fastest axis throughout, so that each operation runs over contiguous memory, and everything
    is done in one array: memory is slow to touch for the first time.

    Args:
        start: as above.
        transition: as above.
        likelihood: of the observations, which is overwritten.
        log_likelihood: the same in logs, of the sequences that are done again.
    """
    states, steps, sequences = likelihood.shape
    evidence = np.empty((steps, sequences))
    most = max(64, _IN_CACHE // states**2)
    for first in range(0, sequences, most):
        part = slice(first, first + most)
        products = likelihood[:, :, part]
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = _multiply(products, start, _of(transition, part))
            log_total = np.log(products.sum(axis=0))
            small = first + _columns_below(products, _SMALLEST)
            np.log(products, out=products)
            products -= log_total
        evidence[:, part] = log_total + scale
        if len(small):
            again = normalised(_in_logs(start, _of(transition, small), log_likelihood(small)))
            likelihood[:, :, small] = again.belief.transpose(2, 1, 0)
            evidence[:, small] = again.evidence.T
    return Filtered(likelihood.transpose(2, 1, 0), evidence.T)


def _columns_below(values: Float64[np.ndarray, "S K m"], bound: float) -> Rows:
    """The columns that hold a value below a bound, or no number."""
    if values.min(initial=np.inf) >= bound:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(~(values.min(axis=(0, 1)) >= bound))


def _of(transition: Transition, part: slice | Rows) -> Transition:
    """The transitions of some sequences."""
    return transition if transition.ndim == 2 else transition[part]


def _multiply(
    products: Likelihood, start: Float64[np.ndarray, " S"], transition: Transition
) -> Float64[np.ndarray, "K m"]:
    """Turn likelihoods into scaled probabilities of states; return the log of each scale."""
    scale = np.zeros(products.shape[1:])
    one = transition.ndim == 2
    matrix = transition.T if one else np.ascontiguousarray(transition.transpose(1, 2, 0))
    products[:, 0] *= start[:, None]
    carried = np.empty_like(products[:, 0])
    for t in range(1, len(scale)):
        before = products[:, t - 1]
        scale[t] = scale[t - 1]
        if t % _RESCALED_EVERY == 0:
            total = before.sum(axis=0)
            before = before / total
            scale[t] += np.log(total)
        if one:
            np.matmul(matrix, before, out=carried)
        else:
            np.einsum("sn,stn->tn", before, matrix, out=carried)
        products[:, t] *= carried
    return scale


def _in_logs(
    start: Float64[np.ndarray, " S"], transition: Transition, log_likelihood: LogStates
) -> LogStates:
    joint = np.empty_like(log_likelihood)
    joint[:, 0] = log_probabilities(start) + log_likelihood[:, 0]
    log_transition = log_probabilities(transition)
    for t in range(1, joint.shape[1]):
        joint[:, t] = advanced(joint[:, t - 1], log_transition) + log_likelihood[:, t]
    return joint


def advanced(
    logs: Float64[np.ndarray, "*rows S"], log_transition: Float64[np.ndarray, "*#rows S S"]
) -> Float64[np.ndarray, "*rows S"]:
    """Take a log belief one transition further."""
    return log_sum((logs[..., :, None] + log_transition).swapaxes(-1, -2))
