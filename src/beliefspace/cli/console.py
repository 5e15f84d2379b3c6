"""What people see: tables of at most 100 columns, and the progress of runs.

Tables go to standard output; progress and messages to standard error, live on a terminal and one
line a look elsewhere.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from beliefspace.cli.arguments import WIDTH
from beliefspace.core.jsonable import to_json

if TYPE_CHECKING:
    from rich.table import Table as RichTable

__all__ = [
    "Answer",
    "Progress",
    "Table",
    "discard",
    "duration",
    "note",
    "number",
    "show",
    "standard_output",
]

_LEAST_COLUMN = 16


@dataclass(frozen=True)
class Table:
    """Rows under headers.

    Args:
        headers: one a column.
        rows: cells as text.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def lines(self, width: int = WIDTH) -> list[str]:
        """Return the table as lines; where it is too wide for columns, one line a cell.

        Args:
            width: the most characters of a line.
        """
        columns = list(zip(self.headers, *self.rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        excess = sum(widths) + 2 * (len(widths) - 1) - width
        if excess > 0:
            # The widest column gives way: it is the one that holds sentences.
            widest = widths.index(max(widths))
            widths[widest] -= excess
            if widths[widest] < _LEAST_COLUMN:
                return self._plain_lines(width)
        right = [all(map(_is_number, column[1:])) for column in columns]
        return [
            line
            for cells in (self.headers, *self.rows)
            for line in _row_lines(cells, widths, right)
        ]

    def _plain_lines(self, width: int) -> list[str]:
        lines: list[str] = []
        for row in self.rows:
            lines += [""] if lines else []
            for header, cell in zip(self.headers, row, strict=True):
                lines += textwrap.wrap(f"{header}: {cell}", width, subsequent_indent="  ")
        return lines


@dataclass(frozen=True)
class Answer:
    """What a command found.

    Args:
        parts: texts and tables for people, in order.
        data: the same for programs: anything that JSON can hold.
        as_json: which of the two was asked for.
    """

    parts: tuple[str | Table, ...]
    data: Any
    as_json: bool = False


def show(answer: Answer) -> None:
    """Print an answer on standard output."""
    if answer.as_json:
        _print(to_json(answer.data, indent=2))
        return
    width = min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    bold = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    for part in answer.parts:
        lines = part.lines(width) if isinstance(part, Table) else part.splitlines()
        if isinstance(part, Table) and bold and lines and not os.environ.get("NO_COLOR"):
            lines[0] = f"\x1b[1m{lines[0]}\x1b[0m"
        _print("\n".join(lines))


def _print(text: str) -> None:
    # Where standard output takes ASCII only, a sign that it lacks is no reason to fail.
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding))


def note(text: str) -> None:
    """Print a line for people on standard error; one that cannot be written is no failure."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        discard(2)


def discard(descriptor: int) -> None:
    """Send an output to nowhere, so that what is still buffered cannot fail at exit.

    Args:
        descriptor: 1 for standard output, 2 for standard error.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


@contextmanager
def standard_output(reserved: bool) -> Iterator[None]:
    """Send whatever is printed meanwhile, also by child processes, to standard error instead.

    Args:
        reserved: False to leave everything as it is.
    """
    if not reserved:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def number(value: object) -> str:
    """Return a number with three significant digits; what JSON holds as text is left as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Return a time in the two largest units that it has."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Progress:
    """The progress of runs; a context manager whose :meth:`observe` is given to what runs them.

    Args:
        names: of the runs that are expected.
    """

    def __init__(self, names: Sequence[str]) -> None:
        from rich.console import Console

        self._last: dict[str, Mapping[str, Any] | None] = dict.fromkeys(names)
        self._lock = threading.Lock()
        console = Console(stderr=True)
        self._live = None
        if console.is_terminal and not console.is_dumb_terminal:
            from rich.live import Live

            self._live = Live(
                get_renderable=self._table, console=console, refresh_per_second=4, transient=True
            )

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def observe(self, name: str, report: Mapping[str, Any]) -> None:
        """Take in what a run reports.

        Args:
            name: of the run.
            report: the fields of :class:`beliefspace.windtunnel.training.Progress`.
        """
        with self._lock:
            self._last[name] = report
        if self._live is None:
            note(f"{name}: " + ", ".join(_facts(report)))

    def _table(self) -> RichTable:
        from rich.table import Table as RichTable

        table = RichTable("run", "step", "KL, bits", "entropy error, bits", "left", box=None)
        with self._lock:
            last = dict(self._last)
        for name, report in last.items():
            table.add_row(name, *(_cells(report) if report else ("waiting", "", "", "")))
        return table


def _cells(report: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return (
        f"{report['step']:,} of {report['steps']:,}",
        number(report["kl_bits"]),
        number(report["entropy_error_bits"]),
        duration(report["seconds_left"]),
    )


def _facts(report: Mapping[str, Any]) -> tuple[str, ...]:
    step, divergence, error, left = _cells(report)
    return (f"step {step}", f"KL {divergence} bits", f"entropy error {error} bits", f"{left} left")


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "") or "0")
    except ValueError:
        return False
    return True


def _row_lines(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    wrapped = [
        textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, widths, strict=True)
    ]
    lines = []
    for index in range(max(map(len, wrapped))):
        at = [part[index] if index < len(part) else "" for part in wrapped]
        padded = [
            text.rjust(width) if numeric else text.ljust(width)
            for text, width, numeric in zip(at, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines
