"""The mixer of Mamba-1 (2312.00752, section 3.4 and figure 3).

From the normalised residual u, at each position t:

    x, z = U u, V u                                 to D channels each
    x    = silu(convolution of x over the last K positions, channel by channel)
    Δ    = softplus(W (R x) + bias)                 step size, of rank r
    B, C = F x, E x                                 input gate and output gate
    h    = exp(Δ A) h + Δ x B                       N states for each channel; A = -exp(log_rates)
    out  = O ((C·h + skip x) silu(z))

Symbols:
    n     sequences
    T     positions
    d     width of the residual        ``width``
    D     channels of the scan         ``channels``
    N     states of a channel          ``state_size``
    K     positions convolved          ``convolution``
    r     rank of the step sizes       ``step_rank``

The scan itself is at ``selective_scan.py``.
"""

from __future__ import annotations

from math import log

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from beliefspace.core.taps import Tap
from beliefspace.core.trace import Point
from beliefspace.windtunnel.models.mamba import Mamba
from beliefspace.windtunnel.networks.base import Initializer
from beliefspace.windtunnel.networks.convolution import CausalConvolution
from beliefspace.windtunnel.networks.selective_scan import (
    next_state,
    read_out,
    scan_states,
    selective_scan,
)
from beliefspace.windtunnel.networks.stack import Mixer, State

STEP_RANGE = (1e-3, 1e-1)


class MambaMixer(Mixer):
    """See :class:`beliefspace.windtunnel.models.mamba.Mamba`.

    At the start A is -1 ... -N in every channel, and the step sizes without input go from 0.001 to
    0.1 in equal ratios over the channels (the published ones are drawn at random in that range).
    """

    def __init__(self, spec: Mamba, make: Initializer, gain: float) -> None:
        super().__init__(spec, make, gain)
        width, channels, states, rank = spec.width, spec.channels, spec.state_size, spec.step_rank
        self.inner = make.linear(width, channels)
        self.gate = make.linear(width, channels)
        self.convolution = CausalConvolution(channels, spec.convolution, make)
        self.step_low = make.linear(channels, rank)
        self.input_gate = make.linear(channels, states)
        self.output_gate = make.linear(channels, states)
        self.step_size = make.linear(rank, channels, bias=True, gain=3**-0.5)
        with torch.no_grad():
            self.step_size.bias.copy_(step_biases(channels))
        self.log_rates = nn.Parameter(log_rates(states)[:, None].repeat(1, channels))
        self.skip = nn.Parameter(torch.ones(channels))
        self.output = make.linear(channels, width, gain=gain)

    def forward(self, x: Float[Tensor, "n T d"], tap: Tap) -> Float[Tensor, "n T d"]:
        """Return what the mixer adds to the residual at every position."""
        inner = F.silu(self.convolution(self.inner(x)))
        step_size, input_gate, output_gate = self._select(inner)
        step_size = tap("step_size", step_size)
        input_gate, output_gate = tap("input_gate", input_gate), tap("output_gate", output_gate)
        rates = -self.log_rates.exp()
        if tap.wants("state"):
            # The point has channels before states; within, states come first (see the scan).
            states = scan_states(inner, step_size, rates, input_gate)
            y = read_out(tap("state", states.mT).mT, output_gate)
        else:
            y = selective_scan(inner, step_size, rates, input_gate, output_gate)
        return self._finish(x, inner, y)

    def start(self, x: Float[Tensor, "n d"]) -> State:
        """Return the state before the first position: nothing seen."""
        states, channels = self.log_rates.shape
        return {
            "recent": self.convolution.start(self.inner(x)),
            "state": x.new_zeros(len(x), states, channels),
        }

    def step(self, x: Float[Tensor, "n d"], state: State) -> tuple[Float[Tensor, "n d"], State]:
        """Return what is added at one position, and the state after it."""
        convolved, recent = self.convolution.step(self.inner(x), state["recent"])
        inner = F.silu(convolved)
        step_size, input_gate, output_gate = self._select(inner)
        rates = -self.log_rates.exp()
        states = next_state(state["state"], inner, step_size, rates, input_gate)
        added = self._finish(x, inner, read_out(states, output_gate))
        return added, {"recent": recent, "state": states}

    @classmethod
    def points(cls, spec: Mamba) -> tuple[Point, ...]:
        """Return the mixer's own points, in order."""
        return scan_points()

    def _select(self, inner: Float[Tensor, "*rows D"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return step sizes, input gate and output gate."""
        low, inputs, outputs = self.step_low, self.input_gate, self.output_gate
        # One product of three maps that are kept apart for optimizers of whole matrices.
        joint = F.linear(inner, torch.cat([low.weight, inputs.weight, outputs.weight]))
        step, input_gate, output_gate = joint.split(
            [low.out_features, inputs.out_features, outputs.out_features], dim=-1
        )
        return F.softplus(self.step_size(step)), input_gate, output_gate

    def _finish(
        self, x: Float[Tensor, "*rows d"], inner: Tensor, y: Tensor
    ) -> Float[Tensor, "*rows d"]:
        """Return the output map of what was read, with skip and gate."""
        added: Tensor = self.output(torch.addcmul(y, inner, self.skip) * F.silu(self.gate(x)))
        return added


def scan_points() -> tuple[Point, ...]:
    """Return the points of a selective scan, in order."""
    return (
        Point("step_size", "how far each channel moves, Δ", "batch time channels"),
        Point("input_gate", "how the input enters each state, B", "batch time state"),
        Point("output_gate", "how each state is read, C", "batch time state"),
        Point(
            "state",
            "states as they are read; an edit is read, but not carried on to later positions",
            "batch time channels state",
        ),
    )


def log_rates(states: int) -> Float[Tensor, " N"]:
    """Return log 1 ... log N, the initial rates of decay."""
    return torch.arange(1, states + 1, dtype=torch.float32).log()


def step_biases(channels: int) -> Float[Tensor, " D"]:
    """Return what softplus turns into step sizes of equal ratios over their range."""
    low, high = STEP_RANGE
    steps = torch.linspace(log(low), log(high), channels, dtype=torch.float64).exp()
    return steps.expm1().log().float()
