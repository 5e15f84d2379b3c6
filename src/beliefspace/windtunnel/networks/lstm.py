"""An LSTM layer as a mixer of positions; its settings are told at ``models/lstm.py``.

    i_t = σ(W_i x_t + U_i h_{t-1} + b_i)        f_t = σ(W_f x_t + U_f h_{t-1} + b_f)
    o_t = σ(W_o x_t + U_o h_{t-1} + b_o)        g_t = tanh(W_g x_t + U_g h_{t-1} + b_g)
    c_t = f_t · c_{t-1} + i_t · g_t             h_t = o_t · tanh(c_t)

from h_0 = c_0 = 0 (Hochreiter and Schmidhuber 1997; forget gate of Gers et al. 2000); no peepholes.

Symbols:
    x_t            input, normalised                ``[n, d]``
    h_t            hidden state, the output         ``[n, d]``
    c_t            cells                            ``[n, d]``
    i, f, o, g     input, forget and output gate, candidate    ``[n, d]``
    W, U, b        per gate: map of the input, map of the hidden state, bias
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from beliefspace.core.taps import Tap
from beliefspace.core.trace import Point
from beliefspace.windtunnel.models.recurrent import GatedSpec
from beliefspace.windtunnel.networks.base import Initializer
from beliefspace.windtunnel.networks.recurrent import GatedMixer, scanned
from beliefspace.windtunnel.networks.stack import State

Gates: TypeAlias = "tuple[Tensor, Tensor, Tensor, Tensor]"


class LSTMMixer(GatedMixer):
    """h of the module docstring, at every position.

    An edit of a gate acts through the cells, and one of the cells on what is read from them; the
    gates are those of the run without edits. An edit that later gates feel as well is made between
    two calls of :meth:`step`.
    """

    GATES = ("input_gate", "forget_gate", "candidate", "output_gate")  # the kernel's order
    INSIDE = ("input_gate", "output_gate", "state")

    def __init__(self, spec: GatedSpec, make: Initializer, gain: float) -> None:
        super().__init__(spec, make, gain)
        nn.init.ones_(self._map("forget_gate").bias)

    def kernel(
        self, x: Float[Tensor, "n T d"], zeros: Float[Tensor, "1 n d"]
    ) -> Float[Tensor, "n T d"]:
        """Return the hidden states by torch's kernel; see :meth:`GatedMixer.kernel`."""
        settings = (True, 1, 0.0, self.training, False, True)
        return torch.lstm(x, (zeros, zeros), self.weights(), *settings)[0]

    def opened(self, x: Float[Tensor, "n T d"], tap: Tap) -> Float[Tensor, "n T d"]:
        """Return the hidden states by a loop; see :meth:`GatedMixer.opened`."""
        inward, recurrent, bias, _ = self.weights()
        state, gates = self.start(x[:, 0]), []
        for entering in F.linear(x.transpose(0, 1), inward, bias).unbind():
            gates.append(_gates(entering, state["hidden"], recurrent))
            state = _next(*gates[-1], state)
        entered, kept, candidate, read = (
            torch.stack(values, dim=1) for values in zip(*gates, strict=True)
        )
        entered, read = tap("input_gate", entered), tap("output_gate", read)
        return read * tap("state", scanned(kept, entered * candidate)).tanh()

    def start(self, x: Float[Tensor, "n d"]) -> State:
        """Return hidden state and cells of zeros."""
        return {"hidden": torch.zeros_like(x), "cells": torch.zeros_like(x)}

    def step(self, x: Float[Tensor, "n d"], state: State) -> tuple[Float[Tensor, "n d"], State]:
        """Return the hidden state at one position; see :meth:`Mixer.step`."""
        inward, recurrent, bias, _ = self.weights()
        gates = _gates(F.linear(x, inward, bias), state["hidden"], recurrent)
        state = _next(*gates, state)
        return state["hidden"], state

    @classmethod
    def points(cls, spec: Any) -> tuple[Point, ...]:
        """Return the gates with a name in the vocabulary, and the cells."""
        shape = "batch time width"
        return (
            Point(
                "input_gate",
                "share of the candidate that enters the cells, i; an edit stays in the cells, but "
                "later gates and candidates do not feel it",
                shape,
            ),
            Point(
                "output_gate",
                "share of the cells that is read, o; an edit is not carried on to later positions",
                shape,
            ),
            Point(
                "state",
                "cells, c, as they are read; an edit is read, but not carried on to later "
                "positions",
                shape,
            ),
        )


def _gates(
    entering: Float[Tensor, "n 4d"], hidden: Float[Tensor, "n d"], recurrent: Float[Tensor, "4d d"]
) -> Gates:
    """Return i, f, g and o, of what the input adds to them and the hidden state before."""
    i, f, g, o = torch.addmm(entering, hidden, recurrent.T).chunk(4, dim=1)
    return i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()


def _next(i: Tensor, f: Tensor, g: Tensor, o: Tensor, state: State) -> State:
    cells = torch.addcmul(i * g, f, state["cells"])
    return {"hidden": o * cells.tanh(), "cells": cells}
