"""A bag of the values seen: what elimination needs, and no binding of values to keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beliefspace.core.checks import check_finite
from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import register
from beliefspace.windtunnel.models.base import ModelSpec
from beliefspace.windtunnel.tasks.base import Task
from beliefspace.windtunnel.tasks.bijection import Bijection

if TYPE_CHECKING:
    from beliefspace.core.streams import Stream
    from beliefspace.windtunnel.networks.bag_of_values import BagOfValuesNetwork


@register("models", "bag-of-values")
@dataclass(frozen=True)
class BagOfValues(ModelSpec):
    """A recurrent network set by hand: a logit of -``penalty`` for each value seen, else 0.

    It is a control, with no parameter to train. On a bijection without a pool whose keys never
    come again (format B, distinct keys) it is Bayes up to exp(-penalty); where a key has to be
    recalled it is as wrong as a model that has learned to eliminate and nothing else.

    Args:
        penalty: in nats, more than 0. At 20, with 19 pairs of 20 values, entropies are right to
            1.1e-7 bits.

    Raises:
        InvalidInput: a penalty that is no such number.
    """

    penalty: float = 20.0

    def __post_init__(self) -> None:
        check_finite("penalty", self.penalty, above=0)

    def build(self, task: Task, stream: Stream) -> BagOfValuesNetwork:
        """Return the network, which does not depend on the stream.

        Raises:
            InvalidInput: the task shows no pairs of keys and values.
        """
        pairs = pairs_task(task)
        from beliefspace.windtunnel.networks.bag_of_values import BagOfValuesNetwork

        return BagOfValuesNetwork(self, pairs)

    def parameters(self, task: Task) -> int:
        """Return the number of parameters: embedding, phase and read-out; none is trained."""
        pairs = pairs_task(task)
        return pairs.inputs.vocabulary * pairs.values + 2 + pairs.values**2

    def operations(self, task: Task) -> float:
        """Return what training would cost; see :meth:`ModelSpec.operations`."""
        return 6.0 * task.length * pairs_task(task).values ** 2


def pairs_task(task: Task) -> Bijection:
    """Return the task as the one that shows pairs.

    Raises:
        InvalidInput: it is another one.
    """
    if isinstance(task, Bijection):
        return task
    raise InvalidInput(
        f"bag-of-values gathers the values of pairs, so it is for the task bijection; "
        f"got {type(task).__name__}"
    )
