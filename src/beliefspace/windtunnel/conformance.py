"""What every task must satisfy, as one call; the tests run it over everything that is registered.

A task's own ``tiny()`` instances and ``reference()`` are what make this an independent check of its
posterior.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from beliefspace.core.config import from_toml, to_toml
from beliefspace.core.distributions import Categorical, Normal
from beliefspace.core.errors import BeliefspaceError
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.calibration import evaluation_batch, measure
from beliefspace.windtunnel.ladder import ladder
from beliefspace.windtunnel.tasks.base import (
    Batch,
    Predictive,
    Task,
    TokenInputs,
)
from beliefspace.windtunnel.tasks.layout import layout_problem

SEQUENCES = 24
DISJOINT_BITS = 40.0
"""From this many bits of hypotheses on, a latent drawn twice would be a defect and not chance."""


class ConformanceError(BeliefspaceError):
    """A task breaks the contract; the message says which task, which rule, and how."""


def check_task(task: Task) -> None:
    """Check one (tiny) task against every rule of the contract.

    Raises:
        ConformanceError: on the first rule that is broken.
    """
    for rule in RULES:
        try:
            problem = rule(task)
        except BeliefspaceError as error:
            problem = str(error)
        if problem:
            raise ConformanceError(f"{task}: {rule.__name__.replace('_', ' ')}: {problem}")


def check_task_class(cls: type[Task]) -> None:
    """Check every tiny instance of a task."""
    instances = cls.tiny()
    if not instances:
        raise ConformanceError(f"{cls.__name__}: tiny() gives no instance to check")
    for task in instances:
        check_task(task)


def laid_out_as_the_contract_says(task: Task) -> str:
    """Shapes, types, ids and targets are those of the contract."""
    return layout_problem(task, _batch(task), SEQUENCES)


def entropy_within_bounds(task: Task) -> str:
    """The predictive's entropy lies between 0 and log2 of the number of outcomes."""
    exact = _batch(task).predictive
    if isinstance(exact, Categorical):
        entropy, most = exact.entropy_bits(), math.log2(exact.log_probs.shape[1])
        if entropy.min() < -1e-12 or entropy.max() > most + 1e-12:
            return f"entropies from {entropy.min()} to {entropy.max()} bits; at most {most}"
    return ""


def agrees_with_the_independent_derivation(task: Task) -> str:
    """The predictive equals the one derived by another route, zeros exactly."""
    batch = _batch(task)
    return _difference(batch.predictive, task.reference(batch))


def same_past_same_belief(task: Task) -> str:
    """Causal: sequences that agree up to a position have the same predictive there.

    Decided on the coincidences among 1,000 sequences, so it has force for tokens and not for real
    inputs.
    """
    batch = task.batch(1000, _STREAM)
    if not isinstance(batch.predictive, Categorical):
        return ""
    first: dict[tuple[int, bytes], np.ndarray] = {}
    rows, columns = np.nonzero(batch.scored)
    for row, column, log_probs in zip(rows, columns, batch.predictive.log_probs, strict=True):
        past = (int(column), batch.inputs[row, : column + 1].tobytes())
        if not np.allclose(np.exp(first.setdefault(past, log_probs)), np.exp(log_probs)):
            return f"two beliefs at position {column} after the same past"
    return ""


def belief_is_a_distribution(task: Task) -> str:
    """The belief, where there is one, has a normalised row for each scored position."""
    batch = _batch(task)
    if batch.belief is None:
        return ""
    if batch.belief.rows != batch.predictive.rows:
        return f"{batch.belief.rows} beliefs for {batch.predictive.rows} predictives"
    gap = np.abs(np.exp(batch.belief.log_probs).sum(axis=1) - 1).max()
    return "" if gap < 1e-9 else f"a belief sums to 1 with an error of {gap:.3g}"


def rows_do_not_depend_on_the_batch(task: Task) -> str:
    """Row i is the same in a batch of any size, and another in another step, seed or purpose."""
    many, few = _batch(task), task.batch(5, _STREAM)
    if not _same_rows(few, many, 5):
        return "row i depends on the number of sequences"
    others = {
        "step": task.batch(SEQUENCES, _STREAM, step=1),
        "seed": task.batch(SEQUENCES, Stream(1, "conformance")),
        "purpose": task.batch(SEQUENCES, Stream(0, "another")),
    }
    for name, other in others.items():
        if np.array_equal(many.inputs, other.inputs):
            return f"a batch of another {name} is the same"
    return ""


def sampled_as_believed(task: Task) -> str:
    """Outcomes come up as often as the predictive says, at each position and after each token."""
    batch = task.batch(2000, _STREAM)
    exact, group = batch.predictive, _situations(task, batch)
    if isinstance(exact, Categorical):
        chance = np.exp(exact.log_probs)
        surprise = np.eye(chance.shape[1])[batch.outcomes] - chance
        spread = chance * (1 - chance)
    else:
        surprise = ((batch.outcomes - exact.mean) / np.sqrt(exact.variance))[:, None]
        surprise = np.hstack([surprise, surprise**2 - 1])
        spread = np.broadcast_to([1.0, 2.0], surprise.shape)
    sums, variances = np.zeros((2, group.max() + 1, surprise.shape[1]))
    np.add.at(sums, group, surprise)
    np.add.at(variances, group, spread)
    # A cell where nearly nothing is uncertain says nothing by its deviation.
    off = np.abs(sums) / np.sqrt(np.maximum(variances, 1.0))
    return f"outcomes are {off.max():.1f} errors off what is believed" if off.max() > 6 else ""


def _situations(task: Task, batch: Batch) -> np.ndarray:
    """Number each scored entry by its position and, where inputs are tokens, the token there."""
    sequence, column = np.nonzero(batch.scored)
    situation = [column]
    if isinstance(task.inputs, TokenInputs):
        situation.append(batch.inputs[sequence, column])
    return np.asarray(np.unique(np.stack(situation), axis=1, return_inverse=True)[1].ravel())


def exact_scores_zero_against_itself(task: Task) -> str:
    """Scored as a model, the exact predictive is at distance 0, and no rung is nearer."""
    batch = _batch(task)
    own = measure(batch.predictive, batch)
    if own.kl_bits.mean != 0 or own.entropy_error_bits.mean != 0:
        return f"KL {own.kl_bits.mean} and entropy error {own.entropy_error_bits.mean}"
    for name, rung in ladder(task, batch).items():
        if rung.rows != batch.predictive.rows or measure(rung, batch).kl_bits.mean < 0:
            return f"the rung {name!r} has other rows, or a negative KL"
    return ""


def latents_of_training_are_not_those_of_evaluation(task: Task) -> str:
    """In a large space of hypotheses no training hypothesis comes again in evaluation.

    A small space is shared of necessity: a held-out part would change the prior, and with it the
    exact posterior.
    """
    if task.hypothesis_bits < DISJOINT_BITS:
        return ""
    seen = {row.tobytes() for row in _hypotheses(task.batch(500, Stream(0, "train")))}
    again = sum(row.tobytes() in seen for row in _hypotheses(evaluation_batch(task, 500, 0)))
    return f"{again} of 500 evaluation hypotheses are training hypotheses" if again else ""


def survives_a_config_file(task: Task) -> str:
    """The task reads back from TOML as itself."""
    return "" if from_toml(type(task), to_toml(task)) == task else "it reads back as another"


def refuses_an_empty_batch(task: Task) -> str:
    """Zero sequences are an error, not an empty array."""
    try:
        task.batch(0, _STREAM)
    except BeliefspaceError:
        return ""
    return "a batch of 0 sequences was given"


RULES: tuple[Callable[[Task], str], ...] = (
    laid_out_as_the_contract_says,
    entropy_within_bounds,
    agrees_with_the_independent_derivation,
    same_past_same_belief,
    belief_is_a_distribution,
    rows_do_not_depend_on_the_batch,
    sampled_as_believed,
    exact_scores_zero_against_itself,
    latents_of_training_are_not_those_of_evaluation,
    survives_a_config_file,
    refuses_an_empty_batch,
)
"""Every rule: a function from a task to what is wrong, or nothing."""

_STREAM = Stream(0, "conformance")


def _batch(task: Task) -> Batch:
    return task.batch(SEQUENCES, _STREAM)


def _hypotheses(batch: Batch) -> np.ndarray:
    latent = batch.latent
    if dataclasses.is_dataclass(latent):
        latent = getattr(latent, dataclasses.fields(latent)[0].name)
    return np.ascontiguousarray(latent)


def _same_rows(few: Batch, many: Batch, rows: int) -> bool:
    scored = int(many.scored[:rows].sum())
    return (
        np.array_equal(few.inputs, many.inputs[:rows])
        and np.array_equal(few.scored, many.scored[:rows])
        and np.array_equal(
            few.targets, many.targets[:rows], equal_nan=few.targets.dtype.kind == "f"
        )
        and not _difference(few.predictive, many.predictive.take(np.arange(scored)))
    )


def _difference(one: Predictive, other: Predictive) -> str:
    if isinstance(one, Categorical) and isinstance(other, Categorical):
        if not np.array_equal(np.isneginf(one.log_probs), np.isneginf(other.log_probs)):
            return "the two disagree on what is impossible"
        gap = np.abs(np.exp(one.log_probs) - np.exp(other.log_probs)).max()
    elif isinstance(one, Normal) and isinstance(other, Normal):
        gap = max(np.abs(one.mean - other.mean).max(), np.abs(one.variance - other.variance).max())
    else:
        return f"{type(one).__name__} against {type(other).__name__}"
    return "" if gap < 1e-9 else f"the two differ by {gap:.3g}"
