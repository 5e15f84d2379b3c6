"""A hybrid: layers of a state space and of attention in turn, as in 2403.19887.

Symbols:
    d     width of the residual stream      ``width``
    a     attention heads                   ``attention_head_count``
    T     positions that the mixers see
Those of the state-space layers are told at ``models/mamba2.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from beliefspace.core.checks import check_choice, check_whole
from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import register
from beliefspace.windtunnel.models.linear_attention import default_heads
from beliefspace.windtunnel.models.mamba2 import Mamba2

if TYPE_CHECKING:
    from beliefspace.windtunnel.networks.stack import Mixer

Kind = Literal["mamba2", "attention"]


@register("models", "hybrid")
@dataclass(frozen=True)
class Hybrid(Mamba2):
    """A stack of Mamba-2 with attention in place of some of its mixers.

    Attention here has no positions of its own: one such layer sees its inputs as a bag. Order comes
    in through the state space below it, and through causality.

    Args:
        width: width of the residual stream.
        depth: number of blocks, at least as many as the pattern names.
        feed_forward: hidden width; 0 for none. By default 8/3 x width, rounded up to a multiple of
            8, where a stack of Mamba-2 alone has none: attention blocks have one.
        side: where a task's header goes: "prefix", read position by position like the rest; or
            "inject", one linear map of all of it, added to the input of every later position.
        logit_scale: the read-out is multiplied by this and starts as many times smaller.
        state_size: numbers that each inner channel of a state space remembers.
        heads: groups of inner channels of a state space with a decay of their own; see
            :class:`Mamba2`.
        expand: inner width of a state space over width.
        convolution: positions that its short convolution spans.
        chunk: positions that it handles in one product; changes the time taken, not the outputs.
        pattern: the kinds of the layers from the first on, "mamba2" or "attention"; it repeats.
        attention_heads: heads of the attention layers; by default as many of width 32 or more as
            divide the width evenly.

    Raises:
        InvalidInput: a setting out of range, heads that do not divide the width, or a pattern that
            is empty, too long or of other kinds.
    """

    feed_forward: int | None = None
    pattern: tuple[Kind, ...] = ("mamba2", "attention")
    attention_heads: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "pattern", tuple(self.pattern))
        for kind in self.pattern:
            check_choice("a layer of the pattern", kind, get_args(Kind))
        if not 1 <= len(self.pattern) <= self.depth:
            raise InvalidInput(
                f"pattern names the kinds of 1 to {self.depth} layers (depth); "
                f"got {len(self.pattern)} kinds"
            )
        if self.attention_heads is not None:
            check_whole("attention_heads", self.attention_heads, 1, most=100_000)
            if self.width % self.attention_heads:
                raise InvalidInput(
                    f"width must be a multiple of attention_heads; got width {self.width}, "
                    f"attention_heads {self.attention_heads}"
                )

    @classmethod
    def tiny(cls) -> tuple[Hybrid, ...]:
        """Return one of each order, with sequences cut; one pattern does not come out even."""
        other: tuple[Kind, ...] = ("attention", "mamba2")
        return (
            cls(width=8, chunk=4),
            cls(width=8, depth=3, feed_forward=0, chunk=4, pattern=other, attention_heads=2),
        )

    @property
    def attention_head_count(self) -> int:
        """Attention heads, resolved."""
        if self.attention_heads is not None:
            return self.attention_heads
        return default_heads(self.width)

    def kind(self, layer: int) -> Kind:
        """Return the kind of a layer."""
        return self.pattern[layer % len(self.pattern)]

    # A layer is attention, or what it is in the stack of Mamba-2 that this one extends.

    def mixer(self, layer: int) -> type[Mixer]:
        """Return the class of the mixer of a layer; see :meth:`StackSpec.mixer`."""
        if self.kind(layer) == "mamba2":
            return super().mixer(layer)
        from beliefspace.windtunnel.networks.hybrid import AttentionMixer

        return AttentionMixer

    def mixer_parameters(self, layer: int) -> int:
        """Count the four maps of attention, or the parts of a state space."""
        if self.kind(layer) == "mamba2":
            return super().mixer_parameters(layer)
        return 4 * self.width**2

    def mixer_operations(self, layer: int, length: int) -> float:
        """Count the maps and products of all pairs of positions, or those of a state space."""
        if self.kind(layer) == "mamba2":
            return super().mixer_operations(layer, length)
        return 2.0 * length * (4 * self.width**2 + 2 * length * self.width)
