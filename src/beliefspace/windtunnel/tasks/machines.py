"""Machines that write one token at each move between hidden states, as labelled matrices.

Symbols:
    S, V      hidden states, tokens
    M_x       M_x[i, j] = P(token x, next state j | state i)      ``[V, S, S]``

mess3 and rrxor are those of 2405.15943; all are standard examples of computational mechanics.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float64

from beliefspace.core.checks import check_rows_of_probabilities, check_whole
from beliefspace.core.errors import InvalidInput

Machine = Float64[np.ndarray, "V S S"]
Name = Literal["mess3", "rrxor", "z1r", "golden-mean", "even", "custom"]
Matrices = tuple[tuple[tuple[float, ...], ...], ...]


def mess3(x: float, a: float) -> Machine:
    """Return a machine of three states that moves with 2x and mostly writes where it went.

    Args:
        x: probability of moving to each of the other two states.
        a: probability of the token that belongs to the state arrived at.
    """
    same = np.eye(3, dtype=bool)
    moves = np.where(same, 1 - 2 * x, x)
    writes = np.where(same, a, (1 - a) / 2)
    return np.asarray(np.einsum("ij,jx->xij", moves, writes))


def binary(name: str, p: float) -> Machine:
    """Return a machine of two tokens by name.

    Args:
        name: "rrxor", "z1r", "golden-mean" or "even".
        p: of the last two: probability of staying in the first state.
    """
    half = 0.5
    # Edges: state, token, next state, probability.
    edges = {
        "rrxor": (
            *((0, 0, 1, half), (0, 1, 2, half)),  # the first bit at random
            *((1, 0, 3, half), (1, 1, 4, half), (2, 0, 4, half), (2, 1, 3, half)),  # the second
            *((3, 0, 0, 1.0), (4, 1, 0, 1.0)),  # their exclusive or
        ),
        "z1r": ((0, 0, 1, 1.0), (1, 1, 2, 1.0), (2, 0, 0, half), (2, 1, 0, half)),
        "golden-mean": ((0, 1, 0, p), (0, 0, 1, 1 - p), (1, 1, 0, 1.0)),  # no two zeros in a row
        "even": ((0, 0, 0, p), (0, 1, 1, 1 - p), (1, 1, 0, 1.0)),  # ones in even blocks
    }[name]
    states = 1 + max(state for state, *_ in edges)
    machine = np.zeros((2, states, states))
    for state, token, following, probability in edges:
        machine[token, state, following] = probability
    return machine


def given(matrices: Matrices) -> Machine:
    """Return matrices that were written down, if each state's row over (token, next) is one.

    Raises:
        InvalidInput: matrices of another shape, or rows that are no distributions.
    """
    tokens, states = len(matrices), len(matrices[0]) if matrices else 0
    check_whole("the number of matrices, one a token,", tokens, 2)
    check_whole("the number of rows of a matrix, one a state,", states, 1, most=1000)
    for token, matrix in enumerate(matrices):
        widths = {len(row) for row in matrix}
        if len(matrix) != states or widths != {states}:
            raise InvalidInput(
                f"matrix {token} has {len(matrix)} rows of {sorted(widths)} entries; "
                f"expected {states} rows of {states}, as many as the first has"
            )
    rows = [[entry for matrix in matrices for entry in matrix[s]] for s in range(states)]
    table = check_rows_of_probabilities("matrices side by side", rows, tokens * states)
    return np.ascontiguousarray(table.reshape(states, tokens, states).transpose(1, 0, 2))


def check_irreducible(machine: Machine, described: str) -> None:
    """Raise unless every state leads to every other, so that one distribution is stationary.

    Raises:
        InvalidInput: a state from which another is never reached; the message has both.
    """
    reach = (machine.sum(axis=0) > 0) | np.eye(len(machine[0]), dtype=bool)
    for _ in range(len(reach).bit_length()):
        reach = reach @ reach
    if not reach.all():
        source, target = np.argwhere(~reach)[0]
        raise InvalidInput(
            f"state {source} never leads to state {target} ({described}); "
            "expected a machine that comes back to every state"
        )
