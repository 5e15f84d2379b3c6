"""Feed-forward blocks alone: what a network reaches that does not mix positions, or mixes once.

Symbols:
    d    width of the residual stream                     ``width``
    L    blocks                                           ``depth``
    h    hidden width of a block; 0: one map a block      ``hidden_width``
    T    positions that the network sees                  ``positions(task)``
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from beliefspace.core.checks import check_choice, check_finite, check_whole
from beliefspace.core.registry import register
from beliefspace.windtunnel.models.base import (
    Sized,
    head_parameters,
    input_parameters,
    output_count,
)
from beliefspace.windtunnel.models.side import Side, check_side, side_parameters
from beliefspace.windtunnel.tasks.base import RealInputs, Task, TokenInputs

if TYPE_CHECKING:
    from beliefspace.core.streams import Stream
    from beliefspace.windtunnel.networks.mlp import MLPNetwork

View = Literal["position", "prefix", "pooled"]


@register("models", "mlp")
@dataclass(frozen=True)
class MLP(Sized):
    """Residual feed-forward blocks, layer norm before each, over a fixed view of the inputs so far.

    Every view has the current input and a learned vector for its position. The past enters before
    the first block or not at all; no block mixes positions.

    Args:
        width: width of the residual stream.
        depth: number of blocks.
        feed_forward: hidden width, 4 x width by default; 0 for blocks of one map, x + W gelu(norm
            x).
        view: "position", nothing else: the past is out of sight; "prefix", all inputs so far,
            flattened and padded with zeros to the task's length, through one linear map; "pooled",
            the mean of the embeddings so far, through one linear map.
        side: where a task's header goes: "prefix", read position by position like the rest (a
            "position" view then never sees it); or "inject", one linear map of all of it, added at
            every later position.
        logit_scale: the read-out is multiplied by this and starts as many times smaller.
        match: None, or the name of a model whose number of parameters the width is chosen to meet.

    Raises:
        InvalidInput: a size, a view or a side that does not exist, or a width beside ``match``.
    """

    width: int = 64
    depth: int = 4
    feed_forward: int | None = None
    view: View = "pooled"
    side: Side = "prefix"
    logit_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("width", self.width, 1, most=100_000)
        check_whole("depth", self.depth, 1, most=100_000)
        if self.feed_forward is not None:
            check_whole("feed_forward", self.feed_forward, 0, most=100_000)
        check_choice("view", self.view, get_args(View))
        check_choice("side", self.side, get_args(Side))
        check_finite("logit_scale", self.logit_scale, above=0)

    @classmethod
    def published(cls) -> MLP:
        """Return the smaller model reported with 2512.22471: 18 blocks of width 384.

        Reported are 18 to 20 layers, 384 to 400 wide, and a parameter count within 1 % of the
        transformer's. With one map a layer the count comes out so; what the network saw is not
        reported, and the view of the current position alone is the one its later control had.
        """
        return cls(width=384, depth=18, feed_forward=0, view="position")

    @classmethod
    def tiny(cls) -> tuple[MLP, ...]:
        """Return one small model of each view, and one of single maps."""
        views = tuple(cls(width=8, depth=2, view=view) for view in get_args(View))
        return (*views, cls(width=8, depth=2, feed_forward=0))

    @property
    def hidden_width(self) -> int:
        """Width between the maps of a block, resolved; 0 where it has one map."""
        return 4 * self.width if self.feed_forward is None else self.feed_forward

    def positions(self, task: Task) -> int:
        """Return how many positions have a learned vector: all, or those after what is injected."""
        return task.length - (task.prefix if self.side == "inject" else 0)

    def build(self, task: Task, stream: Stream) -> MLPNetwork:
        """Return an untrained network; see :meth:`ModelSpec.build`.

        Raises:
            InvalidInput: injection of a header that the task has not, or that is no vectors; or
                ``match`` is not resolved.
        """
        self.check_width_is_known()
        check_side(self.side, task)
        from beliefspace.windtunnel.networks.mlp import MLPNetwork

        return MLPNetwork(self, task, stream)

    def parameters(self, task: Task) -> int:
        """Return the number of parameters."""
        self.check_width_is_known()
        check_side(self.side, task)
        past = {
            "position": 0,
            "prefix": self.positions(task) * input_size(task) * self.width,
            "pooled": self.width**2,
        }
        return (
            input_parameters(task, self.width, biases=False)
            + self.positions(task) * self.width
            + past[self.view]
            + side_parameters(self.side, task, self.width)
            + self.depth * (self.width + self._block_products())
            + self.width
            + head_parameters(task, self.width, "untied", biases=False)
        )

    def operations(self, task: Task) -> float:
        """Return the operations of training on one sequence; see :meth:`ModelSpec.operations`.

        Every position is counted, though blocks are computed at scored positions only.
        """
        self.check_width_is_known()
        past = self.width**2 if self.view == "pooled" else 0
        if self.view == "prefix" and isinstance(task.inputs, RealInputs):
            past = task.inputs.features * self.width  # of tokens it is a look-up
        products = past + self.depth * self._block_products() + self.width * output_count(task)
        return 6.0 * self.positions(task) * products

    def _block_products(self) -> int:
        return 2 * self.width * self.hidden_width if self.hidden_width else self.width**2


def input_size(task: Task) -> int:
    """Return the numbers that one position adds to a flattened prefix (one-hot for tokens)."""
    inputs = task.inputs
    return inputs.vocabulary if isinstance(inputs, TokenInputs) else inputs.features
