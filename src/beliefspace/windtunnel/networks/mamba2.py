"""The Mamba-2 mixer (2405.21060); its settings are told at ``models/mamba2.py``.

    z, (x, B, C), Δ' = maps of the input            x, B, C = silu(convolution(x, B, C))
    Δ_t = softplus(Δ'_t + bias)                     a_t = exp(-A Δ_t),  A = exp(``log_rate``) > 0
    S_t = a_t S_{t-1} + B_t (Δ_t x_t)ᵀ              y_t = S_tᵀ C_t + D x_t
    output = W norm(y_t ⊙ silu(z_t))

Symbols:
    n     sequences
    T     positions
    h     heads
    p     channels of a head
    w     inner width, h·p
    N     state per channel
    Δ     step size                      ``[n h T]``
    B, C  input and output gate          ``[n T N]``, the same for all heads
    S     state                          ``[n h N p]``
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from beliefspace.core.taps import NO_TAP, Tap
from beliefspace.core.trace import Point
from beliefspace.windtunnel.models.mamba2 import Mamba2
from beliefspace.windtunnel.networks.base import Initializer
from beliefspace.windtunnel.networks.convolution import CausalConvolution
from beliefspace.windtunnel.networks.ssd import Decay, advance, mix, read, states
from beliefspace.windtunnel.networks.stack import Mixer, State

RATES = (1.0, 16.0)
STEP_SIZES = (1e-3, 1e-1)
EPSILON = 1e-5


class Mamba2Mixer(Mixer):
    """See :class:`beliefspace.windtunnel.models.mamba2.Mamba2`.

    Rates A start spread evenly over 1 ... 16 and step sizes evenly in their logarithm over
    0.001 ... 0.1 (the published start draws both at random), so the heads' memories reach from
    about one position to hundreds.

    Args:
        spec: the settings.
        make: draws the initial values.
        gain: of the output map.
    """

    def __init__(self, spec: Mamba2, make: Initializer, gain: float) -> None:
        super().__init__(spec, make, gain)
        width, inner, size, heads = (
            spec.width, spec.inner_width, spec.state_size, spec.head_count,
        )  # fmt: skip
        self.spec = spec
        self.gate = make.linear(width, inner)
        self.values = make.linear(width, inner)
        self.input_gate = make.linear(width, size)
        self.output_gate = make.linear(width, size)
        self.step_size = make.linear(width, heads)
        self.convolution = CausalConvolution(inner + 2 * size, spec.convolution, make)
        self.log_rate = nn.Parameter(rates(heads).log())
        self.step_bias = nn.Parameter(step_bias(heads))
        self.skip = nn.Parameter(torch.ones(heads))
        self.gain = nn.Parameter(torch.ones(inner))
        self.output = make.linear(inner, width, gain=gain)

    def forward(self, x: Float[Tensor, "n T width"], tap: Tap) -> Float[Tensor, "n T width"]:
        """Return what the mixer adds to the residual at every position."""
        z, mixed, step = self._project(x)
        v, k, q, step = self._parts(F.silu(self.convolution(mixed)), step, tap)
        log_decay = -self.log_rate.exp()[:, None] * step
        entering = v * step[..., None]
        if tap.wants("state"):
            y = read(tap("state", states(entering, k, log_decay)), q)
        else:
            y = mix(entering, k, q, Decay.of(log_decay, self.spec.chunk))
        return self._finish(y, v, z)

    def start(self, x: Float[Tensor, "n width"]) -> State:
        """Return an empty state."""
        _, mixed, _ = self._project(x[:, None])
        heads, size = self.spec.head_count, self.spec.state_size
        return {
            "past": self.convolution.start(mixed[:, 0]),
            "state": x.new_zeros(len(x), heads, size, self.spec.head_width),
        }

    def step(
        self, x: Float[Tensor, "n width"], state: State
    ) -> tuple[Float[Tensor, "n width"], State]:
        """Return what is added at one position, and the state after it."""
        z, mixed, step = self._project(x[:, None])
        mixed, past = self.convolution.step(mixed[:, 0], state["past"])
        v, k, q, step = self._parts(F.silu(mixed)[:, None], step, NO_TAP)
        log_decay = -self.log_rate.exp() * step[:, :, 0]
        after = advance(state["state"], (v * step[..., None])[:, :, 0], k[:, :, 0], log_decay)
        added = self._finish(read(after, q[:, :, 0])[:, :, None], v, z)
        return added[:, 0], {"past": past, "state": after}

    @classmethod
    def points(cls, spec: Mamba2) -> tuple[Point, ...]:
        """Return the mixer's own points."""
        return (
            Point("step_size", "Δ: how far the state moves at a position", "batch heads time"),
            Point("input_gate", "B: where in the state the input goes", "batch time state_size"),
            Point("output_gate", "C: what is read from the state", "batch time state_size"),
            Point(
                "state",
                "state after each position, where it is read (an edit is not carried on)",
                "batch heads time state_size head_width",
            ),
        )

    def _project(self, x: Float[Tensor, "n T width"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return z, what goes through the convolution, and Δ before its bias, by one product."""
        maps = (self.gate, self.values, self.input_gate, self.output_gate, self.step_size)
        projected = F.linear(x, torch.cat([part.weight for part in maps]))
        inner, size, heads = self.spec.inner_width, self.spec.state_size, self.spec.head_count
        z, mixed, step = projected.split((inner, inner + 2 * size, heads), dim=-1)
        return z, mixed, step

    def _parts(
        self, mixed: Float[Tensor, "n T channels"], step: Float[Tensor, "n T h"], tap: Tap
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return x, B and C by heads, and the step size."""
        inner, size = self.spec.inner_width, self.spec.state_size
        v, k, q = mixed.split((inner, size, size), dim=-1)
        step = tap("step_size", F.softplus(step + self.step_bias).transpose(1, 2))
        k, q = tap("input_gate", k), tap("output_gate", q)
        v = v.view(*v.shape[:2], -1, self.spec.head_width).transpose(1, 2)
        return v, k[:, None], q[:, None], step

    def _finish(
        self,
        y: Float[Tensor, "n h T p"],
        v: Float[Tensor, "n h T p"],
        z: Float[Tensor, "n T w"],
    ) -> Float[Tensor, "n T width"]:
        """Add the skip, gate, normalise and map."""
        y = torch.addcmul(y, v, self.skip[:, None, None])
        gated = y.transpose(1, 2).flatten(2) * F.silu(z)
        # The norm's gain goes into the columns of the map, and its scale of each row behind the
        # map: so fewer passes go over the inner width.
        squares: Tensor = torch.linalg.vector_norm(gated, dim=-1, keepdim=True).square()
        scale = (squares / gated.shape[2] + EPSILON).rsqrt()
        return F.linear(gated, self.output.weight * self.gain) * scale


def rates(heads: int) -> Float[Tensor, " heads"]:
    """Return the rates of decay at the start."""
    low, high = RATES
    return low + _spread(heads) * (high - low)


def step_bias(heads: int) -> Float[Tensor, " heads"]:
    """Return biases whose softplus spreads evenly in logarithm over the step sizes at the start."""
    low, high = (math.log(size) for size in STEP_SIZES)
    sizes = (low + _spread(heads) * (high - low)).exp()
    return sizes + (-(-sizes).expm1()).log()


def _spread(count: int) -> Float[Tensor, " count"]:
    """Return the midpoints of as many equal parts of 0 ... 1."""
    return (torch.arange(count) + 0.5) / count
