"""One sequence of a task as a person would write it down, with the exact answers beside it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from beliefspace.core.config import to_dict
from beliefspace.core.distributions import Categorical
from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.tasks.base import (
    CategoricalOutputs,
    Predictive,
    Task,
    TokenInputs,
)

__all__ = ["example", "facts", "figures", "settings_in_words", "typical"]

_MOST_ROWS = 16


def facts(cls: type[Task]) -> dict[str, str]:
    """Return what there is to say about a task at its default settings.

    Args:
        cls: the task's class.
    """
    task = typical(cls)
    inputs, outputs = task.inputs, task.outputs
    tokens = isinstance(inputs, TokenInputs)
    return {
        "at settings": settings_in_words(task),
        "prior": task.prior,
        "inputs": f"[n, {task.length}] token ids 0 to {inputs.vocabulary - 1}"
        if isinstance(inputs, TokenInputs)
        else f"[n, {task.length}, {inputs.features}] real features",
        "outcomes": _outcomes(outputs, tokens)
        if isinstance(outputs, CategoricalOutputs)
        else "a real number (mean and log variance)",
        "prefix": f"{task.prefix} positions",
        "hypotheses": f"{figures(task.hypothesis_bits, 4)} bits"
        if math.isfinite(task.hypothesis_bits)
        else "a continuum",
        "primitives": ", ".join(task.primitives) or "none",
    }


def example(cls: type[Task]) -> dict[str, Any]:
    """Draw one short sequence of a task.

    Args:
        cls: the task's class; its first tiny instance is drawn from.

    Returns:
        ``task`` (its settings), ``length``, ``columns`` and ``rows`` (one a position, as text).
    """
    task = cls.tiny()[0]
    batch = task.batch(1, Stream(0, "example"))
    entry = {column: index for index, column in enumerate(batch.columns.tolist())}
    entropies = batch.predictive.entropy_bits()
    rows = []
    for position in range(min(task.length, _MOST_ROWS)):
        row = {"position": str(position), "input": _input(batch.inputs[0, position])}
        if position in entry:
            index = entry[position]
            row |= {
                "drawn": _drawn(task, batch.targets[0, position]),
                "Bayes": _believed(batch.predictive, index),
                "bits": figures(entropies[index]),
            }
        rows.append({"drawn": "", "Bayes": "", "bits": ""} | row)
    columns = ["position", "input", "drawn", "Bayes", "bits"]
    return {
        "task": settings_in_words(task),
        "length": task.length,
        "columns": columns,
        "rows": rows,
    }


def typical(cls: type[Task]) -> Task:
    """Return a task at its default settings, or its first tiny instance where some have none.

    Args:
        cls: the task's class.
    """
    try:
        return cls()
    except (TypeError, InvalidInput):  # settings without a default
        return cls.tiny()[0]


def figures(value: float, count: int = 3) -> str:
    """Return a number with so many significant figures, the same on every machine.

    Args:
        value: the number. What is beyond its ninth figure does not count: the last digits of a
            computation differ from machine to machine, and could tip 0.125 either way.
        count: figures kept, at most 6.
    """
    settled = float(f"{value:.9g}")
    return f"{float(f'{settled:.{count}g}'):g}"


def settings_in_words(task: Task) -> str:
    """Return a task's settings as ``name value, ...``; those that are None are left out."""
    settings = to_dict(task)
    return ", ".join(f"{name} {value}" for name, value in settings.items() if name != "kind")


def _outcomes(outputs: CategoricalOutputs, tokens: bool) -> str:
    first, last, count = outputs.support[0], outputs.support[-1], len(outputs.support)
    what = "tokens" if tokens else "indices"
    together = last - first + 1 == count
    shown = f"{first} to {last}" if together else ", ".join(map(str, outputs.support))
    return f"{count}: {what} {shown}"


def _input(value: Any) -> str:
    return " ".join(f"{number:.2f}" for number in value) if np.ndim(value) else str(value)


def _drawn(task: Task, target: np.integer | np.floating) -> str:
    if isinstance(task.outputs, CategoricalOutputs):
        return str(task.outputs.support[int(target)])
    return figures(float(target))


def _believed(predictive: Predictive, index: int) -> str:
    if not isinstance(predictive, Categorical):
        deviation = float(np.sqrt(predictive.variance[index]))
        return f"{figures(float(predictive.mean[index]))} ± {figures(deviation)}"
    probabilities = np.exp(predictive.log_probs[index])
    support = predictive.support or range(len(probabilities))
    order = np.argsort(-probabilities.round(9), kind="stable")[:4]  # what is equal stays in order
    shown = [f"{support[i]}: {figures(probabilities[i])}" for i in order if probabilities[i] > 0]
    more = int((probabilities > 0).sum()) - len(shown)
    return ", ".join(shown) + (f", {more} more" if more else "")
