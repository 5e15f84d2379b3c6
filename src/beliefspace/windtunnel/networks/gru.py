"""A GRU layer as a mixer of positions; its settings are told at ``models/gru.py``.

    r_t = σ(W_r x_t + U_r h_{t-1} + b_r)        z_t = σ(W_z x_t + U_z h_{t-1} + b_z)
    g_t = tanh(W_g x_t + b_g + r_t · (U_g h_{t-1} + b'_g))
    h_t = z_t · h_{t-1} + (1 - z_t) · g_t

from h_0 = 0 (1406.1078; the reset gate acts after the map of the state, the form that torch's and
other fused kernels compute, which has a second bias).

Symbols:
    x_t        input, normalised                      ``[n, d]``
    h_t        hidden state, the output               ``[n, d]``
    r, z, g    reset and update gate, candidate       ``[n, d]``
    W, U, b    per gate: map of the input, map of the hidden state, bias
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from beliefspace.core.taps import Tap
from beliefspace.core.trace import Point
from beliefspace.windtunnel.networks.recurrent import GatedMixer, scanned
from beliefspace.windtunnel.networks.stack import State


class GRUMixer(GatedMixer):
    """h of the module docstring, at every position.

    An edit of the input gate acts through the recurrence of h with all else as in the run without
    edits, and one of the state on what is read from it. An edit that later gates feel as well is
    made between two calls of :meth:`step`.
    """

    GATES = ("reset_gate", "update_gate", "candidate")  # the kernel's order
    RECURRENT_BIASES = ("candidate",)
    INSIDE = ("input_gate", "state")

    def kernel(
        self, x: Float[Tensor, "n T d"], zeros: Float[Tensor, "1 n d"]
    ) -> Float[Tensor, "n T d"]:
        """Return the hidden states by torch's kernel; see :meth:`GatedMixer.kernel`."""
        settings = (True, 1, 0.0, self.training, False, True)
        return torch.gru(x, zeros, self.weights(), *settings)[0]

    def opened(self, x: Float[Tensor, "n T d"], tap: Tap) -> Float[Tensor, "n T d"]:
        """Return the hidden states by a loop; see :meth:`GatedMixer.opened`."""
        inward, recurrent, bias, recurrent_bias = self.weights()
        hidden, gates = torch.zeros_like(x[:, 0]), []
        for entering in F.linear(x.transpose(0, 1), inward, bias).unbind():
            gates.append(_gates(entering, hidden, recurrent, recurrent_bias))
            hidden = _next(*gates[-1], hidden)
        entered, candidate = (torch.stack(values, dim=1) for values in zip(*gates, strict=True))
        entered = tap("input_gate", entered)
        return tap("state", scanned(1 - entered, entered * candidate))

    def start(self, x: Float[Tensor, "n d"]) -> State:
        """Return a hidden state of zeros."""
        return {"hidden": torch.zeros_like(x)}

    def step(self, x: Float[Tensor, "n d"], state: State) -> tuple[Float[Tensor, "n d"], State]:
        """Return the hidden state at one position; see :meth:`Mixer.step`."""
        inward, recurrent, bias, recurrent_bias = self.weights()
        gates = _gates(F.linear(x, inward, bias), state["hidden"], recurrent, recurrent_bias)
        hidden = _next(*gates, state["hidden"])
        return hidden, {"hidden": hidden}

    @classmethod
    def points(cls, spec: Any) -> tuple[Point, ...]:
        """Return the input gate and the hidden state."""
        shape = "batch time width"
        return (
            Point(
                "input_gate",
                "share of the candidate in the new state, 1 - z; an edit stays in the state, but "
                "later gates and candidates do not feel it",
                shape,
            ),
            Point(
                "state",
                "hidden state, h, as it is read; an edit is read, but not carried on to later "
                "positions",
                shape,
            ),
        )


def _gates(
    entering: Float[Tensor, "n 3d"],
    hidden: Float[Tensor, "n d"],
    recurrent: Float[Tensor, "3d d"],
    recurrent_bias: Float[Tensor, " 3d"],
) -> tuple[Tensor, Tensor]:
    """Return 1 - z and g, of what the input adds to the gates and the hidden state before."""
    new = entering.chunk(3, dim=1)
    old = F.linear(hidden, recurrent, recurrent_bias).chunk(3, dim=1)
    reset = (new[0] + old[0]).sigmoid()
    return (-new[1] - old[1]).sigmoid(), torch.addcmul(new[2], reset, old[2]).tanh()


def _next(entered: Tensor, candidate: Tensor, hidden: Tensor) -> Tensor:
    return torch.lerp(hidden, candidate, entered)
