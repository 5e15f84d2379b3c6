"""``demo``: from nothing to a number, a ladder and a page, in the time that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from beliefspace.cli.arguments import parse
from beliefspace.cli.console import Answer, Progress
from beliefspace.cli.train import require_torch

__all__ = ["demo"]


@dataclass(frozen=True)
class Options:
    """Where, and for how long.

    Args:
        out: directory of the runs and the page.
        budget: of training, such as "5min" or "1000 steps".
        json: one JSON object.
    """

    out: Path = Path("runs/demo")
    budget: str = "5min"
    json: bool = False


def demo(arguments: Sequence[str]) -> Answer:
    """Train a small transformer and measure how close to the exact posterior it comes."""
    options = parse(Options, arguments, "demo", str(demo.__doc__))
    require_torch()
    from beliefspace.report.demo import demo as run_demo

    with Progress([]) as progress:
        result = run_demo(options.out, budget=options.budget, observe=progress.observe)
    page = f"\nthe page: {result.report}"
    return Answer((result.to_markdown(), page), result.to_dict(), options.json)
