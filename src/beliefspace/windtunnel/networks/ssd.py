"""State-space duality: a decaying sum of key-value products, as matrix products over chunks.

The recurrence, with state S and scalar decay exp(l), l <= 0, per head (2405.21060, section 3):

    S_t = exp(l_t) S_{t-1} + k_t v_tᵀ          y_t = S_tᵀ q_t

is the product y = (L ⊙ q kᵀ) v with the lower triangle L_ts = exp(l_{s+1} + ... + l_t). Over chunks
of c positions (section 6) the triangle acts within a chunk, and what came before comes in by one
state per chunk: linear in T. Mamba-2 has q = C, k = B, v = Δ x; linear attention has l = 0.

Symbols:
    n     sequences
    h     heads; 1 where keys, queries or decay are the same for all (and so for n)
    T     positions
    c     positions of a chunk                ``chunk_length``
    C     chunks; the last is filled up with zeros
    N     width of keys and queries
    p     width of values
    l     log decay                           ``[n h T]``
    S     state                               ``[n h N p]``
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from beliefspace.windtunnel.models.linear_attention import chunk_length


@dataclass(frozen=True)
class Decay:
    """How much of what enters at one position is left at a later one, chunk by chunk.

    Attributes:
        logs: log decay at each position.
    """

    logs: Float[Tensor, "n h C c"]

    @classmethod
    def of(cls, log_decay: Float[Tensor, "n h T"], chunk: int) -> Decay:
        """Cut positions into chunks.

        Args:
            log_decay: at most 0.
            chunk: longest sequence that is one chunk.
        """
        size = chunk_length(log_decay.shape[2], chunk)
        return cls(_cut(log_decay[..., None], size)[..., 0])

    @cached_property
    def within(self) -> Float[Tensor, "n h C c c"]:
        """From each column's position to each row's; 0 above the diagonal."""
        # One product with a table of which positions lie in each stretch gives all sums. No two
        # large sums are subtracted, so a strong decay does not cost the weak ones their digits.
        # What lies ahead is -inf before the exponential, which so can neither overflow nor give a
        # gradient that is no number.
        size = self.logs.shape[3]
        at = torch.arange(size, device=self.logs.device)
        inside = (at <= at[:, None, None]) & (at > at[:, None])
        ahead = at > at[:, None]
        hidden = torch.zeros_like(ahead, dtype=self.logs.dtype).masked_fill(ahead, -math.inf)
        sums = F.linear(self.logs, inside.flatten(0, 1).to(hidden), hidden.flatten())
        return sums.view(*self.logs.shape, size).exp()

    @property
    def several(self) -> bool:
        """Whether there is more than one chunk."""
        return self.logs.shape[2] > 1

    @cached_property
    def since_start(self) -> Float[Tensor, "n h C c 1"]:
        """From the end of the chunk before to each position."""
        return self.logs.cumsum(-1).exp()[..., None]

    @property
    def to_end(self) -> Float[Tensor, "n h C c 1"]:
        """From each position to the end of its chunk."""
        return self.within[..., -1, :, None]

    @property
    def across(self) -> Float[Tensor, "n h C 1 1"]:
        """Over a whole chunk."""
        return self.since_start[..., -1:, :]

    def cut(self, x: Float[Tensor, "n h T w"]) -> Float[Tensor, "n h C c w"]:
        """Cut positions into the same chunks."""
        return _cut(x, self.logs.shape[3])


def mix(
    values: Float[Tensor, "n h T p"],
    keys: Float[Tensor, "n #h T N"],
    queries: Float[Tensor, "n #h T N"],
    decay: Decay,
) -> Float[Tensor, "n h T p"]:
    """Return y of the recurrence, in its parallel form."""
    v, k, q = decay.cut(values), decay.cut(keys), decay.cut(queries)
    mixed = (q @ k.mT * decay.within) @ v
    if decay.several:
        added = (k * decay.to_end).mT @ v
        mixed = mixed + (q * decay.since_start) @ _carried(added, decay.across)
    return mixed.flatten(2, 3)[:, :, : values.shape[2]]


def _carried(
    added: Float[Tensor, "n h C N p"], across: Float[Tensor, "#n #h C 1 1"]
) -> Float[Tensor, "n h C N p"]:
    """Return the state before each chunk, from what each chunk adds."""
    state = torch.zeros_like(added[:, :, 0])
    before = []
    for new, left in zip(added.unbind(2), across.unbind(2), strict=True):
        before.append(state)
        state = torch.addcmul(new, state, left)
    return torch.stack(before, dim=2)


def states(
    values: Float[Tensor, "n h T p"],
    keys: Float[Tensor, "n #h T N"],
    log_decay: Float[Tensor, "#n #h T"],
) -> Float[Tensor, "n h T N p"]:
    """Return the state after each position; differentiable once in every argument."""
    after: Tensor = _States.apply(values, keys, log_decay.exp())  # type: ignore[no-untyped-call]
    return after


class _States(torch.autograd.Function):
    """The recurrence itself, in place: all states are so large that a second copy is what costs."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, keys: Tensor, decay: Tensor) -> Tensor:
        # Of itself a product takes the layout of its factors, and whoever reads it copies it again.
        after = values.new_empty(*values.shape[:3], keys.shape[3], values.shape[3])
        torch.mul(keys[..., :, None], values[..., None, :], out=after)
        here, left = after.unbind(2), decay[..., None, None].unbind(2)
        for t in range(1, len(here)):
            here[t].addcmul_(left[t], here[t - 1])
        ctx.save_for_backward(values, keys, decay, after)
        return after

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, ...]:
        values, keys, decay, after = ctx.saved_tensors
        grown = slope.clone(memory_format=torch.contiguous_format)
        here, left = grown.unbind(2), decay[..., None, None].unbind(2)
        for t in range(len(here) - 1, 0, -1):
            here[t - 1].addcmul_(left[t], here[t])
        key_slope = read(grown.mT, values).sum_to_size(keys.shape)
        left_slope = (grown[:, :, 1:] * after[:, :, :-1]).sum((3, 4))
        return read(grown, keys), key_slope, F.pad(left_slope, (1, 0)).sum_to_size(decay.shape)


def advance(
    state: Float[Tensor, "n h N p"],
    value: Float[Tensor, "n h p"],
    key: Float[Tensor, "n #h N"],
    log_decay: Float[Tensor, "#n #h"],
) -> Float[Tensor, "n h N p"]:
    """Return the state one position on."""
    left = state * log_decay.exp()[..., None, None]
    return torch.addcmul(left, key[..., :, None], value[..., None, :])


def read(
    state: Float[Tensor, "*rows N p"], query: Float[Tensor, "*#rows N"]
) -> Float[Tensor, "*rows p"]:
    """Return what a state gives for a query."""
    return (query[..., None, :] @ state)[..., 0, :]


def _cut(x: Float[Tensor, "n h T w"], size: int) -> Float[Tensor, "n h C c w"]:
    missing = -x.shape[2] % size
    if missing:
        x = F.pad(x, (0, 0, 0, missing))
    return x.reshape(*x.shape[:2], -1, size, x.shape[3])
