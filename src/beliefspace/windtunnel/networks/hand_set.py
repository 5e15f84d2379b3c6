"""Parts of networks whose weights are set by hand and stay as they are.

Such a network is a control: it shows what an architecture can express, whatever training finds.
Its weights are parameters that take no gradient, so they are counted, saved and shown like learned
ones. What it shows holds for its own parts, and these are not always those of a model that learns
here: attention may rest, as told below; the filter's feed-forward multiplies two vectors that both
depend on the data, and normalises; and as recurrent networks the filter and the table of recall
have matrices read from the data as fast weights, which an LSTM has not.

Attention here may rest: beside its keys each query sees one of value 0 and a constant score, the
threshold (in spirit the attention sinks of 2309.17453). Where no key scores above it, nothing is
read, instead of a little of everything.

Symbols:
    x             residual                                       ``[n, T, width]``
    h             heads
    s, tau        scores, threshold      s_qk = (A x_q + a)·(B x_k) + bias[q - k]   ``[n, h, T, T]``
    attention     exp(s_qk) / (exp(tau) + sum_k exp(s_qk))
    beta          sharpness: a head's score where it should look, 0 elsewhere; the threshold lies
                  in between, so what it should not see gets a weight of about exp(-beta / 2)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from beliefspace.core.streams import Stream
from beliefspace.core.taps import Tap
from beliefspace.core.trace import Point
from beliefspace.windtunnel.networks.base import Initializer, InputEmbedding
from beliefspace.windtunnel.networks.positions import RelativeBias, Sight
from beliefspace.windtunnel.tasks.base import Task, TokenInputs


def fixed(values: Tensor) -> nn.Parameter:
    """Return a parameter that takes no gradient."""
    # Contiguous, so that no two entries share memory: a checkpoint is loaded into each by itself.
    return nn.Parameter(values.float().contiguous(), requires_grad=False)


def fixed_embedding(
    task: Task, vectors: Float[Tensor, "tokens_or_features width"]
) -> InputEmbedding:
    """Return the embedding that gives each token, or each feature, a vector set by hand."""
    # Nothing is drawn: what the initializer fills in is overwritten.
    make = Initializer(Stream(0, "overwritten"))
    embedding = InputEmbedding(task, vectors.shape[1], make, deviation=0.0)
    with torch.no_grad():
        if isinstance(task.inputs, TokenInputs):
            embedding.table.copy_(vectors)
        else:
            embedding.map.weight.copy_(vectors.T)
    return embedding.requires_grad_(False)


class Slots:
    """Stretches of a residual stream by name, so that each part of a network has its own place.

    Args:
        sizes: channels of each, in order.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._places: dict[str, slice] = {}
        self.width = 0
        for name, size in sizes.items():
            self._places[name] = slice(self.width, self.width + size)
            self.width += size

    def read(self, x: Float[Tensor, "*rows width"], name: str) -> Float[Tensor, "*rows size"]:
        """Return what stands in a slot."""
        return x[..., self._places[name]]

    def reader(self, name: str) -> Float[Tensor, "size width"]:
        """Return the matrix, of zeros and ones, that reads a slot."""
        return torch.eye(self.width)[self._places[name]]

    def written(
        self, name: str, value: Float[Tensor, "*rows size"]
    ) -> Float[Tensor, "*rows width"]:
        """Return the addition to the residual that puts a value into a slot."""
        place = self._places[name]
        return F.pad(value, (place.start, self.width - place.stop))


class Content(nn.Module):
    """Queries A x + a and keys B x, by which a head finds what it reads.

    Args:
        queries: A, ``[h, d, width]``.
        shift: a, ``[h, d]``.
        keys: B, ``[h, d, width]``.
    """

    def __init__(self, queries: Tensor, shift: Tensor, keys: Tensor) -> None:
        super().__init__()
        self.queries, self.shift, self.keys = fixed(queries), fixed(shift), fixed(keys)

    def forward(self, x: Float[Tensor, "n T width"], tap: Tap) -> Float[Tensor, "n h T T"]:
        """Return the products of queries and keys."""
        q = tap("queries", x[:, None] @ self.queries.mT + self.shift[:, None])
        k = tap("keys", x[:, None] @ self.keys.mT)
        return q @ k.mT

    @staticmethod
    def points() -> list[Point]:
        """Return the points of queries and keys."""
        heads = "batch heads time head_width"
        return [
            Point("queries", "queries, set so that they need no scaling", heads),
            Point("keys", "keys", heads),
        ]


class SetAttention(nn.Module):
    """Attention whose heads know by content or by distance where to look, and rest if not.

    Args:
        find: :class:`Content`; or for heads that go by distance the bias of each, ``[h, span]``,
            whose last entry is that of all larger distances.
        values: ``[h, e, width]``.
        output: ``[h, e, width]``; what a head read times this is added to the residual.
        threshold: tau.
    """

    def __init__(
        self, find: Content | Tensor, values: Tensor, output: Tensor, threshold: float
    ) -> None:
        super().__init__()
        self.find: Content | RelativeBias
        if isinstance(find, Content):
            self.find = find
        else:
            self.find = RelativeBias(*find.shape)
            self.find.table = fixed(find)
        self.values, self.output = fixed(values), fixed(output)
        self._threshold = threshold

    def forward(
        self, x: Float[Tensor, "n T width"], sight: Sight, tap: Tap
    ) -> Float[Tensor, "n T width"]:
        """Return what attention adds to the residual."""
        v = tap("values", x[:, None] @ self.values.mT)
        if isinstance(self.find, Content):
            scores = self.find(x, tap) + sight.mask
        else:
            scores = self.find(sight).to(x.dtype).expand(len(x), -1, -1, -1)
        scores = tap("scores", scores)
        attention = F.pad(scores, (0, 1), value=self._threshold).softmax(dim=-1)[..., :-1]
        mixed = tap("head_outputs", tap("attention", attention) @ v)
        return tap("attention_out", (mixed @ self.output).sum(dim=1))

    def points(self) -> list[Point]:
        """Return the points of the layer, in order of computation."""
        heads, pairs = "batch heads time head_width", "batch heads query_time key_time"
        return [
            Point("values", "values", heads),
            *(Content.points() if isinstance(self.find, Content) else []),
            Point("scores", "scores with bias and mask (-inf where hidden)", pairs),
            Point("attention", "weights of the keys; what is missing to 1 rests", pairs),
            Point("head_outputs", "values mixed by attention, before the output matrix", heads),
            Point("attention_out", "what attention adds to the residual", "batch time width"),
        ]


def look_back(distance: int, sharpness: float) -> Float[Tensor, "1 span"]:
    """Return the bias of one head that looks at the position so far back."""
    bias = torch.zeros(1, distance + 2)
    bias[0, distance] = sharpness
    return bias
