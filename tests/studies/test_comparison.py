"""Comparisons of runs that were only written, never trained: who is an arm, and what is tested."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.report.made import TRAINING, measure, score

from beliefspace.cli.main import main
from beliefspace.core.config import to_toml
from beliefspace.core.errors import InvalidInput, UnknownName
from beliefspace.core.statistics import holm, mean_t, paired_comparison
from beliefspace.core.store import Run
from beliefspace.studies.comparison import compare
from beliefspace.windtunnel.models.transformer import Transformer
from beliefspace.windtunnel.optimizers import AdamW, Muon
from beliefspace.windtunnel.recipe import Hardware, Recipe, Schedule
from beliefspace.windtunnel.tasks.bijection import Bijection

BASE = Recipe(Bijection(5), Transformer(width=16, depth=1), schedule=Schedule("10 steps"))


def written(
    place: Path,
    recipe: Recipe,
    kl_bits: float,
    *,
    seed: int = 0,
    status: str = "finished",
    evaluation_hash: str = "abc",
    accuracy: float | None = None,
) -> Run:
    """Write a run as training would leave it."""
    run = Run.create(place, "train", to_toml(replace(recipe, seed=seed)), {})
    run.write_result(
        {
            "score": score(
                kl_bits,
                entropy_error_bits=measure(10 * kl_bits),
                # Null, as where outcomes are not categorical.
                accuracy=None if accuracy is None else measure(accuracy),
                evaluation_hash=evaluation_hash,
            ),
            "training": TRAINING
            | {
                "targets": recipe.targets,
                "predictions": 100 + seed,
                "cpu_seconds": 2.0 * seed,
            },
        }
    )
    run.set_status(status)
    return run


def arm(directory: Path, name: str, recipe: Recipe, values: dict[int, float]) -> list[Run]:
    return [
        written(directory / f"{name}-{seed}", recipe, value, seed=seed)
        for seed, value in values.items()
    ]


def labels(table) -> set[str]:
    return {one.label for one in table.arms}


WIDE = replace(BASE, model=Transformer(width=32, depth=1))


def test_arms_are_named_by_the_settings_that_differ_and_ordered_best_first(tmp_path):
    runs = [
        *arm(tmp_path, "narrow", BASE, {0: 0.3, 1: 0.5}),
        *arm(tmp_path, "wide", WIDE, {0: 0.1, 1: 0.2}),
        *arm(tmp_path, "deep", replace(BASE, model=Transformer(width=16, depth=2)), {0: 0.25}),
    ]
    table = compare({run.path.name: run for run in runs})
    assert [one.label for one in table.arms] == [
        "model.depth=1, model.width=32",
        "model.depth=2, model.width=16",
        "model.depth=1, model.width=16",
    ]
    best = table.arms[0]
    assert best.values == {0: 0.1, 1: 0.2}
    assert best.estimate == mean_t(np.array([0.1, 0.2]))
    assert (best.worst, best.targets, best.predictions, best.cpu_seconds) == (
        0.2, "sampled", 100.5, 1.0,
    )  # fmt: skip


def test_a_setting_that_one_arm_leaves_out_is_named_too(tmp_path):
    pool = replace(BASE, task=Bijection(5, pool=8))
    runs = [written(tmp_path / "a", BASE, 0.1), written(tmp_path / "b", pool, 0.2)]
    assert labels(compare(runs)) == {
        "task.pool=none",
        "task.pool=8",
    }


def test_another_kind_is_named_without_the_settings_that_only_it_has(tmp_path):
    runs = [
        written(tmp_path / "a", replace(BASE, optimizer=AdamW(weight_decay=0.5)), 0.1),
        written(tmp_path / "b", replace(BASE, optimizer=Muon()), 0.2),
    ]
    assert labels(compare(runs)) == {"optimizer.kind=adamw", "optimizer.kind=muon"}
    runs.append(written(tmp_path / "c", replace(BASE, optimizer=Muon(momentum=0.5)), 0.3))
    assert labels(compare(runs)) == {
        "optimizer.kind=adamw",
        "optimizer.kind=muon, optimizer.momentum=0.95",
        "optimizer.kind=muon, optimizer.momentum=0.5",
    }


def test_targets_set_arms_apart_and_are_shown(tmp_path):
    runs = [
        written(tmp_path / "a", BASE, 0.1),
        written(tmp_path / "b", replace(BASE, targets="posterior"), 0.2),
    ]
    table = compare(runs)
    assert [(one.label, one.targets) for one in table.arms] == [
        ("targets=sampled", "sampled"),
        ("targets=posterior", "posterior"),
    ]


def test_where_it_ran_and_the_steps_of_a_time_budget_make_no_arm(tmp_path):
    def resolved(budget, steps, threads):
        return replace(BASE, schedule=Schedule(budget, steps), hardware=Hardware(threads=threads))

    runs = [
        written(tmp_path / "a", resolved("1min", 100, 1), 0.1, seed=0),
        written(tmp_path / "b", resolved("1min", 101, 2), 0.2, seed=1),
    ]
    (one,) = compare(runs).arms
    assert one.label == "transformer"
    assert one.values == {0: 0.1, 1: 0.2}
    # Steps that a budget of steps did not come to were chosen, and set the arms apart.
    runs.append(written(tmp_path / "c", resolved("10 steps", 10, 1), 0.3))
    runs.append(written(tmp_path / "d", resolved("10 steps", 99, 1), 0.4))
    assert labels(compare(runs)) == {
        "schedule.budget=1min, schedule.steps=none",
        "schedule.budget=10 steps, schedule.steps=10",
        "schedule.budget=10 steps, schedule.steps=99",
    }


def test_one_seed_is_marked_as_one_seed(tmp_path):
    runs = [
        *arm(tmp_path, "narrow", BASE, {0: 0.3, 1: 0.5}),
        *arm(tmp_path, "wide", WIDE, {1: 0.125}),
    ]
    table = compare(runs)
    by_label = {one.label: one for one in table.arms}
    assert by_label["model.width=32"].estimate.interval is None
    low, high = (by_label["model.width=16"].bounds).split(" to ")
    assert float(low) < 0.3 < 0.5 < float(high)
    assert table.pairs == ()
    text = table.to_markdown()
    assert "| model.width=32 | 0.125 | one seed | 0.125 | 1 | sampled |" in text
    assert "\nmodel.width=32 and model.width=16 share 1 seeds: no paired test" in text


def test_arms_are_paired_on_the_seeds_they_share_and_p_values_are_adjusted(tmp_path):
    deep = replace(BASE, model=Transformer(width=16, depth=2))
    a = dict(enumerate([0.10, 0.12, 0.11, 0.13, 0.10]))
    b = dict(enumerate([0.25, 0.22, 0.31, 0.21, 0.24])) | {7: 9.0}
    c = {4: 0.30, 3: 0.29, 2: 0.28, 9: 0.5}
    runs = [
        *arm(tmp_path, "c", deep, c),
        *arm(tmp_path, "a", BASE, a),
        *arm(tmp_path, "b", WIDE, b),
    ]
    table = compare(runs)
    names = {
        "a": "model.depth=1, model.width=16",
        "b": "model.depth=1, model.width=32",
        "c": "model.depth=2, model.width=16",
    }
    # By their means: a, c, b.
    expected = {
        ("a", "c"): paired_comparison(np.array([0.11, 0.13, 0.10]), np.array([0.28, 0.29, 0.30])),
        ("a", "b"): paired_comparison(np.array(list(a.values())), np.array(list(b.values())[:5])),
        ("c", "b"): paired_comparison(np.array([0.28, 0.29, 0.30]), np.array([0.31, 0.21, 0.24])),
    }
    found = {(pair.first, pair.second): pair for pair in table.pairs}
    assert list(found) == [(names[x], names[y]) for x, y in expected]
    for (x, y), comparison in expected.items():
        assert found[names[x], names[y]].comparison == comparison
    raw = np.array([one.p_value for one in expected.values()])
    assert raw.min() == 2 / 2**5
    assert [pair.adjusted_p_value for pair in table.pairs] == holm(raw).tolist()
    assert found[names["a"], names["b"]].adjusted_p_value == 3 * 2 / 2**5
    assert (
        f"\n{names['a']} minus {names['b']}: -0.134 over 5 seeds, p = 0.188 (sign-flip, Holm)"
        in table.to_markdown()
    )


def test_an_infinite_value_is_kept_and_said_to_prevent_a_test(tmp_path, capsys):
    runs = [
        *arm(tmp_path, "a", BASE, {0: float("inf"), 1: 0.5}),
        *arm(tmp_path, "b", WIDE, {0: 0.3, 1: 0.2}),
    ]
    table = compare(runs)
    assert [one.label for one in table.arms] == ["model.width=32", "model.width=16"]
    assert table.arms[1].values == {0: float("inf"), 1: 0.5}
    assert table.pairs == ()
    assert table.notes == (
        "model.width=32 or model.width=16 is infinite for a seed: no paired test",
    )
    assert "| model.width=16 | inf | infinite | inf | 2 | sampled |" in table.to_markdown()
    assert table.rows()[1] == ("model.width=16", "inf", "infinite", "inf", "2", "sampled")
    assert main(["compare", *(str(run.path) for run in runs)]) == 0
    assert "one seed" not in capsys.readouterr().out
    plain = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    assert plain["arms"][1]["values"] == {"0": "inf", "1": 0.5}
    assert plain["arms"][1]["estimate"] == {"mean": "inf", "interval": None, "count": 2}


def test_an_infinite_value_outside_the_shared_seeds_prevents_nothing(tmp_path):
    runs = [
        *arm(tmp_path, "a", BASE, {0: 0.4, 1: 0.5, 2: float("inf")}),
        *arm(tmp_path, "b", WIDE, {0: 0.3, 1: 0.2}),
    ]
    table = compare(runs)
    assert len(table.pairs) == 1
    assert table.notes == ()


def test_another_metric_can_be_asked_for(tmp_path):
    runs = arm(tmp_path, "a", BASE, {0: 0.25, 1: 0.5})
    table = compare(runs, metric="entropy_error_bits")
    assert table.metric == "entropy_error_bits"
    assert table.arms[0].values == {0: 2.5, 1: 5.0}


def test_of_accuracy_more_is_better(tmp_path):
    runs = [
        written(tmp_path / "a", BASE, 0.1, seed=0, accuracy=0.7),
        written(tmp_path / "b", BASE, 0.1, seed=1, accuracy=0.5),
        written(tmp_path / "c", WIDE, 0.2, seed=0, accuracy=0.9),
    ]
    table = compare(runs, metric="accuracy")
    assert [one.label for one in table.arms] == ["model.width=32", "model.width=16"]
    assert table.arms[1].worst == 0.5


def test_an_unknown_metric_brings_the_nearest_and_only_what_is_one(tmp_path):
    runs = arm(tmp_path, "a", BASE, {0: 0.25, 1: 0.5})
    with pytest.raises(UnknownName) as caught:
        compare(runs, metric="kl_bit")
    assert str(caught.value) == (
        "unknown metric 'kl_bit'; nearest: kl_bits; known: entropy_bits, entropy_error_bits, "
        "excess_cross_entropy_bits, kl_bits, leaked_inside, leaked_outside, total_variation"
    )
    for name in ("accuracy", "ladder", "sequences"):
        with pytest.raises(UnknownName):
            compare(runs, metric=name)


def test_runs_scored_on_other_sequences_are_refused(tmp_path):
    runs = [
        written(tmp_path / "a", BASE, 0.1),
        written(tmp_path / "b", BASE, 0.1, seed=1),
        written(tmp_path / "c", BASE, 0.1, seed=2, evaluation_hash="xyz"),
    ]
    with pytest.raises(InvalidInput) as caught:
        compare(runs)
    assert str(caught.value).startswith(
        f"{tmp_path / 'a'} and {tmp_path / 'c'} were scored on different sequences"
    )


@pytest.mark.parametrize("status", ["running", "interrupted", "failed"])
def test_an_unfinished_run_is_refused_with_what_to_do(tmp_path, status):
    runs = [
        written(tmp_path / "a", BASE, 0.1),
        written(tmp_path / "b", BASE, 0.1, seed=1, status=status),
    ]
    with pytest.raises(InvalidInput) as caught:
        compare(runs)
    b = tmp_path / "b"
    assert str(caught.value) == f"{b} is {status}, not finished; go on with: beliefspace resume {b}"


def test_a_seed_given_twice_in_an_arm_is_refused(tmp_path):
    runs = [written(tmp_path / name, BASE, 0.1, seed=3) for name in ("a", "b")]
    with pytest.raises(InvalidInput, match="two runs of the arm 'transformer' have the same seed"):
        compare(runs)


@pytest.mark.parametrize("count", [0, 1])
def test_one_run_is_no_comparison(tmp_path, count):
    runs = [written(tmp_path / str(i), BASE, 0.1, seed=i) for i in range(count)]
    with pytest.raises(InvalidInput, match=f"needs 2 runs or more; got {count}"):
        compare(runs)
