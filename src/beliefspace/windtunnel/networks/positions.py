"""Which positions a query sees, and how the order of positions enters attention.

Symbols:
    T     positions of the sequence (keys)
    Q     queries: all T positions, or some of them
    p     prefix length: header positions, visible from everywhere
    w     window: how many positions back a query sees, itself counted
    h     heads
    d     head width

Key k is visible from query q where k <= q and q - k < w, or k < p. Biases by distance (ALiBi,
relative) are for visible keys after the prefix; a prefix key gets none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

HIDDEN = -math.inf
ROTARY_BASE = 10000.0


@dataclass(frozen=True)
class Sight:
    """The queries of an attention layer, and the keys that each one sees.

    Attributes:
        length: T.
        prefix: p.
        window: w, or None for no limit.
        chosen: positions of the queries, or None for all T.
        device: where masks are made.
    """

    length: int
    prefix: int
    window: int | None
    chosen: Int[Tensor, " Q"] | None
    device: torch.device

    @property
    def plainly_causal(self) -> bool:
        """Whether every position is a query and sees exactly itself and its past."""
        return self.chosen is None and not self.prefix and self.window is None

    @cached_property
    def keys(self) -> Int[Tensor, " T"]:
        """Positions of the keys."""
        return torch.arange(self.length, device=self.device)

    @cached_property
    def distance(self) -> Int[Tensor, "Q T"]:
        """How far back each key lies; negative ahead."""
        queries = self.keys if self.chosen is None else self.chosen
        return queries[:, None] - self.keys

    @cached_property
    def biased(self) -> Bool[Tensor, "Q T"]:
        """Where a key is visible and gets a bias by its distance."""
        seen = self.distance >= 0
        if self.window is not None:
            seen &= self.distance < self.window
        return seen & (self.keys >= self.prefix)

    @cached_property
    def mask(self) -> Float[Tensor, "Q T"]:
        """0 where a key is visible, -inf elsewhere."""
        visible = self.biased | (self.keys < self.prefix)
        return torch.zeros(visible.shape, device=self.device).masked_fill(~visible, HIDDEN)

    def select(self, x: Tensor, axis: int) -> Tensor:
        """Return the entries of ``x`` at the queries along an axis of positions."""
        return x if self.chosen is None else x.index_select(axis, self.chosen)


class AlibiBias(nn.Module):
    """Attention falls linearly with distance, by a fixed slope per head (2108.12409, section 3)."""

    slopes: Tensor

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(alibi_slopes(heads)), persistent=False)

    def forward(self, sight: Sight) -> Float[Tensor, "heads Q T"]:
        """Return the bias, with -inf at hidden keys."""
        falling = -self.slopes[:, None, None] * sight.distance
        return falling.where(sight.biased, 0.0) + sight.mask


def alibi_slopes(heads: int) -> list[float]:
    """Return 2^(-8 i / h) for i = 1 ... h; if h is no power of 2, as the authors' code fills in."""
    if heads & (heads - 1) == 0:
        return [2.0 ** (-8.0 * head / heads) for head in range(1, heads + 1)]
    power = 2 ** (heads.bit_length() - 1)
    return alibi_slopes(power) + alibi_slopes(2 * power)[0::2][: heads - power]


class RelativeBias(nn.Module):
    """A learned number per head and distance, added to the scores (1910.10683 without its buckets).

    Args:
        heads: h.
        span: distances 0 ... span - 1 have a bias each; farther ones share the last.
    """

    def __init__(self, heads: int, span: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(heads, span))

    def forward(self, sight: Sight) -> Float[Tensor, "heads Q T"]:
        """Return the bias, with -inf at hidden keys."""
        entry = sight.distance.clamp(0, self.table.shape[1] - 1)
        by_distance = self.table.index_select(1, entry.flatten()).view(-1, *entry.shape)
        return by_distance.where(sight.biased, 0.0) + sight.mask


@dataclass(frozen=True)
class Rotation:
    """Angles of the rotary positions (2104.09864, section 3.2.2).

    Attributes:
        cosine: of the angle of each position and channel pair.
        sine: likewise.
    """

    cosine: Float[Tensor, "T half"]
    sine: Float[Tensor, "T half"]

    @classmethod
    def of(cls, sight: Sight, head_width: int) -> Rotation:
        """Return the angles t · 10000^(-2i/d) for the positions of a sequence."""
        pairs = torch.arange(0, head_width, 2, device=sight.device, dtype=torch.float64)
        angles = sight.keys[:, None] * ROTARY_BASE ** (-pairs / head_width)
        return cls(angles.cos().float(), angles.sin().float())

    def at(self, sight: Sight) -> Rotation:
        """Return the angles at the queries."""
        return Rotation(sight.select(self.cosine, 0), sight.select(self.sine, 0))

    def turn(self, x: Float[Tensor, "n h T d"]) -> Float[Tensor, "n h T d"]:
        """Rotate channel i together with channel i + d/2."""
        first, second = x.chunk(2, dim=-1)
        return torch.cat(
            (
                first * self.cosine - second * self.sine,
                second * self.cosine + first * self.sine,
            ),
            dim=-1,
        )
