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
"""A coin of unknown bias: each flip that is seen says more about the next one.

A bias is drawn from Beta(a, b) and the coin is flipped T + 1 times. After each of the first T flips
the next one is to be predicted. One sequence with a = b = 1 and T = 5::

    position    0     1     2     3     4
    input       1     1     0     1     1       (1 is heads)
    target      1     0     1     1     0       (the next flip)
    Bayes      2/3   3/4   3/5   2/3   5/7      (probability that it is heads)

With h heads among t flips the posterior is Beta(a + h, b + t - h), and its mean is the predictive:
(a + h) / (a + b + t).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from beliefspace.core.distributions import Categorical
from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import register
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.tasks import base


@register("tasks", "NAME")
@dataclass(frozen=True)
class CLASS(base.Task):
    """Predict the next flip of a coin whose bias is drawn anew for each sequence.

    Args:
        heads: a of the prior Beta(a, b), above 0.
        tails: b of the prior, above 0.
        flips: flips that are seen, T.
    """

    heads: float = 1.0
    tails: float = 1.0
    flips: int = 20

    primitives = ("accumulation",)
    inputs = base.TokenInputs(2)
    outputs = base.CategoricalOutputs((0, 1))
    hypothesis_bits = math.inf  # the bias is a real number

    def __post_init__(self) -> None:
        if min(self.heads, self.tails, self.flips) <= 0:
            raise InvalidInput(f"heads, tails and flips are above 0; got {self}")

    @property
    def length(self) -> int:
        return self.flips

    def batch(self, sequences: int, stream: Stream, step: int = 0) -> base.Batch:
        base.check_sequences(sequences)
        place = stream.uniforms(step, sequences, 1, "bias")
        bias = betaincinv(self.heads, self.tails, place)
        flips = (stream.uniforms(step, sequences, self.flips + 1, "flips") < bias).astype(np.int64)
        seen, following = flips[:, :-1], flips[:, 1:]
        scored = np.ones(seen.shape, dtype=bool)
        return base.Batch(seen, scored, following, bias, lambda: self.predictive(seen))

    def predictive(self, seen: np.ndarray) -> Categorical:
        heads, count = seen.cumsum(axis=1), np.arange(1, self.flips + 1)
        following = np.stack([self.tails + count - heads, self.heads + heads], axis=-1)
        chances = following / (self.heads + self.tails + count)[:, None]
        return Categorical(np.log(chances).reshape(-1, 2), self.outputs.support)

    @classmethod
    def tiny(cls) -> tuple[CLASS, ...]:
        return cls(flips=5), cls(2.0, 3.0, 6)

    def reference(self, batch: base.Batch) -> Categorical:
        """Bayes' rule, integrated over the bias by quadrature (exact where a and b are whole)."""
        nodes, weights = np.polynomial.legendre.leggauss(32)
        bias = (nodes + 1) / 2
        rows = []
        for flips in batch.inputs:
            posterior = weights * bias ** (self.heads - 1) * (1 - bias) ** (self.tails - 1)
            for flip in flips:
                posterior = posterior * (bias if flip else 1 - bias)
                heads = (posterior * bias).sum() / posterior.sum()
                rows.append([1 - heads, heads])
        return Categorical(np.log(np.array(rows)), self.outputs.support)
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
        f"test it:  python -m pytest {files[1]}",
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
