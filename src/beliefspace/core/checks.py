"""Checks of single settings, with one wording for all."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from beliefspace.core.errors import InvalidInput, nearest


def check_whole(name: str, value: object, least: int, most: int = 1_000_000) -> None:
    """Raise unless a value is a whole number from ``least`` to ``most`` (True and 2.0 are not).

    Raises:
        InvalidInput: it is not; the message has its name.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{name} is a whole number of at least {least}; got {value!r}")
    if value > most:
        shown = f"{value:,}" if value < 10**12 else f"a number of {len(str(value))} digits"
        raise InvalidInput(f"{name} is at most {most:,}; got {shown}")


def check_finite(name: str, value: object, *, above: float | None = None) -> None:
    """Raise unless a number is finite and at least 0, or greater than ``above``.

    Raises:
        InvalidInput: it is not; the message has its name.
    """
    real = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        real = float(value) if abs(value) <= sys.float_info.max else math.inf
    if not (math.isfinite(real) and (real >= 0 if above is None else real > above)):
        bound = "at least 0" if above is None else f"greater than {above:g}"
        raise InvalidInput(f"{name} is a finite number {bound}; got {value!r}")


def check_within(name: str, value: object, least: float, most: float) -> None:
    """Raise unless a value is a number from ``least`` to ``most``.

    Raises:
        InvalidInput: it is not; the message has its name.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= most:  # type: ignore[operator]
        raise InvalidInput(f"{name} is a number from {least:g} to {most:g}; got {value!r}")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise unless a value is one of the choices.

    Raises:
        InvalidInput: it is not; the message has the nearest.
    """
    if not isinstance(value, str) or value not in choices:
        close = nearest(str(value), choices)
        hint = f" (nearest: {close[0]})" if close else ""
        raise InvalidInput(f"{name} is one of {', '.join(choices)}; got {value!r}{hint}")


def as_rows(name: str, value: object) -> tuple[tuple[float, ...], ...]:
    """Return a table, given as nested sequences or as an array, as rows of numbers.

    Raises:
        InvalidInput: it is not rows of numbers; the message has its name.
    """
    try:
        return tuple(tuple(map(_number, row)) for row in value)  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError):
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        raise InvalidInput(f"{name} is rows of numbers; got {shown}") from None


def _number(value: object) -> float:
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise TypeError("not a number")
    return float(value)


def check_rows_of_probabilities(
    name: str, rows: Sequence[Sequence[float]], columns: int
) -> Float64[np.ndarray, "rows columns"]:
    """Return rows of probabilities as an array, each scaled to sum to 1 exactly.

    Args:
        name: of the setting.
        rows: any number of them.
        columns: how many entries each has.

    Raises:
        InvalidInput: a row of another length, a value that is NaN, negative or infinite, or a row
            that does not sum to 1 within 1e-6; the message has the row.
    """
    for number, row in enumerate(rows):
        where = f"row {number} of {name}"
        if len(row) != columns:
            raise InvalidInput(f"{where} has {len(row)} entries; expected {columns}")
        bad = [value for value in row if not (math.isfinite(value) and value >= 0)]
        if bad:
            raise InvalidInput(f"{where} holds {bad[0]!r}; expected probabilities, 0 to 1")
        if abs(sum(row) - 1.0) > 1e-6:
            raise InvalidInput(f"{where} sums to {sum(row):.9g}; expected 1")
    table = np.array(rows, dtype=np.float64)
    return np.asarray(table / table.sum(axis=1, keepdims=True))
