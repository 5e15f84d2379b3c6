"""Checks of single settings, with one wording for all."""

from __future__ import annotations

from collections.abc import Sequence

from beliefspace.core.errors import InvalidInput, nearest


def check_whole(name: str, value: object, least: int) -> None:
    """Raise unless a value is a whole number of at least ``least`` (True and 2.0 are not).

    Raises:
        InvalidInput: it is not; the message has its name.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidInput(f"{name} is a whole number of at least {least}; got {value!r}")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise unless a value is one of the choices.

    Raises:
        InvalidInput: it is not; the message has the nearest.
    """
    if value not in choices:
        close = nearest(str(value), choices)
        hint = f" (nearest: {close[0]})" if close else ""
        raise InvalidInput(f"{name} is one of {', '.join(choices)}; got {value!r}{hint}")
