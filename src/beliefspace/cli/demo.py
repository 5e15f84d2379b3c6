"""``demo``: from nothing to a number, a ladder and a page, in the time that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from beliefspace.cli.arguments import parse
from beliefspace.cli.console import Answer, Progress, Table
from beliefspace.cli.train import require_torch

__all__ = ["demo"]


@dataclass(frozen=True)
class Options:
    """Where, and for how long.

    Args:
        out: directory of the runs and the page.
        budget: of each model, such as "5min" or "1000 steps".
        json: one JSON object.
    """

    out: Path = Path("runs/demo")
    budget: str = "4min"
    json: bool = False


def demo(arguments: Sequence[str]) -> Answer:
    """Train two small transformers and measure how close to the exact posterior they come."""
    options = parse(Options, arguments, "demo", str(demo.__doc__))
    require_torch()
    from beliefspace.report.demo import demo as run_demo

    with Progress(["sampled", "posterior"]) as progress:
        result = run_demo(options.out, budget=options.budget, observe=progress.observe)
    # Markdown is for documents; here its table is laid out in columns, and the rest kept.
    below = [line for line in result.to_markdown().splitlines() if not line.startswith("|")]
    headers = ("predictor", "KL, bits", "entropy error, bits", "worst KL")
    parts = (Table(headers, tuple(result.rows())), "\n".join(below), f"\nthe page: {result.report}")
    return Answer(parts, result.to_dict(), options.json)
