"""Results that need no training: reference predictors and properties of the task itself.

The result has the form of a run's ``result.json``, as far as it goes::

    score.ladder.NAME.MEASURE.mean       a predictor of the ladder, see windtunnel/ladder.py
    task.hypothesis_bits                 entropy of the prior over the latent
    task.constant_entropy_error_bits     mean |H - median H| over the exact predictive's entropies
                                         H: what the best single guess of an entropy scores
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from beliefspace.core.errors import unknown_name
from beliefspace.core.jsonable import jsonable
from beliefspace.windtunnel.calibration import evaluation_batch, measure
from beliefspace.windtunnel.ladder import ladder
from beliefspace.windtunnel.tasks.base import Task

SEQUENCES = 256
SEEDS = (0, 1, 2)
"""Evaluation sets: their number is what a verdict's interval is over."""


def training_free_result(task: Task, quantity: str, seed: int) -> dict[str, Any]:
    """Compute the part of a training-free result that a quantity is in.

    Args:
        task: any task.
        quantity: dotted path into the result; only the predictor that it names is measured.
        seed: of the evaluation set.

    Raises:
        UnknownName: the ladder has no such predictor.
    """
    parts = quantity.split(".")
    if parts[:2] == ["score", "ladder"] and len(parts) > 2:
        return {"score": {"ladder": {parts[2]: _rung(task, parts[2], seed)}}}
    return {"task": _properties(task, seed)}


@lru_cache(maxsize=256)
def _rung(task: Task, name: str, seed: int) -> Any:
    batch = evaluation_batch(task, SEQUENCES, seed)
    rungs = ladder(task, batch)
    if name not in rungs:
        raise unknown_name("predictor of the ladder", name, rungs)
    return jsonable(measure(rungs[name], batch, seed))


@lru_cache(maxsize=256)
def _properties(task: Task, seed: int) -> dict[str, float]:
    entropies = evaluation_batch(task, SEQUENCES, seed).predictive.entropy_bits()
    spread = np.abs(entropies - np.median(entropies)).mean()
    return {
        "hypothesis_bits": task.hypothesis_bits,
        "constant_entropy_error_bits": float(spread),
    }
