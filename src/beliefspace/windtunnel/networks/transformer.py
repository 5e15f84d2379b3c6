"""The pre-norm causal transformer; what it is and its choices are told at its specification.

Symbols:
    n     sequences
    T     positions
    Q     positions whose outputs are wanted
"""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.core.taps import NO_TAP, Tap, scoped
from beliefspace.core.trace import Point
from beliefspace.windtunnel.models.side import positions_seen
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.networks.attention import Attention
from beliefspace.windtunnel.networks.base import (
    EMBEDDING_DEVIATION,
    Columns,
    Initializer,
    InputEmbedding,
    Inputs,
    Network,
    OutputHead,
    RMSNorm,
    Streaming,
)
from beliefspace.windtunnel.networks.positions import Rotation, Sight
from beliefspace.windtunnel.networks.side import SideInput
from beliefspace.windtunnel.tasks.base import Task


class TransformerNetwork(Network):
    """See :class:`beliefspace.windtunnel.models.transformer.Transformer`.

    Where outputs are wanted at some positions only, the last block computes queries, attention,
    feed-forward and all after it at those positions; its keys and values come from every position,
    so the outputs are the same numbers.

    Args:
        spec: the choices.
        task: fixes inputs, outputs, length and prefix.
        stream: the source of the initial parameters.
    """

    recurrent = False

    def __init__(self, spec: Transformer, task: Task, stream: Stream) -> None:
        super().__init__()
        make = Initializer(stream)
        biases = spec.biases == "all"
        self.spec = spec
        self.side = SideInput(spec.side, task, spec.width, make)
        self.prefix = task.prefix - self.side.skipped
        self.embedding = InputEmbedding(
            task, spec.width, make, deviation=EMBEDDING_DEVIATION, bias=biases
        )
        self.positions: nn.Parameter | None = None
        if spec.positions == "learned":
            learned = positions_seen(spec.side, task)
            self.positions = make.normal(learned, spec.width, deviation=EMBEDDING_DEVIATION)
        self.layers = nn.ModuleList(Block(spec, task, make) for _ in range(spec.depth))
        self.final_norm = _norm(spec)
        self.head = OutputHead(
            task, spec.width, spec.head, self.embedding, make, scale=spec.logit_scale, bias=biases
        )

    def forward(self, inputs: Inputs, columns: Columns = None, tap: Tap = NO_TAP) -> Tensor:
        """Compute the outputs; see :meth:`Network.forward`.

        Raises:
            InvalidInput: inputs that the task's do not look like, a column out of range, or more
                positions than are learned.
        """
        x = tap("embed", self._embed(inputs))
        length, window = x.shape[1], self.spec.window
        sight = Sight(length, self.prefix, window, None, x.device)
        last_sight = sight
        chosen = self.side.wanted(columns, x)
        if chosen is not None:
            last_sight = Sight(length, self.prefix, window, chosen, x.device)
        rotation = None
        if self.spec.positions == "rotary":
            rotation = Rotation.of(sight, self.spec.head_width)
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            seen = last_sight if index == last else sight
            x = layer(x, seen, rotation, scoped(tap, f"layers.{index}"))
        outputs = tap("logits", self.head(tap("final_norm", self.final_norm(x))))
        return self.side.padded(outputs, chosen)

    def stream(self, header: Inputs) -> Streaming:
        """Refuse: see :meth:`Network.stream`."""
        raise InvalidInput(
            "a transformer is not streamed: a header is read in both directions, and the keys and "
            "values of earlier positions would have to be kept, but no cache of them is built; "
            "give it whole sequences"
        )

    def points(self) -> tuple[Point, ...]:
        """Return every point, in order of computation."""
        layers = [
            Point(f"layers.{index}.{point.name}", point.meaning, point.shape)
            for index in range(self.spec.depth)
            for point in _layer_points(self.spec)
        ]
        outputs = "outcome logits, or mean and log variance"
        return (
            Point(
                "embed",
                "embedded inputs, with learned positions and an injected header added",
                "batch time width",
            ),
            *layers,
            Point("final_norm", "last residual, normalised, gain included", "batch time width"),
            Point("logits", f"outputs: {outputs}", "batch time outputs"),
        )

    def head_map(self) -> Mapping[int, tuple[int, ...]]:
        """Return that each query head has a key-value head of its own."""
        return {head: (head,) for head in range(self.spec.head_count)}

    def _embed(self, inputs: Inputs) -> Tensor:
        x: Tensor = self.embedding(self.side.rest(inputs))
        added = self.side(inputs)
        x = x if added is None else x + added
        if self.positions is None:
            return x
        length, learned = x.shape[1], len(self.positions)
        if length > learned:
            raise InvalidInput(
                f"the inputs have {length} positions, but only {learned} were learned; for longer "
                'sequences build with positions = "rotary", "alibi", "relative" or "none"'
            )
        return x + self.positions[:length]


class Block(nn.Module):
    """x + attention(norm x), then x + feed-forward(norm x)."""

    def __init__(self, spec: Transformer, task: Task, make: Initializer) -> None:
        super().__init__()
        # The residual stream collects 2 x depth additions; scaled so, their sum keeps its size at
        # any depth (GPT-2).
        gain = (2 * spec.depth) ** -0.5
        self.attention_norm = _norm(spec)
        self.attention = Attention(spec, task, make, gain)
        self.feed_forward: FeedForward | None = None
        if spec.hidden_width:
            self.feed_forward_norm = _norm(spec)
            self.feed_forward = FeedForward(spec, make, gain)

    def forward(
        self, x: Float[Tensor, "n T width"], sight: Sight, rotation: Rotation | None, tap: Tap
    ) -> Float[Tensor, "n Q width"]:
        """Return the residual after the block, at the queries of ``sight``."""
        x = tap("residual_in", x)
        added = tap("attention_out", self.attention(self.attention_norm(x), sight, rotation, tap))
        x = tap("residual_mid", sight.select(x, 1) + added)
        if self.feed_forward is not None:
            x = x + tap("mlp_out", self.feed_forward(self.feed_forward_norm(x)))
        return tap("residual_out", x)


class FeedForward(nn.Module):
    """down(activation(up x)), for swiglu down(silu(gate x) · up x)."""

    def __init__(self, spec: Transformer, make: Initializer, output_gain: float) -> None:
        super().__init__()
        width, hidden, bias = spec.width, spec.hidden_width, spec.biases != "none"
        self.activation = spec.activation
        if spec.activation == "swiglu":
            self.gate = make.linear(width, hidden, bias=bias)
        self.up = make.linear(width, hidden, bias=bias)
        self.down = make.linear(hidden, width, bias=bias, gain=output_gain)

    def forward(self, x: Float[Tensor, "n Q width"]) -> Float[Tensor, "n Q width"]:
        """Return what the feed-forward part adds to the residual."""
        hidden: Tensor = self.up(x)
        if self.activation == "swiglu":
            hidden = F.silu(self.gate(x)) * hidden
        elif self.activation == "gelu":
            hidden = F.gelu(hidden)
        else:
            hidden = F.relu(hidden)
            if self.activation == "relu2":
                hidden = hidden.square()
        added: Tensor = self.down(hidden)
        return added


def _norm(spec: Transformer) -> nn.Module:
    if spec.norm == "rms":
        return RMSNorm(spec.width)
    return nn.LayerNorm(spec.width, bias=spec.biases == "all")


def _layer_points(spec: Transformer) -> list[Point]:
    """Return the points of one block, with names relative to it."""
    residual, heads, pairs = (
        "batch time width",
        "batch heads time head_width",
        "batch heads query_time key_time",
    )
    normed = "normalised, " if spec.qk_norm else ""
    rotary = [
        Point("queries_rotary", "queries turned by their position", heads),
        Point("keys_rotary", "keys turned by their position", heads),
    ]
    mlp = [Point("mlp_out", "what the feed-forward part adds to the residual", residual)]
    return [
        Point("residual_in", "residual before the block", residual),
        Point("queries", f"queries, {normed}before any rotation", heads),
        Point("keys", f"keys, {normed}before any rotation", heads),
        Point("values", "values", heads),
        *(rotary if spec.positions == "rotary" else []),
        Point("scores", "scaled products with bias and mask (-inf where hidden)", pairs),
        Point("attention", "softmax of the scores over keys", pairs),
        Point("head_outputs", "values mixed by attention, before the output matrix", heads),
        Point("attention_out", "what attention adds to the residual", residual),
        Point("residual_mid", "residual after attention", residual),
        *(mlp if spec.hidden_width else []),
        Point("residual_out", "residual after the block", residual),
    ]
