from __future__ import annotations

import tomllib

import pytest
from tests.report.made import TRAINING, memory, score

from beliefspace.core.config import to_toml
from beliefspace.core.store import Run
from beliefspace.report.context import arms, read_context, settings_of_arm
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.recipe import Recipe, Schedule, arm_settings
from beliefspace.windtunnel.tasks.bijection import Bijection


@pytest.fixture
def views(make_run):
    def read(*settings):
        paths = [make_run(f"run-{i}", **one) for i, one in enumerate(settings)]
        return read_context([Run.open(path) for path in paths]).runs

    return read


def test_runs_are_named_by_what_differs(views):
    runs = views({"width": 32}, {"width": 64}, {"width": 64, "seed": 1}, {"model": "mamba"})
    assert [run.label for run in runs] == [
        "transformer, width 32, seed 0",
        "transformer, width 64, seed 0",
        "transformer, width 64, seed 1",
        "mamba, seed 0",
    ]
    assert list(arms(runs)) == ["transformer, width 32", "transformer, width 64", "mamba"]
    assert [len(members) for members in arms(runs).values()] == [1, 2, 1]


def test_equal_runs_are_told_apart_by_their_directories(views):
    runs = views({}, {})
    assert [run.label for run in runs] == ["transformer", "transformer (run-1)"]
    assert list(arms(runs)) == ["transformer"]


def test_a_budget_of_time_makes_one_arm_whatever_it_came_to(views):
    assert len(arms(views({"steps": 1500}, {"steps": 1623, "seed": 1}))) == 1


@pytest.mark.parametrize("budget", ["5min", "6 cpu-min", "100 steps", "20M predictions"])
def test_a_page_and_a_verdict_mean_the_same_by_an_arm(budget):
    recipe = Recipe(Bijection(4), Transformer(), schedule=Schedule(budget, 100), seed=3)
    assert settings_of_arm(tomllib.loads(to_toml(recipe))) == arm_settings(recipe)


def test_steps_that_were_chosen_and_another_evaluation_set_arms_apart(views):
    config = "[model]\nkind = 'mamba'\n[schedule]\nbudget = '9 steps'\nsteps = {}\n{}"
    rest = "[evaluation]\nsequences = {}\n"
    runs = views(
        {"config": config.format(9, rest.format(8))},
        {"config": config.format(10, rest.format(8))},
        {"config": config.format(9, rest.format(7))},
    )
    assert list(arms(runs)) == [
        "mamba, sequences 8, steps 9",
        "mamba, sequences 8, steps 10",
        "mamba, sequences 7, steps 9",
    ]


def test_what_is_measured_is_read_with_its_infinities(views):
    (run,) = views({"looks": ((10, "inf", 0.5),)})
    assert run.score.ladder["position entropy"]["kl_bits"].mean == float("inf")
    assert run.score.ladder["position entropy"]["kl_bits"].low is None
    kl = run.score.measures["kl_bits"]
    assert (kl.mean, kl.low, kl.high) == (0.02, 0.02 * 0.9, 0.02 * 1.1)
    assert run.described("task") == "coin (values 4)"


def test_names_in_a_score_are_made_fit_for_a_page(make_run):
    name = "uni\u202eform\n"
    made = score(memory=memory(window_equivalent={name: 2}, window_interval={name: (1, 4)}))
    made["ladder"]["b\x1bag"] = made["ladder"].pop("bag")
    path = make_run(result={"score": made, "training": TRAINING})
    (run,) = read_context([Run.open(path)]).runs
    mark = "\N{REPLACEMENT CHARACTER}"
    assert dict(run.score.memory.window_equivalent) == {f"uni{mark}form{mark}": 2}
    assert dict(run.score.memory.window_interval) == {f"uni{mark}form{mark}": (1, 4)}
    assert f"b{mark}ag" in run.score.ladder


def test_a_long_or_unprintable_name_is_made_fit(views):
    config = 'seed = 0\n[model]\nkind = "a\\u0001b\\n{}"\n'
    (run,) = views({"config": config.format("x" * 100)})
    assert run.label.startswith("a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}x")
    assert len(run.label) == 48


def test_a_run_of_another_kind_has_no_arm_but_a_name(views):
    (run,) = views({"config": 'study = "coverage"\n', "result": {"found": 3}, "kind": "study"})
    assert (run.label, run.seed, run.score, dict(run.training)) == ("run-0", None, None, {})
