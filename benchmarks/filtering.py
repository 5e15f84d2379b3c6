"""The exact filter of hidden Markov chains, against a scaled recursion in numpy and hmmlearn.

Each sequence has parameters of its own, as in the in-context task; all contestants turn the same
parameters and observations into filtered beliefs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from beliefspace.cli.console import note
from beliefspace.core.config import content_hash
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.tasks.hmm import HMM
from beliefspace.windtunnel.tasks.hmm_filter import Observed
from beliefspace.windtunnel.tasks.hmm_parameters import Parameters
from benchmarks import results
from benchmarks.alternating import alternate

ROUNDS = 5
SLICE_S = 2.0


@dataclass(frozen=True)
class Size:
    """What is filtered.

    Args:
        task: draws parameters and observations.
        sequences: how many at once.
    """

    task: HMM
    sequences: int


SIZES = {
    "2,048 sequences of 20, 5 states": Size(HMM(), 2048),
    "2,048 sequences of 50, 5 states": Size(HMM(observations=50), 2048),
    "512 sequences of 64, 12 states": Size(HMM(12, 8, 64), 512),
}


def estimate(folder: Path = results.FOLDER) -> float:
    """Return about how many seconds of wall clock are left to measure."""
    left = [n for n, s in SIZES.items() if not results.is_kept(folder, *_key(n, s))]
    return len(left) * (ROUNDS * SLICE_S + 5)


def measure(folder: Path = results.FOLDER) -> None:
    """Measure the sizes that are missing, one after another, in this process."""
    results.drop_others(folder, "filtering", dict(_key(n, s) for n, s in SIZES.items()))
    for name, size in SIZES.items():
        if results.is_kept(folder, *_key(name, size)):
            continue
        note(f"filtering, {name}")
        contestants = _contestants(size)
        ours = np.exp(contestants["ours"]())
        peers = ("scaled recursion", "hmmlearn, forward pass")
        facts = {
            "size": name,
            "difference": {p: float(np.abs(ours - np.exp(contestants[p]())).max()) for p in peers},
            "rounds": alternate(
                {n: lambda _, f=f: f() for n, f in contestants.items()}, ROUNDS, SLICE_S
            ),
        }
        results.keep(folder, *_key(name, size), facts)


def _key(name: str, size: Size) -> tuple[str, str]:
    return f"filtering/{name.replace(', ', '-').replace(' ', '-')}", content_hash(size)


def _contestants(size: Size) -> dict[str, Callable[[], np.ndarray]]:
    """Return what is timed: each gives log beliefs ``[n, K, S]``, but the last, which smooths."""
    chains = size.task.batch(size.sequences, Stream(0, "filtering")).latent
    parameters = Parameters.split(chains.parameters)
    symbols = chains.observations[:, :-1]
    return {
        "ours": lambda: Observed(parameters, False, symbols).belief()[:, 0],
        "scaled recursion": lambda: scaled(parameters, symbols),
        "hmmlearn, forward pass": lambda: forward_pass(parameters, symbols),
        "hmmlearn, public interface": lambda: public(parameters, symbols),
    }


def scaled(parameters: Parameters, symbols: np.ndarray) -> np.ndarray:
    """Filter as one writes it by hand: all sequences at once, normalised at every step."""
    transition, emission = parameters.transition, parameters.emission
    rows, steps = symbols.shape
    beliefs = np.empty((rows, steps, transition.shape[1]))
    belief = np.full((rows, transition.shape[1]), 1 / transition.shape[1])
    for t in range(steps):
        if t:
            belief = np.einsum("ns,nst->nt", belief, transition)
        belief = belief * emission[np.arange(rows), :, symbols[:, t]]
        belief = belief / belief.sum(axis=1, keepdims=True)
        beliefs[:, t] = belief
    return np.asarray(np.log(beliefs))


def forward_pass(parameters: Parameters, symbols: np.ndarray) -> np.ndarray:
    """Filter with the compiled forward pass of hmmlearn, sequence by sequence, in log space."""
    from hmmlearn._hmmc import forward_log

    log_emission = np.log(parameters.emission)
    start = np.full(parameters.transition.shape[1], 1 / parameters.transition.shape[1])
    beliefs = np.empty((*symbols.shape, len(start)))
    for row, seen in enumerate(symbols):
        frames = np.ascontiguousarray(log_emission[row][:, seen].T)
        _, lattice = forward_log(start, parameters.transition[row], frames)
        beliefs[row] = lattice - np.logaddexp.reduce(lattice, axis=1, keepdims=True)
    return beliefs


def public(parameters: Parameters, symbols: np.ndarray) -> np.ndarray:
    """Return what hmmlearn's public interface has: smoothed beliefs, sequence by sequence."""
    from hmmlearn.hmm import CategoricalHMM

    states, count = parameters.emission.shape[1:]
    beliefs = np.empty((*symbols.shape, states))
    for row, seen in enumerate(symbols):
        model = CategoricalHMM(states, n_features=count)
        model.startprob_ = np.full(states, 1 / states)
        model.transmat_ = parameters.transition[row]
        model.emissionprob_ = parameters.emission[row]
        beliefs[row] = model.predict_proba(seen[:, None])
    return beliefs
