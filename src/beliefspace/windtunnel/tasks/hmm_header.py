"""How a hidden Markov chain is written down for a model: header, then one observation a step.

Symbols:
    S, O, K   hidden states, symbols, observations
    p         a probability of the header

======== =================================================================== ===================
header   sequence                                                            positions
======== =================================================================== ===================
tokens   TRANS, S x S probabilities, EMIT, S x O probabilities, SEP, then    S (S + O) + 3 + 2 K
         OBS and a symbol a step; tokens as in 2512.22471 (released code)
rows     S rows of T, S rows of E, then a symbol a step: vectors of           2 S + K
         [S p - 1 of T | O p - 1 of E | state of the row | symbol]
hidden   a symbol a step: tokens 0 ... O - 1                                  K
======== =================================================================== ===================

Token ids: probabilities of 5, 6, ... 100 cents are 0 ... 95, then TRANS, EMIT, SEP, OBS, then the
symbols.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float32, Int64

from beliefspace.windtunnel.tasks.base import RealInputs, TokenInputs
from beliefspace.windtunnel.tasks.hmm_parameters import CENTS, FLOOR_CENTS, Parameters

Header = Literal["rows", "tokens", "hidden"]

TRANS = CENTS - FLOOR_CENTS + 1
EMIT, SEP, OBS, FIRST_SYMBOL = range(TRANS + 1, TRANS + 5)


@dataclass(frozen=True)
class Layout:
    """Where things stand in a sequence.

    Attributes:
        header: the kind of header.
        states: S.
        symbols: O.
        observations: K.
        grid: probabilities are multiples of 1 / ``grid``.
    """

    header: Header
    states: int
    symbols: int
    observations: int
    grid: int

    @property
    def inputs(self) -> TokenInputs | RealInputs:
        """What a sequence is made of."""
        if self.header == "rows":
            return RealInputs(2 * (self.states + self.symbols))
        return TokenInputs(self.first_symbol + self.symbols)

    @property
    def first_symbol(self) -> int:
        """The token of symbol 0."""
        return FIRST_SYMBOL if self.header == "tokens" else 0

    @property
    def columns(self) -> Int64[np.ndarray, " K"]:
        """The positions of the symbols."""
        steps = np.arange(self.observations)
        if self.header == "tokens":
            return self.states * (self.states + self.symbols) + 3 + 2 * steps + 1
        return (2 * self.states if self.header == "rows" else 0) + steps

    @property
    def length(self) -> int:
        """Positions of a sequence; the last is a symbol."""
        return int(self.columns[-1]) + 1

    def write(
        self, parameters: Parameters, observations: Int64[np.ndarray, "n K"]
    ) -> Int64[np.ndarray, "n T"] | Float32[np.ndarray, "n T f"]:
        """Write sequences down."""
        if self.header == "rows":
            return self._rows(parameters, observations)
        inputs = np.full((len(observations), self.length), OBS, dtype=np.int64)
        inputs[:, self.columns] = observations + self.first_symbol
        if self.header == "tokens":
            place = 0
            for marker, table in ((TRANS, parameters.transition), (EMIT, parameters.emission)):
                tokens = np.rint(table * CENTS).astype(np.int64) - FLOOR_CENTS
                flat = tokens.reshape(len(inputs), -1)
                inputs[:, place] = marker
                inputs[:, place + 1 : place + 1 + flat.shape[1]] = flat
                place += 1 + flat.shape[1]
            inputs[:, place] = SEP
        return inputs

    def read(self, inputs: Int64[np.ndarray, "n T"] | Float32[np.ndarray, "n T f"]) -> Parameters:
        """Return the parameters that headers state, exactly."""
        states, symbols = self.states, self.symbols
        split = states * states
        if self.header == "tokens":
            cents = (inputs + FLOOR_CENTS) / CENTS
            transition = cents[:, 1 : 1 + split].reshape(-1, states, states)
            emission = cents[:, 2 + split : 2 + split + states * symbols]
            return Parameters(transition, emission.reshape(-1, states, symbols))
        rows = inputs[:, : 2 * states].astype(np.float64) + 1
        transition = rows[:, :states, :states] / states
        emission = rows[:, states:, states : states + symbols] / symbols
        return Parameters(
            np.rint(transition * self.grid) / self.grid, np.rint(emission * self.grid) / self.grid
        )

    def _rows(
        self, parameters: Parameters, observations: Int64[np.ndarray, "n K"]
    ) -> Float32[np.ndarray, "n T f"]:
        states, symbols = self.states, self.symbols
        inputs = np.zeros((len(observations), self.length, 2 * (states + symbols)), np.float32)
        inputs[:, :states, :states] = states * parameters.transition - 1
        emission = inputs[:, states : 2 * states, states : states + symbols]
        emission[:] = symbols * parameters.emission - 1
        for start in (0, states):
            own = np.arange(states)
            inputs[:, start + own, states + symbols + own] = 1
        one_hot = np.eye(symbols, dtype=np.float32)
        inputs[:, 2 * states :, 2 * states + symbols :] = one_hot[observations]
        return inputs
