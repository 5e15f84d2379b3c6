"""The LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beliefspace.core.registry import register
from beliefspace.windtunnel.models.recurrent import GatedSpec

if TYPE_CHECKING:
    from beliefspace.windtunnel.networks.stack import Mixer


@register("models", "lstm")
@dataclass(frozen=True)
class LSTM(GatedSpec):
    """LSTM layers, each between feed-forwards in a residual stack, or plainly stacked.

    Its arithmetic, and the points it shows, are told at ``networks/lstm.py``. The forget gates
    start at a bias of 1, so that a cell remembers before it has learned to (1503.04069).

    Args:
        width: width of the residual stream, of the hidden state and of the cells.
        depth: number of LSTM layers.
        feed_forward: hidden width of the feed-forwards (swiglu); 0 for none. By default
            8/3 x width, rounded up to a multiple of 8.
        side: where a task's header goes: "prefix", read position by position like the rest; or
            "inject", one linear map of all of it, added to the input of every later position.
        logit_scale: the read-out is multiplied by this and starts as many times smaller.
        feed_forward_before: whether one more feed-forward comes before the first LSTM layer.
        style: "residual", x + LSTM(norm x) and x + feed-forward(norm x); or "stacked", LSTM on
            LSTM with one norm at the end, as published (2512.22471).
        dropout: share of the entries between two stacked layers that training zeroes; by default
            0.1, as published. The residual stack has none.

    Raises:
        InvalidInput: the choices do not go together.
    """

    @classmethod
    def published(cls) -> LSTM:
        """Return the bijection model of 2512.22471: six layers of 192, 1.79 M parameters.

        The one for the hidden Markov models has nine of 256. Their layers have two bias vectors
        each, of which only the sum matters; here there is one.
        """
        return cls(width=192, depth=6, style="stacked")

    @property
    def gates(self) -> int:
        """Input, forget and output gate, and the candidate."""
        return 4

    def mixer(self, layer: int) -> type[Mixer]:
        """Return the mixer's class; see :meth:`StackSpec.mixer`."""
        from beliefspace.windtunnel.networks.lstm import LSTMMixer

        return LSTMMixer

    def mixer_parameters(self, layer: int) -> int:
        """Return the number of parameters of a layer: two maps and one bias per gate."""
        return self.gates * self.width * (2 * self.width + 1)
