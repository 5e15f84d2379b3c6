"""What others published for the same task, to stand beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beliefspace.claims.ledger import PublishedValue, find, published
from beliefspace.core.config import to_dict
from beliefspace.core.registry import register
from beliefspace.report.context import Context
from beliefspace.report.parts import Absent, Cell, Row, Section, Table
from beliefspace.report.wording import plural, short

_COLUMNS = (Cell("published"), Cell("entropy error", "bits"), Cell("read in"), Cell("note"))


@register("panels", "published")
def published_values(context: Context) -> Section | Absent:
    """List the published entropy errors on the tasks of the runs."""
    tables: list[Table] = []
    others = 0
    for runs in context.by_task():
        kind = runs[0].kind_of("task")
        values = () if kind is None else published(kind)
        same = [value for value in values if runs[0].config["task"] in _spellings(value)]
        others += len(values) - len(same)
        if same:
            tables.append(_table(same, runs[0].described("task"), f"published-{len(tables) + 1}"))
    if tables:
        return Section("Published values", tuple(tables))
    hint = f"; it has {plural(others, 'value')} for other settings of it" if others else ""
    return Absent(f"the ledger of claims has no value for this very task{hint}")


def _spellings(value: PublishedValue) -> list[Mapping[str, Any]]:
    return [to_dict(task) for task in find(value.claim).protocol.tasks]


def _table(values: list[PublishedValue], task: str, name: str) -> Table:
    return Table(
        name,
        _COLUMNS,
        tuple(_row(value) for value in values),
        f"Entropy errors that others published for {task}, and where each was read. An entropy "
        "error alone cannot tell inference from knowing the position: see KL in the ladder.",
        numeric=False,
    )


def _row(value: PublishedValue) -> Row:
    source = Cell(value.label, f"arXiv {value.arxiv}")
    bits = Cell(short(value.entropy_error_bits), value=value.entropy_error_bits)
    return Row((source, bits, Cell(value.trust), Cell(value.note)))
