"""Parts that tables of results are made of."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a markdown table; without rows, that nothing is measured."""
    if not rows:
        return "Not measured yet."
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def spread(values: Sequence[float], style: str) -> str:
    """Return the median, and the smallest and the largest in brackets."""
    median, low, high = (
        style.format(value) for value in (statistics.median(values), min(values), max(values))
    )
    return f"{median} ({low} to {high})"
