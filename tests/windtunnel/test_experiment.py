"""Arms times seeds: where runs go, what a second call does, and what is refused beforehand."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from beliefspace.core import registry
from beliefspace.core.config import from_toml
from beliefspace.core.errors import Interrupted, InvalidInput, RunExists
from beliefspace.core.registry import resolve
from beliefspace.core.store import Run
from beliefspace.runs.engines import Engine
from beliefspace.windtunnel import experiment
from beliefspace.windtunnel.experiment import run_recipes, train
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.recipe import Evaluation, Hardware, Recipe, Schedule
from beliefspace.windtunnel.tasks.bijection import Bijection

torch = pytest.importorskip("torch")

TASK = Bijection(4)
NARROW, WIDE = Transformer(width=8, depth=1), Transformer(width=16, depth=1)
TINY = Recipe(
    TASK,
    NARROW,
    schedule=Schedule("20 steps", batch=8),
    evaluation=Evaluation(sequences=16, looks=5),
)


@dataclass
class Here(Engine):
    """Runs units in this very process, one after another, and remembers them."""

    workers: int | None
    threads: int

    def run(self, units, observe=None):
        self.units = units
        for unit in units:
            config = json.loads(json.dumps(unit.config))
            unit.work()(config, unit.out, lambda report, name=unit.name: observe(name, report))


@pytest.fixture
def engines(monkeypatch) -> list[Here]:
    """The engines that were made, which run here."""
    made: list[Here] = []

    def make(workers, threads):
        made.append(Here(workers, threads))
        return made[-1]

    monkeypatch.setattr(experiment, "Local", make)
    return made


def started(engines: list[Here]) -> list[str]:
    return [unit.name for unit in engines[-1].units]


def recipe_of(run: Run) -> Recipe:
    return from_toml(Recipe, run.config_toml())


def contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def quiet(name: str, report: object) -> None:
    pass


def test_every_arm_is_trained_with_every_seed_in_a_directory_of_its_own(tmp_path, engines):
    arms = {"narrow": NARROW, "wide": WIDE}
    runs = train(
        TASK, arms, seeds=2, budget="3 steps", targets="posterior", out=tmp_path, observe=quiet
    )
    names = ["narrow/seed-0", "narrow/seed-1", "wide/seed-0", "wide/seed-1"]
    assert list(runs) == started(engines) == names
    for name, run in runs.items():
        arm, _, seed = name.partition("/seed-")
        schedule = Schedule("3 steps", steps=3)
        expected = Recipe(TASK, arms[arm], schedule=schedule, targets="posterior", seed=int(seed))
        assert run.path == tmp_path / name
        assert run.status == "finished"
        assert recipe_of(run) == expected


@pytest.mark.parametrize(
    ("arms", "seeds", "names"),
    [
        (NARROW, 1, ["transformer/seed-0"]),
        ([NARROW], (3, 5), ["transformer/seed-3", "transformer/seed-5"]),
        ([NARROW, WIDE], [2], ["transformer-1/seed-2", "transformer-2/seed-2"]),
    ],
)
def test_arms_without_names_are_called_by_their_kind(tmp_path, engines, arms, seeds, names):
    runs = train(TASK, arms, seeds=seeds, budget="1 steps", out=tmp_path, observe=quiet)
    assert list(runs) == names


def test_what_is_finished_is_not_started_again(tmp_path, engines):
    recipes = {"a": TINY, "b": replace(TINY, seed=1)}
    run_recipes({"a": TINY}, tmp_path, observe=quiet)
    before = contents(tmp_path / "a")
    runs = run_recipes(recipes, tmp_path, observe=quiet)
    assert started(engines) == ["b"]
    assert contents(tmp_path / "a") == before
    assert {name: run.status for name, run in runs.items()} == {"a": "finished", "b": "finished"}
    assert list(run_recipes(recipes, tmp_path, observe=quiet)) == ["a", "b"]
    assert started(engines) == []


def test_what_is_half_done_goes_on_to_the_same_end(tmp_path, engines):
    recipes = {"a": TINY, "b": replace(TINY, seed=1)}

    def stop_b(name, report):
        if name == "b" and report["step"] == 8:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run_recipes(recipes, tmp_path / "broken", observe=stop_b)
    assert Run.open(tmp_path / "broken/b").load_checkpoint().step == 8
    steps = []
    broken = run_recipes(
        recipes, tmp_path / "broken", observe=lambda name, report: steps.append(report["step"])
    )
    assert started(engines) == ["b"]
    assert steps == [12, 16, 20]
    whole = run_recipes(recipes, tmp_path / "whole", observe=quiet)
    for name in recipes:
        ends = [runs[name].load_checkpoint().tensors for runs in (broken, whole)]
        assert {n: a.tobytes() for n, a in ends[0].items()} == {
            n: a.tobytes() for n, a in ends[1].items()
        }


@pytest.mark.parametrize(
    "change",
    [
        {"model": WIDE},
        {"seed": 1},
        {"targets": "posterior"},
        {"schedule": replace(TINY.schedule, budget="21 steps")},
        {"schedule": replace(TINY.schedule, steps=21)},
        {"evaluation": Evaluation(sequences=17, looks=5)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_run_of_another_recipe_is_refused_before_anything_is_started(tmp_path, engines, change):
    run_recipes({"b": TINY}, tmp_path, observe=quiet)
    before = contents(tmp_path)
    with pytest.raises(RunExists, match=f"{tmp_path / 'b'} holds a run of another recipe"):
        run_recipes({"a": TINY, "b": replace(TINY, **change)}, tmp_path, observe=quiet)
    assert contents(tmp_path) == before
    assert len(engines) == 1


def test_a_directory_with_something_else_in_it_is_refused_before_anything_is_started(
    tmp_path, engines
):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "note").write_text("mine")
    with pytest.raises(RunExists, match="not empty"):
        run_recipes({"a": TINY, "b": TINY}, tmp_path, observe=quiet)
    assert list(contents(tmp_path)) == [tmp_path / "b" / "note"]
    assert engines == []


def test_a_time_budget_is_measured_out_once_and_known_again(tmp_path, engines):
    recipe = replace(TINY, schedule=Schedule("0.2 cpu-s", batch=8))
    (run,) = run_recipes({"a": recipe}, tmp_path, observe=quiet).values()
    steps = recipe_of(run).schedule.steps
    assert steps is not None
    (again,) = run_recipes({"a": recipe}, tmp_path, observe=quiet).values()
    assert started(engines) == []
    assert recipe_of(again).schedule.steps == steps
    # The recipe that was recorded, steps included, is the same one.
    run_recipes({"a": recipe_of(run)}, tmp_path, observe=quiet)
    other = replace(recipe, schedule=Schedule("0.3 cpu-s", batch=8))
    with pytest.raises(RunExists):
        run_recipes({"a": other}, tmp_path, observe=quiet)


def test_a_run_without_a_name_is_the_directory_itself(tmp_path, engines):
    runs = run_recipes({"": TINY}, tmp_path / "mine", observe=quiet)
    assert runs[""].path == tmp_path / "mine"
    assert started(engines) == ["mine"]


@pytest.mark.parametrize("arm", ["", "/elsewhere", "../elsewhere", "a/../../elsewhere"])
def test_an_arm_whose_name_leads_outside_is_refused(tmp_path, engines, arm):
    with pytest.raises(InvalidInput, match="a run's name is a path inside"):
        train(TASK, {"fine": NARROW, arm: WIDE}, out=tmp_path / "runs", observe=quiet)
    assert list(tmp_path.iterdir()) == []
    assert engines == []


@pytest.mark.parametrize(("arms", "seeds"), [([], 3), ({}, 3), (NARROW, 0), (NARROW, [])])
def test_nothing_to_train_is_refused(tmp_path, arms, seeds):
    with pytest.raises(InvalidInput, match="nothing to train"):
        train(TASK, arms, seeds=seeds, out=tmp_path)


def test_the_engine_is_given_the_most_threads_of_any_recipe(tmp_path, engines):
    recipes = {
        name: replace(TINY, schedule=Schedule("1 steps"), hardware=Hardware(threads=threads))
        for name, threads in {"a": 1, "b": 2}.items()
    }
    run_recipes(recipes, tmp_path, workers=5, observe=quiet)
    assert (engines[0].workers, engines[0].threads) == (5, 2)


OWN_TASK = """
from dataclasses import dataclass
from beliefspace.core.registry import register
from beliefspace.windtunnel.tasks.bijection import Bijection

@register("tasks", "{name}")
@dataclass(frozen=True)
class Own(Bijection):
    pass
"""


def own_task(directory: Path, name: str) -> tuple[Path, Bijection]:
    file = directory / f"{name}.py"
    file.write_text(OWN_TASK.format(name=name))
    registry.load_file(file)
    return file, resolve("tasks", name)(4)


def test_units_say_what_registers_a_task_that_is_not_built_in(tmp_path, engines, monkeypatch):
    file, task = own_task(tmp_path, "own-by-file")
    own = replace(TINY, task=task)
    recipes = {"built-in": TINY, "by-file": own}
    run_recipes(recipes, tmp_path / "runs", observe=quiet)
    assert [unit.needs for unit in engines[0].units] == [(), (str(file),)]
    # Defined in an installed module, in the script itself, or in a notebook.
    monkeypatch.setattr(type(task), "__module__", "somewhere.else")
    assert experiment._needs(own) == ("somewhere.else",)
    monkeypatch.setattr(type(task), "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "script.py", raising=False)
    assert experiment._needs(own) == ("__main__",)
    monkeypatch.delattr(sys.modules["__main__"], "__file__")
    with pytest.raises(InvalidInput, match=r"put it into a \.py file"):
        run_recipes({"a": own}, tmp_path / "other", observe=quiet)
    assert not (tmp_path / "other").exists()


def test_a_task_from_a_file_is_trained_in_a_process_of_its_own(tmp_path):
    _, task = own_task(tmp_path, "own-in-process")
    seen = []
    runs = run_recipes(
        {"a": replace(TINY, task=task)},
        tmp_path,
        observe=lambda name, report: seen.append((name, report["step"], report["steps"])),
    )
    assert seen == [("a", step, 20) for step in (4, 8, 12, 16, 20)]
    assert runs["a"].status == "finished"
    assert recipe_of(runs["a"]).task == task


@pytest.mark.slow
def test_ctrl_c_stops_a_process_and_the_same_call_ends_with_the_same_bits(tmp_path):
    from beliefspace.windtunnel import training

    long = replace(TINY, schedule=Schedule("1500 steps", batch=8))

    def stop(name, report):
        os.kill(os.getpid(), signal.SIGINT)

    recipes = {"a": long, "b": replace(long, seed=1)}
    with pytest.raises(Interrupted):
        run_recipes(recipes, tmp_path, workers=1, observe=stop)
    assert Run.open(tmp_path / "a").status == "interrupted"
    assert 300 <= Run.open(tmp_path / "a").load_checkpoint().step < 1500
    assert not (tmp_path / "b").exists()
    broken = run_recipes({"a": long}, tmp_path)["a"].load_checkpoint().tensors
    whole = training.train(long, tmp_path / "whole").load_checkpoint().tensors
    assert {n: a.tobytes() for n, a in broken.items()} == {n: a.tobytes() for n, a in whole.items()}


def test_all_seeds_of_a_time_budget_take_as_many_steps(tmp_path):
    recipes = {
        f"seed-{seed}": replace(TINY, schedule=Schedule("0.2s", batch=4), seed=seed)
        for seed in (0, 1)
    }
    runs = run_recipes(recipes, tmp_path)
    assert len({run.result()["training"]["steps"] for run in runs.values()}) == 1
    # A seed that is added later takes as many too, and the budget stays what it was.
    more = {**recipes, "seed-2": replace(recipes["seed-0"], seed=2)}
    runs = run_recipes(more, tmp_path)
    assert len({run.result()["training"]["steps"] for run in runs.values()}) == 1
    assert 'budget = "0.2s"' in runs["seed-2"].config_toml()
