"""Tables fit whatever is in them and lose nothing; progress is live or one line a look."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beliefspace.cli import console
from beliefspace.cli.console import Answer, Progress, Table, duration, number, show

CELL = st.lists(st.text("abcxyz", min_size=1, max_size=12), max_size=12).map(" ".join)
REPORT = {
    "step": 50,
    "steps": 1000,
    "kl_bits": 0.012345,
    "entropy_error_bits": 1.5,
    "seconds_left": 75.2,
}


@st.composite
def tables(draw):
    columns = draw(st.integers(1, 6))
    row = st.tuples(*[CELL] * columns)
    return Table(tuple(f"head{i}" for i in range(columns)), tuple(draw(st.lists(row, max_size=4))))


@given(tables(), st.integers(40, 100))
def test_a_table_fits_and_keeps_every_word(table, width):
    lines = table.lines(width)
    assert all(len(line) <= width for line in lines)
    for row in table.rows:
        for cell in row:
            for word in cell.split():
                assert any(word in line for line in lines)


def test_columns_line_up():
    table = Table(("name", "value"), (("a", "1.5"), ("longer", "22.25")))
    assert table.lines() == ["name    value", "a         1.5", "longer  22.25"]


def test_a_long_cell_is_broken_under_itself():
    table = Table(("name", "meaning"), (("a", "one two three four five"),))
    assert table.lines(22) == ["name  meaning", "a     one two three", "      four five"]


def test_many_columns_become_one_line_a_cell():
    table = Table(("first", "second"), (("a" * 15, "b" * 15), ("c", "d")))
    assert table.lines(20) == [
        "first:",
        f"  {'a' * 15}",
        "second:",
        f"  {'b' * 15}",
        "",
        "first: c",
        "second: d",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00012345, "0.000123"), (12345, "12,345"), ("inf", "inf"), (None, ""), (True, "True")],
)
def test_numbers(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (59.4, "59 s"), (75, "1 min 15 s"), (3600 + 120, "1 h 02 min")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_progress_elsewhere_is_a_line_a_look(capsys):
    with Progress(["run"]) as progress:
        progress.observe("run", REPORT)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "run: step 50 of 1,000, KL 0.0123 bits, entropy error 1.5 bits, 1 min 15 s left\n"


def test_progress_on_a_terminal_is_one_row_a_run(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with Progress(["one", "two"]) as progress:
        progress.observe("one", REPORT)
    out, err = capsys.readouterr()
    assert out == ""
    *_, row_one, row_two = [line for line in err.splitlines() if "one" in line or "two" in line]
    assert "50 of 1,000" in row_one
    assert "waiting" in row_two


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variable", "value", "bold"),
    [("TERM", "xterm", True), ("TERM", "dumb", False), ("NO_COLOR", "1", False)],
)
def test_headers_are_bold_on_a_terminal_that_can(monkeypatch, variable, value, bold):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv(variable, value)
    screen = Terminal()
    monkeypatch.setattr(console.sys, "stdout", screen)
    show(Answer((Table(("head",), (("cell",),)),), {}))
    assert ("\x1b[1mhead\x1b[0m\n" in screen.getvalue()) is bold
