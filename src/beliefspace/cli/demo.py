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
    from beliefspace.report.demo import report_demo
    from beliefspace.report.page import require_packages
    from beliefspace.studies.demo import train_demo

    # Said now: minutes of training are not to end in a page that cannot be made.
    require_packages()
    with Progress(["sampled", "posterior"]) as progress:
        trained = train_demo(options.out, options.budget, progress.observe)
    found = report_demo(trained, options.out)
    below = "\n".join(["", *trained.notes(), "", f"the page: {found.page}"])
    headers = ("predictor", "KL, bits", "entropy error, bits", "worst KL")
    return Answer((Table(headers, tuple(found.rows())), below), found.to_dict(), options.json)
