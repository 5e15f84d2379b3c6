"""The mixer of linear attention (2006.16236); its settings: ``models/linear_attention.py``.

With a positive feature map φ, per head:

    S_t = S_{t-1} + φ(k_t) [v_t, 1]ᵀ               (equations 18 and 19: sums, and their weights')
    [a_t, z_t] = S_tᵀ φ(q_t)                       head output = a_t / z_t

so a position is the average of the values so far, weighted by φ(q_t)·φ(k_s). The 1 beside each
value makes the normaliser z by the same sums. It is the recurrence of ``ssd.py`` without decay.

Symbols:
    n     sequences
    T     positions
    h     heads
    p     head width
    S     state                          ``[n h p p+1]``
"""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from beliefspace.core.taps import Tap
from beliefspace.core.trace import Point
from beliefspace.windtunnel.models.linear_attention import LinearAttention
from beliefspace.windtunnel.networks.base import Initializer
from beliefspace.windtunnel.networks.ssd import Decay, advance, mix, read, states
from beliefspace.windtunnel.networks.stack import Mixer, State

LEAST_WEIGHT = 1e-6  # relu features can all be 0, and those of elu underflow


class LinearAttentionMixer(Mixer):
    """See :class:`beliefspace.windtunnel.models.linear_attention.LinearAttention`.

    Args:
        spec: the settings.
        make: draws the initial values.
        gain: of the output map.
    """

    def __init__(self, spec: LinearAttention, make: Initializer, gain: float) -> None:
        super().__init__(spec, make, gain)
        self.spec = spec
        self.queries = make.linear(spec.width, spec.width)
        self.keys = make.linear(spec.width, spec.width)
        self.values = make.linear(spec.width, spec.width)
        self.output = make.linear(spec.width, spec.width, gain=gain)

    def forward(self, x: Float[Tensor, "n T width"], tap: Tap) -> Float[Tensor, "n T width"]:
        """Return what the mixer adds to the residual at every position."""
        q = self._features(tap("queries", self._split(self.queries(x))))
        k = self._features(tap("keys", self._split(self.keys(x))))
        v = F.pad(tap("values", self._split(self.values(x))), (0, 1), value=1.0)
        lossless = x.new_zeros(1, 1, x.shape[1])
        if tap.wants("state"):
            sums = read(tap("state", states(v, k, lossless)), q)
        else:
            sums = mix(v, k, q, Decay.of(lossless, self.spec.chunk))
        mixed = tap("head_outputs", _average(sums))
        return tap("attention_out", self.output(mixed.transpose(1, 2).flatten(2)))

    def start(self, x: Float[Tensor, "n width"]) -> State:
        """Return empty sums."""
        heads, width = self.spec.head_count, self.spec.head_width
        return {"state": x.new_zeros(len(x), heads, width, width + 1)}

    def step(
        self, x: Float[Tensor, "n width"], state: State
    ) -> tuple[Float[Tensor, "n width"], State]:
        """Return what is added at one position, and the sums after it."""
        heads = (self.spec.head_count, self.spec.head_width)
        q = self._features(self.queries(x).unflatten(1, heads))
        k = self._features(self.keys(x).unflatten(1, heads))
        v = F.pad(self.values(x).unflatten(1, heads), (0, 1), value=1.0)
        sums = advance(state["state"], v, k, x.new_zeros(1, 1))
        added: Tensor = self.output(_average(read(sums, q)).flatten(1))
        return added, {"state": sums}

    @classmethod
    def points(cls, spec: LinearAttention) -> tuple[Point, ...]:
        """Return the mixer's own points."""
        heads = "batch heads time head_width"
        return (
            Point("queries", "queries, before the feature map", heads),
            Point("keys", "keys, before the feature map", heads),
            Point("values", "values", heads),
            Point(
                "state",
                "sums of features times values after each position, those of the features as last "
                "column, where they are read (an edit is not carried on)",
                "batch heads time head_width head_width+1",
            ),
            Point("head_outputs", "averages of the values, before the output matrix", heads),
            Point("attention_out", "what attention adds to the residual", "batch time width"),
        )

    def _split(self, x: Float[Tensor, "n T width"]) -> Float[Tensor, "n h T p"]:
        return x.view(*x.shape[:2], -1, self.spec.head_width).transpose(1, 2)

    def _features(self, x: Float[Tensor, "*rows p"]) -> Float[Tensor, "*rows p"]:
        return F.elu(x) + 1 if self.spec.feature_map == "elu" else F.relu(x)


def _average(sums: Float[Tensor, "*rows columns"]) -> Float[Tensor, "*rows p"]:
    total, weight = sums[..., :-1], sums[..., -1:]
    return total / (weight + LEAST_WEIGHT)
