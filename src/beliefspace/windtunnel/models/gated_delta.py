"""The gated delta rule: a state that forgets, and overwrites what a key held (2412.06464).

Symbols:
    d     width of the residual stream    ``width``
    h     heads                           ``head_count``
    p     head width, d / h               ``head_width``
    K     span of the convolution         ``convolution``
    c     positions of a chunk            ``chunk_length``
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beliefspace.core.checks import check_whole
from beliefspace.core.registry import register
from beliefspace.windtunnel.models.linear_attention import (
    LONGEST_CHUNK,
    HeadedSpec,
    chunk_length,
)

if TYPE_CHECKING:
    from beliefspace.windtunnel.networks.gated_delta import GatedDeltaMixer


@register("models", "gated-delta")
@dataclass(frozen=True)
class GatedDelta(HeadedSpec):
    """A stack of linear attention whose state is corrected by the error of what it recalls.

    Args:
        heads: heads; by default as many of width 32 or more as divide the width evenly.
        convolution: positions that the short convolution of queries, keys and values spans.
        chunk: longest sequence that is handled in one piece; see
            :func:`~beliefspace.windtunnel.models.linear_attention.chunk_length`.

    Raises:
        InvalidInput: a setting out of range, or heads that do not divide the width.
    """

    convolution: int = 4
    chunk: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("convolution", self.convolution, 1, most=100_000)
        check_whole("chunk", self.chunk, 1, most=LONGEST_CHUNK)

    @classmethod
    def tiny(cls) -> tuple[GatedDelta, ...]:
        """Return one of two heads whose sequences are cut; see :meth:`ModelSpec.tiny`."""
        return (cls(width=8, heads=2, chunk=4),)

    def mixer(self, layer: int) -> type[GatedDeltaMixer]:
        """Return the class of the mixer; see :meth:`StackSpec.mixer`."""
        from beliefspace.windtunnel.networks.gated_delta import GatedDeltaMixer

        return GatedDeltaMixer

    def mixer_parameters(self, layer: int) -> int:
        """Count maps (five square, β, Δ), convolution, two numbers per head, and the norm."""
        maps = 5 * self.width**2 + 2 * self.width * self.head_count
        convolution = 3 * self.width * (self.convolution + 1)
        return maps + convolution + 2 * self.head_count + self.head_width

    def mixer_operations(self, layer: int, length: int) -> float:
        """Count the maps, the triangular solve, and the products within chunks and between them."""
        seen, inner = chunk_length(length, self.chunk), self.head_width
        core = 3 * seen * self.width + seen * self.width // 2
        if length > seen:
            core += seen * self.width // 2 + 4 * inner * self.width
        return 2.0 * length * (5 * self.width**2 + 2 * self.width * self.head_count + core)
