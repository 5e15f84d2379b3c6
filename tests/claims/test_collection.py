from __future__ import annotations

from dataclasses import replace

import pytest
from tests.report.made import TRAINING, score

from beliefspace.claims.collection import collect
from beliefspace.core.config import to_toml
from beliefspace.core.errors import InvalidInput
from beliefspace.core.store import Run
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.recipe import Recipe
from beliefspace.windtunnel.tasks.bijection import Bijection

SHORT = '[task]\nkind = "bijection"\nvalues = 4\n[model]\nkind = "transformer"\n'
RECIPE = Recipe(Bijection(4), Transformer())


def make(path, recipe=RECIPE, status="finished", kind="train", result=True, toml=None) -> Run:
    run = Run.create(path, kind, to_toml(recipe) if toml is None else toml, {})
    if result:
        run.write_result({"score": score("inf"), "training": TRAINING})
    run.set_status(status)
    return run


def test_finished_training_runs_are_found_at_any_depth_once(tmp_path):
    make(tmp_path / "b" / "seed-1", replace(RECIPE, seed=1))
    make(tmp_path / "a", RECIPE)
    # A run inside a run's directory is its own matter; a hidden directory is one in the making.
    make(tmp_path / "a" / "inner", RECIPE)
    make(tmp_path / ".hidden", RECIPE)
    found = collect([tmp_path, tmp_path / "b", tmp_path / "b" / "seed-1"])
    assert [run.path for run in found.runs] == [tmp_path / "a", tmp_path / "b" / "seed-1"]
    assert [run.recipe for run in found.runs] == [RECIPE, replace(RECIPE, seed=1)]
    assert found.runs[0].result["score"]["kl_bits"]["mean"] == "inf"
    assert (found.unfinished, found.unreadable) == ((), ())


def test_defaults_that_a_config_leaves_out_are_filled(tmp_path):
    make(tmp_path / "run", toml=SHORT)
    (run,) = collect([tmp_path]).runs
    assert run.recipe == RECIPE


def test_unfinished_runs_are_listed_and_other_kinds_passed_over(tmp_path):
    for status in ("running", "interrupted", "failed"):
        make(tmp_path / status, status=status)
    make(tmp_path / "other", kind="plan", toml="anything = 1")
    found = collect([tmp_path])
    assert [path.name for path in found.unfinished] == ["failed", "interrupted", "running"]
    assert (found.runs, found.unreadable) == ((), ())


def test_unreadable_runs_are_reported_and_stop_nothing(tmp_path):
    make(tmp_path / "good")
    make(tmp_path / "no-result", result=False)
    make(tmp_path / "bad-config", toml=SHORT.replace("bijection", "tarot"))
    make(tmp_path / "no-config").path.joinpath("config.toml").unlink()
    make(tmp_path / "bad-result").path.joinpath("result.json").write_text("{")
    make(tmp_path / "no-score").path.joinpath("result.json").write_text("{}")
    make(tmp_path / "bad-header").path.joinpath("run.json").write_text("[]")
    found = collect([tmp_path])
    assert [run.path.name for run in found.runs] == ["good"]
    assert len(found.unreadable) == 6
    for line in found.unreadable:
        assert str(tmp_path) in line
        assert "\n" not in line
    assert any("unknown task 'tarot'" in line for line in found.unreadable)


def test_a_place_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(InvalidInput, match="nowhere does not exist"):
        collect([tmp_path / "nowhere"])
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="is not a directory"):
        collect([tmp_path / "file"])
    assert collect([tmp_path]).runs == ()
