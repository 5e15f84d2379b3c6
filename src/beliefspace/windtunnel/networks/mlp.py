"""The feed-forward network and its views of the past; its settings are told at ``models/mlp.py``.

Symbols:
    n      sequences
    T      positions that the network sees: all, or with an injected header those after it
    Q      positions whose outputs are wanted
    d      width
    x_t    input at position t: one-hot of a token, or features
    e_t    embedding of x_t                                  ``[d]``
    p_t    learned vector of position t                      ``[d]``
    s_t    state of the view: a running sum                  ``[d]``

What enters the first block at position t, by the view:
    position    e_t + p_t
    prefix      e_t + p_t + s_t,          s_t = sum over i <= t of A_i x_i
    pooled      e_t + p_t + M s_t / t,    s_t = sum over i <= t of e_i, counting t from 1

A linear map of the flattened, zero-padded prefix has one block A_i for each position. So it is the
running sum of what the positions so far add, one look-up or small product each, and takes O(T) for
all positions where mapping every padded prefix takes O(T²). The views are those that controls of
2512.22471 had, its authors' and others'.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.core.taps import NO_TAP, Tap, scoped
from beliefspace.core.trace import Point
from beliefspace.windtunnel.models.mlp import MLP, input_size
from beliefspace.windtunnel.networks.base import (
    EMBEDDING_DEVIATION,
    Columns,
    Initializer,
    InputEmbedding,
    Inputs,
    Network,
    OutputHead,
    Streaming,
)
from beliefspace.windtunnel.networks.side import SideInput
from beliefspace.windtunnel.tasks.base import Task, TokenInputs


class MLPNetwork(Network):
    """See :class:`beliefspace.windtunnel.models.mlp.MLP`.

    Past the view every position is by itself, so blocks are computed only where outputs are wanted.

    Args:
        spec: the settings.
        task: fixes inputs, outputs, length and header.
        stream: the source of the initial parameters.
    """

    def __init__(self, spec: MLP, task: Task, stream: Stream) -> None:
        super().__init__()
        make = Initializer(stream)
        width, length = spec.width, spec.positions(task)
        self.spec = spec
        self.embedding = InputEmbedding(task, width, make, deviation=EMBEDDING_DEVIATION)
        self.positions = make.normal(length, width, deviation=EMBEDDING_DEVIATION)
        self.past: Past | None = None
        if spec.view == "prefix":
            self.past = FlattenedPrefix(task, length, width, make)
        elif spec.view == "pooled":
            self.past = PooledPrefix(width, make)
        self.side = SideInput(spec.side, task, width, make)
        self.layers = nn.ModuleList(Block(spec, make) for _ in range(spec.depth))
        self.final_norm = nn.LayerNorm(width, bias=False)
        self.head = OutputHead(task, width, "untied", self.embedding, make, scale=spec.logit_scale)

    def forward(self, inputs: Inputs, columns: Columns = None, tap: Tap = NO_TAP) -> Tensor:
        """Compute the outputs; see :meth:`Network.forward`.

        With an injected header the points have no header positions, and outputs there are 0.

        Raises:
            InvalidInput: inputs that the task's do not look like, a column out of range or in an
                injected header, or more positions than are learned.
        """
        x, _ = self.look(self.side.rest(inputs), 0, None, self.side(inputs), tap)
        x = tap("embed", x)
        wanted = self.side.wanted(columns, x)
        if wanted is not None:
            x = x.index_select(1, wanted)
        return self.side.padded(self.read(x, tap), wanted)

    def look(
        self, inputs: Inputs, start: int, before: Tensor | None, side: Tensor | None, tap: Tap
    ) -> tuple[Float[Tensor, "n T width"], Tensor | None]:
        """Return the view at some positions, and the state after them.

        Args:
            inputs: at positions ``start``, ``start`` + 1, ...
            start: how many positions came before.
            before: the state after those, ``[n, 1, width]``; None at the start.
            side: what an injected header adds.
            tap: takes the state at every position.
        """
        current: Tensor = self.embedding(inputs)
        end = start + current.shape[1]
        self._check_learned(end)
        x = current + self.positions[start:end]
        if self.past is not None:
            sums = self.past.terms(inputs, current, start).cumsum(dim=1)
            sums = tap("state", sums if before is None else sums + before)
            x, before = x + self.past.read(sums, start), sums[:, -1:]
        return (x if side is None else x + side), before

    def _check_learned(self, end: int) -> None:
        learned = len(self.positions)
        if end > learned:
            past = " and their part in the flattened prefix" if self.spec.view == "prefix" else ""
            skipped = self.side.skipped
            header = f" after the {skipped} of the header" if skipped else ""
            raise InvalidInput(
                f"the inputs have {end} positions{header}, but only {learned}{past} were learned"
            )

    def read(self, x: Float[Tensor, "n Q width"], tap: Tap) -> Float[Tensor, "n Q outputs"]:
        """Turn a view into outputs, position by position."""
        for index, layer in enumerate(self.layers):
            x = layer(x, scoped(tap, f"layers.{index}"))
        return tap("logits", self.head(tap("final_norm", self.final_norm(x))))

    def stream(self, header: Inputs) -> Streaming:
        """Return the recurrent form, which goes no further than the learned positions."""
        return _MLPStreaming(self, header)

    def points(self) -> tuple[Point, ...]:
        """Return every point, in order of computation."""
        width = "batch time width"
        states: dict[str, list[Point]] = {
            "position": [],
            "prefix": [Point("state", "linear map of the flattened inputs so far", width)],
            "pooled": [Point("state", "sum of the embeddings so far", width)],
        }
        layers = [
            Point(f"layers.{index}.{name}", meaning, width)
            for index in range(self.spec.depth)
            for name, meaning in (
                ("residual_in", "residual before the block"),
                ("mlp_out", "what the block adds to the residual"),
                ("residual_out", "residual after the block"),
            )
        ]
        outputs = "outcome logits, or mean and log variance"
        return (
            *states[self.spec.view],
            Point("embed", "the view: embedded input, position and past, summed", width),
            *layers,
            Point("final_norm", "last residual, normalised, gain included", width),
            Point("logits", f"outputs: {outputs}", "batch time outputs"),
        )


class Past(nn.Module, ABC):
    """How the inputs so far enter a view: through a running sum over positions."""

    @abstractmethod
    def terms(
        self, inputs: Inputs, embedded: Float[Tensor, "n T width"], start: int
    ) -> Float[Tensor, "n T width"]:
        """Return what each position from ``start`` on adds to the sum."""

    @abstractmethod
    def read(self, sums: Float[Tensor, "n T width"], start: int) -> Float[Tensor, "n T width"]:
        """Return what the sums at positions from ``start`` on add to the view."""


class FlattenedPrefix(Past):
    """One linear map of the flattened prefix, kept as one block for each position."""

    def __init__(self, task: Task, length: int, width: int, make: Initializer) -> None:
        super().__init__()
        size = input_size(task)
        self._tokens = isinstance(task.inputs, TokenInputs)
        # A whole prefix then weighs as much as one embedding.
        deviation = EMBEDDING_DEVIATION if self._tokens else size**-0.5
        self.table = make.normal(length, size, width, deviation=deviation * length**-0.5)

    def terms(
        self, inputs: Inputs, embedded: Float[Tensor, "n T width"], start: int
    ) -> Float[Tensor, "n T width"]:
        """Return A_i x_i: for tokens a row of the block, for features a product with it."""
        blocks = self.table[start : start + embedded.shape[1]]
        values = torch.as_tensor(inputs, device=blocks.device)
        if self._tokens:
            places = torch.arange(len(blocks), device=blocks.device) * blocks.shape[1]
            return F.embedding(values + places, blocks.flatten(0, 1))
        return torch.einsum("ntf,tfd->ntd", values.to(blocks.dtype), blocks)

    def read(self, sums: Float[Tensor, "n T width"], start: int) -> Float[Tensor, "n T width"]:
        """Return the sums, which are mapped already."""
        return sums


class PooledPrefix(Past):
    """The mean of the embeddings so far, through a map that tells it from the current one."""

    def __init__(self, width: int, make: Initializer) -> None:
        super().__init__()
        self.map = make.linear(width, width)

    def terms(
        self, inputs: Inputs, embedded: Float[Tensor, "n T width"], start: int
    ) -> Float[Tensor, "n T width"]:
        """Return e_i."""
        return embedded

    def read(self, sums: Float[Tensor, "n T width"], start: int) -> Float[Tensor, "n T width"]:
        """Return M s_t / t."""
        counts = torch.arange(
            start + 1, start + 1 + sums.shape[1], device=sums.device, dtype=sums.dtype
        )
        added: Tensor = self.map(sums / counts[:, None])
        return added


class Block(nn.Module):
    """x + down(gelu(up(norm x))), or with one map x + down(gelu(norm x))."""

    def __init__(self, spec: MLP, make: Initializer) -> None:
        super().__init__()
        hidden = spec.hidden_width or spec.width
        self.norm = nn.LayerNorm(spec.width, bias=False)
        self.up: nn.Module = nn.Identity()
        if spec.hidden_width:
            self.up = make.linear(spec.width, hidden)
        # The residual stream collects ``depth`` additions; scaled so, their sum keeps its size.
        self.down = make.linear(hidden, spec.width, gain=spec.depth**-0.5)

    def forward(self, x: Float[Tensor, "n Q width"], tap: Tap) -> Float[Tensor, "n Q width"]:
        """Return the residual after the block."""
        x = tap("residual_in", x)
        added = tap("mlp_out", self.down(F.gelu(self.up(self.norm(x)))))
        return tap("residual_out", x + added)


class _MLPStreaming(Streaming):
    """One position after another: the running sum is all that is kept."""

    def __init__(self, network: MLPNetwork, header: Inputs) -> None:
        self._network = network
        self._side = network.side.alone(header)
        self._position = 0
        self._sum: Tensor | None = None
        if self._side is None and header.shape[1]:
            self._look(header)

    def __call__(self, inputs: Inputs) -> Tensor:
        return self._network.read(self._look(inputs[:, None]), NO_TAP)[:, 0]

    def _look(self, inputs: Inputs) -> Tensor:
        x, self._sum = self._network.look(inputs, self._position, self._sum, self._side, NO_TAP)
        self._position += x.shape[1]
        return x
