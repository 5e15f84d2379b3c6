"""What every network of the wind tunnel shares: ends, initial values, and being a runner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.core.taps import NO_TAP, Tap, observe
from beliefspace.core.trace import Point, RunnerMethods, Trace
from beliefspace.windtunnel.models.base import Head, output_count
from beliefspace.windtunnel.tasks.base import CategoricalOutputs, Task, TokenInputs

EMBEDDING_DEVIATION = 0.02

Inputs: TypeAlias = "np.ndarray | Tensor"
Columns: TypeAlias = "Sequence[int] | np.ndarray | Tensor | None"


class Network(nn.Module, RunnerMethods, ABC):
    """A causal network from sequences to one output per position; every one is a runner.

    Attributes:
        recurrent: whether there is a recurrent form. A network without one says so here, and why
            not when it is asked to stream.
    """

    recurrent: ClassVar[bool] = True

    __call__: Callable[..., Tensor]

    @abstractmethod
    def forward(self, inputs: Inputs, columns: Columns = None, tap: Tap = NO_TAP) -> Tensor:
        """Compute the outputs.

        Args:
            inputs: token ids ``[n, T]`` or real features ``[n, T, f]``; a tensor or a numpy array.
            columns: the positions whose outputs are wanted, or None for all.
            tap: takes and may change the value of each point.

        Returns:
            Logits ``[n, T or len(columns), m]``; for normal outputs m = 2: mean and log variance.
        """

    def stream(self, header: Inputs) -> Streaming:
        """Return the recurrent form, for inputs that come one position at a time.

        Args:
            header: the header positions of the sequences, ``[n, p]`` or ``[n, p, f]``; of a task
                without one an array with p = 0.

        Raises:
            InvalidInput: the architecture has no recurrent form; the message says why.
        """
        raise InvalidInput(f"{type(self).__name__} has no recurrent form")

    @abstractmethod
    def points(self) -> tuple[Point, ...]:
        """Return every point, in order of computation."""

    def head_map(self) -> Mapping[int, tuple[int, ...]] | None:
        """Return the key-value heads that each query head reads; None without attention."""
        return None

    def run(
        self,
        inputs: Inputs,
        names: Iterable[str] = (),
        edits: Mapping[str, Callable[[Tensor], Tensor]] | None = None,
        *,
        gradients: Callable[[Tensor], Tensor] | None = None,
        weights: bool = False,
    ) -> tuple[Tensor, Trace]:
        """Compute outputs at all positions in evaluation mode; see :meth:`Runner.run`."""
        sequences, length = inputs.shape[:2]
        names, edits = list(names), edits or {}
        # With nothing asked for, the points need not be listed either.
        known = [point.name for point in self.points()] if names or edits else []
        seen = observe(self, lambda tap: self(inputs, tap=tap), known, names, edits, gradients)
        trace = Trace(
            seen.values,
            np.arange(length),
            np.full(sequences, length),
            self.head_map(),
            {name: value.detach().clone() for name, value in self.named_parameters()}
            if weights
            else None,
            seen.gradients,
        )
        return seen.outputs, trace


class Streaming(ABC):
    """A network at work on sequences of which it is given one position after another."""

    @abstractmethod
    def __call__(self, inputs: Inputs) -> Tensor:
        """Take the inputs at the next position, ``[n]`` or ``[n, f]``, and return its outputs."""


class Initializer:
    """Draws initial parameters from a stream; torch's global generator is not touched.

    Args:
        stream: the same one gives the same bits.
    """

    def __init__(self, stream: Stream) -> None:
        self._generator = torch.Generator().manual_seed(stream.integer_seed("parameters"))

    def normal(self, *shape: int, deviation: float) -> nn.Parameter:
        """Return a parameter of independent normals with mean 0."""
        return nn.Parameter(torch.empty(shape).normal_(0.0, deviation, generator=self._generator))

    def linear(
        self, inward: int, outward: int, *, bias: bool = False, gain: float = 1.0
    ) -> nn.Linear:
        """Return a linear map that keeps the variance of its input, times ``gain`` squared."""
        # Made without memory first: torch would fill it from its global generator.
        layer = nn.Linear(inward, outward, bias=bias, device="meta").to_empty(device="cpu")
        with torch.no_grad():
            layer.weight.normal_(0.0, gain * inward**-0.5, generator=self._generator)
            if bias:
                layer.bias.zero_()
        return layer


class InputEmbedding(nn.Module):
    """Turns token ids (table) or real features (linear map) into vectors.

    Args:
        task: fixes the inputs.
        width: of the vectors.
        make: draws the initial values.
        deviation: standard deviation of the table's initial entries.
        bias: whether the linear map has one; a table never does.
    """

    def __init__(
        self, task: Task, width: int, make: Initializer, *, deviation: float, bias: bool = False
    ) -> None:
        super().__init__()
        if isinstance(task.inputs, TokenInputs):
            self.table = make.normal(task.inputs.vocabulary, width, deviation=deviation)
        else:
            self.map = make.linear(task.inputs.features, width, bias=bias)
        self._what = task.inputs

    def forward(self, inputs: Inputs) -> Float[Tensor, "n T width"]:
        """Embed a batch; numpy arrays are taken as well.

        Raises:
            InvalidInput: wrong number of axes, features or tokens, or real numbers for tokens.
        """
        device = next(self.parameters()).device
        values = torch.as_tensor(inputs, device=device)
        if not isinstance(self._what, TokenInputs):
            return self._embed_features(values)
        if values.dim() != 2 or values.is_floating_point():
            raise InvalidInput(f"expected token ids [n, T]; got {_described(values)}")
        try:
            return F.embedding(values, self.table)
        except IndexError:
            raise InvalidInput(
                f"token ids are 0 to {self._what.vocabulary - 1}; "
                f"got {int(values.min())} to {int(values.max())}"
            ) from None

    def _embed_features(self, values: Tensor) -> Tensor:
        features = self.map.in_features
        if values.dim() != 3 or values.shape[2] != features or not values.is_floating_point():
            raise InvalidInput(
                f"expected real features [n, T, {features}]; got {_described(values)}"
            )
        embedded: Tensor = self.map(values.to(self.map.weight.dtype))
        return embedded


class OutputHead(nn.Module):
    """Turns the normalised residual into logits, or into a mean and a log variance.

    Args:
        task: fixes the outputs.
        width: of the residual.
        head: "untied", a linear map, or "tied", the embedding rows of the outcomes.
        embedding: whose table a tied head reads; it holds no copy.
        make: draws the initial values.
        scale: multiplies the outputs; an untied map starts as many times smaller.
        bias: whether an untied head has one.
    """

    def __init__(
        self,
        task: Task,
        width: int,
        head: Head,
        embedding: InputEmbedding,
        make: Initializer,
        *,
        scale: float = 1.0,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self._scale = scale
        self._rows: slice | list[int] | None = None
        if head == "untied":
            self.map = make.linear(width, output_count(task), bias=bias, gain=1 / scale)
            return
        assert isinstance(task.outputs, CategoricalOutputs)  # checked by the specification
        support = list(task.outputs.support)
        first, last = support[0], support[-1]
        in_order = support == list(range(first, last + 1))
        self._rows = slice(first, last + 1) if in_order else support
        # In a tuple the embedding is not a submodule twice: its table is one parameter.
        self._embedding = (embedding,)

    def forward(self, x: Float[Tensor, "n Q width"]) -> Float[Tensor, "n Q outputs"]:
        """Return the outputs."""
        if self._rows is None:
            outputs: Tensor = self.map(x)
        else:
            outputs = F.linear(x, self._embedding[0].table[self._rows])
        return outputs if self._scale == 1 else outputs * self._scale


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + ε) times a gain (1910.07467)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """Normalise the last axis."""
        return F.rms_norm(x, self.weight.shape, self.weight, eps=1e-5)


def column_index(columns: Columns, length: int, device: torch.device) -> Int[Tensor, " Q"] | None:
    """Return columns as an index tensor, or None where they are all positions in order.

    Raises:
        InvalidInput: a column outside 0 ... ``length`` - 1, or none at all.
    """
    if columns is None:
        return None
    index = torch.as_tensor(columns, dtype=torch.int64, device=device)
    if index.dim() != 1 or not len(index) or int(index.min()) < 0 or int(index.max()) >= length:
        raise InvalidInput(
            f"columns are a list of positions 0 to {length - 1}; got {_described(index)} "
            f"{index.flatten().tolist()[:8]}"
        )
    everything = len(index) == length and bool((index == torch.arange(length, device=device)).all())
    return None if everything else index


def _described(values: Tensor) -> str:
    return f"{str(values.dtype).removeprefix('torch.')} {tuple(values.shape)}"
