"""Checks of single settings, with one wording for all."""

from __future__ import annotations

import math
from collections.abc import Sequence

from beliefspace.core.errors import InvalidInput, nearest


def check_whole(name: str, value: object, least: int, most: int = 1_000_000) -> None:
    """Raise unless a value is a whole number from ``least`` to ``most`` (True and 2.0 are not).

    Raises:
        InvalidInput: it is not; the message has its name.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{name} is a whole number of at least {least}; got {value!r}")
    if value > most:
        raise InvalidInput(f"{name} is at most {most:,}; got a number of {len(str(value))} digits")


def check_finite(name: str, value: float, *, above: float | None = None) -> None:
    """Raise unless a number is finite and at least 0, or greater than ``above``.

    Raises:
        InvalidInput: it is not; the message has its name.
    """
    if not math.isfinite(value) or (value < 0 if above is None else value <= above):
        bound = "at least 0" if above is None else f"greater than {above:g}"
        raise InvalidInput(f"{name} is a finite number {bound}; got {value!r}")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise unless a value is one of the choices.

    Raises:
        InvalidInput: it is not; the message has the nearest.
    """
    if value not in choices:
        close = nearest(str(value), choices)
        hint = f" (nearest: {close[0]})" if close else ""
        raise InvalidInput(f"{name} is one of {', '.join(choices)}; got {value!r}{hint}")
