"""Binding values to keys with weights set by hand; settings at the specification.

Symbols:
    n, T        sequences, positions
    K, V        keys, values
    k_t, v_t    one-hot of the token's key, and value; 0 if it has none       ``[n, T, K]``, V
    f_t         1 where the token is a value of a pair, else 0                ``[n, T, 1]``
    j           positions from a key to its value
    r_t         the value bound to the key k_t; 0 if there is none            ``[n, T, V]``
    a_t         the values that are taken                                     ``[n, T, V]``
    c           confidence, in nats

Transformer, both of its layers attention only:

    layer 0     one head looks j positions back, and writes the key it finds beside the value.
    layer 1     head 0 looks the key up: scores beta (key beside · k_t + f), which is 2 beta for a
                value with that key, and at most beta for all else; the threshold is 1.5 beta. It
                reads r_t, or rests. Head 1 (bijections) looks at all values of pairs alike, and
                reads the share of each: a_t, at least 1 / L of L pairs.
                logits  2 c L r_t - c L a_t           (c r_t where nothing is ruled out)

Recurrent, a fast weight M with the delta rule (2102.11174), exact since keys are one-hot:

    M_t = M_{t-1} + f_t k_{t-j} ⊗ (v_t - k_{t-j} M_{t-1}),     r_t = k_t M_t,     a_t = 1 M_t
                logits  2 c r_t - c a_t               (c r_t where nothing is ruled out)

Where keys and values share tokens (format A), f is 1 at odd positions: the embedding has a phase.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from beliefspace.core.errors import InvalidInput
from beliefspace.core.taps import NO_TAP, Tap, scoped
from beliefspace.core.trace import Point
from beliefspace.windtunnel.models.exact_recall import ExactRecall, Pairing
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
from beliefspace.windtunnel.tasks.base import Task


class RecallNetwork(Network):
    """What both styles share; see :class:`beliefspace.windtunnel.models.exact_recall.ExactRecall`.

    Args:
        spec: style, confidence and sharpness.
        task: fixes the inputs.
        pairs: where they hold keys and values.
        slots: of the residual stream; the first three are the token's key, value and flag.
        margin: c, or c L.
    """

    def __init__(
        self, spec: ExactRecall, task: Task, pairs: Pairing, slots: Slots, margin: float
    ) -> None:
        super().__init__()
        self.spec, self.slots, self.delay = spec, slots, pairs.delay
        table = torch.zeros(pairs.vocabulary, slots.width)
        keys = slice(pairs.first_key, pairs.first_key + pairs.keys)
        values = slice(pairs.first_value, pairs.first_value + pairs.values)
        table[keys] += slots.reader("key")
        table[values] += slots.reader("value")
        if not pairs.alternates:
            table[values] += slots.reader("flag")
        self.embedding = fixed_embedding(task, table)
        self.phase = fixed(torch.tensor([0.0, float(pairs.alternates)]))
        bound, taken = margin * torch.eye(pairs.values), -margin * torch.eye(pairs.values)
        self.head = fixed(torch.cat([2 * bound, taken]) if pairs.eliminates else bound)

    def embed(self, inputs: Inputs, first: int = 0) -> Float[Tensor, "n T width"]:
        """Embed positions, of which the first is at ``first``."""
        x: Tensor = self.embedding(inputs)
        positions = torch.arange(first, first + x.shape[1], device=x.device)
        return x + self.slots.written("flag", self.phase[positions % 2, None])

    @abstractmethod
    def answers(self, x: Float[Tensor, "n T width"], tap: Tap) -> Float[Tensor, "n T answers"]:
        """Return r_t, and a_t beside it where values are ruled out."""

    def forward(self, inputs: Inputs, columns: Columns = None, tap: Tap = NO_TAP) -> Tensor:
        """Compute the outputs; see :meth:`Network.forward`."""
        x = tap("embed", self.embed(inputs))
        logits = tap("logits", self.answers(x, tap) @ self.head)
        chosen = column_index(columns, x.shape[1], x.device)
        return logits if chosen is None else logits.index_select(1, chosen)

    def points(self) -> tuple[Point, ...]:
        """Return every point, in order of computation."""
        embed = "the token's key and value, one-hot, and whether it is the value of a pair"
        return (
            Point("embed", embed, "batch time width"),
            *self.inner_points(),
            Point("logits", "outputs: outcome logits", "batch time outputs"),
        )

    @abstractmethod
    def inner_points(self) -> list[Point]:
        """Return the points between embedding and outputs."""


class TransformerRecall(RecallNetwork):
    """Two layers of attention: a head for the position before, and a head that looks keys up."""

    recurrent = False

    def __init__(self, spec: ExactRecall, task: Task, pairs: Pairing) -> None:
        sizes = {**_token(pairs), "beside": pairs.keys, "bound": pairs.values}
        slots = Slots({**sizes, "taken": pairs.values} if pairs.eliminates else sizes)
        margin = spec.confidence * (pairs.pairs if pairs.eliminates else 1)
        super().__init__(spec, task, pairs, slots, margin)
        self._answers = ("bound", "taken") if pairs.eliminates else ("bound",)
        sharpness = spec.sharpness
        beside, key, value = slots.reader("beside"), slots.reader("key"), slots.reader("value")
        back = look_back(pairs.delay, sharpness)
        self.key_beside_value = SetAttention(back, key[None], beside[None], 0.5 * sharpness)
        found = torch.cat([beside, slots.reader("flag")])
        # Both heads see the same keys. A query of the first has the wanted key and the flag; that
        # of the second wants the flag alone, twice as much.
        queries = torch.zeros(len(self._answers), *found.shape)
        queries[0, :-1] = sharpness * key
        shift = torch.zeros(queries.shape[:2])
        shift[:, -1] = sharpness * torch.arange(1, len(shift) + 1)
        self.look_up = SetAttention(
            Content(queries, shift, found.expand_as(queries)),
            value.expand(len(queries), -1, -1),
            torch.stack([slots.reader(name) for name in self._answers]),
            1.5 * sharpness,
        )

    def answers(self, x: Float[Tensor, "n T width"], tap: Tap) -> Float[Tensor, "n T answers"]:
        """Attend twice."""
        sight = Sight(x.shape[1], 0, None, None, x.device)
        for layer, attention in enumerate((self.key_beside_value, self.look_up)):
            inside = scoped(tap, f"layers.{layer}")
            x = inside("residual_in", x)
            x = inside("residual_out", x + attention(x, sight, inside))
        return torch.cat([self.slots.read(x, name) for name in self._answers], dim=2)

    def stream(self, header: Inputs) -> Streaming:
        """Refuse; see :meth:`Network.stream`."""
        raise InvalidInput(
            "attention looks at past positions themselves; a stream would have to keep them all, "
            'and none that does is built; style = "recurrent" streams'
        )

    def inner_points(self) -> list[Point]:
        """Return the points of both layers."""
        width = "batch time width"
        return [
            Point(f"layers.{layer}.{point.name}", point.meaning, point.shape)
            for layer, attention in enumerate((self.key_beside_value, self.look_up))
            for point in (
                Point("residual_in", "residual before the layer", width),
                *attention.points(),
                Point("residual_out", "residual after the layer", width),
            )
        ]


class RecurrentRecall(RecallNetwork):
    """A table as the state: an outer product of key and value is written at each pair."""

    def __init__(self, spec: ExactRecall, task: Task, pairs: Pairing) -> None:
        super().__init__(spec, task, pairs, Slots(_token(pairs)), spec.confidence)
        self._eliminates = pairs.eliminates

    def answers(self, x: Float[Tensor, "n T width"], tap: Tap) -> Float[Tensor, "n T answers"]:
        """Run through the positions; an edit of the state reaches what is read of it alone."""
        tap = scoped(tap, "layers.0")
        slots, length = self.slots, x.shape[1]
        queries = tap("queries", slots.read(x, "key"))
        keys = tap("keys", F.pad(queries, (0, 0, self.delay, 0))[:, :length])
        values = tap("values", slots.read(x, "value"))
        gates = tap("input_gate", slots.read(x, "flag"))
        table, tables, answers = self.empty(x), [], []
        # The tables of all positions are kept only for one who asks for them: they are large.
        keep = tap.wants("state")
        for t in range(length):
            table = self.write(table, keys[:, t], values[:, t], gates[:, t])
            if keep:
                tables.append(table)
            else:
                answers.append(self.look(table, queries[:, t]))
        if keep:
            return self.look(tap("state", torch.stack(tables, dim=1)), queries)
        return torch.stack(answers, dim=1)

    def empty(self, x: Float[Tensor, "n T width"]) -> Float[Tensor, "n K V"]:
        """Return the table before the first position."""
        keys, values = (self.slots.read(x, name).shape[-1] for name in ("key", "value"))
        return x.new_zeros(len(x), keys, values)

    def write(
        self,
        table: Float[Tensor, "n K V"],
        key: Float[Tensor, "n K"],
        value: Float[Tensor, "n V"],
        gate: Float[Tensor, "n 1"],
    ) -> Float[Tensor, "n K V"]:
        """Bind a value to a key, in place of what was bound to it."""
        change = gate * (value - (key[:, None] @ table)[:, 0])
        return table + key[:, :, None] * change[:, None]

    def look(
        self, table: Float[Tensor, "*rows K V"], key: Float[Tensor, "*rows K"]
    ) -> Float[Tensor, "*rows answers"]:
        """Return the value bound to a key, and beside it the values that are taken."""
        bound = (key[..., None, :] @ table)[..., 0, :]
        return torch.cat([bound, table.sum(dim=-2)], dim=-1) if self._eliminates else bound

    def stream(self, header: Inputs) -> Streaming:
        """Return the recurrent form; see :meth:`Network.stream`."""
        return _RecallStreaming(self, header)

    def inner_points(self) -> list[Point]:
        """Return the points of the table."""
        state = "table of keys by values, as looked up; what is carried on stays as it is"
        points = [
            Point("queries", "the key that is looked up", "batch time keys"),
            Point("keys", "the key that is written to", "batch time keys"),
            Point("values", "the value that is written", "batch time values"),
            Point("input_gate", "whether a pair is written, 1 or 0", "batch time 1"),
            Point("state", state, "batch time keys values"),
        ]
        return [Point(f"layers.0.{point.name}", point.meaning, point.shape) for point in points]


class _RecallStreaming(Streaming):
    """The table, and the keys of the last positions, whose values may still come."""

    def __init__(self, network: RecurrentRecall, header: Inputs) -> None:
        self._network = network
        x = network.embed(header)
        self._table = network.empty(x)
        none = network.slots.read(x.new_zeros(len(x), network.slots.width), "key")
        self._recent = [none] * network.delay
        self._position = 0
        for position in range(header.shape[1]):
            self(header[:, position])

    def __call__(self, inputs: Inputs) -> Tensor:
        network, slots = self._network, self._network.slots
        x = network.embed(inputs[:, None], self._position)[:, 0]
        key, value, gate = (slots.read(x, name) for name in ("key", "value", "flag"))
        self._table = network.write(self._table, self._recent[0], value, gate)
        self._recent = [*self._recent[1:], key]
        self._position += 1
        return network.look(self._table, key) @ network.head


def _token(pairs: Pairing) -> dict[str, int]:
    """Return the parts of an embedded token, in order."""
    return {"key": pairs.keys, "value": pairs.values, "flag": 1}
