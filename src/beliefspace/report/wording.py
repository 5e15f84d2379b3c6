"""How numbers and names are written for people: three digits, powers of ten, nothing invisible."""

from __future__ import annotations

import math

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
ABSENT = "–"


def power_of_ten(exponent: int) -> str:
    """Return 10 to a power, for example ``10⁻³``."""
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def short(value: float | None, digits: int = 3) -> str:
    """Return a number with a few significant digits; what there is no number for is a dash.

    Args:
        value: any float; None and NaN are no number.
        digits: significant ones.
    """
    if value is None or math.isnan(value):
        return ABSENT
    sign = "−" if value < 0 else ""
    size = abs(value)
    if math.isinf(size):
        return f"{sign}∞"
    if size == 0:
        return "0"
    mantissa, _, exponent = f"{size:.{digits - 1}e}".partition("e")
    power = int(exponent)
    if -4 < power < 5:
        return f"{sign}{float(f'{mantissa}e{power}'):,.{max(0, digits - 1 - power)}f}"
    return f"{sign}{mantissa}×{power_of_ten(power)}"


def interval(low: float | None, high: float | None) -> str:
    """Return an interval as ``[low, high]``, or nothing where there is none."""
    return "" if low is None or high is None else f"[{short(low)}, {short(high)}]"


def whole(value: float | None) -> str:
    """Return a count, with separators; from a hundred million on with a power of ten."""
    if value is None:
        return ABSENT
    return f"{value:,.0f}" if abs(value) < 1e8 else short(value)


def duration(seconds: float | None) -> str:
    """Return a time in the unit that suits it."""
    if seconds is None:
        return ABSENT
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{short(seconds / size)} {unit}"
    return f"{short(seconds)} s"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def clean(text: str) -> str:
    """Replace what cannot stand in a page or a drawing: control characters and half characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
