"""The bag of values; what it is for is told at its specification.

Symbols:
    n, T, V    sequences, positions, values
    e_t        one-hot of the token's value, less 1 everywhere at even positions    ``[n, T, V]``
    c_t        counts of the values shown up to t                                  ``[n, T, V]``

Keys stand at even positions and values at odd ones, so

    c_t = c_{t-1} + relu(e_t),        logits_t = -penalty · min(c_t, 1)

The phase is for format A, in which keys and values share their tokens. The counts
are the recurrent state; all of them at once are a cumulative sum.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from beliefspace.core.taps import NO_TAP, Tap
from beliefspace.core.trace import Point
from beliefspace.windtunnel.models.bag_of_values import BagOfValues
from beliefspace.windtunnel.networks.base import Columns, Inputs, Network, Streaming, column_index
from beliefspace.windtunnel.networks.hand_set import fixed, fixed_embedding
from beliefspace.windtunnel.tasks.bijection import Bijection


class BagOfValuesNetwork(Network):
    """See :class:`beliefspace.windtunnel.models.bag_of_values.BagOfValues`.

    Args:
        spec: the penalty.
        task: fixes tokens and values.
    """

    def __init__(self, spec: BagOfValues, task: Bijection) -> None:
        super().__init__()
        self.spec = spec
        table = torch.zeros(task.inputs.vocabulary, task.values)
        table[list(task.outputs.support)] = torch.eye(task.values)
        self.embedding = fixed_embedding(task, table)
        self.phase = fixed(torch.tensor([-1.0, 0.0]))
        self.head = fixed(-spec.penalty * torch.eye(task.values))

    def forward(self, inputs: Inputs, columns: Columns = None, tap: Tap = NO_TAP) -> Tensor:
        """Compute the outputs; see :meth:`Network.forward`."""
        x: Tensor = self.embedding(inputs)
        phase = self.phase[torch.arange(x.shape[1], device=x.device) % 2]
        x = tap("embed", x + phase[:, None])
        counts = tap("layers.0.state", x.relu().cumsum(dim=1))
        logits = tap("logits", self.read(counts))
        chosen = column_index(columns, x.shape[1], x.device)
        return logits if chosen is None else logits.index_select(1, chosen)

    def read(self, counts: Float[Tensor, "*rows V"]) -> Float[Tensor, "*rows V"]:
        """Return the logits: the penalty for each value that was seen, however often."""
        return counts.clamp(max=1) @ self.head

    def stream(self, header: Inputs) -> Streaming:
        """Return the recurrent form; see :meth:`Network.stream`."""
        return _BagStreaming(self, header)

    def points(self) -> tuple[Point, ...]:
        """Return every point, in order of computation."""
        values = "batch time values"
        return (
            Point("embed", "one-hot of the token's value, less 1 at even positions", values),
            Point("layers.0.state", "how often each value was shown so far", values),
            Point("logits", "outputs: outcome logits", values),
        )


class _BagStreaming(Streaming):
    """The counts, and which position comes next."""

    def __init__(self, network: BagOfValuesNetwork, header: Inputs) -> None:
        self._network = network
        self._position = 0
        self._counts: Tensor | None = None
        for position in range(header.shape[1]):
            self(header[:, position])

    def __call__(self, inputs: Inputs) -> Tensor:
        network = self._network
        x: Tensor = network.embedding(inputs[:, None])[:, 0]
        shown = (x + network.phase[self._position % 2]).relu()
        self._counts = shown if self._counts is None else self._counts + shown
        self._position += 1
        return network.read(self._counts)
