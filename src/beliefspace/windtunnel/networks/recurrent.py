"""What the nonlinear recurrences share: blocks around them, dropout, and the maps of gates.

Symbols:
    n    sequences
    T    positions
    Q    positions that are wanted
    d    width
    G    gates, the candidate counted
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from beliefspace.core.streams import Stream
from beliefspace.core.taps import Tap
from beliefspace.core.trace import Point
from beliefspace.windtunnel.models.recurrent import GatedSpec, RecurrentSpec
from beliefspace.windtunnel.networks.base import Initializer, RMSNorm
from beliefspace.windtunnel.networks.stack import (
    Block,
    GatedFeedForward,
    Mixer,
    StackBlock,
    StackNetwork,
    State,
)


class RecurrentNetwork(StackNetwork):
    """See :class:`beliefspace.windtunnel.models.recurrent.RecurrentSpec`."""

    spec: RecurrentSpec

    def block(self, layer: int, make: Initializer, stream: Stream) -> Block:
        """Return the block of a layer; see :meth:`StackNetwork.block`."""
        if self.spec.plain:
            last = layer == self.spec.depth - 1
            rate = 0.0 if last else self.spec.dropout_rate
            return PlainBlock(self.spec, layer, make, Dropout(rate, stream.child(f"drop/{layer}")))
        if layer == 0 and self.spec.opens:
            return OpenedBlock(self.spec, layer, make)
        return StackBlock(self.spec, layer, make)


class OpenedBlock(StackBlock):
    """x + feed-forward(norm x), then a block as usual."""

    def __init__(self, spec: RecurrentSpec, layer: int, make: Initializer) -> None:
        super().__init__(spec, layer, make)
        self.opening_norm = RMSNorm(spec.width)
        gain = (2 * spec.depth) ** -0.5
        self.opening = GatedFeedForward(spec.width, spec.hidden_width, make, gain)

    def forward(
        self, x: Float[Tensor, "n T width"], tap: Tap, wanted: Tensor | None
    ) -> Float[Tensor, "n Q width"]:
        """Return the residual after the block, at the positions that are wanted."""
        added = tap("opening_out", self.opening(self.opening_norm(x)))
        return super().forward(x + added, tap, wanted)

    def step(
        self, x: Float[Tensor, "n width"], state: State
    ) -> tuple[Float[Tensor, "n width"], State]:
        """Return the residual after the block at one position, and the mixer's state."""
        return super().step(x + self.opening(self.opening_norm(x)), state)

    def points(self) -> tuple[Point, ...]:
        """Return the points; see :meth:`Block.points`."""
        first, *others = super().points()
        added = "what the opening feed-forward adds to the embedded inputs"
        residual = "residual after the opening feed-forward, before the mixer"
        return (
            Point("opening_out", added, first.shape),
            Point(first.name, residual, first.shape),
            *others,
        )


class PlainBlock(Block):
    """dropout(mixer(x)): no norm, no residual, no feed-forward."""

    def __init__(
        self, spec: RecurrentSpec, layer: int, make: Initializer, dropout: Dropout
    ) -> None:
        super().__init__()
        self.spec = spec
        self.mixer = spec.mixer(layer)(spec, make, 1.0)
        self.dropout = dropout

    def forward(
        self, x: Float[Tensor, "n T width"], tap: Tap, wanted: Tensor | None
    ) -> Float[Tensor, "n Q width"]:
        """Return what the next layer is given, at the positions that are wanted."""
        x = self.dropout(tap("mixer_out", self.mixer(x, tap)))
        return x if wanted is None else x.index_select(1, wanted)

    def step(
        self, x: Float[Tensor, "n width"], state: State
    ) -> tuple[Float[Tensor, "n width"], State]:
        """Return what the next layer is given at one position, and the mixer's state.

        Streaming is no training, so there is no dropout.
        """
        return self.mixer.step(x, state)

    def points(self) -> tuple[Point, ...]:
        """Return the points; see :meth:`Block.points`."""
        output = Point("mixer_out", "output of the layer, input of the next", "batch time width")
        return *self.mixer.points(self.spec), output


class Dropout(nn.Module):
    """Zeroes a share of the entries while training, and scales the others so that means stay.

    Which entries is a function of the stream, of the row, and of how often this was done; that
    count is saved with the parameters, so a run that resumes draws what it would have drawn.

    Args:
        rate: the share.
        stream: the source of the draws.
    """

    passes: Tensor

    def __init__(self, rate: float, stream: Stream) -> None:
        super().__init__()
        self._rate = rate
        self._stream = stream
        if rate:
            self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Float[Tensor, "n T d"]) -> Float[Tensor, "n T d"]:
        """Drop out in training mode; hand on as it is otherwise."""
        if not self.training or not self._rate:
            return x
        uniforms = self._stream.uniforms(int(self.passes), len(x), x.shape[1:].numel())
        self.passes += 1
        kept = torch.from_numpy(uniforms >= self._rate).view(x.shape).to(x.device)
        return x * kept / (1 - self._rate)


class GatedMixer(Mixer):
    """A layer of gates, each with its own maps of the input and of the hidden state.

    The maps are apart so that an optimizer of whole matrices (Muon) sees each by itself; torch's
    kernels take them as one. If points of the inside are asked for, a loop takes the kernel's
    place.
    """

    GATES: ClassVar[tuple[str, ...]]
    RECURRENT_BIASES: ClassVar[tuple[str, ...]] = ()
    INSIDE: ClassVar[tuple[str, ...]]

    def __init__(self, spec: GatedSpec, make: Initializer, gain: float) -> None:
        super().__init__(spec, make, gain)
        width = spec.width
        for gate in self.GATES:
            # A gate is a sum of two maps; each keeps half the variance.
            self.add_module(gate, make.linear(width, width, bias=True, gain=0.5**0.5))
            bias = gate in self.RECURRENT_BIASES
            recurrent = make.linear(width, width, bias=bias, gain=0.5**0.5)
            self.add_module(f"{gate}_recurrent", recurrent)

    def forward(self, x: Float[Tensor, "n T d"], tap: Tap) -> Float[Tensor, "n T d"]:
        """Return the hidden states."""
        if any(tap.wants(name) for name in self.INSIDE):
            return self.opened(x, tap)
        return self.kernel(x, x.new_zeros(1, len(x), x.shape[2]))

    @abstractmethod
    def kernel(
        self, x: Float[Tensor, "n T d"], zeros: Float[Tensor, "1 n d"]
    ) -> Float[Tensor, "n T d"]:
        """Return the hidden states by torch's kernel, started from ``zeros``."""

    @abstractmethod
    def opened(self, x: Float[Tensor, "n T d"], tap: Tap) -> Float[Tensor, "n T d"]:
        """Return the hidden states by a loop, handing the points ``INSIDE`` to a tap."""

    def weights(self) -> list[Tensor]:
        """Return the weights as torch's kernels take them: of input and state, then biases."""
        inward = [self._map(gate) for gate in self.GATES]
        recurrent = [self._map(f"{gate}_recurrent") for gate in self.GATES]
        zeros = torch.zeros_like(inward[0].bias)
        parts = [
            *(linear.weight.flatten() for linear in (*inward, *recurrent)),
            *(linear.bias for linear in inward),
            *(
                linear.bias if gate in self.RECURRENT_BIASES else zeros
                for gate, linear in zip(self.GATES, recurrent, strict=True)
            ),
        ]
        rows, width = len(inward) * len(zeros), len(zeros)
        # One stretch of memory, which cuDNN takes as it is.
        weights = torch.cat(parts).split([rows * width, rows * width, rows, rows])
        return [*(matrix.view(rows, width) for matrix in weights[:2]), *weights[2:]]

    def _map(self, name: str) -> nn.Linear:
        return cast(nn.Linear, self.get_submodule(name))


def scanned(kept: Float[Tensor, "n T d"], added: Float[Tensor, "n T d"]) -> Float[Tensor, "n T d"]:
    """Return s_t = kept_t · s_{t-1} + added_t, from s_0 = 0, at every position."""
    state = torch.zeros_like(added[:, 0])
    states = []
    # Unbound first: indexing in the loop would make the backward quadratic in the positions.
    for share, new in zip(kept.unbind(1), added.unbind(1), strict=True):
        state = torch.addcmul(new, share, state)
        states.append(state)
    return torch.stack(states, dim=1)
