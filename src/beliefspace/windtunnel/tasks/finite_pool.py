"""Exact posterior over a finite pool of mappings from keys to values.

Symbols:
    N      mappings in the pool, equally likely
    V      keys, and values
    n, S   sequences, and queries of each
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

_CHUNK = 4_000_000  # (sequence, mapping) pairs held at once: about 100 MB


@dataclass(frozen=True)
class Evidence:
    """Pairs in the order shown, and the keys asked for; query ``s`` comes after ``s`` pairs."""

    keys: Int64[np.ndarray, "n L"]
    values: Int64[np.ndarray, "n L"]
    queries: Int64[np.ndarray, "n S"]


def votes(pool: Int64[np.ndarray, "N V"], evidence: Evidence) -> Float64[np.ndarray, "n S V"]:
    """Count, per query and value, the mappings that agree with every earlier pair."""
    sequences, queries = evidence.queries.shape
    size = pool.shape[1]
    counts = np.zeros((sequences, queries, size))
    for query, rows, members in _agreeing(pool, evidence):
        cells = rows * size + pool[members, evidence.queries[rows, query]]
        counts[:, query] += np.bincount(cells, minlength=sequences * size).reshape(-1, size)
    return counts


def agreement(pool: Int64[np.ndarray, "N V"], evidence: Evidence) -> Float64[np.ndarray, "n S N"]:
    """Mark, per query, each mapping that agrees with every earlier pair: 1, else 0."""
    marks = np.zeros((*evidence.queries.shape, len(pool)))
    for query, rows, members in _agreeing(pool, evidence):
        marks[rows, query, members] = 1.0
    return marks


def _agreeing(
    pool: Int64[np.ndarray, "N V"], evidence: Evidence
) -> Iterator[tuple[int, Int64[np.ndarray, " a"], Int64[np.ndarray, " a"]]]:
    """Yield ``(query, sequence, mapping)`` for all that agree, a chunk of sequences at a time."""
    sequences, queries = evidence.queries.shape
    shown = evidence.keys.shape[1]
    chunk = max(1, _CHUNK // len(pool))
    for first in range(0, sequences, chunk):
        some = np.arange(first, min(first + chunk, sequences))
        rows, members = np.repeat(some, len(pool)), np.tile(np.arange(len(pool)), len(some))
        for query in range(queries):
            yield query, rows, members
            if query < shown:
                predicted = pool[members, evidence.keys[rows, query]]
                agrees = predicted == evidence.values[rows, query]
                rows, members = rows[agrees], members[agrees]
