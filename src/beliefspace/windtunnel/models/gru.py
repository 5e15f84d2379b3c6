"""The gated recurrent unit (1406.1078)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beliefspace.core.registry import register
from beliefspace.windtunnel.models.recurrent import GatedSpec

if TYPE_CHECKING:
    from beliefspace.windtunnel.networks.stack import Mixer


@register("models", "gru")
@dataclass(frozen=True)
class GRU(GatedSpec):
    """GRU layers, each between feed-forwards in a residual stack, or plainly stacked.

    Its arithmetic, and the points it shows, are told at ``networks/gru.py``.

    Args:
        width: width of the residual stream and of the hidden state.
        depth: number of GRU layers.
        feed_forward: hidden width of the feed-forwards (swiglu); 0 for none. By default
            8/3 x width, rounded up to a multiple of 8.
        side: where a task's header goes: "prefix", read position by position like the rest; or
            "inject", one linear map of all of it, added to the input of every later position.
        logit_scale: the read-out is multiplied by this and starts as many times smaller.
        feed_forward_before: whether one more feed-forward comes before the first GRU layer.
        style: "residual", x + GRU(norm x) and x + feed-forward(norm x); or "stacked", GRU on GRU
            with one norm at the end, as 2512.22471 stacks its LSTM.
        dropout: share of the entries between two stacked layers that training zeroes; by default
            0.1, as for the published LSTM. The residual stack has none.

    Raises:
        InvalidInput: the choices do not go together.
    """

    @property
    def gates(self) -> int:
        """Reset and update gate, and the candidate."""
        return 3

    def mixer(self, layer: int) -> type[Mixer]:
        """Return the mixer's class; see :meth:`StackSpec.mixer`."""
        from beliefspace.windtunnel.networks.gru import GRUMixer

        return GRUMixer

    def mixer_parameters(self, layer: int) -> int:
        """Return the number of parameters of a layer; the candidate has a bias of either map."""
        return self.gates * self.width * (2 * self.width + 1) + self.width
