"""What a model specification is: a frozen description that counts its parameters and builds itself.

Specifications import no torch; it is imported when one is built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Literal

from beliefspace.core.errors import InvalidInput
from beliefspace.windtunnel.tasks.base import CategoricalOutputs, Task, TokenInputs

if TYPE_CHECKING:
    from beliefspace.core.streams import Stream
    from beliefspace.windtunnel.networks.base import Network

Head = Literal["untied", "tied"]


class ModelSpec(ABC):
    """A kind and size of model; a frozen dataclass registered under a short name."""

    group: ClassVar[str] = "models"

    @abstractmethod
    def build(self, task: Task, stream: Stream) -> Network:
        """Return an untrained network for a task.

        Args:
            task: fixes inputs, outputs, length and prefix.
            stream: the source of the initial parameters; the same stream gives the same bits.

        Raises:
            InvalidInput: the model does not suit the task.
        """

    @abstractmethod
    def parameters(self, task: Task) -> int:
        """Return the number of parameters of the network for a task, without building it."""

    @abstractmethod
    def operations(self, task: Task) -> float:
        """Return the floating-point operations of training on one sequence, forward and backward.

        A multiplication and an addition count as two; only matrix products are counted, the
        backward pass as twice the forward.
        """

    @classmethod
    def tiny(cls) -> tuple[ModelSpec, ...]:
        """Return instances small enough to check every rule of the contract on.

        By default one of width 8 and depth 2, as far as there are such settings. A model with
        variants that compute differently returns one of each.
        """
        small = {"width": 8, "depth": 2}
        settings = getattr(cls, "__dataclass_fields__", {})
        return (cls(**{name: size for name, size in small.items() if name in settings}),)


@dataclass(frozen=True, kw_only=True)
class Sized(ModelSpec):
    """A model whose width can follow from the size of another.

    Args:
        match: None, or the registered name of a model: the width is then chosen so that the number
            of parameters is that of the arm of this name it is trained beside, or else of that
            model at its default settings, within 2 %. A recipe does so; by itself such a model has
            no width yet, and is neither counted nor built.

    Raises:
        InvalidInput: a width of its own beside ``match``.
    """

    match: str | None = None

    def __post_init__(self) -> None:
        own = {setting.name: setting.default for setting in fields(self)}
        width = getattr(self, "width", None)
        if self.match is not None and width != own.get("width"):
            raise InvalidInput(
                f"the width of {type(self).__name__} is to follow from that of {self.match} "
                f"(match), so it cannot be given; got width {width!r}"
            )

    def check_width_is_known(self) -> None:
        """Raise while the width is still to be chosen.

        Raises:
            InvalidInput: ``match`` is set.
        """
        if self.match is not None:
            raise InvalidInput(
                f"the width of {type(self).__name__} is still to be chosen, to match {self.match}: "
                "a recipe does so for its task; elsewhere call "
                "beliefspace.windtunnel.models.match.resolved(spec, task)"
            )


def output_count(task: Task) -> int:
    """Return the numbers per position that a model gives: logits, or mean and log variance."""
    outputs = task.outputs
    return len(outputs.support) if isinstance(outputs, CategoricalOutputs) else 2


def input_parameters(task: Task, width: int, *, biases: bool) -> int:
    """Count an embedding table, or the matrix of a linear embedding of real features."""
    if isinstance(task.inputs, TokenInputs):
        return task.inputs.vocabulary * width
    return task.inputs.features * width + width * biases


def head_parameters(task: Task, width: int, head: Head, *, biases: bool) -> int:
    """Count what turns the last residual into outputs; a tied head has no parameters of its own."""
    if head == "tied":
        check_tied(task)
        return 0
    return (width + biases) * output_count(task)


def check_tied(task: Task) -> None:
    """Raise unless outputs are tokens of the inputs, so that a head can be tied to the embedding.

    Raises:
        InvalidInput: the task has real inputs, real outputs, or outcomes that are not input tokens.
    """
    inputs, outputs = task.inputs, task.outputs
    if isinstance(inputs, TokenInputs) and isinstance(outputs, CategoricalOutputs):
        if max(outputs.support) < inputs.vocabulary:
            return
        what = f"outcomes up to {max(outputs.support)} and {inputs.vocabulary} input tokens"
    else:
        what = f"{type(inputs).__name__} and {type(outputs).__name__}"
    raise InvalidInput(
        f"a tied head needs outcomes that are input tokens; {type(task).__name__} has {what}; "
        'use head = "untied"'
    )
