"""A task of real outcomes all the way: trained, scored again, compared and reported.

Its scores have no accuracy and no leaked mass; nothing may show them, and nothing may need them.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.report.made import TRAINING, measure, measures, score
from tests.report.reading import Page, rows

import beliefspace as bs
from beliefspace.cli.main import main
from beliefspace.core.errors import UnknownName
from beliefspace.core.store import Run
from beliefspace.report.page import write_report
from beliefspace.studies.comparison import compare
from beliefspace.windtunnel.tasks.linear_regression import LinearRegression

CATEGORICAL = ("accuracy", "leaked_inside", "leaked_outside")
NONE = dict.fromkeys(CATEGORICAL)
SMALL = [
    *("--task.dimensions", "2", "--task.examples", "4", "--model.width", "16"),
    *("--model.depth", "1", "--schedule.budget", "20 steps"),
    *("--evaluation.sequences", "64", "--evaluation.looks", "2"),
]
QUANTITIES = ["KL(Bayes ‖ it) / bits", "entropy error / bits", "total variation"]
HEADINGS = ["predictor", *QUANTITIES, "excess cross-entropy / bits", "worst KL / bits @ place"]


def headings(text):
    section = text.split('<section id="panel-ladder">')[1].split("</thead>")[0]
    cells = [cell.partition(">")[2] for cell in section.split("<th")[2:]]
    return [
        cell.partition("</th>")[0].replace("<small>", " / ").replace("</small>", "")
        for cell in cells
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two seeds of a small transformer on linear regression."""
    where = tmp_path_factory.mktemp("normal") / "runs"
    flags = [*SMALL, "--seeds", "2", "--out", str(where), "--json"]
    assert main(["train", "linear-regression", *flags]) == 0
    return sorted(path for path in where.iterdir() if path.is_dir())


@pytest.mark.slow
def test_a_run_is_scored_again_as_it_was(trained, capsys):
    assert main(["evaluate", str(trained[0]), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["task"]["kind"] == "linear-regression"
    assert found["score"] == Run.open(trained[0]).result()["score"]
    assert all(found["score"][name] is None for name in CATEGORICAL)
    assert main(["evaluate", str(trained[0])]) == 0
    table = capsys.readouterr().out
    assert {"ridge", "least squares", "prior"} <= {
        line.split("  ")[0] for line in table.splitlines()
    }


@pytest.mark.slow
def test_the_page_of_runs_has_every_panel(trained, tmp_path):
    page = Page(write_report(trained, out=tmp_path / "page.html").read_text(encoding="utf-8"))
    assert not [a for a in page.find("p") if a.get("class") == "notice error"]
    ids = [f"panel-{n}" for n in ("ladder", "entropy-by-position", "learning-curve", "recipe")]
    assert page.panels == ids
    table = rows(page.source, "ladder")
    assert [len(row) for row in table] == [6] * len(table)
    # The mean over seeds, each seed, then what every task of real outcomes is set beside.
    assert table[0][0].endswith("mean of 2 seeds")
    assert {row[0] for row in table[3:]} == {
        "best constant", "best by position", "ridge", "least squares", "prior",
    }  # fmt: skip
    assert "accuracy" not in page.text("panel-ladder").lower()
    assert "leaked" not in page.text("panel-ladder").lower()


@pytest.mark.slow
def test_runs_are_compared_but_not_by_accuracy(trained):
    runs = [Run.open(path) for path in trained]
    (arm,) = compare(runs).arms
    assert sorted(arm.values) == [0, 1]
    with pytest.raises(UnknownName, match="unknown metric 'accuracy'"):
        compare(runs, metric="accuracy")


def test_the_score_of_a_callable_makes_a_page(make_run):
    """Standing for every model: the normal of the outcome's overall variance."""

    def constant(inputs):
        return np.stack([np.zeros(inputs.shape[:2]), np.full(inputs.shape[:2], np.log(2.25))], -1)

    final = bs.score(constant, LinearRegression(2, 4), sequences=40).to_dict()
    path = write_report(make_run(result={"score": final, "training": TRAINING}))
    page = Page(path.read_text(encoding="utf-8"))
    assert not [a for a in page.find("p") if a.get("class") == "notice error"]
    table = rows(page.source, "ladder")
    assert {row[0] for row in table[1:]} == set(final["ladder"])
    assert [len(row) for row in table] == [6] * len(table)


def test_the_ladder_leaves_out_the_columns_that_mean_nothing(make_run):
    made = score(0.02, **NONE, ladder={"prior": measures(0.5, **NONE)})
    run = make_run(result={"score": made, "training": TRAINING})
    text = write_report(run).read_text(encoding="utf-8")
    assert headings(text) == HEADINGS
    assert rows(text, "ladder")[1] == [
        "prior", "0.500", "0.0300", "0.0400", "0.0500", "0.500 @ 0",
    ]  # fmt: skip
    both = headings(write_report(make_run("second")).read_text(encoding="utf-8"))
    assert both == [*HEADINGS[:-1], "accuracy", HEADINGS[-1], "leaked mass"]


def test_a_differential_entropy_can_be_negative(make_run):
    """Where the outcome is known to less than a quarter of a unit, entropy is below 0 bits."""
    below = measure(-2.0, [-1.0, -2.0, -3.0])
    made = score(0.02, **NONE, entropy_bits=below, bayes_entropy_bits=[-1.1, -2.2, -3.3], ladder={})
    page = write_report(make_run(result={"score": made, "training": TRAINING}))
    parsed = Page(page.read_text(encoding="utf-8"))
    assert not [a for a in parsed.find("p") if a.get("class") == "notice error"]
    assert "panel-entropy-by-position" in parsed.panels
