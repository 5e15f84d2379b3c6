"""The exact filter of a hidden Markov chain, written as a recurrent network or a transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from beliefspace.core.checks import check_choice, check_whole
from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import register
from beliefspace.windtunnel.models.base import ModelSpec
from beliefspace.windtunnel.tasks.base import RealInputs, Task
from beliefspace.windtunnel.tasks.hmm import HMM

if TYPE_CHECKING:
    from beliefspace.core.streams import Stream
    from beliefspace.windtunnel.networks.exact_filter import FilterNetwork

Style = Literal["recurrent", "transformer"]


@register("models", "exact-filter")
@dataclass(frozen=True)
class ExactFilter(ModelSpec):
    """A network set by hand that filters a hidden Markov chain; it has no parameter to train.

    It reads the chain's parameters from a header of rows, or has those that the task gives. It
    shows what its unit can express, not what training finds, nor what the models that learn here
    could: the feed-forward multiplies two vectors that both depend on the data, and normalises. No
    learned transformer here has such a unit; and "recurrent" is a bilinear recurrence in which the
    matrices read from the header are fast weights, not an LSTM.

    Args:
        style: "recurrent", whose state is the belief itself and which is exact at any length; or
            "transformer", in which each layer takes the belief that the layer below has of the
            position before and moves it one observation further.
        window: layers of the transformer, each of which lengthens its memory by an observation, so
            that it is the filter "window-w" of the task's ladder; by default as many as the task
            has observations, which makes it exact. A recurrent network has no window.

    Raises:
        InvalidInput: a window for a recurrent network, or settings that are out of range.
    """

    style: Style = "recurrent"
    window: int | None = None

    def __post_init__(self) -> None:
        check_choice("style", self.style, get_args(Style))
        if self.window is None:
            return
        check_whole("window", self.window, 1, most=1000)
        if self.style == "recurrent":
            raise InvalidInput(
                f"a recurrent filter remembers everything; got window {self.window} (leave it out, "
                'or use style = "transformer")'
            )

    @classmethod
    def tiny(cls) -> tuple[ExactFilter, ...]:
        """Both styles, the transformer exact and with a window."""
        return (cls(), cls("transformer"), cls("transformer", 2))

    def layers(self, task: Task) -> int:
        """Return how many observations the transformer sees, one a layer; 1 if recurrent."""
        if self.style == "recurrent":
            return 1
        return hmm_task(task).steps if self.window is None else self.window

    def build(self, task: Task, stream: Stream) -> FilterNetwork:
        """Return the network, which does not depend on the stream.

        Raises:
            InvalidInput: the task is no HMM with a header of rows or with given parameters.
        """
        chain = hmm_task(task)
        from beliefspace.windtunnel.networks import exact_filter

        if self.style == "recurrent":
            return exact_filter.RecurrentFilter(self, chain)
        return exact_filter.TransformerFilter(self, chain)

    def parameters(self, task: Task) -> int:
        """Return the number of parameters: mostly zeros and ones; none is trained."""
        chain = hmm_task(task)
        states, symbols, shown = chain.states, chain.symbols, chain.shown == "rows"
        inputs = 2 * (states + symbols) if shown else symbols
        own = states + (0 if shown else states * (states + symbols))
        if self.style == "recurrent":
            return inputs**2 + own
        width, layers = self.width(task), self.layers(task)
        # A head to find each state's rows; then one to look at the position before, a layer each.
        find = states * (2 * states * width + states + 2 * (states + symbols) * width)
        return (
            inputs * width
            + own
            + (find if shown else 0)
            + (layers - 1) * (_DISTANCES + 2 * states * width)
        )

    def width(self, task: Task) -> int:
        """Return the width of the transformer's residual, in which nothing is ever overwritten."""
        chain = hmm_task(task)
        states, symbols, shown = chain.states, chain.symbols, chain.shown == "rows"
        read = 2 * (states + symbols) + states * (states + symbols) if shown else symbols
        return read + (2 * self.layers(task) - 1) * states

    def operations(self, task: Task) -> float:
        """Return what training would cost; see :meth:`ModelSpec.operations`."""
        chain = hmm_task(task)
        states, symbols, length = chain.states, chain.symbols, task.length
        update = length * (states**2 + states * symbols)
        if self.style == "recurrent":
            return 6.0 * update
        width, layers = self.width(task), self.layers(task)
        before = 2 * length * states * width + length**2 * states
        find = states * (2 * length * states * width + length**2 * (2 * states + symbols))
        find += 2 * length * states * (states + symbols) * width
        shown = isinstance(task.inputs, RealInputs)
        return 6.0 * (layers * update + (layers - 1) * before + shown * find)


_DISTANCES = 3  # that a head which looks one back tells apart: itself, the one before, farther


def hmm_task(task: Task) -> HMM:
    """Return the task as one whose chain a network can know.

    Raises:
        InvalidInput: it is no HMM, or its parameters are in tokens or have to be inferred.
    """
    if not isinstance(task, HMM):
        raise InvalidInput(f"exact-filter is for the task hmm; got {type(task).__name__}")
    if task.shown == "rows" or task.transition is not None:
        return task
    raise InvalidInput(
        "exact-filter reads a header of rows, or has the parameters that a task gives; got header "
        f'"{task.shown}" (use header = "rows", or give transition and emission)'
    )
