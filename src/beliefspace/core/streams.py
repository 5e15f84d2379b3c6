"""Random numbers as a pure function of ``(seed, purpose, lane, step, row)``.

There is no generator state to save: any row of any step can be drawn again, alone, on any machine.
A training run that resumes asks for the same steps and gets the same data; evaluation rows have
their own purpose and cannot collide with them.

Symbols:
    seed      the user's integer
    purpose   what the numbers are for ("train", "evaluate", "initial"): independent streams
    lane      which quantity inside a row ("keys", "values"): independent numbers
    step      the batch, counted from 0
    row       the sequence within the batch

The numbers are those of Philox 4x64 (Salmon et al., 2011; numpy's implementation). The key is a
hash of seed, purpose and lane; the counter carries the step in its high words and the position
within the step in its low words.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from scipy.special import gammaincinv, ndtri

from beliefspace.core.checks import check_whole, check_within
from beliefspace.core.errors import InvalidInput

_TO_UNIT = 2.0**-53


def check_concentration(value: float) -> None:
    """Raise unless a Dirichlet distribution with this concentration can be drawn from.

    Raises:
        InvalidInput: it is not a number from 0.001 to 1e6.
    """
    check_within("concentration", value, 1e-3, 1e6)


@dataclass(frozen=True)
class Stream:
    """A named source of random numbers.

    Args:
        seed: any integer.
        purpose: what the numbers are for; streams of different purposes are independent.
    """

    seed: int
    purpose: str

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise InvalidInput(f"a stream's seed is an integer; got {self.seed!r}")

    def child(self, purpose: str) -> Stream:
        """Return the independent stream for a part of this purpose."""
        return Stream(self.seed, f"{self.purpose}/{purpose}")

    def uniforms(
        self, step: int, rows: int, width: int, lane: str = ""
    ) -> Float64[np.ndarray, "rows width"]:
        """Draw uniforms on [0, 1); row ``i`` does not depend on ``rows``."""
        raw = self._philox(lane, step).random_raw(rows * width)
        uniforms: Float64[np.ndarray, "rows width"] = (raw >> np.uint64(11)) * _TO_UNIT
        return uniforms.reshape(rows, width)

    def integers(
        self, step: int, rows: int, width: int, below: int, lane: str = ""
    ) -> Int64[np.ndarray, "rows width"]:
        """Draw integers uniform on 0 ... ``below`` - 1 (bias under ``below`` x 2**-53)."""
        scaled = self.uniforms(step, rows, width, lane) * below
        return np.asarray(scaled, dtype=np.int64)

    def permutations(
        self, step: int, rows: int, size: int, lane: str = ""
    ) -> Int64[np.ndarray, "rows size"]:
        """Draw one uniform permutation of 0 ... ``size`` - 1 per row."""
        return np.argsort(self.uniforms(step, rows, size, lane), axis=1, kind="stable")

    def normals(
        self, step: int, rows: int, width: int, lane: str = ""
    ) -> Float64[np.ndarray, "rows width"]:
        """Draw standard normals, by the inverse distribution function."""
        middles = self.uniforms(step, rows, width, lane) + 0.5 * _TO_UNIT
        return np.asarray(ndtri(middles))

    def exponentials(
        self, step: int, rows: int, width: int, lane: str = ""
    ) -> Float64[np.ndarray, "rows width"]:
        """Draw unit exponentials; normalised, a row of them is Dirichlet(1, ..., 1)."""
        return np.asarray(-np.log1p(-self.uniforms(step, rows, width, lane)))

    def dirichlet(
        self, step: int, rows: int, width: int, concentration: float, lane: str = ""
    ) -> Float64[np.ndarray, "rows width"]:
        """Draw one Dirichlet(``concentration``, ..., ``concentration``) distribution per row.

        Raises:
            InvalidInput: a concentration outside 0.001 to 1e6: far below, the logs of the weights
                overflow; far above, all rows are alike.
        """
        check_concentration(concentration)
        if concentration == 1.0:
            weights = self.exponentials(step, rows, width, lane)
            return np.asarray(weights / weights.sum(axis=1, keepdims=True))
        # A gamma variate of small shape c underflows; Gamma(c + 1) times U^(1/c) is one, in logs.
        first = self.uniforms(step, rows, width, lane) + 0.5 * _TO_UNIT
        second = self.uniforms(step, rows, width, f"{lane}/power") + 0.5 * _TO_UNIT
        logs = np.log(gammaincinv(concentration + 1.0, first)) + np.log(second) / concentration
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def generator(self, step: int = 0, row: int = 0, lane: str = "") -> np.random.Generator:
        """Return a numpy generator of its own for one row, for draws of unknown number."""
        return np.random.Generator(self._philox(lane, step, row + 1))

    def integer_seed(self, lane: str = "") -> int:
        """Return a 63-bit seed, for libraries that keep generators of their own."""
        return int(self._philox(lane, 0).random_raw() >> 1)

    def _philox(self, lane: str, step: int, high: int = 0) -> np.random.Philox:
        check_whole("step", step, 0, most=2**63)
        name = f"{self.seed}\x00{self.purpose}\x00{lane}".encode()
        key = np.frombuffer(hashlib.blake2b(name, digest_size=16).digest(), dtype=np.uint64)
        counter = np.array([0, 0, step, high], dtype=np.uint64)
        return np.random.Philox(key=key, counter=counter)


def pick(
    probabilities: Float64[np.ndarray, "*rows outcomes"], uniforms: Float64[np.ndarray, "*rows"]
) -> Int64[np.ndarray, "*rows"]:
    """Turn uniforms on [0, 1) into outcomes of given probabilities; one of 0 is never picked."""
    thresholds = np.cumsum(probabilities, axis=-1)
    # The last threshold may miss 1 by rounding; scaled, no uniform is beyond it.
    scaled = uniforms[..., None] * thresholds[..., -1:]
    return np.asarray((scaled >= thresholds).sum(axis=-1), dtype=np.int64)
