"""Linear attention: a state of sums in place of a memory of all positions (2006.16236).

Symbols:
    d     width of the residual stream    ``width``
    h     heads                           ``head_count``
    p     head width, d / h               ``head_width``
    c     positions of a chunk            ``chunk_length``
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from beliefspace.core.checks import check_choice, check_whole
from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import register
from beliefspace.windtunnel.models.stack import StackSpec

if TYPE_CHECKING:
    from beliefspace.windtunnel.networks.linear_attention import LinearAttentionMixer

FeatureMap = Literal["elu", "relu"]

LONGEST_CHUNK = 256
"""Work and memory grow with the square of a chunk; more is never faster."""


@dataclass(frozen=True)
class HeadedSpec(StackSpec):
    """A residual stack of mixers that divide its width among heads.

    Args:
        heads: heads; by default as many of width 32 or more as divide the width evenly.

    Raises:
        InvalidInput: heads that do not divide the width.
    """

    heads: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads is None:
            return
        check_whole("heads", self.heads, 1, most=100_000)
        if self.width % self.heads:
            raise InvalidInput(
                f"width must be a multiple of heads; got width {self.width}, heads {self.heads}"
            )

    @property
    def head_count(self) -> int:
        """Heads, resolved."""
        return default_heads(self.width) if self.heads is None else self.heads

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.width // self.head_count


@register("models", "linear-attention")
@dataclass(frozen=True)
class LinearAttention(HeadedSpec):
    """A stack of attention whose weights are products of positive features, without a softmax.

    It has no positions of its own. One layer sees its past as a bag; in a deeper stack order comes
    in through causality alone, as what a layer below gives at a position depends on what came
    before it.

    Args:
        heads: attention heads; by default as many of width 32 or more as divide the width evenly.
        feature_map: of queries and keys: "elu", elu(x) + 1, as published, or "relu".
        chunk: longest sequence that is handled in one piece; see :func:`chunk_length`.

    Raises:
        InvalidInput: a setting out of range, or heads that do not divide the width.
    """

    feature_map: FeatureMap = "elu"
    chunk: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("feature_map", self.feature_map, get_args(FeatureMap))
        check_whole("chunk", self.chunk, 1, most=LONGEST_CHUNK)

    @classmethod
    def tiny(cls) -> tuple[LinearAttention, ...]:
        """Return one of two heads whose sequences are cut; see :meth:`ModelSpec.tiny`."""
        return (cls(width=8, heads=2, chunk=4),)

    def mixer(self, layer: int) -> type[LinearAttentionMixer]:
        """Return the class of the mixer; see :meth:`StackSpec.mixer`."""
        from beliefspace.windtunnel.networks.linear_attention import LinearAttentionMixer

        return LinearAttentionMixer

    def mixer_parameters(self, layer: int) -> int:
        """Count the maps of queries, keys, values and output."""
        return 4 * self.width**2

    def mixer_operations(self, layer: int, length: int) -> float:
        """Count the maps, and the products within chunks and between them."""
        seen = chunk_length(length, self.chunk)
        core = 2 * seen * self.width
        if length > seen:
            core += 2 * self.head_width * self.width
        return 2.0 * length * (4 * self.width**2 + core)


def chunk_length(length: int, chunk: int) -> int:
    """Return how many positions are handled in one product; it changes the time, not the outputs.

    A longer sequence than ``chunk`` is cut into equal pieces of at most half of that: once states
    are carried on at all, shorter pieces are faster.
    """
    if length <= chunk:
        return length
    pieces = math.ceil(length / max(1, chunk // 2))
    return math.ceil(length / pieces)


def default_heads(width: int) -> int:
    """Return the largest number of heads of width 32 or more that divides a width evenly."""
    most = max(1, width // 32)
    return max(count for count in range(1, most + 1) if width % count == 0)
