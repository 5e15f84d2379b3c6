"""Mamba-2: a selective state space with one decay per head (2405.21060).

Symbols:
    d     width of the residual stream           ``width``
    w     width inside the mixer, e·d            ``inner_width``
    h     heads                                  ``head_count``
    N     state per channel                      ``state_size``
    K     span of the convolution                ``convolution``
    c     positions of a chunk                   ``chunk_length``
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beliefspace.core.checks import check_whole
from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import register
from beliefspace.windtunnel.models.linear_attention import LONGEST_CHUNK, chunk_length
from beliefspace.windtunnel.models.stack import StackSpec

if TYPE_CHECKING:
    from beliefspace.windtunnel.networks.stack import Mixer


@register("models", "mamba2")
@dataclass(frozen=True)
class Mamba2(StackSpec):
    """A stack of Mamba-2 mixers, whose state forgets and takes in as the input says.

    Args:
        feed_forward: hidden width of the feed-forward; 0, none, by default, since the published
            blocks have none.
        state_size: numbers that each inner channel remembers.
        heads: groups of inner channels with a decay of their own; they divide the inner width. By
            default as many as make them 64 wide, as published, but at least 4 where that goes.
        expand: inner width over width.
        convolution: positions that the short convolution spans.
        chunk: longest sequence that is handled in one piece; see
            :func:`~beliefspace.windtunnel.models.linear_attention.chunk_length`.

    Raises:
        InvalidInput: a setting out of range, or heads that do not divide the inner width.
    """

    feed_forward: int | None = 0
    state_size: int = 16
    heads: int | None = None
    expand: int = 2
    convolution: int = 4
    chunk: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("state_size", "expand", "convolution"):
            check_whole(name, getattr(self, name), 1, most=100_000)
        check_whole("chunk", self.chunk, 1, most=LONGEST_CHUNK)
        if self.heads is not None:
            check_whole("heads", self.heads, 1, most=100_000)
        if self.inner_width % self.head_count:
            raise InvalidInput(
                f"the inner width must be a multiple of heads; got expand {self.expand} x width "
                f"{self.width} = {self.inner_width}, heads {self.heads}"
            )

    @classmethod
    def tiny(cls) -> tuple[Mamba2, ...]:
        """Return one of several heads whose sequences are cut; see :meth:`ModelSpec.tiny`."""
        return (cls(width=8, chunk=4),)

    @property
    def inner_width(self) -> int:
        """Channels inside the mixer."""
        return self.expand * self.width

    @property
    def head_count(self) -> int:
        """Heads, resolved."""
        if self.heads is not None:
            return self.heads
        most = max(4, self.inner_width // 64)
        return max(count for count in range(1, most + 1) if self.inner_width % count == 0)

    @property
    def head_width(self) -> int:
        """Inner channels of one head."""
        return self.inner_width // self.head_count

    def mixer(self, layer: int) -> type[Mixer]:
        """Return the class of the mixer; see :meth:`StackSpec.mixer`."""
        from beliefspace.windtunnel.networks.mamba2 import Mamba2Mixer

        return Mamba2Mixer

    def mixer_parameters(self, layer: int) -> int:
        """Count gate, values, B, C, Δ and output maps, convolution, and per-head numbers."""
        inner, states, heads = self.inner_width, self.state_size, self.head_count
        maps = self.width * (3 * inner + 2 * states + heads)
        convolution = (self.convolution + 1) * (inner + 2 * states)
        return maps + convolution + 3 * heads + inner

    def mixer_operations(self, layer: int, length: int) -> float:
        """Count the maps, and the products within chunks and between them."""
        inner, states, heads = self.inner_width, self.state_size, self.head_count
        maps = self.width * (3 * inner + 2 * states + heads)
        seen = chunk_length(length, self.chunk)
        core = seen * (states + inner)
        if length > seen:
            core += 2 * states * inner
        return 2.0 * length * (maps + core)
