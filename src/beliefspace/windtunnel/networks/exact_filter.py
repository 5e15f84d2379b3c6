"""Filtering a hidden Markov chain with weights set by hand; settings at the specification.

Symbols:
    n, T        sequences, positions
    S, O        hidden states, symbols
    w           layers of the transformer
    A, E        transition and emission, A[s, s'] = P(s' | s)        ``[n, S, S]``, ``[n, S, O]``
    pi          law of the first state, uniform                     ``[S]``
    x_t         one-hot of the symbol at t, 0 in the header         ``[n, O]``
    b_t         belief after t; 0 before the first symbol           ``[n, S]``

The update, a bilinear layer with a rectifier and a division:

    p = b A + relu(1 - 2 sum b) pi            nothing is known before the first symbol: start anew
    b' = q / sum q,   q = p * (E x)           and b' = 0 where q is 0, as all over the header

A vector of a header of rows is [S a - 1 | O e - 1 | place | x], with a row a of A, or e of E, and
the one-hot place of its state. What is not there is 0, so a sum over the header is the memory of it
that either style needs:

    S A - 1 = sum place ⊗ [S a - 1],          O E - 1 = sum place ⊗ [O e - 1]

recurrent     the sum is kept as a fast weight; b' at t is the update of b' at t - 1, in time.
transformer   layer 0 has a head for each state, which finds its two rows by their place (attention
              1/2 each, output matrix 2). Layer i > 0 has one head, which copies the belief of layer
              i - 1 from the position before. Attention does no more than that. In each layer a
              feed-forward of product units (no common one: it multiplies) does the update, so layer
              i holds the belief of a filter that saw the last i + 1 symbols.

Both read the state off as log b, and the next symbol as log (b A E).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from beliefspace.core.errors import InvalidInput
from beliefspace.core.taps import NO_TAP, Tap, scoped
from beliefspace.core.trace import Point
from beliefspace.windtunnel.models.exact_filter import ExactFilter
from beliefspace.windtunnel.networks.base import Columns, Inputs, Network, Streaming, column_index
from beliefspace.windtunnel.networks.hand_set import (
    Content,
    SetAttention,
    Slots,
    fixed,
    fixed_embedding,
    look_back,
)
from beliefspace.windtunnel.networks.positions import Sight
from beliefspace.windtunnel.tasks import hmm_parameters
from beliefspace.windtunnel.tasks.hmm import HMM

_SHARPNESS = 80.0  # what should not be seen weighs exp(-40), beyond float64's digits
_LEAST = torch.finfo(torch.float32).tiny  # in float64 too, so that both give one answer


class Chain(NamedTuple):
    """A and E, of each sequence, of each of its positions, or of all alike."""

    transition: Float[Tensor, "*rows S S"]
    emission: Float[Tensor, "*rows S O"]


class FilterNetwork(Network):
    """What both styles share; see :class:`beliefspace.windtunnel.models.exact_filter.ExactFilter`.

    Args:
        spec: style and window.
        task: fixes the header, sizes and target, and may give the parameters.
        slots: of the residual stream.
    """

    def __init__(self, spec: ExactFilter, task: HMM, slots: Slots) -> None:
        super().__init__()
        self.spec, self.slots = spec, slots
        self.states, self.symbols, self.prefix = task.states, task.symbols, task.prefix
        self.predicts_state = task.target == "state"
        inputs = list(_inputs(task))
        self.embedding = fixed_embedding(task, torch.cat([slots.reader(name) for name in inputs]))
        self.start = fixed(torch.full((task.states,), 1 / task.states))
        self.transition: nn.Parameter | None = None
        self.emission: nn.Parameter | None = None
        if task.transition is not None and task.emission is not None:
            sizes = (task.states, task.symbols)
            own = hmm_parameters.given(task.transition, task.emission, *sizes)
            self.transition = fixed(torch.from_numpy(own.transition[0]))
            self.emission = fixed(torch.from_numpy(own.emission[0]))

    @abstractmethod
    def beliefs(self, x: Float[Tensor, "n T width"], tap: Tap) -> tuple[Tensor, Chain]:
        """Return the belief after each position, and the chain to read it off with."""

    def forward(self, inputs: Inputs, columns: Columns = None, tap: Tap = NO_TAP) -> Tensor:
        """Compute the outputs; see :meth:`Network.forward`."""
        x = tap("embed", self.embedding(inputs))
        belief, chain = self.beliefs(x, tap)
        logits = tap("logits", self.read(belief, chain))
        chosen = column_index(columns, x.shape[1], x.device)
        return logits if chosen is None else logits.index_select(1, chosen)

    def chain(self, memory: Float[Tensor, "*rows S S+O"] | None) -> Chain:
        """Return the given chain, or the one that the memory of a header holds."""
        if self.transition is not None and self.emission is not None:
            return Chain(self.transition, self.emission)
        assert memory is not None
        transition, emission = memory.split([self.states, self.symbols], dim=-1)
        return Chain((1 + transition) / self.states, (1 + emission) / self.symbols)

    def update(
        self, before: Float[Tensor, "*rows S"], symbol: Float[Tensor, "*rows O"], chain: Chain
    ) -> Float[Tensor, "*rows S"]:
        """Move a belief through the dynamics, and multiply the likelihood of a symbol in."""
        unknown = (1 - 2 * before.sum(dim=-1, keepdim=True)).relu()
        prior = _times(before, chain.transition) + unknown * self.start
        joint = prior * _times(symbol, chain.emission.mT)
        total = joint.sum(dim=-1, keepdim=True)
        # Divided by 1, what is 0 stays so, and its gradient is of a size with the others'.
        return joint / total.where(total > 0, 1.0)

    def read(self, belief: Float[Tensor, "*rows S"], chain: Chain) -> Float[Tensor, "*rows m"]:
        """Return log P(state), or log P(next symbol); finite even where that is 0."""
        if not self.predicts_state:
            belief = _times(_times(belief, chain.transition), chain.emission)
        return belief.clamp_min(_LEAST).log()

    def points(self) -> tuple[Point, ...]:
        """Return every point, in order of computation."""
        outcomes = "state" if self.predicts_state else "next symbol"
        return (
            Point("embed", "the inputs, each part in its place", "batch time width"),
            *self.inner_points(),
            Point("logits", f"outputs: log-probabilities of the {outcomes}", "batch time outputs"),
        )

    @abstractmethod
    def inner_points(self) -> list[Point]:
        """Return the points between embedding and outputs."""


class RecurrentFilter(FilterNetwork):
    """The belief as the state of a bilinear recurrence, and the header as a fast weight."""

    def __init__(self, spec: ExactFilter, task: HMM) -> None:
        super().__init__(spec, task, Slots(_inputs(task)))

    def beliefs(self, x: Float[Tensor, "n T width"], tap: Tap) -> tuple[Tensor, Chain]:
        """Run through the positions; the tap comes after, so an edit reaches the outputs alone."""
        chain = self.remembered(x)
        belief, states = self.nothing(x), []
        for symbol in self.slots.read(x, "symbol").unbind(1):
            belief = self.update(belief, symbol, chain)
            states.append(belief)
        beliefs = tap("layers.0.state", torch.stack(states, dim=1))
        return beliefs, Chain(*(table.unsqueeze(-3) for table in chain))

    def remembered(self, x: Float[Tensor, "n T width"]) -> Chain:
        """Return the chain that the header of embedded sequences states, or the given one."""
        if not self.prefix:
            return self.chain(None)
        header, slots = x[:, : self.prefix], self.slots
        rows = torch.cat([slots.read(header, name) for name in ("transition", "emission")], dim=2)
        return self.chain(slots.read(header, "place").mT @ rows)

    def nothing(self, x: Float[Tensor, "n T width"]) -> Float[Tensor, "n S"]:
        """Return the state before the first position."""
        return x.new_zeros(len(x), self.states)

    def stream(self, header: Inputs) -> Streaming:
        """Return the recurrent form; see :meth:`Network.stream`."""
        return _FilterStreaming(self, header)

    def inner_points(self) -> list[Point]:
        """Return the one point."""
        meaning = "belief, as read off; what was carried on to the next position stays as it is"
        return [Point("layers.0.state", meaning, "batch time states")]


class _FilterStreaming(Streaming):
    """The belief and the chain, at work on one symbol after another."""

    def __init__(self, network: RecurrentFilter, header: Inputs) -> None:
        self._network = network
        x = network.embedding(header)
        self._chain = network.remembered(x)
        self._belief = network.nothing(x)
        for symbol in network.slots.read(x, "symbol").unbind(1):
            self._belief = network.update(self._belief, symbol, self._chain)

    def __call__(self, inputs: Inputs) -> Tensor:
        network = self._network
        symbol = network.slots.read(network.embedding(inputs[:, None])[:, 0], "symbol")
        self._belief = network.update(self._belief, symbol, self._chain)
        return network.read(self._belief, self._chain)


class TransformerFilter(FilterNetwork):
    """A window of observations, one a layer."""

    recurrent = False

    def __init__(self, spec: ExactFilter, task: HMM) -> None:
        layers = spec.layers(task)
        sizes = dict(_inputs(task))
        if task.prefix:
            sizes |= {f"row {state}": task.states + task.symbols for state in range(task.states)}
        for layer in range(layers):
            # The belief that the head of the layer copies, and the one that the layer makes of it.
            sizes |= {f"before {layer}": task.states} if layer else {}
            sizes |= {f"belief {layer}": task.states}
        super().__init__(spec, task, Slots(sizes))
        self.depth = layers
        self._attention = {layer: _looking_back(self.slots, layer) for layer in range(1, layers)}
        if task.prefix:
            self._attention[0] = _finding_rows(task, self.slots)
        self.attention = nn.ModuleList(self._attention.values())

    def beliefs(self, x: Float[Tensor, "n T width"], tap: Tap) -> tuple[Tensor, Chain]:
        """Go up the layers; the belief of the last one is the answer."""
        sight = Sight(x.shape[1], self.prefix, None, None, x.device)
        for layer in range(self.depth):
            x = self._layer(layer, x, sight, scoped(tap, f"layers.{layer}"))
        return self.slots.read(x, f"belief {self.depth - 1}"), self._read_chain(x)

    def stream(self, header: Inputs) -> Streaming:
        """Refuse; see :meth:`Network.stream`."""
        raise InvalidInput(
            "attention looks at past positions themselves; a stream would have to keep them all, "
            'and none that does is built; style = "recurrent" streams'
        )

    def inner_points(self) -> list[Point]:
        """Return the points of every layer."""
        return [
            Point(f"layers.{layer}.{point.name}", point.meaning, point.shape)
            for layer in range(self.depth)
            for point in self._layer_points(layer)
        ]

    def _layer(
        self, layer: int, x: Float[Tensor, "n T width"], sight: Sight, tap: Tap
    ) -> Float[Tensor, "n T width"]:
        """Attend, then update."""
        x = tap("residual_in", x)
        if layer in self._attention:
            x = x + self._attention[layer](x, sight, tap)
        x = tap("residual_mid", x)
        symbol = self.slots.read(x, "symbol")
        if layer:
            before = self.slots.read(x, f"before {layer}")
        else:
            before = x.new_zeros(*x.shape[:2], self.states)
        belief = tap("state", self.update(before, symbol, self._read_chain(x)))
        return tap(
            "residual_out", x + tap("mlp_out", self.slots.written(f"belief {layer}", belief))
        )

    def _read_chain(self, x: Float[Tensor, "n T width"]) -> Chain:
        if not self.prefix:
            return self.chain(None)
        rows = [self.slots.read(x, f"row {state}") for state in range(self.states)]
        return self.chain(torch.stack(rows, dim=2))

    def _layer_points(self, layer: int) -> list[Point]:
        width, seen = "batch time width", f"the last {layer + 1} symbols"
        attention = self._attention[layer].points() if layer in self._attention else []
        return [
            Point("residual_in", "residual before the layer", width),
            *attention,
            Point("residual_mid", "residual after attention", width),
            Point("state", f"belief of a filter that saw {seen}", "batch time states"),
            Point("mlp_out", "what the feed-forward part adds to the residual: its belief", width),
            Point("residual_out", "residual after the layer", width),
        ]


def _inputs(task: HMM) -> dict[str, int]:
    """Return the parts of an input, in order."""
    if not task.prefix:
        return {"symbol": task.symbols}
    states, symbols = task.states, task.symbols
    return {"transition": states, "emission": symbols, "place": states, "symbol": symbols}


def _finding_rows(task: HMM, slots: Slots) -> SetAttention:
    """A head for each state, which finds the two rows that carry its place."""
    states = task.states
    place = slots.reader("place").expand(states, -1, -1)
    find = Content(torch.zeros_like(place), _SHARPNESS * torch.eye(states), place)
    values = torch.cat([slots.reader("transition"), slots.reader("emission")])
    output = torch.stack([2 * slots.reader(f"row {state}") for state in range(states)])
    return SetAttention(find, values.expand(states, -1, -1), output, _SHARPNESS / 2)


def _looking_back(slots: Slots, layer: int) -> SetAttention:
    """One head, which copies what the layer below believes at the position before."""
    values, output = slots.reader(f"belief {layer - 1}"), slots.reader(f"before {layer}")
    return SetAttention(look_back(1, _SHARPNESS), values[None], output[None], _SHARPNESS / 2)


def _times(
    row: Float[Tensor, "*rows a"], table: Float[Tensor, "*tables a b"]
) -> Float[Tensor, "*rows b"]:
    """Multiply a row vector of each position by its table."""
    return (row[..., None, :] @ table)[..., 0, :]
