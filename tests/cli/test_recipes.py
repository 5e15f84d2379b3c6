"""Names, files and flags build one and the same recipe; seen through ``train --dry-run``."""

from __future__ import annotations

import json

import pytest

from beliefspace.cli.main import main
from beliefspace.core.config import from_dict, to_toml
from beliefspace.windtunnel.models import Transformer
from beliefspace.windtunnel.optimizers import AdamW, Muon
from beliefspace.windtunnel.recipe import Evaluation, Recipe, Schedule
from beliefspace.windtunnel.tasks import Bijection


@pytest.fixture
def planned(capsys):
    """Return the recipe that a command line would run."""

    def plan(*arguments):
        assert main(["train", *map(str, arguments), "--dry-run", "--json"]) == 0
        return from_dict(Recipe, json.loads(capsys.readouterr().out)["recipe"])

    return plan


def test_defaults_are_those_of_the_classes(planned):
    assert planned("bijection") == Recipe(Bijection(), Transformer())


def test_flags_reach_every_depth(planned):
    recipe = planned(
        *("bijection", "--task.values", 10, "--task.pool", 7, "--model.head=tied", "--seed", 3),
        *("--task.format", "A", "--model.qk-norm", "--optimizer.rest.betas", 0.5, 0.75),
        *("--schedule.budget", "20M predictions", "--evaluation.looks", 4, "--balanced"),
    )
    assert recipe == Recipe(
        Bijection(10, format="A", pool=7),
        Transformer(head="tied", qk_norm=True),
        Muon(rest=AdamW(betas=(0.5, 0.75))),
        Schedule("20M predictions"),
        balanced=True,
        seed=3,
        evaluation=Evaluation(looks=4),
    )


def test_another_optimizer_has_its_own_flags(planned):
    recipe = planned("bijection", "--optimizer", "adamw", "--optimizer.weight-decay", 0.5)
    assert recipe.optimizer == AdamW(weight_decay=0.5)


def test_a_file_says_the_same_as_flags(planned, tmp_path):
    recipe = planned("bijection", "--task.values", 5, "--model.width", 32, "--seed", 9)
    (tmp_path / "whole.toml").write_text(to_toml(recipe))
    assert planned("--config", tmp_path / "whole.toml") == recipe
    assert planned("bijection", f"--config={tmp_path / 'whole.toml'}") == recipe


def test_flags_win_over_the_file_and_the_file_over_defaults(planned, tmp_path):
    file = tmp_path / "part.toml"
    file.write_text(
        'balanced = true\n[task]\nkind = "bijection"\nvalues = 5\nformat = "A"\n'
        '[optimizer]\nkind = "adamw"\nweight_decay = 0.5\n[schedule]\nbatch = 7\n'
    )
    recipe = planned("--config", file, "--task.values", 6, "--no-balanced")
    assert recipe == Recipe(
        Bijection(6, format="A"),
        Transformer(),
        AdamW(weight_decay=0.5),
        Schedule(batch=7),
    )
    other = planned("bijection", "--config", file, "--optimizer", "muon")
    assert other.optimizer == Muon()
    assert other.task == Bijection(5, format="A")


def test_the_plan_as_text_can_be_run(capsys, tmp_path, planned):
    assert main(["train", "bijection", "--seeds", "2", "--out", "there", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "2 run(s)" in text
    assert "there/seed-1" in text
    (tmp_path / "plan.toml").write_text(text)
    assert planned("--config", tmp_path / "plan.toml") == Recipe(Bijection(), Transformer())


def test_the_parameters_are_counted(capsys):
    main(["train", "bijection", "--dry-run", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == Transformer().parameters(Bijection())
    assert found["places"] == ["runs/bijection-transformer"]


def test_a_model_that_does_not_suit_the_task_is_refused_before_anything_runs(tmp_path, capsys):
    file = tmp_path / "needs.py"
    file.write_text(NEEDS)
    assert main(["train", str(file), "--dry-run"]) == 2
    assert "missing --task.values" in capsys.readouterr().err
    flags = ["--task.values", "3", "--model.head", "tied", "--dry-run"]
    assert main(["train", f"{file}:needing", *flags]) == 2
    assert "a tied head needs outcomes that are input tokens" in capsys.readouterr().err
    assert main(["train", f"{file}:needs", "--dry-run"]) == 2
    assert "unknown task in" in capsys.readouterr().err


def test_a_file_with_two_tasks_must_say_which(tmp_path, capsys):
    file = tmp_path / "two.py"
    file.write_text(NEEDS.replace("needing", "first-of-two") + NEEDS.replace("needing", "second"))
    assert main(["train", str(file), "--dry-run"]) == 2
    assert "two.py:first-of-two, " in capsys.readouterr().err


NEEDS = '''
from dataclasses import dataclass

from beliefspace.core.registry import register
from beliefspace.windtunnel.tasks import base


@register("tasks", "needing")
@dataclass(frozen=True)
class Needing(base.Task):
    """A task that must be told something.

    Args:
        values: how many.
    """

    values: int
    prior, primitives, hypothesis_bits, length = "one value", (), 1.0, 3
    inputs, outputs = base.RealInputs(2), base.CategoricalOutputs((0, 1))

    def batch(self, sequences, stream, step=0): ...
    def reference(self, batch): ...
    @classmethod
    def tiny(cls): ...
'''
