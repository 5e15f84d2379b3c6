"""Whether a batch is laid out as the contract says; asked before anything is trained or scored."""

from __future__ import annotations

import numpy as np

from beliefspace.core.distributions import Categorical, Normal
from beliefspace.core.errors import InvalidInput
from beliefspace.windtunnel.tasks.base import (
    Batch,
    CategoricalOutputs,
    RealInputs,
    Task,
    TokenInputs,
)


def check_layout(task: Task, batch: Batch, sequences: int) -> None:
    """Raise unless a batch is laid out as the contract says.

    Raises:
        InvalidInput: the task's class, and what is wrong.
    """
    problem = layout_problem(task, batch, sequences)
    if problem:
        raise InvalidInput(f"the task {type(task).__name__} breaks its contract: {problem}")


def layout_problem(task: Task, batch: Batch, sequences: int) -> str:
    """Say what is wrong with the shapes, types, ids or targets of a batch, or nothing.

    Args:
        task: that drew the batch.
        batch: of ``sequences`` rows.
        sequences: how many were asked for.
    """
    shape = (sequences, task.length)
    return (
        _inputs(task, batch, shape)
        or _scored(batch, shape)
        or _kinds(task, batch)
        or _targets(batch)
    )


def _inputs(task: Task, batch: Batch, shape: tuple[int, int]) -> str:
    if isinstance(task.inputs, TokenInputs):
        if batch.inputs.shape != shape or batch.inputs.dtype != np.int64:
            return f"inputs are not int64 token ids of shape {shape}"
        if batch.inputs.min() < 0 or batch.inputs.max() >= task.inputs.vocabulary:
            return f"a token id is outside 0 to {task.inputs.vocabulary - 1}"
    elif isinstance(task.inputs, RealInputs):
        expected = (*shape, task.inputs.features)
        if batch.inputs.shape != expected or batch.inputs.dtype != np.float32:
            return f"inputs are not float32 of shape {expected}"
    return ""


def _scored(batch: Batch, shape: tuple[int, int]) -> str:
    if batch.scored.shape != shape or batch.scored.dtype != np.bool_ or not batch.scored.any():
        return f"scored is not bool of shape {shape}, or nothing is scored"
    if batch.targets.shape != shape:
        return f"targets are not of shape {shape}"
    return ""


def _kinds(task: Task, batch: Batch) -> str:
    exact, outputs = batch.predictive, task.outputs
    if isinstance(outputs, CategoricalOutputs):
        if not isinstance(exact, Categorical) or exact.support != outputs.support:
            return "the predictive is not over the support that the outputs name"
        if batch.targets.dtype != np.int64:
            return f"targets are {batch.targets.dtype}; expected int64 indices into the support"
    elif not isinstance(exact, Normal) or batch.targets.dtype.kind != "f":
        return "normal outputs need a normal predictive and real targets"
    if exact.rows != batch.scored.sum():
        return f"{exact.rows} predictives for {batch.scored.sum()} scored positions"
    return ""


def _targets(batch: Batch) -> str:
    """Each sampled outcome must be possible, and only scored positions have one."""
    exact = batch.predictive
    if not isinstance(exact, Categorical):
        return ""
    if (batch.targets[~batch.scored] != -1).any():
        return "a position that is not scored has a target other than -1"
    outcomes = exact.log_probs.shape[1]
    if batch.outcomes.min() < 0 or batch.outcomes.max() >= outcomes:
        return f"a scored position has a target outside 0 to {outcomes - 1}"
    if not np.isfinite(exact.surprisal_bits(batch.outcomes)).all():
        return "a sampled outcome has probability 0"
    return ""
