"""From any callable to a predictive distribution that can be scored.

A plain callable is given the inputs as a numpy array; a ``torch.nn.Module`` a tensor on its own
device, in evaluation mode and without gradients. Either returns one row of logits (or
log-probabilities) per position.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float64

from beliefspace.core.distributions import Categorical, Normal
from beliefspace.core.errors import InvalidInput
from beliefspace.core.information import log_softmax
from beliefspace.core.taps import evaluating
from beliefspace.windtunnel.tasks.base import (
    Batch,
    CategoricalOutputs,
    Predictive,
    Task,
    TokenInputs,
)

Predictor = Callable[[Any], Any]

_CHUNK = 256  # sequences given to a predictor at once


def predict(predictor: Predictor, task: Task, batch: Batch) -> Predictive:
    """Return what a predictor believes at the scored positions of a batch.

    Args:
        predictor: a callable from inputs ``[n, T]`` (or ``[n, T, f]``) to outputs ``[n, T, k]``.
            For a categorical task k is the number of outcomes, or the size of the input vocabulary:
            then the whole vocabulary is scored and the mass outside the support counts as leaked.
            For a normal task k = 2: mean and log variance.
        task: the task that drew the batch.
        batch: the sequences.

    Returns:
        ``s`` rows, float64 (softmax included).

    Raises:
        InvalidInput: if the outputs have another shape or are not numbers.
    """
    if not callable(predictor):
        raise InvalidInput(f"a predictor is a callable; got {predictor!r}")
    rows = len(batch.inputs)
    scored = []
    for first in range(0, rows, _CHUNK):
        part = slice(first, first + _CHUNK)
        # A copy: a predictor may write on what it is given.
        outputs = _call(predictor, batch.inputs[part].copy())
        _check_shape(outputs, batch.inputs[part], task)
        scored.append(outputs[batch.scored[part]])
    values = np.concatenate(scored).astype(np.float64)
    if isinstance(task.outputs, CategoricalOutputs):
        support = task.outputs.support
        whole = support if values.shape[1] == len(support) else tuple(range(values.shape[1]))
        return Categorical(log_softmax(values), whole)
    with np.errstate(over="ignore"):  # an infinite variance is refused with its row
        return Normal(values[:, 0], np.exp(values[:, 1]))


def _call(predictor: Predictor, inputs: np.ndarray) -> Float64[np.ndarray, "n T k"]:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(predictor, torch.nn.Module):
        outputs = predictor(inputs)
    else:
        state = next(iter([*predictor.parameters(), *predictor.buffers()]), None)
        device = "cpu" if state is None else state.device
        with evaluating(predictor), torch.no_grad():
            outputs = predictor(torch.from_numpy(inputs).to(device))
    if torch is not None and isinstance(outputs, torch.Tensor):
        if not outputs.is_floating_point():
            raise InvalidInput(f"a predictor returned {outputs.dtype}; expected real numbers")
        outputs = outputs.detach().to("cpu", torch.float64).numpy()
    try:
        return np.asarray(outputs)
    except ValueError:
        raise InvalidInput(
            f"a predictor returned a {type(outputs).__name__} that is no array; expected logits"
        ) from None


def _check_shape(outputs: np.ndarray, inputs: np.ndarray, task: Task) -> None:
    widths = {2}
    if isinstance(task.outputs, CategoricalOutputs):
        widths = {len(task.outputs.support)}
        if isinstance(task.inputs, TokenInputs):
            widths.add(task.inputs.vocabulary)
    expected = " or ".join(str([*inputs.shape[:2], width]) for width in sorted(widths))
    if outputs.ndim != 3 or outputs.shape[:2] != inputs.shape[:2] or outputs.shape[2] not in widths:
        raise InvalidInput(f"a predictor returned {list(outputs.shape)}; expected {expected}")
    if not np.issubdtype(outputs.dtype, np.floating):
        raise InvalidInput(f"a predictor returned {outputs.dtype}; expected real numbers")
