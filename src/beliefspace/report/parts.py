"""What a panel is made of: titled sections of figures, tables, text and code.

Text is escaped where it is put into the page, so that a panel hands over plain strings.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure


@dataclass(frozen=True)
class Figure:
    """A drawing with its caption.

    Attributes:
        name: what a downloaded file is called, without its ending.
        drawing: a matplotlib figure; colours of :data:`beliefspace.report.figures.THEME` follow the
            reader's light or dark mode.
        title: what a screen reader says it is.
        caption: what is shown, in which unit, and how it was measured.
    """

    name: str
    drawing: MatplotlibFigure
    title: str
    caption: str


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    Attributes:
        text: what is shown.
        detail: a smaller second line.
        value: what stands in the CSV file; by default the text. A number is written in full.
    """

    text: str
    detail: str = ""
    value: str | float | int | None = None

    @property
    def exported(self) -> str:
        """The entry as text for a CSV file."""
        value = self.text if self.value is None else self.value
        return _inert(value) if isinstance(value, str) else str(value)


@dataclass(frozen=True)
class Row:
    """One line of a table; the first cell names it.

    Attributes:
        cells: as many as the table has columns.
        strong: whether it is what the reader came for.
    """

    cells: tuple[Cell, ...]
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table with its caption.

    Attributes:
        name: what a downloaded file is called, without its ending.
        columns: headings; the detail holds the unit.
        rows: the first column names the row.
        caption: what is shown and how it was measured.
        numeric: whether all columns but the first are numbers, set to the right.
    """

    name: str
    columns: tuple[Cell, ...]
    rows: tuple[Row, ...]
    caption: str
    numeric: bool = True

    @property
    def csv(self) -> str:
        """The table as CSV, numbers in full."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        headings = [f"{c.text} ({c.detail})" if c.detail else c.text for c in self.columns]
        writer.writerow(map(_inert, headings))
        writer.writerows([cell.exported for cell in row.cells] for row in self.rows)
        return text.getvalue()


def _inert(text: str) -> str:
    """Return text that a spreadsheet takes for no formula: the names of runs come from anyone."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Code:
    """A file or listing, folded away under its title."""

    title: str
    text: str


@dataclass(frozen=True)
class Html:
    """Markup that is put into the page as it is: whoever makes it answers for its escaping.

    A page may load nothing: scripts and styles are inline, images are data.
    """

    markup: str


Part: TypeAlias = Figure | Table | Text | Code | Html


@dataclass(frozen=True)
class Section:
    """What a panel gives.

    Attributes:
        title: its heading.
        parts: from top to bottom.
    """

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Absent:
    """What a panel gives when the runs lack what it shows.

    Attributes:
        reason: one line.
    """

    reason: str
