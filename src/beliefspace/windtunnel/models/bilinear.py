"""A recurrence of products, the form of a Bayes filter's own update: a positive control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beliefspace.core.checks import check_whole
from beliefspace.core.registry import register
from beliefspace.windtunnel.models.recurrent import RecurrentSpec

if TYPE_CHECKING:
    from beliefspace.windtunnel.networks.stack import Mixer


@register("models", "bilinear")
@dataclass(frozen=True)
class Bilinear(RecurrentSpec):
    """Bilinear recurrent layers, each between feed-forwards in a residual stack.

    The filter of a hidden Markov model multiplies what it believed by how likely the new
    observation is, and normalises. So does this layer: products of linear functions of input and
    state, then a norm. It shows what a network gains whose mechanism is shaped like the answer. Its
    arithmetic, and the points it shows, are told at ``networks/bilinear.py``.

    Args:
        width: width of the residual stream and of the state.
        depth: number of recurrent layers.
        feed_forward: hidden width of the feed-forwards (swiglu); 0 for none. By default
            8/3 x width, rounded up to a multiple of 8.
        side: where a task's header goes: "prefix", read position by position like the rest; or
            "inject", one linear map of all of it, added to the input of every later position.
        logit_scale: the read-out is multiplied by this and starts as many times smaller.
        feed_forward_before: whether one more feed-forward comes before the first recurrent layer.
        products: number of products per position and layer.

    Raises:
        InvalidInput: a setting out of its range.
    """

    products: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("products", self.products, 1, most=100_000)

    def mixer(self, layer: int) -> type[Mixer]:
        """Return the mixer's class; see :meth:`StackSpec.mixer`."""
        from beliefspace.windtunnel.networks.bilinear import BilinearMixer

        return BilinearMixer

    def mixer_parameters(self, layer: int) -> int:
        """Return the number of parameters of a layer: five maps, two biases, and what is kept."""
        return 5 * self.width * self.products + 2 * self.products + self.width

    def mixer_operations(self, layer: int, length: int) -> float:
        """Return the operations of a layer, forward, on one sequence."""
        return 2.0 * 5 * self.width * self.products * length
