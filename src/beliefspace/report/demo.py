"""The demo's numbers beside the published ones, and their page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from beliefspace.claims.ledger import PublishedValue, published
from beliefspace.core.jsonable import jsonable
from beliefspace.core.registry import name_of
from beliefspace.report.page import write_report
from beliefspace.studies.demo import HEADERS, Demo
from beliefspace.windtunnel.recipe import Recipe, recipe_of
from beliefspace.windtunnel.tasks.bijection import Bijection

__all__ = ["DemoReport", "comparable", "report_demo"]


@dataclass(frozen=True)
class DemoReport:
    """What the demo found, and what others report.

    Attributes:
        demo: the runs.
        published: values reported for this kind of model on this task, with 19 pairs or 20.
        page: the report.
    """

    demo: Demo
    published: tuple[PublishedValue, ...]
    page: Path

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        found = {"results": self.demo.results(), "published": self.published, "report": self.page}
        return cast("dict[str, Any]", jsonable(found))

    def rows(self) -> list[tuple[str, ...]]:
        """Return the demo's table with the published values under it; see ``HEADERS``."""
        values = [
            (f"published: {v.label} ({v.trust})", "not given", f"{v.entropy_error_bits:.2g}", "")
            for v in self.published
        ]
        return [*self.demo.rows(), *values]

    def to_markdown(self) -> str:
        """Return the table, and under it how it was measured."""
        table = (HEADERS, ("---",) * len(HEADERS), *self.rows())
        lines = ["| " + " | ".join(row) + " |" for row in table]
        return "\n".join([*lines, "", *self.demo.notes()])


def report_demo(demo: Demo, out: Path) -> DemoReport:
    """Write the page about the runs of a demo, and find what others report.

    Args:
        demo: finished.
        out: the directory of the page.
    """
    page = write_report(list(demo.runs.values()), out / "report.html")
    return DemoReport(demo, comparable(recipe_of(demo.runs["sampled"])), page)


def comparable(recipe: Recipe) -> tuple[PublishedValue, ...]:
    """Return the published values for a recipe's kind of model on its bijection, 19 or 20 pairs.

    Texts about the paper speak of 20 pairs, the released configuration has 19.
    """
    task, model = recipe.task, name_of(recipe.model)[1]
    assert isinstance(task, Bijection)
    asked = (task.values, task.keys, task.mapping, task.pool)
    return tuple(
        value
        for value in published("bijection")
        if isinstance(value.task, Bijection)
        and (value.task.values, value.task.keys, value.task.mapping, value.task.pool) == asked
        and value.task.shown in (19, 20)
        and value.model == model
    )
