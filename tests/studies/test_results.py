"""A result file may come from anywhere: what is wrong with it is one line that names it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.report.made import LAGS, TRAINING, memory, score

from beliefspace.claims.collection import collect
from beliefspace.cli.main import main
from beliefspace.core.config import content_hash, to_toml
from beliefspace.core.errors import CorruptFile
from beliefspace.core.statistics import Interval
from beliefspace.core.store import Run
from beliefspace.studies.results import read_result
from beliefspace.windtunnel.calibration import score as measure_score
from beliefspace.windtunnel.memory import Lag, Memory
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.recipe import Recipe, Schedule
from beliefspace.windtunnel.tasks.bijection import Bijection
from beliefspace.windtunnel.tasks.hmm import HMM

RECIPE = Recipe(Bijection(4), Transformer(width=16, depth=1), schedule=Schedule("10 steps"))
RESULT = {"score": score(), "training": TRAINING}


def written(place, content=RESULT, recipe=RECIPE) -> Run:
    run = Run.create(place, "train", to_toml(recipe), {})
    run.write_result({})
    text = content if isinstance(content, str) else json.dumps(content)
    (place / "result.json").write_text(text)
    run.set_status("finished")
    return run


def with_mean(value) -> dict:
    changed = score()
    changed["kl_bits"] = changed["kl_bits"] | {"mean": value}
    return {"score": changed, "training": TRAINING}


def with_memory(content) -> dict:
    return {"score": score(memory=content), "training": TRAINING}


def with_lag(**changed) -> dict:
    return with_memory(memory([LAGS[0] | changed]))


BROKEN = {
    "empty": {},
    "a list": [RESULT],
    "no score": {"training": TRAINING},
    "no training": {"score": score()},
    "a score that is a list": {"score": [], "training": TRAINING},
    "text": with_mean("abc"),
    "a list for a number": with_mean([1.0]),
    "true": with_mean(True),
    "nothing": with_mean(None),
    "not a number": with_mean(float("nan")),
    "beyond all floats": json.dumps(with_mean("huge")).replace('"huge"', "1" + 400 * "0"),
    "more digits than are read": json.dumps(with_mean("huge")).replace('"huge"', 5000 * "1"),
    "too deep": 100_000 * '{"score": ',
    "predictions in words": {"score": score(), "training": TRAINING | {"predictions": "x"}},
    "a number that no command needs": {
        "score": score(),
        "training": TRAINING | {"efficiency": [1]},
    },
    "a memory that is a number": with_memory(3),
    "a memory that is empty": with_memory({}),
    "windows in a list": with_memory(memory(window_equivalent=[["uniform", 4]])),
    "half a window": with_memory(memory(window_equivalent={"uniform": 4.5})),
    "an interval of three windows": with_memory(memory(window_interval={"uniform": [3, 4, 5]})),
    "an interval of one window": with_memory(memory(window_interval={"uniform": 4})),
    "an interval of half a window": with_memory(memory(window_interval={"uniform": [3.5, 4]})),
    "windows without intervals": with_memory(
        {k: v for k, v in memory().items() if "_int" not in k}
    ),
    "steps in words": with_memory(memory(steps="20")),
    "an influence that is a number": with_memory(memory() | {"influence": 4}),
    "a lag that is a number": with_memory(memory([4])),
    "half a lag": with_lag(lag=0.5),
    "an infinite slope": with_lag(slope="inf"),
    "no correlation": with_lag(correlation=None),
    "no correlation of the control": with_lag(control_correlation=None),
    "an infinite correlation of the null": with_lag(null_correlation="inf"),
    "a slope without its interval": with_lag(slope_interval=None),
    "an interval without an end": with_lag(slope_interval={"low": 0.1}),
    "another recipe's": RESULT | {"recipe": "0" * 64},
}


def test_a_result_is_read_with_the_recipe_it_belongs_to(tmp_path):
    run = written(tmp_path / "run", RESULT | {"recipe": content_hash(RECIPE)})
    found = read_result(run)
    assert found.content["training"] == TRAINING
    assert found.score.ladder["position entropy"]["kl_bits"].mean == float("inf")


def test_a_memory_is_read_as_it_was_measured(tmp_path):
    found = read_result(written(tmp_path / "run", with_memory(memory()))).score.memory
    assert isinstance(found, Memory)
    assert (dict(found.window_equivalent), found.steps) == ({"uniform": 4, "stationary": 3}, 20)
    assert dict(found.window_interval) == {"uniform": (3, 5), "stationary": (3, 3)}
    interval = Interval(1.0 - 0.1, 1.0 + 0.1, 0.95, "bootstrap", 500)
    assert found.influence[0] == Lag(0, 0.4, 1.0, interval, 0.99, 0.98, 0.02)
    assert [lag.lag for lag in found.influence] == [0, 1, 3]
    assert (found.reach, found.shown, found.sequences) == (1, 3, 500)


def test_a_score_has_a_memory_that_comes_back_equal(tmp_path):
    task = HMM(2, 2, 4)
    measured = measure_score(lambda x: np.zeros((*x.shape[:2], 2)), task, 20)
    result = {"score": measured.to_dict(), "training": TRAINING}
    assert read_result(written(tmp_path / "run", result)).score.memory == measured.memory


def test_a_result_without_a_filter_or_older_than_its_measure_has_no_memory(tmp_path):
    assert "memory" not in RESULT["score"]
    assert read_result(written(tmp_path / "older")).score.memory is None
    assert read_result(written(tmp_path / "none", with_memory(None))).score.memory is None


def test_whose_a_result_is_cannot_be_said_without_the_code_of_its_task(tmp_path):
    run = written(tmp_path / "run", RESULT | {"recipe": content_hash(RECIPE)})
    config = run.path / "config.toml"
    config.write_text(config.read_text().replace('"bijection"', '"tarot"'))
    assert read_result(run).score.sequences == 2048


def test_two_results_that_changed_places_are_noticed(tmp_path):
    recipes = [RECIPE, replace(RECIPE, seed=1)]
    runs = [
        written(tmp_path / str(recipe.seed), RESULT | {"recipe": content_hash(recipe)}, recipe)
        for recipe in recipes
    ]
    first, second = (run.path / "result.json" for run in runs)
    kept = first.read_text()
    first.write_text(second.read_text())
    second.write_text(kept)
    for run in runs:
        with pytest.raises(CorruptFile, match=r"belongs to another recipe than the config\.toml"):
            read_result(run)


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_result_of_another_shape_is_named_by_every_command(tmp_path, capsys, content):
    written(tmp_path / "good", recipe=replace(RECIPE, seed=1))
    run = written(tmp_path / "bad", content)
    bad, good = str(run.path), str(tmp_path / "good")
    for arguments in (
        ["resume", bad],
        ["evaluate", bad],
        ["compare", good, bad],
        ["report", bad],
    ):
        assert main(arguments) == 1
        out, err = capsys.readouterr()
        assert out == ""
        (line,) = err.splitlines()
        assert f"{bad}/result.json" in line
        assert len(line) < len(bad) + 300
    found = collect([tmp_path])
    assert [one.path.name for one in found.runs] == ["good"]
    (line,) = found.unreadable
    assert f"{bad}/result.json" in line
