"""What tyro refuses is one line, whatever way its boxes are drawn."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass

import pytest

from beliefspace.cli.arguments import HelpShown, condensed, parse
from beliefspace.core.errors import InvalidInput


@dataclass(frozen=True)
class Options:
    """Options.

    Args:
        width: how wide it is, in a sentence that is long enough to be broken into several lines of
            the box that shows it.
        depth: how deep.
    """

    width: int = 1
    depth: int = 2


def test_arguments_are_read_and_defaults_kept():
    assert parse(Options, ["--depth", "5"], "make", "Make it.") == Options(1, 5)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--dept", "5"], "unknown flag --dept; nearest: --depth (see: beliefspace make --help)"),
        (["--zzzz"], "unknown flag --zzzz (see: beliefspace make --help)"),
        (["more"], "unexpected argument 'more' (see: beliefspace make --help)"),
        (["--depth", "x"], "--depth: expected an integer; got 'x' (see: beliefspace make --help)"),
    ],
)
@pytest.mark.parametrize("columns", ["40", "300"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_refusals(monkeypatch, arguments, line, columns, encoding):
    # tyro draws its boxes in what standard output can show.
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(InvalidInput) as caught:
        parse(Options, arguments, "make", "Make it.")
    assert str(caught.value) == line


def test_the_width_of_the_terminal_is_left_as_it_was(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(HelpShown):
        parse(Options, ["--help"], "make", "Make it.")
    assert max(map(len, capsys.readouterr().out.splitlines())) == 100
    monkeypatch.delenv("COLUMNS")
    parse(Options, [], "make", "Make it.")
    assert "COLUMNS" not in os.environ


def test_text_without_a_box_is_kept():
    assert condensed("\x1b[31msomething\nelse.\x1b[0m") == "something else"
    assert condensed("") == "the arguments do not fit"
