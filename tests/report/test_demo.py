from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.report.made import TRAINING, score

from beliefspace.core.config import to_toml
from beliefspace.core.store import Run
from beliefspace.report.demo import comparable, report_demo
from beliefspace.studies import demo as study
from beliefspace.studies.bijection import recipe
from beliefspace.studies.demo import Demo, train_demo
from beliefspace.windtunnel.tasks.bijection import Bijection

SAMPLED = recipe("sampled", "10 steps")


@pytest.fixture
def trained(make_run):
    """A demo that was only written."""

    def make(**changes):
        result = {"score": score(), "training": TRAINING}
        paths = {
            name: make_run(name, config=to_toml(replace(SAMPLED, **changes)), result=result)
            for name in ("sampled", "posterior")
        }
        return Demo({name: Run.open(path) for name, path in paths.items()})

    return make


def test_the_table_has_the_arms_the_ladder_from_far_to_near_and_what_others_report(
    trained, tmp_path
):
    found = report_demo(trained(), tmp_path)
    names = [row[0] for row in found.rows()]
    assert names[:5] == [
        "transformer, sampled targets, 12.6 CPU min",
        "transformer, posterior targets, 12.6 CPU min",
        "ladder: position entropy",
        "ladder: uniform",
        "ladder: bag",
    ]
    assert "published: Transformer, version 1 (secondary source)" in names[5:]
    assert all(name.startswith("published: Transformer") for name in names[5:])
    assert found.rows()[0][1:] == ("0.02 [0.018, 0.022]", "0.03 [0.027, 0.033]", "0.02")
    lines = found.to_markdown().splitlines()
    assert lines[1] == "| --- | --- | --- | --- |"
    assert len(lines) == 2 + len(names) + 1 + 2
    assert found.page == tmp_path / "report.html"
    assert found.page.exists()
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert list(plain) == ["results", "published", "report"]


def test_balanced_batches_are_said_where_they_were_drawn(trained):
    said = "Both arms trained on balanced batches: "
    assert any(line.startswith(said) for line in trained(balanced=True).notes())


def test_other_batches_are_not_called_balanced(trained):
    assert not any("balanced" in line for line in trained().notes())


def test_published_values_are_those_of_the_same_task_and_kind_of_model():
    claims = [value.claim for value in comparable(SAMPLED)]
    # Read with 20 pairs and with 19, as the released configuration has it.
    assert {"bijection/transformer-v1", "bijection/transformer-20k"} <= set(claims)
    assert not {"bijection/lstm", "bijection/binding"} & set(claims)
    binding = replace(SAMPLED, task=Bijection(20, keys="repeated", mapping="map"))
    assert [value.claim for value in comparable(binding)] == ["bijection/binding"]
    assert comparable(replace(SAMPLED, task=Bijection(19))) == ()
    assert comparable(replace(SAMPLED, task=Bijection(20, pool=1024))) == ()


def test_both_arms_have_the_recommended_recipe(monkeypatch, tmp_path):
    given = {}
    monkeypatch.setattr(
        study, "run_recipes", lambda arms, out, observe: given.update(arms=arms, out=out) or {}
    )
    train_demo(tmp_path, "7 steps")
    arms = {name: recipe(name, "7 steps") for name in ("sampled", "posterior")}
    assert given == {"arms": arms, "out": tmp_path}
