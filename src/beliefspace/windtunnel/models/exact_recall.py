"""Exact recall of values by their keys, written as a transformer or a recurrent network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from beliefspace.core.checks import check_choice, check_finite, check_within
from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import register
from beliefspace.windtunnel.models.base import ModelSpec
from beliefspace.windtunnel.tasks.base import Task
from beliefspace.windtunnel.tasks.bijection import Bijection
from beliefspace.windtunnel.tasks.recall import FIRST_KEY, AssociativeRecall

if TYPE_CHECKING:
    from beliefspace.core.streams import Stream
    from beliefspace.windtunnel.networks.exact_recall import RecallNetwork

Style = Literal["transformer", "recurrent"]

LEAST_SHARPNESS = 50.0
"""On short sequences it leaves 3e-12 bits, as 80 does; 30 leaves 2e-8, 20 leaves 5e-4, 5 over 3."""


@register("models", "exact-recall")
@dataclass(frozen=True)
class ExactRecall(ModelSpec):
    """A network set by hand that binds values to keys; it has no parameter to train.

    On recall, and on every bijection without a finite pool, it is Bayes up to exp(-confidence):
    where the key was seen it answers with its value, else with every value that is not ruled out.
    (With a pool it follows the full prior.)

    Args:
        style: "transformer", two layers of attention, the first of which puts each key next to its
            value, while the second looks the key up; or "recurrent", whose state is a table of
            keys by values, and grows as their product.
        confidence: in nats, how far the logit of an answer stands out at least, more than 0.
        sharpness: of the transformer's attention: the score of a head where it should look, 50 to
            1000. What it should not see keeps a weight of about exp(-sharpness / 2), at 50 so
            little that only ``confidence`` limits how exact the answers are.

    Raises:
        InvalidInput: settings that are no such numbers, or no such style.
    """

    style: Style = "transformer"
    confidence: float = 30.0
    sharpness: float = 80.0

    def __post_init__(self) -> None:
        check_choice("style", self.style, get_args(Style))
        check_finite("confidence", self.confidence, above=0)
        check_within("sharpness", self.sharpness, LEAST_SHARPNESS, 1000)

    @classmethod
    def tiny(cls) -> tuple[ExactRecall, ...]:
        """Both styles."""
        return (cls(), cls("recurrent"))

    def build(self, task: Task, stream: Stream) -> RecallNetwork:
        """Return the network, which does not depend on the stream.

        Raises:
            InvalidInput: the task shows no pairs of keys and values.
        """
        pairs = Pairing.of(task)
        from beliefspace.windtunnel.networks import exact_recall

        if self.style == "recurrent":
            return exact_recall.RecurrentRecall(self, task, pairs)
        return exact_recall.TransformerRecall(self, task, pairs)

    def parameters(self, task: Task) -> int:
        """Return the number of parameters: mostly zeros and ones; none is trained."""
        pairs = Pairing.of(task)
        answers = pairs.values * (1 + pairs.eliminates)
        ends = pairs.vocabulary * self.width(task) + 2 + answers * pairs.values
        if self.style == "recurrent":
            return ends
        width, heads, found = self.width(task), 1 + pairs.eliminates, pairs.keys + 1
        beside = pairs.delay + 2 + 2 * pairs.keys * width
        return ends + beside + heads * (2 * found * width + found + 2 * pairs.values * width)

    def width(self, task: Task) -> int:
        """Return the width of the embedding; for the transformer of its residual."""
        pairs = Pairing.of(task)
        token = pairs.keys + pairs.values + 1
        if self.style == "recurrent":
            return token
        return token + pairs.keys + pairs.values * (1 + pairs.eliminates)

    def operations(self, task: Task) -> float:
        """Return what training would cost; see :meth:`ModelSpec.operations`."""
        pairs, length = Pairing.of(task), task.length
        keys, values, heads = pairs.keys, pairs.values, 1 + pairs.eliminates
        ends = length * values**2 * heads
        if self.style == "recurrent":
            return 6.0 * (ends + 3 * length * keys * values)
        width = self.width(task)
        beside = 2 * length * keys * width + length**2 * keys
        look_up = 2 * length * (keys + 1 + values) * width + length**2 * (keys + 1 + values)
        return 6.0 * (ends + beside + heads * look_up)


@dataclass(frozen=True)
class Pairing:
    """Where a task's tokens hold keys and values.

    Attributes:
        vocabulary: tokens.
        first_key: token of key 0.
        keys: how many there are.
        first_value: token of value 0.
        values: how many there are.
        delay: positions from a key to its value.
        alternates: whether keys and values share tokens, so that the position tells them apart:
            values are at the odd ones.
        eliminates: whether a value that is taken cannot be that of another key.
        pairs: most pairs in a sequence.
    """

    vocabulary: int
    first_key: int
    keys: int
    first_value: int
    values: int
    delay: int
    alternates: bool
    eliminates: bool
    pairs: int

    @classmethod
    def of(cls, task: Task) -> Pairing:
        """Read it off a task.

        Raises:
            InvalidInput: the task shows no pairs of keys and values.
        """
        if isinstance(task, AssociativeRecall):
            first_key, keys, pairs = FIRST_KEY, task.keys, task.pairs
            # A sequence reads STORE key SEP value.
            delay, alternates, eliminates = 2, False, False
        elif isinstance(task, Bijection):
            first_key, keys, pairs = 0, task.values, task.shown
            delay, alternates = 1, task.format == "A"
            eliminates = task.mapping == "bijection"
        else:
            raise InvalidInput(
                "exact-recall binds values to keys, so it is for the tasks recall and bijection; "
                f"got {type(task).__name__}"
            )
        first_value = task.outputs.support[0]
        vocabulary, values = task.inputs.vocabulary, task.values
        return cls(
            vocabulary, first_key, keys, first_value, values, delay, alternates, eliminates, pairs
        )
