"""What residual stacks have in common: settings, counts, and where side information goes in.

Symbols:
    d    width of the residual stream        ``width``
    L    blocks                              ``depth``
    h    hidden width of the feed-forward    ``hidden_width``
    p    header positions of the task        ``task.prefix``
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from beliefspace.core.checks import check_choice, check_finite, check_whole
from beliefspace.windtunnel.models.base import (
    Sized,
    head_parameters,
    input_parameters,
    output_count,
)
from beliefspace.windtunnel.models.side import Side, check_side, positions_seen, side_parameters
from beliefspace.windtunnel.tasks.base import Task

if TYPE_CHECKING:
    from beliefspace.core.streams import Stream
    from beliefspace.windtunnel.networks.stack import Mixer, StackNetwork


@dataclass(frozen=True)
class StackSpec(Sized):
    """A stack of blocks x + mixer(norm x), x + feed-forward(norm x), over RMS norm.

    The feed-forward is swiglu (2002.05202). A mixer sees the past only.

    Args:
        width: width of the residual stream.
        depth: number of blocks.
        feed_forward: hidden width; 0 for none. By default 8/3 x width, rounded up to a multiple of
            8.
        side: where a task's header goes: "prefix", read position by position like the rest; or
            "inject", one linear map of all of it, added to the input of every later position.
        logit_scale: the read-out is multiplied by this and starts as many times smaller.
    """

    width: int = 64
    depth: int = 2
    feed_forward: int | None = None
    side: Side = "prefix"
    logit_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("width", self.width, 1, most=100_000)
        check_whole("depth", self.depth, 1, most=100_000)
        if self.feed_forward is not None:
            check_whole("feed_forward", self.feed_forward, 0, most=100_000)
        check_choice("side", self.side, get_args(Side))
        check_finite("logit_scale", self.logit_scale, above=0)

    @abstractmethod
    def mixer(self, layer: int) -> type[Mixer]:
        """Return the class of the mixer of a layer (imports torch)."""

    @abstractmethod
    def mixer_parameters(self, layer: int) -> int:
        """Return the number of parameters of a layer's mixer."""

    @abstractmethod
    def mixer_operations(self, layer: int, length: int) -> float:
        """Return multiplications and additions of a layer's mixer, forward, on one sequence."""

    @property
    def hidden_width(self) -> int:
        """Width between the feed-forward maps, resolved; 0 for none."""
        if self.feed_forward is not None:
            return self.feed_forward
        return -(-8 * self.width // 24) * 8

    def build(self, task: Task, stream: Stream) -> StackNetwork:
        """Return an untrained network; see :meth:`ModelSpec.build`.

        Raises:
            InvalidInput: injection of a header that the task has not, or that is no vectors; or
                ``match`` is not resolved.
        """
        self.check_width_is_known()
        check_side(self.side, task)
        from beliefspace.windtunnel.networks.stack import StackNetwork

        return StackNetwork(self, task, stream)

    def parameters(self, task: Task) -> int:
        """Return the number of parameters."""
        self.check_width_is_known()
        check_side(self.side, task)
        feed_forward = self.width + 3 * self.width * self.hidden_width if self.hidden_width else 0
        layers = sum(
            self.width + self.mixer_parameters(layer) + feed_forward for layer in range(self.depth)
        )
        return (
            input_parameters(task, self.width, biases=False)
            + side_parameters(self.side, task, self.width)
            + layers
            + self.width
            + head_parameters(task, self.width, "untied", biases=False)
        )

    def operations(self, task: Task) -> float:
        """Return the operations of training on one sequence; see :meth:`ModelSpec.operations`."""
        self.check_width_is_known()
        length = positions_seen(self.side, task)
        feed_forward = 2.0 * 3 * self.width * self.hidden_width * length
        mixers = sum(self.mixer_operations(layer, length) for layer in range(self.depth))
        ends = 2.0 * length * self.width * output_count(task)
        return 3.0 * (mixers + self.depth * feed_forward + ends)
