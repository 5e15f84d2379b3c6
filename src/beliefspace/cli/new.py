"""``new``: a task of one's own to start from, complete and tested, that is then changed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from beliefspace.cli.arguments import parse
from beliefspace.cli.console import Answer
from beliefspace.core import registry
from beliefspace.core.errors import InvalidInput, unknown_name
from beliefspace.core.store import write_atomic

__all__ = ["new"]

_KINDS = ("task",)

TASK = '''\
"""Which coin is it: one of N coins of known bias, and its flips one after another.

Coin k of N falls on heads with probability k / (N + 1). One is picked and flipped; after each flip
the next is to be predicted. One sequence with N = 3 coins and T = 4 flips that are seen::

    position     0     1      2      3
    input        1     1      0      1       (1 is heads)
    target       1     0      1      1       (the next flip)
    Bayes       7/12  9/14  23/40  29/46     (probability that it is heads)
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from beliefspace.core.distributions import Categorical
from beliefspace.core.errors import InvalidInput
from beliefspace.core.information import log_softmax
from beliefspace.core.registry import register
from beliefspace.windtunnel.tasks import base


@register("tasks", "NAME")
@dataclass(frozen=True)
class CLASS(base.Task):
    """Predict the next flip of a coin that is picked anew for each sequence.

    Args:
        coins: how many there are to pick from, N >= 2.
        length: flips that are seen, T >= 1.
    """

    coins: int = 9
    length: int = 20
    prior, primitives = "each coin alike", ("accumulation",)
    inputs, outputs = base.TokenInputs(2), base.CategoricalOutputs((0, 1))

    def __post_init__(self):
        if self.coins < 2 or self.length < 1:
            raise InvalidInput(f"a coin task needs 2 coins and 1 flip or more; got {self}")

    @property
    def hypothesis_bits(self):
        return float(np.log2(self.coins))

    def batch(self, sequences, stream, step=0):
        base.check_sequences(sequences)
        coin = stream.integers(step, sequences, 1, self.coins, "coin")
        chance = stream.uniforms(step, sequences, self.length + 1, "flips")
        flips = (chance < (coin + 1) / (self.coins + 1)).astype(np.int64)
        seen, following = flips[:, :-1], flips[:, 1:]
        scored, exact = np.ones(seen.shape, bool), lambda: self.predictive(seen)
        return base.Batch(seen, scored, following, coin, exact, lambda: self.belief(seen))

    def belief(self, seen):
        bias = np.arange(1, self.coins + 1) / (self.coins + 1)
        heads, tails = seen.cumsum(1)[..., None], (1 - seen).cumsum(1)[..., None]
        weights = heads * np.log(bias) + tails * np.log1p(-bias)
        return Categorical(log_softmax(weights.reshape(-1, self.coins)))

    def predictive(self, seen):
        heads = np.exp(self.belief(seen).log_probs) @ np.arange(1, self.coins + 1)
        odds = np.stack([self.coins + 1 - heads, heads], axis=1)
        return Categorical(np.log(odds / (self.coins + 1)), (0, 1))

    @classmethod
    def tiny(cls):
        return cls(2, 5), cls(3, 4)

    def reference(self, batch):
        """Bayes' rule flip by flip, in exact fractions."""
        coins, rows = [Fraction(k, self.coins + 1) for k in range(1, self.coins + 1)], []
        for flips in batch.inputs:
            weights = [Fraction(1, self.coins)] * self.coins
            for flip in flips:
                weights = [w * (p if flip else 1 - p) for w, p in zip(weights, coins, strict=True)]
                heads = sum(w * p for w, p in zip(weights, coins, strict=True)) / sum(weights)
                rows.append([float(1 - heads), float(heads)])
        return Categorical(np.log(np.array(rows)), (0, 1))
'''

TEST = '''\
"""The task keeps the contract; above all, its posterior is the one derived independently."""

from pathlib import Path

import pytest

from beliefspace.core.registry import load_file, resolve
from beliefspace.windtunnel.conformance import check_task

load_file(Path(__file__).with_name("MODULE.py"))


@pytest.mark.parametrize("task", resolve("tasks", "NAME").tiny(), ids=str)
def test_the_task_keeps_the_contract(task):
    check_task(task)
'''


@dataclass(frozen=True)
class Options:
    """What is made, and where.

    Args:
        out: directory of the two files; it is made where it does not exist.
        json: one JSON object.
    """

    kind: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="KIND", help="what to start: task")
    ]
    name: Annotated[
        str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME", help="its registered name")
    ]
    out: Path = Path(".")
    json: bool = False


def new(arguments: Sequence[str]) -> Answer:
    """Start a task of your own: NAME.py, a whole small task, and test_NAME.py, which passes."""
    options = parse(Options, arguments, "new", str(new.__doc__))
    if options.kind not in _KINDS:
        raise unknown_name("kind", options.kind, _KINDS)
    name = _checked(options.name)
    words = re.split(r"[-_.]", name)
    module, title = "_".join(words), "".join(word.capitalize() for word in words)
    texts = {options.out / f"{module}.py": TASK, options.out / f"test_{module}.py": TEST}
    for file in texts:
        if file.exists():
            raise InvalidInput(f"{file} exists already; choose another name or --out")
    options.out.mkdir(parents=True, exist_ok=True)
    files = list(texts)
    try:
        for file, text in texts.items():
            named = text.replace("NAME", name).replace("CLASS", title).replace("MODULE", module)
            write_atomic(file, named)
    except BaseException:
        for file in files:
            file.unlink(missing_ok=True)
        raise
    hints = (
        f"wrote {files[0]} and {files[1]}",
        f"test it:  python -m pytest {files[1]}   (after: python -m pip install pytest)",
        f"train it: beliefspace train {files[0]} --schedule.budget 1min",
    )
    return Answer(("\n".join(hints),), {"name": name, "files": files}, options.json)


def _checked(name: str) -> str:
    """Return the name of a new task, if it can be one."""
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_.][a-z0-9]+)*", name):
        raise InvalidInput(
            f"{name!r} cannot be a task's name: expected lower-case letters and digits, "
            "a letter first, joined by - _ or ."
        )
    if name in registry.names("tasks"):
        raise InvalidInput(f"there is a task {name!r} already; see: beliefspace describe {name}")
    return name
