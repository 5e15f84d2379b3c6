"""The simplified state space model in the public code of 2512.22471.

From the residual u, not normalised, at each position t:

    x, z  = U u, V u                                 to D channels each
    x     = silu(convolution of x over the last K positions, channel by channel)
    Δ     = clamp(softplus(w (r·x) + bias))          r·x is one number, w a vector
    B, C  = F x, E x                                 input gate and output gate
    a     = clamp(exp(Δ A))                          A = -exp(log_rates), N numbers for all channels
    h     = clamp(a h + Δ x B), 0 where not a number
    out   = O (LayerNorm(C·h + skip x) silu(z))

Which of this is reported of that code and which is chosen here is told at the specification.

Symbols:
    n     sequences
    T     positions
    d     width of the residual        ``width``
    D     channels of the scan         ``channels``
    N     states of a channel          ``state_size``
    K     positions convolved          ``convolution``

The clamps make the recurrence one that only runs step by step, as it does there.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from beliefspace.core.streams import Stream
from beliefspace.core.taps import Tap
from beliefspace.core.trace import Point
from beliefspace.windtunnel.models.released_mamba import ReleasedMamba
from beliefspace.windtunnel.networks.base import Initializer
from beliefspace.windtunnel.networks.convolution import CausalConvolution
from beliefspace.windtunnel.networks.mamba import log_rates, scan_points, step_biases
from beliefspace.windtunnel.networks.selective_scan import read_out
from beliefspace.windtunnel.networks.stack import Mixer, StackBlock, StackNetwork, State


class ReleasedMambaNetwork(StackNetwork):
    """The residual stack without the norms before the blocks; arguments as there."""

    def block(self, layer: int, make: Initializer, stream: Stream) -> StackBlock:
        """Return the block of a layer; see :meth:`StackNetwork.block`."""
        block = StackBlock(self.spec, layer, make)
        block.register_module("mixer_norm", nn.Identity())
        return block


class ReleasedMambaMixer(Mixer):
    """See :class:`beliefspace.windtunnel.models.released_mamba.ReleasedMamba`."""

    def __init__(self, spec: ReleasedMamba, make: Initializer, gain: float) -> None:
        super().__init__(spec, make, gain)
        width, channels, states = spec.width, spec.channels, spec.state_size
        self.spec = spec
        self.inner = make.linear(width, channels)
        self.gate = make.linear(width, channels)
        self.convolution = CausalConvolution(channels, spec.convolution, make)
        self.step_low = make.linear(channels, 1)
        self.input_gate = make.linear(channels, states)
        self.output_gate = make.linear(channels, states)
        self.step_size = make.linear(1, channels, bias=True, gain=3**-0.5)
        with torch.no_grad():
            self.step_size.bias.copy_(step_biases(channels))
        self.log_rates = nn.Parameter(log_rates(states))
        self.skip = nn.Parameter(torch.ones(channels))
        self.norm = nn.LayerNorm(channels)
        self.output = make.linear(channels, width, gain=gain)

    def forward(self, x: Float[Tensor, "n T d"], tap: Tap) -> Float[Tensor, "n T d"]:
        """Return what the mixer adds to the residual at every position."""
        inner = F.silu(self.convolution(self.inner(x)))
        step_size = tap("step_size", self._step_size(inner))
        input_gate = tap("input_gate", self.input_gate(inner))
        output_gate = tap("output_gate", self.output_gate(inner))
        state, keep = self.start(x[:, 0])["state"], tap.wants("state")
        states, read = [], []
        for here, step, inward, outward in zip(
            inner.unbind(1), step_size.unbind(1), input_gate.unbind(1), output_gate.unbind(1),
            strict=True,
        ):  # fmt: skip
            state = self._next(state, here, step, inward)
            if keep:
                states.append(state.mT)
            else:
                read.append(read_out(state, outward))
        if keep:
            y = read_out(tap("state", torch.stack(states, dim=1)).mT, output_gate)
        else:
            y = torch.stack(read, dim=1)
        return self._finish(x, inner, y)

    def start(self, x: Float[Tensor, "n d"]) -> State:
        """Return the state before the first position: nothing seen."""
        states, channels = self.spec.state_size, self.spec.channels
        return {
            "recent": self.convolution.start(self.inner(x)),
            "state": x.new_zeros(len(x), states, channels),
        }

    def step(self, x: Float[Tensor, "n d"], state: State) -> tuple[Float[Tensor, "n d"], State]:
        """Return what is added at one position, and the state after it."""
        convolved, recent = self.convolution.step(self.inner(x), state["recent"])
        inner = F.silu(convolved)
        states = self._next(state["state"], inner, self._step_size(inner), self.input_gate(inner))
        added = self._finish(x, inner, read_out(states, self.output_gate(inner)))
        return added, {"recent": recent, "state": states}

    @classmethod
    def points(cls, spec: ReleasedMamba) -> tuple[Point, ...]:
        """Return the mixer's own points, in order."""
        return scan_points()

    def _step_size(self, inner: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        return F.softplus(self.step_size(self.step_low(inner))).clamp(*self.spec.step_range)

    def _next(
        self,
        state: Float[Tensor, "n N D"],
        x: Float[Tensor, "n D"],
        step_size: Float[Tensor, "n D"],
        input_gate: Float[Tensor, "n N"],
    ) -> Float[Tensor, "n N D"]:
        """Advance the states by one position."""
        rates = -self.log_rates.exp()[:, None]
        decay = torch.exp(step_size[:, None] * rates).clamp(*self.spec.decay_range)
        moved = decay * state + (step_size * x)[:, None] * input_gate[..., None]
        limit = self.spec.state_limit
        return moved.clamp(-limit, limit).nan_to_num(nan=0.0)

    def _finish(
        self, x: Float[Tensor, "*rows d"], inner: Tensor, y: Tensor
    ) -> Float[Tensor, "*rows d"]:
        """Return the output map of what was read, with skip, norm and gate."""
        normed = self.norm(torch.addcmul(y, inner, self.skip))
        added: Tensor = self.output(normed * F.silu(self.gate(x)))
        return added
