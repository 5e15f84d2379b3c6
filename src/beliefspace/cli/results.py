"""``compare``, ``claims`` and ``report``: what runs say, and what that means for the literature."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from beliefspace.cli.arguments import WIDTH, parse
from beliefspace.cli.console import Answer, Table, note
from beliefspace.cli.names import open_runs
from beliefspace.cli.train import RunsArgument
from beliefspace.core.errors import InvalidInput

__all__ = ["claims", "compare", "report"]


@dataclass(frozen=True)
class CompareOptions:
    """Which runs, by what.

    Args:
        metric: of the score: kl_bits, entropy_error_bits, total_variation, ...
        json: one JSON object.
    """

    runs: RunsArgument
    metric: str = "kl_bits"
    json: bool = False


@dataclass(frozen=True)
class ClaimsOptions:
    """Which runs decide.

    Args:
        runs: directory that holds runs, at any depth.
        json: one JSON object.
    """

    runs: Path = Path("runs")
    json: bool = False


@dataclass(frozen=True)
class ReportOptions:
    """Which runs, and where the page goes.

    Args:
        out: the file; by default report.html in the run's directory, or in the one above several.
        figures: a directory for the page's figures too, each as SVG and PDF for a paper.
        json: one JSON object.
    """

    runs: RunsArgument
    out: Path | None = None
    figures: Path | None = None
    json: bool = False


def compare(arguments: Sequence[str]) -> Answer:
    """Compare finished runs; those that differ in their seed alone are one arm."""
    options = parse(CompareOptions, arguments, "compare", str(compare.__doc__))
    _require_runs(options.runs, "compare")
    from beliefspace.studies.comparison import compare as compare_runs

    table = compare_runs(open_runs(options.runs), options.metric)
    remarks = "\n".join(table.remarks())
    parts = (Table(table.headers, tuple(table.rows())), f"\n{remarks}" if remarks else "")
    return Answer(parts, table.to_dict(), options.json)


def claims(arguments: Sequence[str]) -> Answer:
    """List published claims with the verdict that the runs here allow."""
    options = parse(ClaimsOptions, arguments, "claims", str(claims.__doc__))
    from beliefspace.claims.collection import collect
    from beliefspace.claims.ledger import ledger
    from beliefspace.claims.tables import COLUMNS, table
    from beliefspace.claims.verdict import verdict

    # The usual place need not exist: then no run decides anything.
    given = options.runs.exists() or options.runs != ClaimsOptions().runs
    found = collect([options.runs] if given else [])
    for line in found.unreadable:
        note(f"note: {line}")
    known = ledger()
    verdicts = [verdict(claim, found.runs) for claim in known]
    rows = [tuple(row[name] for name in COLUMNS) for row in table(known, verdicts)]
    used = f"{len(found.runs)} finished runs in {options.runs}, {len(found.unfinished)} unfinished"
    data = {
        "runs": [run.path for run in found.runs],
        "unfinished": found.unfinished,
        "unreadable": found.unreadable,
        "claims": [
            {"statement": claim.statement, **one.to_dict()}
            for claim, one in zip(known, verdicts, strict=True)
        ],
    }
    balanced = [one.claim for one in verdicts if one.balanced]
    if balanced:
        how = f"measured on models that were trained on balanced batches: {', '.join(balanced)}"
        used = "\n".join([*textwrap.wrap(how, WIDTH, break_on_hyphens=False), used])
    return Answer((Table(COLUMNS, tuple(rows)), "", used), data, options.json)


def report(arguments: Sequence[str]) -> Answer:
    """Write one page about runs: a single HTML file that needs no network."""
    options = parse(ReportOptions, arguments, "report", str(report.__doc__))
    _require_runs(options.runs, "report")
    if options.out is not None and options.out.exists() and not options.out.is_file():
        raise InvalidInput(f"{options.out} is not a file that can be replaced; give another --out")
    runs = open_runs(options.runs)
    from beliefspace.report.page import write_figures, write_report

    page = write_report(runs, options.out)
    drawn = [] if options.figures is None else write_figures(runs, options.figures)
    lines = tuple(str(path) for path in (page, *drawn))
    return Answer(lines, {"report": page, "figures": drawn}, options.json)


def _require_runs(runs: Sequence[str], command: str) -> None:
    if not runs:
        raise InvalidInput(f"say which runs: beliefspace {command} RUN ...")
