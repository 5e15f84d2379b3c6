"""The main job: train in front of the user, and say how far from Bayes the models are, in bits.

Two transformers learn the full-size bijection side by side, one from sampled outcomes (the
published claim), one from the exact predictive; both are scored on fresh sequences, with the
ladder on the same sequences and the published values beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from beliefspace.claims.ledger import PublishedValue, published
from beliefspace.core.jsonable import jsonable
from beliefspace.core.store import Run
from beliefspace.report.page import write_report
from beliefspace.studies.bijection import TASK, recipe
from beliefspace.windtunnel.experiment import run_recipes

Observer = Callable[[str, Mapping[str, Any]], None]

PUBLISHED_CLAIM = "bijection/transformer"
"""The published values to print are those of claims whose id starts so, on the demo's task."""


@dataclass(frozen=True)
class DemoResult:
    """What the demo found.

    Attributes:
        results: what each arm's run found (result.json), by arm.
        published: values reported for transformers on this task.
        report: the page.
    """

    results: Mapping[str, Mapping[str, Any]]
    published: tuple[PublishedValue, ...]
    report: Path

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return cast("dict[str, Any]", jsonable(self))

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table: the arms, the ladder from far to near, the published values."""
        rows: list[tuple[str, ...]] = []
        for name, result in self.results.items():
            minutes = result["training"]["cpu_seconds"] / 60
            label = f"transformer, {name} targets, {minutes:.1f} CPU min"
            rows.append((label, *_cells(result["score"])))
        ladder = next(iter(self.results.values()))["score"]["ladder"]
        rungs = sorted(ladder.items(), key=lambda item: -float(item[1]["kl_bits"]["mean"]))
        rows += [(f"ladder: {name}", *_cells(rung)) for name, rung in rungs]
        for value in self.published:
            label = f"published: {value.label} ({value.trust})"
            rows.append((label, "not given", f"{value.entropy_error_bits:.2g}", ""))
        return rows

    def to_markdown(self) -> str:
        """Return the table, and under it how it was measured."""
        head = ("predictor", "KL(Bayes to it), bits", "entropy error, bits", "worst KL")
        lines = ["| " + " | ".join(row) + " |" for row in (head, ("---",) * 4, *self.rows())]
        score = next(iter(self.results.values()))["score"]
        lines += [
            "",
            f"Bijection, V = {TASK.values}, {TASK.shown} pairs; {score['sequences']:,} fresh "
            "sequences, all scored positions; one seed.",
            "Brackets: 95 % bootstrap intervals over sequences. Worst KL: at the worst position.",
        ]
        return "\n".join(lines)


def demo(out: str | Path, *, budget: str = "4min", observe: Observer | None = None) -> DemoResult:
    """Train both arms, score them, and write the page; a second call goes on after a stop.

    Args:
        out: directory of the two runs and the page.
        budget: of each arm; they run at once where there are two cores.
        observe: called with an arm's name and its progress.

    Raises:
        RunExists: ``out`` holds a demo of another budget.
        Interrupted: on Ctrl-C; the same call goes on.
    """
    arms = {"sampled": recipe("sampled", budget), "posterior": recipe("posterior", budget)}
    runs = run_recipes(arms, Path(out), observe=observe)
    page = write_report(list(runs.values()), Path(out) / "report.html")
    return DemoResult(_results(runs), _published(), page)


def _results(runs: Mapping[str, Run]) -> dict[str, Mapping[str, Any]]:
    return {name: run.result() for name, run in runs.items()}


def _published() -> tuple[PublishedValue, ...]:
    """The values published for a transformer at V = 20, with 19 pairs or 20."""
    return tuple(v for v in published("bijection") if v.claim.startswith(PUBLISHED_CLAIM))


def _cells(score: Mapping[str, Any]) -> tuple[str, str, str]:
    worst = f"{float(score['kl_bits']['worst']):.2g}"
    return _number(score["kl_bits"]), _number(score["entropy_error_bits"]), worst


def _number(measure: Mapping[str, Any]) -> str:
    text, interval = f"{float(measure['mean']):.2g}", measure["interval"]
    if interval is None or f"{interval['low']:.2g}" == f"{interval['high']:.2g}":
        return text
    return f"{text} [{interval['low']:.2g}, {interval['high']:.2g}]"
