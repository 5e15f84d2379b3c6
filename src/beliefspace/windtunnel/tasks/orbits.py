"""Sets of relabellings of V values under which every outcome comes up equally often.

A relabelled bijection is again a uniform bijection, so a batch may hold one bijection under several
relabellings. Chosen from a group, they cancel much of the noise of the sampled outcomes: over a
cycle of V relabellings every value stands once at every position; over a sharply 2- (3-)transitive
group every ordered pair (triple) of values stands equally often at every two (three) positions.

Symbols:
    V    values
    q    V - 1, where that is a prime
    C    a cyclic group that acts regularly on the values, written as x -> x + c    ``[V]``
    S    the relabellings that keep one value in place; C S is the whole group      ``[s, V]``

The groups, for up to 32 values: PGL(2, q) on the projective line where q is prime (V = 20: 6,840
relabellings, sharply 3-transitive); the affine maps of the integers mod V where V is prime (sharply
2-transitive). Otherwise, and for more values, where one orbit could be a whole training run, the
cycle alone.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Int64

_MOST_VALUES = 32


@lru_cache(maxsize=8)
def stabiliser(values: int) -> Int64[np.ndarray, "s V"]:
    """Return S: with the cyclic shifts x -> x + c mod V, it makes up the group for V values."""
    if values > _MOST_VALUES:
        return np.arange(values)[None, :]
    if _is_prime(values - 1):
        return _projective(values - 1)
    if _is_prime(values):
        factors = np.arange(1, values)
        return np.asarray(factors[:, None] * np.arange(values) % values)
    return np.arange(values)[None, :]


def _projective(q: int) -> Int64[np.ndarray, "s V"]:
    """The affine maps of the line, in the order in which a regular cycle of PGL(2, q) runs it."""
    order = _singer_cycle(q)
    place = np.empty(q + 1, dtype=np.int64)
    place[order] = np.arange(q + 1)
    factor, shift = np.divmod(np.arange(q * (q - 1)), q)
    points = (factor[:, None] + 1) * np.arange(q) + shift[:, None]
    images = np.concatenate([points % q, np.full((len(points), 1), q)], axis=1)
    return np.asarray(place[images[:, order]])


def _singer_cycle(q: int) -> Int64[np.ndarray, " V"]:
    """The projective line (q stands for infinity) in the order of x -> b / (x + d), one cycle."""
    for b in range(1, q):
        for d in range(q):
            order, point = [0], _fraction(b, d, q)
            while point != 0 and len(order) <= q:
                order.append(point)
                point = _fraction(b, (point + d) % q, q) if point != q else 0
            if len(set(order)) == q + 1:
                return np.array(order)
    raise AssertionError(f"PGL(2, {q}) has a regular cycle for every prime")


def _fraction(above: int, below: int, q: int) -> int:
    return q if below == 0 else above * pow(below, -1, q) % q


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % factor for factor in range(2, int(number**0.5) + 1))
