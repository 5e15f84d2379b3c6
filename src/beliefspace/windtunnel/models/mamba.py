"""Mamba-1, the selective state space model of 2312.00752, as a mixer of the residual stack.

Symbols:
    d    width of the residual stream             ``width``
    D    channels of the scan, expand x d         ``channels``
    N    states of a channel                      ``state_size``
    r    rank of the map to the step sizes        ``step_rank``
    K    positions that the convolution sees      ``convolution``
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beliefspace.core.checks import check_whole
from beliefspace.core.registry import register
from beliefspace.windtunnel.models.stack import StackSpec

if TYPE_CHECKING:
    from beliefspace.windtunnel.networks.mamba import MambaMixer


@register("models", "mamba")
@dataclass(frozen=True)
class Mamba(StackSpec):
    """A stack of selective state spaces, Mamba-1: what is kept and forgotten depends on the input.

    The published model has no feed-forward and twice as many blocks: ``feed_forward = 0``.

    Args:
        width: width of the residual stream.
        depth: number of blocks.
        feed_forward: hidden width; 0 for none. By default 8/3 x width, rounded up to a multiple of
            8.
        side: where a task's header goes: "prefix", read position by position like the rest; or
            "inject", one linear map of all of it, added to the input of every later position.
        logit_scale: the read-out is multiplied by this and starts as many times smaller.
        state_size: states of a channel, at least 1.
        expand: channels of the scan per channel of the residual stream, at least 1.
        convolution: positions that the convolution before the scan sees, itself counted; 1 for
            the current one only.

    Raises:
        InvalidInput: a setting is out of range.
    """

    state_size: int = 16
    expand: int = 2
    convolution: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("state_size", self.state_size, 1, most=100_000)
        check_whole("expand", self.expand, 1, most=1_000)
        check_whole("convolution", self.convolution, 1, most=1_000)

    @property
    def channels(self) -> int:
        """Channels of the scan."""
        return self.expand * self.width

    @property
    def step_rank(self) -> int:
        """Rank of the map from channels to step sizes: a sixteenth of the width, rounded up."""
        return -(-self.width // 16)

    def mixer(self, layer: int) -> type[MambaMixer]:
        """Return the class of the mixer."""
        from beliefspace.windtunnel.networks.mamba import MambaMixer

        return MambaMixer

    def mixer_parameters(self, layer: int) -> int:
        """Return the number of parameters of a mixer."""
        ends = 3 * self.width
        convolution = self.convolution + 1
        selection = 2 * self.step_rank + 1 + 2 * self.state_size
        return self.channels * (ends + convolution + selection + self.state_size + 1)

    def mixer_operations(self, layer: int, length: int) -> float:
        """Return multiplications and additions, forward: linear maps, and three per state."""
        maps = 3 * self.width + 2 * self.step_rank + 2 * self.state_size
        return 2.0 * length * self.channels * (maps + 3 * self.state_size)
