"""A sticky chain of symbols behind Gaussian noise: where will it go next (2512.22473)?

A chain on a ring of symbols tends to stay, or to go to a near symbol; each symbol is seen as its
own point in space, blurred, and the model is asked for the symbol that comes next. One sequence of
3 symbols in 2 dimensions, that stay with probability 0.8 and are blurred by sigma = 0.5; their
points are (1.08, -1.25), (1.93, -0.26) and (0.19, -1.80)::

    position          0           1           2           3           4
    input           1.49        0.72        2.39        2.58        3.22
                   -2.08       -1.63        0.11       -0.10       -0.75
    symbol            0           0           1           1           1
    belief       .86 .00 .14  .79 .00 .21  .01 .99 .00  .00 1.0 .00  .00 1.0 .00
    target            0           1           1           1           1     (the next symbol)
    Bayes        .70 .10 .20  .65 .10 .25  .11 .79 .10  .10 .80 .10  .10 .80 .10
    bits            1.16        1.23        0.94        0.92        0.92

Symbols:
    S, D     symbols, dimensions of what is seen                  ``symbols``, ``dimensions``
    T        points of a sequence                                 ``length``
    y_t      symbol behind point t; y_0 uniform                   ``[n, T + 1]``
    P        P[i, j] = P(y_{t+1} = j | y_t = i)                   ``transition``, ``[S, S]``
    mu       points of the symbols, fixed, drawn from N(0, I)     ``means``, ``[S, D]``
    x_t      mu[y_t] + sigma z, z ~ N(0, I), sigma = ``noise``    ``[n, T, D]``
    b_t      P(y_t | x_0 ... x_t): the belief                     ``[n, T, S]``

Leaving, the chain goes to a symbol with a weight of 1 / (distance on the ring), and every row of P
is the same up to rotation: the stationary distribution is uniform, and the moves y_{t+1} - y_t
(mod S) are independent of each other. The predictive is b_t P, with the filter b_{t+1} ∝
N(x_{t+1}; mu, sigma^2 I) b_t P. What is seen are the points rounded to float32, and the belief is
that given them.

The released code counts the diagonal twice: it normalises the weights with a 1 for staying among
them, then sets the diagonal to the wanted share and normalises again. With 8 symbols and a share of
0.3 its chain in fact stays with probability 0.3498, and has an entropy of 2.639 bits a symbol
instead of 2.717.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.stats import multivariate_normal

from beliefspace.core.checks import check_choice, check_whole, check_within
from beliefspace.core.distributions import Categorical
from beliefspace.core.errors import InvalidInput
from beliefspace.core.information import entropy_bits
from beliefspace.core.registry import register
from beliefspace.core.streams import Stream, pick
from beliefspace.windtunnel.tasks.base import (
    Batch,
    CategoricalOutputs,
    Primitive,
    RealInputs,
    check_sequences,
    check_size,
)
from beliefspace.windtunnel.tasks.filtering import Changed, FilteringTask
from beliefspace.windtunnel.tasks.forward import forward, log_sum, windows

_WINDOWS = 2
_LEAST_NOISE = 0.001  # far above the rounding of points to float32
_MOST_NOISE = 1000.0
_LEAST_SHARE = 1e-6  # of staying, and of leaving: no symbol is ruled out


@register("tasks", "gaussian-chain")
@dataclass(frozen=True)
class GaussianChain(FilteringTask):
    """Filter a chain of symbols from noisy points, and predict the next symbol (2512.22473).

    As published the task needs almost no history: a reader of the last point alone is within 5e-4
    bits of Bayes. With ``noise`` 3 and ``stay`` 0.9 it is 0.76 bits away, and one of the last two
    points 0.35.

    Args:
        symbols: on the ring, S >= 2.
        dimensions: of a point, D >= 1.
        length: points of a sequence, T >= 1.
        stay: probability that the next symbol is the same, 1e-6 to 1 - 1e-6.
        noise: sigma, standard deviation of each coordinate of a point about that of its symbol,
            0.001 to 1000; the points of the symbols are N(0, 1) in each coordinate.
        double_counted: whether to stay more often than said, as the released code does.
        means_seed: which points the symbols have.

    Raises:
        InvalidInput: a value out of range.
    """

    symbols: int = 8
    dimensions: int = 20
    length: int = 64
    stay: float = 0.3
    noise: float = 1.0
    double_counted: bool = False
    means_seed: int = 0

    def __post_init__(self) -> None:
        check_whole("symbols", self.symbols, 2, most=1000)
        check_whole("dimensions", self.dimensions, 1, most=10_000)
        check_whole("length", self.length, 1, most=100_000)
        check_whole("means_seed", self.means_seed, 0, most=2**63)
        if not isinstance(self.double_counted, bool):
            raise InvalidInput(f"double_counted is true or false; got {self.double_counted!r}")
        check_within("stay", self.stay, _LEAST_SHARE, 1 - _LEAST_SHARE)
        check_within("noise", self.noise, _LEAST_NOISE, _MOST_NOISE)
        check_size(self)

    @cached_property
    def transition(self) -> Float64[np.ndarray, "S S"]:
        """P[i, j], the probability that symbol j follows symbol i."""
        shift = np.arange(self.symbols)
        distance = np.minimum(shift, self.symbols - shift)
        away = np.divide(1.0, distance, out=np.zeros(self.symbols), where=distance > 0)
        counted = away.sum() + (1.0 if self.double_counted else 0.0)
        moves = (1 - self.stay) * away / counted
        moves[0] = self.stay
        moves /= moves.sum()
        return _read_only(moves[(shift[None, :] - shift[:, None]) % self.symbols])

    @cached_property
    def means(self) -> Float64[np.ndarray, "S D"]:
        """The points of the symbols."""
        stream = Stream(self.means_seed, "means")
        return _read_only(stream.normals(0, self.symbols, self.dimensions, "means"))

    @property
    def entropy_rate_bits(self) -> float:
        """Entropy of the next symbol for one who knows this one, bits."""
        return float(entropy_bits(np.log(self.transition[0])))

    @property
    def prior(self) -> str:
        """The chain, and what is seen of it."""
        return (
            f"a chain on a ring of {self.symbols} that stays with probability "
            f"{self.transition[0, 0]:.4g}, started uniform; points N(mu, σ² I) with "
            f"σ = {self.noise:g}"
        )

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """The symbol is carried through the chain."""
        return ("transport",)

    @property
    def inputs(self) -> RealInputs:
        """Points."""
        return RealInputs(self.dimensions)

    @property
    def outputs(self) -> CategoricalOutputs:
        """The symbols by index."""
        return CategoricalOutputs(tuple(range(self.symbols)))

    @property
    def hypothesis_bits(self) -> float:
        """Entropy of the first symbol."""
        return math.log2(self.symbols)

    @property
    def steps(self) -> int:
        """T."""
        return self.length

    @property
    def restarts(self) -> tuple[str, ...]:
        """Stationary, which is uniform."""
        return ("stationary",)

    @classmethod
    def tiny(cls) -> tuple[GaussianChain, ...]:
        """Rings of 2 to 4, little and much noise and staying, and the diagonal counted twice."""
        return (
            cls(3, 2, 5, stay=0.8, noise=0.5),
            cls(3, 2, 4),
            cls(3, 2, 4, double_counted=True, noise=0.3),
            cls(4, 1, 4, stay=0.9, noise=2.0, means_seed=1),
            cls(2, 3, 5, stay=0.05),
        )

    def batch(self, sequences: int, stream: Stream, step: int = 0) -> Batch:
        """Draw the first symbol, then moves, then the points."""
        check_sequences(sequences)
        first = stream.integers(step, sequences, 1, self.symbols, "first")
        uniforms = stream.uniforms(step, sequences, self.length, "moves")
        moves = pick(self.transition[0], uniforms)
        symbols = np.cumsum(np.hstack([first, moves]), axis=1) % self.symbols
        noise = stream.normals(step, sequences, self.length * self.dimensions, "noise")
        blur = self.noise * noise.reshape(sequences, self.length, self.dimensions)
        points = self.means[symbols[:, :-1]] + blur
        return self._assemble(points.astype(np.float32), symbols)

    def ladder(self, batch: Batch) -> Mapping[str, Categorical]:
        """Filters that saw the last points only, and start from the stationary distribution.

        "window-1 stationary" reads each point by itself.
        """
        readers = itertools.islice(
            self.windows(batch, "stationary"), min(_WINDOWS, self.length - 1)
        )
        return {f"window-{w} stationary": rung for w, rung in enumerate(readers, start=1)}

    def windows(self, batch: Batch, restart: str) -> Iterator[Categorical]:
        """Yield the predictive of filters with a growing window; see :class:`FilteringTask`."""
        check_choice("restart", restart, self.restarts)
        log_likelihood = self._log_likelihood(batch.inputs)
        law = self._stationary
        for joint in windows(law, law[None], self.transition, log_likelihood):
            yield self._next(joint - log_sum(joint)[..., None])

    def changed(self, batch: Batch, step: int, stream: Stream) -> Changed:
        """Replace the point at a step by one about another symbol; see :class:`FilteringTask`.

        The symbols stay as they were drawn: all sequences stay possible, if less likely.
        """
        check_whole("step", step, 0, most=self.length - 1)
        rows = len(batch.inputs)
        shift = 1 + stream.integers(step, rows, 1, self.symbols - 1, "changed")[:, 0]
        other = (batch.latent[:, step] + shift) % self.symbols
        noise = stream.normals(step, rows, self.dimensions, "changed noise")
        points = batch.inputs.copy()
        points[:, step] = self.means[other] + self.noise * noise
        return Changed(self._assemble(points, batch.latent), np.ones(rows, dtype=bool))

    def reference(self, batch: Batch) -> Categorical:
        """Sum over every path of symbols, with densities of points from scipy."""
        densities = [multivariate_normal(mean, self.noise**2) for mean in self.means]
        weights = np.zeros((*batch.inputs.shape[:2], self.symbols))
        for row, points in enumerate(batch.inputs.astype(np.float64)):
            seen = [[density.pdf(point) for density in densities] for point in points]
            for end in range(1, self.length + 1):
                for path in itertools.product(range(self.symbols), repeat=end + 1):
                    moves = (self.transition[pair] for pair in itertools.pairwise(path))
                    told = (seen[t][symbol] for t, symbol in enumerate(path[:-1]))
                    weights[row, end - 1, path[-1]] += math.prod(moves) * math.prod(told)
        return Categorical.proportional_to(weights, self.outputs.support)

    def _assemble(
        self, points: Float32[np.ndarray, "n T D"], symbols: Int64[np.ndarray, "n T+1"]
    ) -> Batch:
        def belief() -> Float64[np.ndarray, "n T S"]:
            likelihood = self._log_likelihood(points)
            return forward(self._stationary, self.transition, likelihood).checked().belief

        return Batch(
            points,
            np.ones(points.shape[:2], dtype=bool),
            symbols[:, 1:].copy(),
            symbols,
            lambda: self._next(belief()),
            lambda: Categorical(belief().reshape(-1, self.symbols)),
        )

    @property
    def _stationary(self) -> Float64[np.ndarray, " S"]:
        return np.full(self.symbols, 1 / self.symbols)

    def _log_likelihood(self, points: Float32[np.ndarray, "n T D"]) -> Float64[np.ndarray, "n T S"]:
        """Log density of each point about each symbol, up to a constant that they share."""
        exact = points.astype(np.float64)
        near = exact @ self.means.T - 0.5 * (self.means**2).sum(axis=1)
        return np.asarray(near / self.noise**2)

    def _next(self, log_belief: Float64[np.ndarray, "n T S"]) -> Categorical:
        """The symbol one move later; every move is possible, so no logarithm is of 0."""
        moved = np.log(np.exp(log_belief).reshape(-1, self.symbols) @ self.transition)
        return Categorical(moved - log_sum(moved)[:, None], self.outputs.support)


def _read_only(table: np.ndarray) -> np.ndarray:
    table.flags.writeable = False
    return table
