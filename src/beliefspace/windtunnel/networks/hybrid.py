"""Plain attention as the mixer of a stack; its settings are told at ``models/hybrid.py``.

    scores_ts = q_t·k_s / √p for s <= t, else -inf       attention = softmax of the scores over s
    head output_t = sum over s of attention_ts v_s       output = W head outputs

No positions enter: by itself the mixer sees the past as a bag (1706.03762, equation 1, without its
encoding of positions). Its recurrent form keeps the keys and values of all positions so far, so the
state grows with them.

Symbols:
    n     sequences
    T     positions
    a     heads
    p     head width
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from beliefspace.core.taps import Tap
from beliefspace.core.trace import Point
from beliefspace.windtunnel.models.hybrid import Hybrid
from beliefspace.windtunnel.networks.base import Initializer
from beliefspace.windtunnel.networks.stack import Mixer, State


class AttentionMixer(Mixer):
    """See :class:`beliefspace.windtunnel.models.hybrid.Hybrid`.

    Args:
        spec: the settings.
        make: draws the initial values.
        gain: of the output map.
    """

    def __init__(self, spec: Hybrid, make: Initializer, gain: float) -> None:
        super().__init__(spec, make, gain)
        self.heads = spec.attention_head_count
        self.head_width = spec.width // self.heads
        self.queries = make.linear(spec.width, spec.width)
        self.keys = make.linear(spec.width, spec.width)
        self.values = make.linear(spec.width, spec.width)
        self.output = make.linear(spec.width, spec.width, gain=gain)

    def forward(self, x: Float[Tensor, "n T width"], tap: Tap) -> Float[Tensor, "n T width"]:
        """Return what the mixer adds to the residual at every position."""
        q = tap("queries", self._split(self.queries(x)))
        k = tap("keys", self._split(self.keys(x)))
        v = tap("values", self._split(self.values(x)))
        if tap.wants("scores") or tap.wants("attention"):
            mixed = _open(q, k, v, tap)
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self._join(tap("head_outputs", mixed))

    def start(self, x: Float[Tensor, "n width"]) -> State:
        """Return keys and values of no positions."""
        none = self._split(x.new_zeros(len(x), 0, x.shape[1]))
        return {"keys": none, "values": none}

    def step(
        self, x: Float[Tensor, "n width"], state: State
    ) -> tuple[Float[Tensor, "n width"], State]:
        """Return what is added at one position, and keys and values up to it."""
        x = x[:, None]
        keys = torch.cat([state["keys"], self._split(self.keys(x))], dim=2)
        values = torch.cat([state["values"], self._split(self.values(x))], dim=2)
        mixed = F.scaled_dot_product_attention(self._split(self.queries(x)), keys, values)
        return self._join(mixed)[:, 0], {"keys": keys, "values": values}

    @classmethod
    def points(cls, spec: Hybrid) -> tuple[Point, ...]:
        """Return the mixer's own points."""
        heads, pairs = "batch heads time head_width", "batch heads query_time key_time"
        return (
            Point("queries", "queries", heads),
            Point("keys", "keys", heads),
            Point("values", "values", heads),
            Point("scores", "scaled products, -inf where the key is later", pairs),
            Point("attention", "softmax of the scores over keys", pairs),
            Point("head_outputs", "values mixed by attention, before the output matrix", heads),
        )

    def _split(self, x: Float[Tensor, "n T width"]) -> Float[Tensor, "n a T p"]:
        return x.view(*x.shape[:2], self.heads, self.head_width).transpose(1, 2)

    def _join(self, mixed: Float[Tensor, "n a T p"]) -> Float[Tensor, "n T width"]:
        added: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return added


def _open(q: Tensor, k: Tensor, v: Tensor, tap: Tap) -> Float[Tensor, "n a T p"]:
    """Attend step by step, so that scores and attention exist."""
    length = q.shape[2]
    later = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    products = (q @ k.transpose(2, 3)) * q.shape[3] ** -0.5
    scores = tap("scores", products.masked_fill(later, -math.inf))
    return tap("attention", scores.softmax(dim=-1)) @ v
