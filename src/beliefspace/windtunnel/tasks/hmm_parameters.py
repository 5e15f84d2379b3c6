"""Parameters of hidden Markov chains, drawn on a grid so that a header can state them exactly.

Symbols:
    m         parameter sets
    S, O      hidden states, symbols
    T, E      transition [m, S, S] and emission [m, S, O], rows of probabilities
    rho, c    ``stay``, ``concentration``

Two generators (2512.22471):
    released    each row Dirichlet(1), floored at 0.05, scaled to sum to 1, rounded to cents; what
                is missing to a sum of 1 goes to the largest entry, and an excess is taken from it
                (down to the floor, and then from the next). The rounded rows are the truth.
    dirichlet   T = rho I + (1 - rho) R, rows of R Dirichlet(1) and those of E Dirichlet(c); each on
                a grid of 2^-20, none below one step of it. "Sticky" is a rho near 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64

from beliefspace.core.checks import check_rows_of_probabilities
from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream

Generator = Literal["released", "dirichlet"]

CENTS = 100
FLOOR_CENTS = 5
FINE = 2**20


@dataclass(frozen=True)
class Parameters:
    """Some parameter sets; ``[m, S, S]`` and ``[m, S, O]``."""

    transition: Float64[np.ndarray, "m S S"]
    emission: Float64[np.ndarray, "m S O"]

    @property
    def joined(self) -> Float64[np.ndarray, "m S S+O"]:
        """Both side by side."""
        return np.concatenate([self.transition, self.emission], axis=2)

    def take(self, part: slice) -> Parameters:
        """Return some of the sets."""
        return Parameters(self.transition[part], self.emission[part])

    @classmethod
    def split(cls, joined: Float64[np.ndarray, "m S S+O"]) -> Parameters:
        """Take apart what :attr:`joined` put side by side."""
        states = joined.shape[1]
        return cls(joined[:, :, :states], joined[:, :, states:])


def given(
    transition: Sequence[Sequence[float]],
    emission: Sequence[Sequence[float]],
    states: int,
    symbols: int,
) -> Parameters:
    """Return one parameter set that was written down.

    Raises:
        InvalidInput: rows that are no distributions, a state that emits nothing, or another number
            of rows than of states.
    """
    for name, rows in (("transition", transition), ("emission", emission)):
        if len(rows) != states:
            raise InvalidInput(f"{name} has {len(rows)} rows; expected one a state, {states}")
    for state, row in enumerate(emission):
        if row and all(value == 0 for value in row):
            raise InvalidInput(f"state {state} emits nothing: row {state} of emission is all zero")
    return Parameters(
        check_rows_of_probabilities("transition", transition, states)[None],
        check_rows_of_probabilities("emission", emission, symbols)[None],
    )


def released(stream: Stream, step: int, rows: int, states: int, symbols: int) -> Parameters:
    """Draw parameter sets as the released code does."""
    sizes = {"transition": states, "emission": symbols}
    tables = []
    for lane, columns in sizes.items():
        drawn = stream.dirichlet(step, rows, states * columns, 1.0, lane)
        weights = drawn.reshape(rows, states, columns)
        weights = weights / weights.sum(axis=2, keepdims=True)
        tables.append(_on_grid(np.maximum(weights, FLOOR_CENTS / CENTS), CENTS, FLOOR_CENTS))
    return Parameters(*tables)


def dirichlet(
    stream: Stream,
    step: int,
    rows: int,
    states: int,
    symbols: int,
    stay: float,
    concentration: float,
) -> Parameters:
    """Draw parameter sets with Dirichlet rows; see the module's text."""
    moved = stream.dirichlet(step, rows * states, states, 1.0, "transition")
    transition = stay * np.eye(states) + (1 - stay) * moved.reshape(rows, states, states)
    emission = stream.dirichlet(step, rows * states, symbols, concentration, "emission")
    return Parameters(
        _on_grid(transition, FINE, 1),
        _on_grid(emission.reshape(rows, states, symbols), FINE, 1),
    )


def released_bits(states: int, symbols: int) -> float:
    """Return log2 of how many parameter sets the released generator can draw."""
    return states * sum(
        math.log2(math.comb(CENTS - FLOOR_CENTS * columns + columns - 1, columns - 1))
        for columns in (states, symbols)
    )


def _on_grid(
    weights: Float64[np.ndarray, "*rows k"], grid: int, least: int
) -> Float64[np.ndarray, "*rows k"]:
    """Scale rows to sum to 1 in multiples of 1 / ``grid``, none below ``least`` of them."""
    scaled = weights / weights.sum(axis=-1, keepdims=True)
    counts = np.maximum(np.rint(scaled * grid), least)
    missing = grid - counts.sum(axis=-1, keepdims=True)
    while missing.any():
        # The largest entry takes what is missing; of an excess only what leaves it at the floor.
        largest = counts.argmax(axis=-1)[..., None]
        before = np.take_along_axis(counts, largest, axis=-1)
        after = np.maximum(before + missing, least)
        np.put_along_axis(counts, largest, after, axis=-1)
        missing += before - after
    return np.asarray(counts / grid)
