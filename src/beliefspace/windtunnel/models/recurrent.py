"""What the nonlinear recurrences have in common: a feed-forward in front, and two styles.

"residual" is the stack of every other mixer here, with one more block x + feed-forward(norm x) in
front, so that each recurrent layer has a feed-forward on either side. "stacked" is the plain stack
of the literature, h_l = layer_l(dropout(h_{l-1})), with one norm at the end: the LSTM of
2512.22471 as its authors released it.

Symbols:
    d    width          ``width``
    L    layers         ``depth``
    h    hidden width of a feed-forward    ``hidden_width``
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from beliefspace.core.checks import check_choice, check_finite
from beliefspace.core.errors import InvalidInput
from beliefspace.windtunnel.models.side import check_side, positions_seen
from beliefspace.windtunnel.models.stack import StackSpec
from beliefspace.windtunnel.tasks.base import Task

if TYPE_CHECKING:
    from beliefspace.core.streams import Stream
    from beliefspace.windtunnel.networks.recurrent import RecurrentNetwork

Style = Literal["residual", "stacked"]
PUBLISHED_DROPOUT = 0.1


@dataclass(frozen=True)
class RecurrentSpec(StackSpec):
    """A residual stack of recurrent layers with a feed-forward in front.

    Args:
        feed_forward_before: whether one more feed-forward comes before the first recurrent layer.
    """

    feed_forward_before: bool = True

    @property
    def plain(self) -> bool:
        """Whether the layers are stacked without norms, residuals and feed-forwards."""
        return False

    @property
    def dropout_rate(self) -> float:
        """Share of the entries between two layers that training zeroes, resolved."""
        return 0.0

    @property
    def opens(self) -> bool:
        """Whether there is a feed-forward in front."""
        return self.feed_forward_before and self.hidden_width > 0

    def build(self, task: Task, stream: Stream) -> RecurrentNetwork:
        """Return an untrained network; see :meth:`StackSpec.build`."""
        self.check_width_is_known()
        check_side(self.side, task)
        from beliefspace.windtunnel.networks.recurrent import RecurrentNetwork

        return RecurrentNetwork(self, task, stream)

    def parameters(self, task: Task) -> int:
        """Return the number of parameters."""
        count = super().parameters(task)
        if self.plain:  # no norm before each layer
            count -= self.depth * self.width
        if self.opens:
            count += self.width + 3 * self.width * self.hidden_width
        return count

    def operations(self, task: Task) -> float:
        """Return the operations of training on one sequence; see :meth:`ModelSpec.operations`."""
        length = positions_seen(self.side, task)
        opening = 2.0 * 3 * self.width * self.hidden_width * length if self.opens else 0.0
        return super().operations(task) + 3.0 * opening


@dataclass(frozen=True)
class GatedSpec(RecurrentSpec):
    """Gated recurrent layers (LSTM, GRU), in a residual stack or plainly stacked.

    Args:
        style: "residual", or "stacked" as published.
        dropout: share of the entries between two stacked layers that training zeroes; by default
            0.1, as published. The residual stack has none.
    """

    style: Style = "residual"
    dropout: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("style", self.style, get_args(Style))
        if self.dropout is not None:
            check_finite("dropout", self.dropout)
            if self.dropout >= 1:
                raise InvalidInput(f"dropout is a share below 1; got {self.dropout!r}")
        if not self.plain and self.dropout:
            raise InvalidInput(
                f'dropout acts between layers of style = "stacked"; got {self.dropout!r} with '
                'style = "residual"'
            )
        if self.plain and self.feed_forward:
            raise InvalidInput(
                f'style = "stacked" has no feed-forward; got a hidden width of {self.feed_forward}'
            )

    @classmethod
    def tiny(cls) -> tuple[GatedSpec, ...]:
        """Return one instance of each style; see :meth:`ModelSpec.tiny`."""
        return cls(width=8, depth=2), cls(width=8, depth=2, style="stacked")

    @property
    def plain(self) -> bool:
        """Whether the layers are stacked without norms, residuals and feed-forwards."""
        return self.style == "stacked"

    @property
    def hidden_width(self) -> int:
        """Width between the feed-forward maps, resolved; 0 for none."""
        return 0 if self.plain else super().hidden_width

    @property
    def dropout_rate(self) -> float:
        """Share of the entries between two layers that training zeroes, resolved."""
        if not self.plain:
            return 0.0
        return PUBLISHED_DROPOUT if self.dropout is None else self.dropout

    @property
    @abstractmethod
    def gates(self) -> int:
        """Maps of the input in a layer, the candidate's counted; as many of the hidden state."""

    def mixer_operations(self, layer: int, length: int) -> float:
        """Return the operations of a layer, forward, on one sequence."""
        return 2.0 * 2 * self.gates * self.width**2 * length
