"""The pre-norm causal transformer of the wind tunnels (2512.22471), with the usual choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from beliefspace.core.checks import check_choice, check_finite, check_whole
from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import register
from beliefspace.windtunnel.models.base import (
    Head,
    ModelSpec,
    check_tied,
    head_parameters,
    input_parameters,
    output_count,
)
from beliefspace.windtunnel.models.side import Side, check_side, positions_seen, side_parameters
from beliefspace.windtunnel.tasks.base import Task

if TYPE_CHECKING:
    from beliefspace.core.streams import Stream
    from beliefspace.windtunnel.networks.transformer import TransformerNetwork

Positions = Literal["learned", "rotary", "alibi", "relative", "none"]
Norm = Literal["layer", "rms"]
Activation = Literal["gelu", "relu", "relu2", "swiglu"]
Biases = Literal["none", "feed_forward", "all"]

_CHOICES = {
    "positions": ("learned", "rotary", "alibi", "relative", "none"),
    "norm": ("layer", "rms"),
    "activation": ("gelu", "relu", "relu2", "swiglu"),
    "head": ("untied", "tied"),
    "biases": ("none", "feed_forward", "all"),
    "side": ("prefix", "inject"),
}


@register("models", "transformer")
@dataclass(frozen=True)
class Transformer(ModelSpec):
    """A decoder-only transformer: ``depth`` blocks of attention and feed-forward, norm before each.

    A task's prefix positions attend among themselves in both directions, and all later positions
    see the whole prefix. ALiBi, the relative bias and its window act among the positions after the
    prefix only: towards a prefix key there is no bias and no limit. Learned and rotary positions
    count the prefix like any others.

    Args:
        width: width of the residual stream.
        depth: number of blocks.
        heads: attention heads; by default as many of width 32 or more as divide the width evenly.
        feed_forward: hidden width; 0 for attention only. By default 4 x width, and for swiglu,
            which has three matrices in place of two, 8/3 x width (2002.05202), rounded up to a
            multiple of 8.
        positions: "learned", a table as long as the task's sequences; "rotary" (2104.09864);
            "alibi" (2108.12409); "relative", a learned bias per layer, head and distance; "none".
        window: with relative positions, how many positions back a query sees, itself counted; None
            for all.
        norm: "layer" or "rms" (1910.07467).
        activation: "gelu", "relu", "relu2" (squared, 2109.08668) or "swiglu" (2002.05202).
        head: "untied", or "tied" to the embedding rows of the outcomes.
        logit_scale: the read-out is multiplied by this and starts as many times smaller, so the
            function at the start is the same and a step of a scale-free optimizer (Adam) moves the
            logits as many times more. Certain answers need large logits: 10 suits the bijection.
        biases: which linear maps (and, with "all", layer norms) have biases.
        qk_norm: RMS-normalise queries and keys per head (2010.04245).
        frozen_attention: leave all that makes queries and keys as initialised; values and all else
            learn.
        side: where a task's header goes: "prefix", seen by all positions as told above; or
            "inject", one linear map of all of it, added to the input of every later position.

    Raises:
        InvalidInput: the choices do not go together.
    """

    # Size.
    width: int = 64
    depth: int = 2
    heads: int | None = None
    feed_forward: int | None = None
    # Order.
    positions: Positions = "learned"
    window: int | None = None
    # Parts.
    norm: Norm = "layer"
    activation: Activation = "gelu"
    head: Head = "untied"
    logit_scale: float = 1.0
    biases: Biases = "none"
    # Attention.
    qk_norm: bool = False
    frozen_attention: bool = False
    # Header.
    side: Side = "prefix"

    def __post_init__(self) -> None:
        _check_sizes(self)
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        if self.width % self.head_count:
            raise InvalidInput(
                f"width must be a multiple of heads; got width {self.width}, heads {self.heads}"
            )
        check_finite("logit_scale", self.logit_scale, above=0)
        if self.window is not None and self.positions != "relative":
            raise InvalidInput(
                'a window needs positions = "relative"; '
                f'got window {self.window} with positions = "{self.positions}"'
            )
        if self.positions == "rotary" and self.head_width % 2:
            raise InvalidInput(
                "rotary positions turn pairs of channels, so the head width must be even; "
                f"got width {self.width} / heads {self.head_count} = {self.head_width}"
            )

    @classmethod
    def tiny(cls) -> tuple[Transformer, ...]:
        """Return one with learned positions, a rotary one, and one with a relative window."""
        return (
            cls(width=8, depth=2),
            cls(width=8, depth=2, heads=2, positions="rotary"),
            cls(width=8, depth=2, heads=2, positions="relative", window=2),
        )

    @classmethod
    def published(cls) -> Transformer:
        """Return the bijection model of 2512.22471 as its authors released it.

        Its parameter counts, 2.674 M in format A and 2.677 M in format B, are those with biases in
        the feed-forward maps only.
        """
        return cls(
            width=192, depth=6, heads=6, feed_forward=768,
            norm="rms", head="tied", biases="feed_forward",
        )  # fmt: skip

    @classmethod
    def preset(cls, width: int, depth: int) -> Transformer:
        """Return the recommended model of a size: every other choice at its default.

        Learned positions, layer norm, GELU, an untied head and no biases are what trained fastest
        to a given error on one core.
        """
        return cls(width=width, depth=depth)

    @property
    def head_count(self) -> int:
        """Attention heads, resolved."""
        if self.heads is not None:
            return self.heads
        most = max(1, self.width // 32)
        fitting = [count for count in range(1, most + 1) if self.width % count == 0]
        # A default never fails: rotary positions take an even head width where there is one.
        even = [count for count in fitting if self.width // count % 2 == 0]
        return max(even or fitting)

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.head_count

    @property
    def hidden_width(self) -> int:
        """Width between the feed-forward maps, resolved; 0 for attention only."""
        if self.feed_forward is not None:
            return self.feed_forward
        if self.activation == "swiglu":
            return -(-8 * self.width // 24) * 8
        return 4 * self.width

    def span(self, task: Task) -> int:
        """Return how many distances have a relative bias of their own; the rest share the last."""
        return positions_seen(self.side, task) if self.window is None else self.window

    def build(self, task: Task, stream: Stream) -> TransformerNetwork:
        """Return an untrained network; see :meth:`ModelSpec.build`."""
        if self.head == "tied":
            check_tied(task)
        check_side(self.side, task)
        from beliefspace.windtunnel.networks.transformer import TransformerNetwork

        return TransformerNetwork(self, task, stream)

    def parameters(self, task: Task) -> int:
        """Return the number of parameters, frozen ones included."""
        check_side(self.side, task)
        width, all_biases = self.width, self.biases == "all"
        norm = width * (2 if all_biases and self.norm == "layer" else 1)
        layer = norm + 4 * width * (width + all_biases)
        if self.qk_norm:
            layer += 2 * self.head_width
        if self.positions == "relative":
            layer += self.head_count * self.span(task)
        if self.hidden_width:
            inward = 2 if self.activation == "swiglu" else 1
            layer += norm + (inward + 1) * width * self.hidden_width
            if self.biases != "none":
                layer += inward * self.hidden_width + width
        return (
            input_parameters(task, width, biases=all_biases)
            + side_parameters(self.side, task, width)
            + (positions_seen(self.side, task) * width if self.positions == "learned" else 0)
            + self.depth * layer
            + norm
            + head_parameters(task, width, self.head, biases=all_biases)
        )

    def operations(self, task: Task) -> float:
        """Return the operations of training on one sequence; see :meth:`ModelSpec.operations`.

        Every position is counted in every layer, though the last layer is computed at scored
        positions only.
        """
        width, matrices = self.width, 3 if self.activation == "swiglu" else 2
        length = positions_seen(self.side, task)
        layer = 4 * width**2 + matrices * width * self.hidden_width + 2 * length * width
        return 6.0 * length * (self.depth * layer + width * output_count(task))


def _check_sizes(spec: Transformer) -> None:
    least = {"width": 1, "depth": 1, "heads": 1, "feed_forward": 0, "window": 1}
    for name, bound in least.items():
        value = getattr(spec, name)
        if value is not None or name in ("width", "depth"):
            check_whole(name, value, bound, most=100_000)
