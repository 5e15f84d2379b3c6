"""One sequence of any task has to fit into memory: settings for which it would not are refused."""

from __future__ import annotations

import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.windtunnel.tasks.bijection import Bijection
from beliefspace.windtunnel.tasks.boolean import BooleanFunction
from beliefspace.windtunnel.tasks.disambiguation import DelayedDisambiguation
from beliefspace.windtunnel.tasks.gaussian_chain import GaussianChain
from beliefspace.windtunnel.tasks.hmm import HMM
from beliefspace.windtunnel.tasks.process import Process
from beliefspace.windtunnel.tasks.recall import AssociativeRecall
from beliefspace.windtunnel.tasks.recurrence import ModularRecurrence


def die(sides):
    """A process without memory: one state, to which every token leads back."""
    return Process("custom", 100_000, matrices=(((1 / sides,),),) * sides)


# How a task is made from one setting, the largest that fits, and what the next one would need.
LARGEST = [
    (lambda pairs: Bijection(1000, pairs, keys="repeated"), 10_000, (20_001, 1000)),
    (lambda examples: BooleanFunction(10, examples), 909_091, (10_000_011, 2)),
    (lambda filler: DelayedDisambiguation(2, 1000, filler), 19_997, (20_001, 1000)),
    (lambda symbols: GaussianChain(symbols, 1, 100_000), 200, (100_000, 201)),
    (lambda shown: HMM(200, 200, shown, generator="dirichlet"), 99_600, (100_001, 200)),
    (lambda shown: HMM(2, 1000, shown, "rows", "symbol", "dirichlet"), 19_996, (20_001, 1000)),
    (lambda filler: AssociativeRecall(2, 2, 1000, 1, filler), 19_989, (20_001, 1000)),
    (lambda length: ModularRecurrence(1000, length), 20_000, (20_001, 1000)),
    (die, 200, (100_000, 201)),
]


@pytest.mark.parametrize(("made", "most", "needed"), LARGEST)
def test_the_largest_task_that_fits_is_made_and_the_next_is_refused(made, most, needed):
    task = made(most)
    assert task.length * len(task.outputs.support) <= 20_000_000
    with pytest.raises(InvalidInput) as caught:
        made(most + 1)
    positions, outcomes = needed
    assert str(caught.value) == (
        f"{type(task).__name__} has {positions:,} positions and {outcomes:,} outcomes; "
        "expected at most 20,000,000 of one times the other"
    )
