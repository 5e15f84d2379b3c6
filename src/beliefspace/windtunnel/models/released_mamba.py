"""The simplified state space model in the public code of 2512.22471; not the published Mamba.

Symbols:
    d    width of the residual stream             ``width``
    D    channels of the scan, expand x d         ``channels``
    N    states of a channel                      ``state_size``
    K    positions that the convolution sees      ``convolution``
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from beliefspace.core.checks import check_finite, check_whole
from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import register
from beliefspace.windtunnel.models.side import check_side
from beliefspace.windtunnel.models.stack import StackSpec
from beliefspace.windtunnel.tasks.base import Task

if TYPE_CHECKING:
    from beliefspace.core.streams import Stream
    from beliefspace.windtunnel.networks.released_mamba import (
        ReleasedMambaMixer,
        ReleasedMambaNetwork,
    )


@register("models", "mamba-released")
@dataclass(frozen=True)
class ReleasedMamba(StackSpec):
    """A stack of the simplified state spaces that 2512.22471 was released with.

    What is called Mamba in that code differs from Mamba-1 (2312.00752, here ``mamba``): one vector
    of N rates is shared by all channels; the step sizes of all channels come from one number per
    position; a layer norm stands inside the block and none before it; step sizes, decays and states
    are clamped, and a state that is not a number becomes 0. There is no feed-forward.

    Those are its published facts, with states clamped to 100 either way. The rest is chosen here:
    the ranges of the other clamps, the layer norm after the scan and before the gate, the residual
    connection around a block, initial values as in ``mamba``, and the RMS norm before the read-out.

    Args:
        width: width of the residual stream.
        depth: number of blocks.
        feed_forward: 0; there is none.
        side: where a task's header goes: "prefix", read position by position like the rest; or
            "inject", one linear map of all of it, added to the input of every later position.
        logit_scale: the read-out is multiplied by this and starts as many times smaller.
        state_size: states of a channel, at least 1.
        expand: channels of the scan per channel of the residual stream, at least 1.
        convolution: positions that the convolution before the scan sees, itself counted.
        step_range: least and greatest step size, positive.
        decay_range: least and greatest factor by which a state shrinks in a step, 0 to 1.
        state_limit: greatest size of a state.

    Raises:
        InvalidInput: a setting is out of range.
    """

    feed_forward: int | None = 0
    state_size: int = 16
    expand: int = 2
    convolution: int = 4
    step_range: tuple[float, float] = (1e-4, 1.0)
    decay_range: tuple[float, float] = (1e-4, 0.9999)
    state_limit: float = 100.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_width:
            raise InvalidInput(
                "mamba-released has no feed-forward, so feed_forward is 0; "
                f"got {self.feed_forward}; the model with one is mamba"
            )
        check_whole("state_size", self.state_size, 1, most=100_000)
        check_whole("expand", self.expand, 1, most=1_000)
        check_whole("convolution", self.convolution, 1, most=1_000)
        _check_range("step_range", self.step_range, "positive", above=0.0, most=math.inf)
        _check_range("decay_range", self.decay_range, "from 0 to 1", above=None, most=1.0)
        check_finite("state_limit", self.state_limit, above=0)

    @classmethod
    def published(cls) -> ReleasedMamba:
        """Return the model of the bijection, 1.44 M parameters."""
        return cls(width=192, depth=6)

    @property
    def channels(self) -> int:
        """Channels of the scan."""
        return self.expand * self.width

    def mixer(self, layer: int) -> type[ReleasedMambaMixer]:
        """Return the class of the mixer."""
        from beliefspace.windtunnel.networks.released_mamba import ReleasedMambaMixer

        return ReleasedMambaMixer

    def build(self, task: Task, stream: Stream) -> ReleasedMambaNetwork:
        """Return an untrained network; see :meth:`ModelSpec.build`.

        Raises:
            InvalidInput: injection of a header that the task has not, or that is no vectors.
        """
        self.check_width_is_known()
        check_side(self.side, task)
        from beliefspace.windtunnel.networks.released_mamba import ReleasedMambaNetwork

        return ReleasedMambaNetwork(self, task, stream)

    def parameters(self, task: Task) -> int:
        """Return the number of parameters: those of a stack, less the norms before the blocks."""
        return super().parameters(task) - self.depth * self.width

    def mixer_parameters(self, layer: int) -> int:
        """Return the number of parameters of a mixer."""
        ends = 3 * self.width
        convolution = self.convolution + 1
        selection = 1 + 2 + 2 * self.state_size
        norm_and_skip = 3
        return self.channels * (ends + convolution + selection + norm_and_skip) + self.state_size

    def mixer_operations(self, layer: int, length: int) -> float:
        """Return multiplications and additions, forward: linear maps, and three per state."""
        maps = 3 * self.width + 2 + 2 * self.state_size
        return 2.0 * length * self.channels * (maps + 3 * self.state_size)


def _check_range(
    name: str, value: tuple[float, float], what: str, *, above: float | None, most: float
) -> None:
    if len(value) != 2:
        raise InvalidInput(f"{name} is two numbers, the least and the greatest; got {value!r}")
    for number in value:
        check_finite(f"each end of {name}", number, above=above)
    if not value[0] < value[1] <= most:
        raise InvalidInput(f"{name} is two numbers {what}, the lesser first; got {value!r}")
