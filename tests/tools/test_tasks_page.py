"""The page about the tasks says what the registry says now."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path

import pytest

from beliefspace.cli.examples import typical
from beliefspace.core import registry
from beliefspace.windtunnel.calibration import evaluation_batch
from beliefspace.windtunnel.ladder import ladder
from beliefspace.windtunnel.tasks import Bijection

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
SECTIONS = {
    section.partition("\n")[0]: section
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
}


@pytest.fixture(scope="module")
def tool():
    specification = importlib.util.spec_from_file_location(
        "tasks_page_tool", ROOT / "tools" / "tasks_page.py"
    )
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(tool):
    """To the byte: errors have two figures, so that the last digits of a machine do not show."""
    assert tool.page() == PAGE, "`make docs` writes docs/tasks.md anew"


def test_every_built_in_task_has_a_section_and_a_place_in_the_contents(tool):
    names = tool.built_in()
    assert set(names) <= set(registry.names("tasks"))
    assert list(SECTIONS)[1:] == names
    assert re.findall(r"^\| \[(.+)\]\(#\1\) \|", PAGE, re.MULTILINE) == names


@pytest.mark.parametrize("name", list(SECTIONS)[1:])
def test_a_section_is_complete(name):
    section = SECTIONS[name]
    facts = dict(re.findall(r"^- ([a-z ]+): (.+)$", section, re.MULTILINE))
    assert facts.keys() >= {"at settings", "prior", "inputs", "outcomes", "primitives"}
    parts = re.findall(r"^### (.+)$", section, re.MULTILINE)
    assert parts == [f"{of} of {name}" for of in ("Details", "Settings", "Example", "Ladder")]
    source = re.search(r"^Source: \[(.+)\]\(\.\./\1\)$", section, re.MULTILINE)
    assert (ROOT / source[1]).is_file()
    assert re.search(r"^position +input +drawn +Bayes +bits$", section, re.MULTILINE)
    assert "| best by position |" in section


def test_a_continuum_of_hypotheses_has_no_number_of_bits(tool):
    for name in tool.built_in():
        bits = typical(registry.resolve("tasks", name)).hypothesis_bits
        assert ("- hypotheses: a continuum\n" in SECTIONS[name]) == math.isinf(bits)


def test_examples_and_what_docstrings_draw_fit():
    drawn = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(drawn) > 2 * len(SECTIONS) - 2
    assert max(len(line) for text in drawn for line in text.splitlines()) <= 100


def test_a_ladder_has_every_rung_nearest_first():
    task = Bijection()
    rungs = re.findall(r"^\| (.+) \| (.+) \| (.+) \| (.+) \|$", SECTIONS["bijection"], re.MULTILINE)
    rungs = rungs[[rung[0] for rung in rungs].index("predictor") + 2 :]
    errors = [float(rung[1]) for rung in rungs]
    assert errors == sorted(errors)
    assert {rung[0] for rung in rungs} == ladder(task, evaluation_batch(task, 2, 0)).keys()
    assert rungs[-1] == ("position entropy", "inf", "0", "inf")


def test_a_docstring_becomes_markdown(tool):
    docstring = """\
First line (see :mod:`.there`), S**k of a < b <c> in ``a*b``.

One sequence::

    position  0  1

    input     a  b

Symbols:
    S    states

Last."""
    assert (
        tool.markdown(docstring)
        == """\
First line (see `there`), S\\*\\*k of a < b \\<c> in ``a*b``.

One sequence:

```text
position  0  1

input     a  b
```

Symbols:

```text
S    states
```

Last."""
    )


def test_a_table_keeps_its_columns(tool):
    assert tool.table(("a", "b"), [("x | y", "`P(x | y)`")]) == (
        "| a | b |\n| --- | --- |\n| x \\| y | `P(x \\| y)` |"
    )


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        (0.0, "0"),
        (-3e-16, "0"),
        (7.7246e-9, "7.7e-09"),
        (math.inf, "inf"),
        (1.26, "1.3"),
        (183.0, "180"),
    ],
)
def test_errors_have_two_figures(tool, bits, text):
    assert tool.two_figures(bits) == text


@pytest.mark.parametrize("last_digits", [-1e-16, 0, 1e-16])
def test_round_off_tips_no_figure(tool, last_digits):
    assert tool.two_figures(0.125 + last_digits) == tool.two_figures(0.125)


def test_check_writes_nothing_and_fails_where_the_page_differs(tool, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "PAGE", tmp_path / "tasks.md")
    monkeypatch.setattr(tool, "page", lambda: "new\n")
    assert tool.main(["--check"]) == 1
    assert "tasks.md is out of date" in capsys.readouterr().out
    assert not tool.PAGE.exists()
    assert tool.main([]) == 0
    assert tool.PAGE.read_text() == "new\n"
    assert tool.main(["--check"]) == 0
