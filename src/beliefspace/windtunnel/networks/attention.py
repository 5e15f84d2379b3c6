"""Multi-head attention with every intermediate value open to view.

Symbols:
    n     sequences
    T     positions (keys and values)
    Q     queries: all positions, or some
    h     heads
    d     head width
"""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from beliefspace.core.taps import Tap
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.networks.base import Initializer, RMSNorm
from beliefspace.windtunnel.networks.positions import AlibiBias, RelativeBias, Rotation, Sight
from beliefspace.windtunnel.tasks.base import Task


class Attention(nn.Module):
    """softmax(q·k / √d + bias + mask) v per head, then the output map.

    Args:
        spec: the transformer's specification.
        task: its length is the span of an unlimited relative bias.
        make: draws the initial values.
        output_gain: scale of the output map's initial values.
    """

    def __init__(
        self, spec: Transformer, task: Task, make: Initializer, output_gain: float
    ) -> None:
        super().__init__()
        width, heads, bias = spec.width, spec.head_count, spec.biases == "all"
        self.head_width = spec.head_width
        # Three matrices, not one fused: as fast here, and an optimiser that works on whole matrices
        # (Muon) sees each by itself.
        self.queries = make.linear(width, width, bias=bias)
        self.keys = make.linear(width, width, bias=bias)
        self.values = make.linear(width, width, bias=bias)
        self.output = make.linear(width, width, bias=bias, gain=output_gain)
        self.query_norm = RMSNorm(spec.head_width) if spec.qk_norm else nn.Identity()
        self.key_norm = RMSNorm(spec.head_width) if spec.qk_norm else nn.Identity()
        self.bias: AlibiBias | RelativeBias | None = None
        if spec.positions == "alibi":
            self.bias = AlibiBias(heads)
        elif spec.positions == "relative":
            self.bias = RelativeBias(heads, spec.span(task))
        if spec.frozen_attention:
            for part in (self.queries, self.keys, self.query_norm, self.key_norm):
                part.requires_grad_(False)

    def forward(
        self,
        x: Float[Tensor, "n T width"],
        sight: Sight,
        rotation: Rotation | None,
        tap: Tap,
    ) -> Float[Tensor, "n Q width"]:
        """Return what attention adds to the residual at the queries of ``sight``."""
        q = tap("queries", self.query_norm(self._split(self.queries(sight.select(x, 1)))))
        k = tap("keys", self.key_norm(self._split(self.keys(x))))
        v = tap("values", self._split(self.values(x)))
        if rotation is not None:
            q = tap("queries_rotary", rotation.at(sight).turn(q))
            k = tap("keys_rotary", rotation.turn(k))
        if tap.wants("scores") or tap.wants("attention"):
            mixed = self._open(q, k, v, sight, tap)
        else:
            mixed = self._closed(q, k, v, sight)
        mixed = tap("head_outputs", mixed)
        joined: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return joined

    def _split(self, x: Float[Tensor, "n T width"]) -> Float[Tensor, "n h T d"]:
        return x.view(*x.shape[:2], -1, self.head_width).transpose(1, 2)

    def _open(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight, tap: Tap) -> Tensor:
        """Attend step by step, so that scores and attention exist."""
        offset = sight.mask if self.bias is None else self.bias(sight)
        scores = tap("scores", (q @ k.transpose(2, 3)) * self.head_width**-0.5 + offset)
        return tap("attention", scores.softmax(dim=-1)) @ v

    def _closed(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight) -> Tensor:
        """Attend in torch's fused kernel."""
        if self.bias is None and sight.plainly_causal:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        offset = sight.mask if self.bias is None else self.bias(sight)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=offset)
