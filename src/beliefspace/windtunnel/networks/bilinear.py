"""A bilinear recurrence as a mixer of positions; its settings are told at ``models/bilinear.py``.

    a_t = W_a x_t + U_a h_{t-1} + b_a           b_t = W_b x_t + U_b h_{t-1} + b_b
    h_t = norm(k · h_{t-1} + V (a_t · b_t))     norm v = v / sqrt(mean(v²) + ε)

from h_0 = 0; products are entry by entry. (Our own construction, after the forward filter of a
hidden Markov model: α_t ∝ e(o_t) · (α_{t-1} T), a product of what input and state say, normalised.)

Symbols:
    x_t        input, normalised        ``[n, d]``
    h_t        state, the output        ``[n, d]``
    a, b       factors                  ``[n, p]``
    k          share of the state that is kept       ``[d]``
    W, U       per factor: map of the input, map of the state
    V          map of the products
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from beliefspace.core.taps import Tap
from beliefspace.core.trace import Point
from beliefspace.windtunnel.models.bilinear import Bilinear
from beliefspace.windtunnel.networks.base import Initializer
from beliefspace.windtunnel.networks.stack import Mixer, State


class BilinearMixer(Mixer):
    """h of the module docstring, at every position.

    An edit of the state acts on what is read from it. One that later states feel as well is made
    between two calls of :meth:`step`.
    """

    def __init__(self, spec: Bilinear, make: Initializer, gain: float) -> None:
        super().__init__(spec, make, gain)
        width, products = spec.width, spec.products
        # A factor is a sum of two maps; each keeps half the variance.
        self.left = make.linear(width, products, bias=True, gain=0.5**0.5)
        self.right = make.linear(width, products, bias=True, gain=0.5**0.5)
        self.left_recurrent = make.linear(width, products, gain=0.5**0.5)
        self.right_recurrent = make.linear(width, products, gain=0.5**0.5)
        self.output = make.linear(products, width)
        self.kept = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Float[Tensor, "n T d"], tap: Tap) -> Float[Tensor, "n T d"]:
        """Return the states."""
        recurrent, output = self._recurrent(), self.output.weight.T
        state = torch.zeros_like(x[:, 0])
        states = []
        # Unbound first: indexing in the loop would make the backward quadratic in the positions.
        for entering in self._entering(x.transpose(0, 1)).unbind():
            state = self._next(entering, state, recurrent, output)
            states.append(state)
        return tap("state", torch.stack(states, dim=1))

    def start(self, x: Float[Tensor, "n d"]) -> State:
        """Return a state of zeros."""
        return {"state": torch.zeros_like(x)}

    def step(self, x: Float[Tensor, "n d"], state: State) -> tuple[Float[Tensor, "n d"], State]:
        """Return the state at one position; see :meth:`Mixer.step`."""
        new = self._next(self._entering(x), state["state"], self._recurrent(), self.output.weight.T)
        return new, {"state": new}

    @classmethod
    def points(cls, spec: Any) -> tuple[Point, ...]:
        """Return the state."""
        meaning = (
            "state, h, of root mean square 1, as it is read; an edit is read, but not carried on "
            "to later positions"
        )
        return (Point("state", meaning, "batch time width"),)

    def _entering(self, x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows 2p"]:
        """Return what the input adds to both factors."""
        weight = torch.cat([self.left.weight, self.right.weight])
        return F.linear(x, weight, torch.cat([self.left.bias, self.right.bias]))

    def _recurrent(self) -> Float[Tensor, "d 2p"]:
        return torch.cat([self.left_recurrent.weight, self.right_recurrent.weight]).T

    def _next(
        self,
        entering: Float[Tensor, "n 2p"],
        state: Float[Tensor, "n d"],
        recurrent: Float[Tensor, "d 2p"],
        output: Float[Tensor, "p d"],
    ) -> Float[Tensor, "n d"]:
        left, right = torch.addmm(entering, state, recurrent).chunk(2, dim=1)
        return F.rms_norm(
            torch.addmm(self.kept * state, left * right, output), state.shape[1:], eps=1e-5
        )
