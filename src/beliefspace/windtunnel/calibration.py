"""How far a predictor is from Bayes, in bits, with the ladder that tells what the distance means.

Symbols, all at a scored position (2512.22471 states the first as its headline; it never stands
alone here):
    entropy_error     |H_model - H_Bayes|, per sequence and position, then averaged (no cancellation
                      across sequences)
    kl                KL(Bayes || model): 0 only for the exact predictive
    total_variation   half the summed absolute difference of the two distributions
    excess            cross-entropy on the sampled outcomes, model minus Bayes: an unbiased but
                      noisy estimate of kl
    accuracy          how often the likeliest outcome is the sampled one
    leaked_inside     mass on outcomes of the support that Bayes rules out
    leaked_outside    mass outside the support (only for a model that predicts over the whole
                      vocabulary)
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Float64, Int64

from beliefspace.core.checks import check_whole
from beliefspace.core.distributions import Categorical
from beliefspace.core.errors import InvalidInput
from beliefspace.core.jsonable import jsonable
from beliefspace.core.statistics import Interval, curve_bootstrap
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.ladder import ladder
from beliefspace.windtunnel.memory import Memory, measure_memory
from beliefspace.windtunnel.predictions import Predictor, predict
from beliefspace.windtunnel.tasks.base import Batch, Predictive, Task
from beliefspace.windtunnel.tasks.filtering import FilteringTask
from beliefspace.windtunnel.tasks.layout import check_layout

_MORE_IS_BETTER = ("accuracy",)
_FEWEST_SEQUENCES = 20
_SELF = "this model"
_HEAD = ("predictor", "KL(Bayes to it), bits", "entropy error, bits", "worst KL", "leaked mass")


@dataclass(frozen=True)
class Measure:
    """One quantity over an evaluation set.

    Attributes:
        mean: over sequences and scored positions.
        interval: 95 % bootstrap interval of the mean over sequences; None where the mean is
            infinite, or under 20 sequences, too few for what it promises.
        by_position: mean at each scored position, ``[P]``.
        worst: the largest of them; of accuracy the smallest.
        worst_position: its place in the sequence (0-based token).
    """

    mean: float
    interval: Interval | None
    by_position: tuple[float, ...]
    worst: float
    worst_position: int


@dataclass(frozen=True)
class Measures:
    """Every quantity of one predictor; see the module's symbols.

    The last three are for categorical outcomes only.
    """

    kl_bits: Measure
    entropy_error_bits: Measure
    total_variation: Measure
    excess_cross_entropy_bits: Measure
    entropy_bits: Measure
    accuracy: Measure | None = None
    leaked_inside: Measure | None = None
    leaked_outside: Measure | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Score(Measures):
    """A predictor's measures, the ladder on the same batch, and how they were taken.

    Attributes:
        positions: the scored positions, ``[P]``.
        bayes_entropy_bits: entropy of the exact predictive, by position, ``[P]``.
        ladder: measures of the reference predictors.
        alternatives: KL(other exact posterior || model), where the task has other priors to compare
            with.
        memory: how far back the predictor remembers, where the exact belief is a filter.
        support: "outcomes" or "vocabulary": what the predictor spreads its mass over.
        sequences: size of the evaluation set.
        seed: its seed.
        evaluation_hash: sha256 of its inputs and targets; equal hashes mean the same set.
    """

    positions: tuple[int, ...]
    bayes_entropy_bits: tuple[float, ...]
    ladder: Mapping[str, Measures]
    alternatives: Mapping[str, Measure]
    memory: Memory | None
    support: str
    sequences: int
    seed: int
    evaluation_hash: str

    @property
    def window_equivalent(self) -> int | None:
        """Observations that a filter as near to Bayes sees; None where there is no filter.

        With the task's first restart; see :mod:`beliefspace.windtunnel.memory`.
        """
        return None if self.memory is None else next(iter(self.memory.window_equivalent.values()))

    @property
    def place(self) -> str:
        """Between which predictors of the ladder this one stands, by KL, in words."""
        names = [name for name, _ in self.ranked()]
        own = names.index(_SELF)
        nearer = names[own - 1] if own else "none of the ladder"
        farther = names[own + 1] if own + 1 < len(names) else "none of the ladder"
        return f"nearer to Bayes than {farther}, not as near as {nearer}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON (infinities as strings)."""
        return cast("dict[str, Any]", jsonable(self))

    def to_markdown(self) -> str:
        """Return a table, nearest to Bayes first, this predictor at its place on the ladder."""
        lines = [f"| {' | '.join(row)} |" for row in (_HEAD, ("---",) * len(_HEAD), *self._rows())]
        return "\n".join(lines if self.memory is None else [*lines, "", str(self.memory)])

    def __repr__(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        cells = [[html.escape(cell) for cell in row] for row in self._rows()]
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in _HEAD)
        body = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in cells)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return table if self.memory is None else f"{table}<p>{html.escape(str(self.memory))}</p>"

    def ranked(self) -> list[tuple[str, Measures]]:
        """Return this predictor, as "this model", and the ladder, the nearest to Bayes first."""
        everyone: list[tuple[str, Measures]] = [(_SELF, self), *self.ladder.items()]
        return sorted(everyone, key=lambda one: one[1].kl_bits.mean)

    def _rows(self) -> list[tuple[str, ...]]:
        rows = []
        for name, one in self.ranked():
            leaked = sum(part.mean for part in (one.leaked_inside, one.leaked_outside) if part)
            numbers = (one.kl_bits.mean, one.entropy_error_bits.mean, one.kl_bits.worst, leaked)
            rows.append((name, *(f"{number:.3g}" for number in numbers)))
        return rows


def evaluation_batch(task: Task, sequences: int, seed: int) -> Batch:
    """Draw the evaluation set of a seed: its purpose keeps it apart from all training data."""
    return task.batch(sequences, Stream(seed, "evaluate"))


def score(predictor: Predictor, task: Task, sequences: int = 2048, seed: int = 0) -> Score:
    """Measure how far a predictor is from the exact posterior predictive.

    Args:
        predictor: any callable or ``torch.nn.Module``; see
            :func:`beliefspace.windtunnel.predictions.predict`.
        task: what it is scored on.
        sequences: fresh sequences, at least 2.
        seed: of the evaluation set.

    Returns:
        The score, with the ladder on the same sequences.

    Raises:
        InvalidInput: if there are too few sequences or the predictor's outputs do not fit.
    """
    check_whole("sequences", sequences, 2, most=10_000_000)
    if not isinstance(task, Task):
        raise InvalidInput(f"a predictor is scored on a task; got {task!r}")
    batch = evaluation_batch(task, sequences, seed)
    check_layout(task, batch, sequences)
    believed = predict(predictor, task, batch)
    whole = _support(believed) != _support(batch.predictive)
    bayes = {"entropy": batch.predictive.entropy_bits()}
    others = {
        name: _aligned(exact, believed).kl_bits(believed)
        for name, exact in task.alternatives(batch).items()
    }
    own = measure(believed, batch, seed)
    memory = None
    if isinstance(task, FilteringTask):
        mean, interval = own.kl_bits.mean, own.kl_bits.interval
        ends = (mean, mean) if interval is None else (interval.low, interval.high)
        memory = measure_memory(predictor, task, batch, np.array([mean, *ends]), seed)
    return Score(
        **vars(own),
        positions=tuple(np.unique(batch.columns).tolist()),
        bayes_entropy_bits=_summaries(bayes, batch, seed)["entropy"].by_position,
        ladder={name: measure(rung, batch, seed) for name, rung in ladder(task, batch).items()},
        alternatives=_summaries(others, batch, seed) if others else {},
        memory=memory,
        support="vocabulary" if whole else "outcomes",
        sequences=sequences,
        seed=seed,
        evaluation_hash=evaluation_hash(batch),
    )


def measure(believed: Predictive, batch: Batch, seed: int = 0) -> Measures:
    """Compare a predictive with the exact one of a batch.

    Args:
        believed: ``s`` rows, over the batch's support or over the whole vocabulary.
        batch: the sequences and their exact predictive.
        seed: of the bootstrap.
    """
    exact = _aligned(batch.predictive, believed)
    entropy = believed.entropy_bits()
    rows = {
        "kl_bits": exact.kl_bits(believed),
        "entropy_error_bits": np.abs(entropy - exact.entropy_bits()),
        "total_variation": exact.total_variation(believed),
        "entropy_bits": entropy,
    }
    if isinstance(exact, Categorical) and isinstance(believed, Categorical):
        possible = np.isin(exact.support, _support(batch.predictive))
        outcomes = _places(batch.predictive, exact)[batch.outcomes]
        mass = np.exp(believed.log_probs)
        ruled_out = np.isneginf(exact.log_probs)
        rows["accuracy"] = (np.argmax(mass, axis=1) == outcomes).astype(np.float64)
        rows["leaked_inside"] = np.where(ruled_out & possible, mass, 0.0).sum(axis=1)
        rows["leaked_outside"] = mass[:, ~possible].sum(axis=1)
    else:
        outcomes = batch.outcomes
    excess = believed.surprisal_bits(outcomes) - exact.surprisal_bits(outcomes)
    rows["excess_cross_entropy_bits"] = excess
    return Measures(**_summaries(rows, batch, seed))


def evaluation_hash(batch: Batch) -> str:
    """Return the sha256 of a batch's inputs, scored positions and targets."""
    digest = hashlib.sha256()
    for array in (batch.inputs, batch.scored, batch.targets):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _places(narrow: Predictive, wide: Categorical) -> Int64[np.ndarray, " m"]:
    """Where each outcome of the support stands among those that the mass is spread over."""
    place = {name: index for index, name in enumerate(wide.support)}
    return np.array([place[name] for name in _support(narrow)])


def _support(predictive: Predictive) -> tuple[int, ...]:
    return predictive.support if isinstance(predictive, Categorical) else ()


def _aligned(exact: Predictive, believed: Predictive) -> Predictive:
    """The exact predictive over the outcomes that the other one spreads its mass over."""
    if isinstance(exact, Categorical) and isinstance(believed, Categorical):
        return exact if exact.support == believed.support else exact.expand(len(believed.support))
    return exact


def _summaries(
    rows: Mapping[str, Float64[np.ndarray, " s"]], batch: Batch, seed: int
) -> dict[str, Measure]:
    """Summarise quantities given per scored entry; sequences are what is resampled."""
    sequence, column = np.nonzero(batch.scored)
    positions, place = np.unique(column, return_inverse=True)
    sequences, at_position = len(batch.scored), np.bincount(place)
    # A sequence's share of the sum, so that the mean over sequences is the mean over positions.
    share = sequences / len(sequence)
    columns = [np.bincount(sequence, v, minlength=sequences) * share for v in rows.values()]
    estimates = curve_bootstrap(np.stack(columns, axis=1), Stream(seed, "bootstrap"))
    summaries = {}
    for (name, value), estimate in zip(rows.items(), estimates, strict=True):
        by_position = np.bincount(place, value) / at_position
        worst = int(np.argmin(by_position) if name in _MORE_IS_BETTER else np.argmax(by_position))
        summaries[name] = Measure(
            estimate.mean,
            estimate.interval if sequences >= _FEWEST_SEQUENCES else None,
            tuple(by_position.tolist()),
            float(by_position[worst]),
            int(positions[worst]),
        )
    return summaries
