"""The residual stack around any mixer of positions; its settings are told at ``models/stack.py``.

Symbols:
    n     sequences
    T     positions that the mixers see: all, or with an injected header those after it
    Q     positions whose outputs are wanted
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from beliefspace.core.streams import Stream
from beliefspace.core.taps import NO_TAP, Tap, scoped
from beliefspace.core.trace import Point
from beliefspace.windtunnel.models.stack import StackSpec
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
from beliefspace.windtunnel.networks.side import SideInput
from beliefspace.windtunnel.tasks.base import Task

State: TypeAlias = "dict[str, Tensor]"


class Mixer(nn.Module, ABC):
    """Mixes positions, causally: a parallel form for training and a recurrent one for streaming.

    Args:
        spec: the settings of the stack, of the mixer's own kind.
        make: draws the initial values.
        gain: of the last linear map, so that the residual stream keeps its size at any depth.
    """

    @abstractmethod
    def __init__(self, spec: Any, make: Initializer, gain: float) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, x: Float[Tensor, "n T width"], tap: Tap) -> Float[Tensor, "n T width"]:
        """Return what the mixer adds to the residual at every position."""

    @abstractmethod
    def start(self, x: Float[Tensor, "n width"]) -> State:
        """Return the state before the first position, for inputs like ``x``."""

    @abstractmethod
    def step(
        self, x: Float[Tensor, "n width"], state: State
    ) -> tuple[Float[Tensor, "n width"], State]:
        """Return what is added at one position, and the state after it."""

    @classmethod
    @abstractmethod
    def points(cls, spec: Any) -> tuple[Point, ...]:
        """Return the mixer's own points, with names relative to the layer, in order."""


class StackNetwork(Network):
    """See :class:`beliefspace.windtunnel.models.stack.StackSpec`.

    Args:
        spec: the settings.
        task: fixes inputs, outputs, length and header.
        stream: the source of the initial parameters.
    """

    def __init__(self, spec: StackSpec, task: Task, stream: Stream) -> None:
        super().__init__()
        make = Initializer(stream)
        self.spec = spec
        self.ends = StackEnds(spec, task, make)
        self.blocks = [self.block(layer, make, stream) for layer in range(spec.depth)]
        self.layers = nn.ModuleList(self.blocks)

    def block(self, layer: int, make: Initializer, stream: Stream) -> Block:
        """Return the block of a layer; a stack of another kind of block overrides this.

        Args:
            layer: counted from 0.
            make: draws the initial values.
            stream: of the whole network, for a block that draws more than initial values.
        """
        return StackBlock(self.spec, layer, make)

    def forward(self, inputs: Inputs, columns: Columns = None, tap: Tap = NO_TAP) -> Tensor:
        """Compute the outputs; see :meth:`Network.forward`.

        With an injected header the points have no header positions, and outputs there are 0.
        """
        x = tap("embed", self.ends.embed(inputs))
        wanted = self.ends.side.wanted(columns, x)
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            keep = wanted if index == last else None
            x = layer(x, scoped(tap, f"layers.{index}"), keep)
        return self.ends.side.padded(self.ends.read(x, tap), wanted)

    def stream(self, header: Inputs) -> Streaming:
        """Return the recurrent form; see :meth:`Network.stream`."""
        return _StackStreaming(self, header)

    def points(self) -> tuple[Point, ...]:
        """Return every point, in order of computation."""
        width = "batch time width"
        layers = [
            Point(f"layers.{index}.{point.name}", point.meaning, point.shape)
            for index, block in enumerate(self.blocks)
            for point in block.points()
        ]
        outputs = "outcome logits, or mean and log variance"
        return (
            Point("embed", "embedded inputs, with an injected header added", width),
            *layers,
            Point("final_norm", "last residual, normalised, gain included", width),
            Point("logits", f"outputs: {outputs}", "batch time outputs"),
        )


class StackEnds(nn.Module):
    """Embedding, side input, final norm and read-out of a stack."""

    def __init__(self, spec: StackSpec, task: Task, make: Initializer) -> None:
        super().__init__()
        self.embedding = InputEmbedding(task, spec.width, make, deviation=EMBEDDING_DEVIATION)
        self.side = SideInput(spec.side, task, spec.width, make)
        self.final_norm = RMSNorm(spec.width)
        self.head = OutputHead(
            task, spec.width, "untied", self.embedding, make, scale=spec.logit_scale
        )

    def embed(self, inputs: Inputs) -> Float[Tensor, "n T width"]:
        """Embed the positions that the mixers see, with an injected header added."""
        x: Tensor = self.embedding(self.side.rest(inputs))
        added = self.side(inputs)
        return x if added is None else x + added

    def read(self, x: Float[Tensor, "n Q width"], tap: Tap) -> Float[Tensor, "n Q outputs"]:
        """Turn the last residual into outputs."""
        return tap("logits", self.head(tap("final_norm", self.final_norm(x))))


class Block(nn.Module, ABC):
    """One layer of a stack: a mixer and what stands around it."""

    mixer: Mixer

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "n T width"], tap: Tap, wanted: Tensor | None
    ) -> Float[Tensor, "n Q width"]:
        """Return what the next layer is given, at the positions that are wanted."""

    @abstractmethod
    def step(
        self, x: Float[Tensor, "n width"], state: State
    ) -> tuple[Float[Tensor, "n width"], State]:
        """Return what the next layer is given at one position, and the mixer's state."""

    @abstractmethod
    def points(self) -> tuple[Point, ...]:
        """Return the points, with names relative to the layer, in order of computation."""


class StackBlock(Block):
    """x + mixer(norm x), then x + feed-forward(norm x)."""

    def __init__(self, spec: StackSpec, layer: int, make: Initializer) -> None:
        super().__init__()
        gain = (2 * spec.depth) ** -0.5
        self.spec = spec
        self.mixer_norm = RMSNorm(spec.width)
        self.mixer = spec.mixer(layer)(spec, make, gain)
        self.feed_forward: GatedFeedForward | None = None
        if spec.hidden_width:
            self.feed_forward_norm = RMSNorm(spec.width)
            self.feed_forward = GatedFeedForward(spec.width, spec.hidden_width, make, gain)

    def forward(
        self, x: Float[Tensor, "n T width"], tap: Tap, wanted: Tensor | None
    ) -> Float[Tensor, "n Q width"]:
        """Return the residual after the block, at the positions that are wanted."""
        x = tap("residual_in", x)
        added = tap("mixer_out", self.mixer(self.mixer_norm(x), tap))
        x = tap("residual_mid", x + added)
        if wanted is not None:
            x = x.index_select(1, wanted)
        return tap("residual_out", self._fed_forward(x, tap))

    def step(
        self, x: Float[Tensor, "n width"], state: State
    ) -> tuple[Float[Tensor, "n width"], State]:
        """Return the residual after the block at one position, and the mixer's state."""
        added, state = self.mixer.step(self.mixer_norm(x), state)
        return self._fed_forward(x + added, NO_TAP), state

    def points(self) -> tuple[Point, ...]:
        """Return the points; see :meth:`Block.points`."""
        width = "batch time width"
        mlp = [Point("mlp_out", "what the feed-forward part adds to the residual", width)]
        return (
            Point("residual_in", "residual before the block", width),
            *self.mixer.points(self.spec),
            Point("mixer_out", "what the mixer of positions adds to the residual", width),
            Point("residual_mid", "residual after the mixer", width),
            *(mlp if self.feed_forward is not None else []),
            Point("residual_out", "residual after the block", width),
        )

    def _fed_forward(
        self, x: Float[Tensor, "*rows width"], tap: Tap
    ) -> Float[Tensor, "*rows width"]:
        if self.feed_forward is None:
            return x
        return x + tap("mlp_out", self.feed_forward(self.feed_forward_norm(x)))


class GatedFeedForward(nn.Module):
    """down(silu(gate x) · up x) (2002.05202)."""

    def __init__(self, width: int, hidden: int, make: Initializer, gain: float) -> None:
        super().__init__()
        self.gate = make.linear(width, hidden)
        self.up = make.linear(width, hidden)
        self.down = make.linear(hidden, width, gain=gain)

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """Return what the feed-forward part adds to the residual."""
        added: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return added


class _StackStreaming(Streaming):
    """One position after another, through every block's recurrent form."""

    def __init__(self, network: StackNetwork, header: Inputs) -> None:
        self._network = network
        self._states: list[State] | None = None
        self._side = network.ends.side.alone(header)
        if self._side is None:
            for position in range(header.shape[1]):
                self(header[:, position])

    def __call__(self, inputs: Inputs) -> Tensor:
        ends, layers = self._network.ends, self._network.blocks
        x = ends.embedding(inputs[:, None])[:, 0]
        x = x if self._side is None else x + self._side[:, 0]
        if self._states is None:
            self._states = [block.mixer.start(x) for block in layers]
        states = []
        for block, state in zip(layers, self._states, strict=True):
            x, state = block.step(x, state)
            states.append(state)
        self._states = states
        outputs: Tensor = ends.head(ends.final_norm(x))
        return outputs
