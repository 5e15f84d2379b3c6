"""README.md of the benchmarks: what it says of given results; the committed one is up to date."""

from __future__ import annotations

import json
import re

import pytest
from benchmarks import render, results
from benchmarks.accuracy import GOALS, SEEDS
from benchmarks.efficiency import REFERENCE, arms

from beliefspace.studies.bijection import recipe


def training(**figures):
    return {
        "steps": 1000,
        "predictions": 2_400_000,
        "sequences": 120_000,
        "cpu_seconds": 30.0,
        "parameters": 15_552,
        "operations": 1e13,
        "efficiency": 20_000.0,
        **figures,
    }


def measure(mean):
    interval = {"low": mean * 0.9, "high": mean * 1.1}
    return {"mean": mean, "interval": interval, "worst": 3 * mean, "worst_position": 38}


def keep_accuracy(folder, targets, minutes, seed, error, divergence, seconds=30.0):
    facts = {
        "targets": targets,
        "minutes": minutes,
        "seed": seed,
        "entropy_error_bits": measure(error),
        "kl_bits": measure(divergence),
        "training": training(cpu_seconds=seconds),
    }
    results.keep(folder, f"accuracy/{targets}-{minutes}min/seed-{seed}", "x", facts)


def keep_arm(folder, name, seed, constant):
    facts = {
        "arm": name,
        "seed": seed,
        "budget": "35 cpu-s",
        "entropy_error_bits": measure(0.01),
        "kl_bits": measure(0.002),
        "training": training(efficiency=constant),
    }
    results.keep(folder, f"efficiency/{name}/seed-{seed}", "x", facts)


def rows(text, first):
    """Return the cells of the table rows whose first cell is this."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip(" |") for cell in cells] for cells in lines if cells[0].startswith(first)]


def test_the_committed_page_is_what_the_committed_results_say():
    assert render.README.read_text(encoding="utf-8") == render.render()


def test_nothing_measured_is_said_plainly(tmp_path):
    text = render.render(tmp_path)
    goals = text.split("## Time to accuracy")[0]
    assert goals.count("| not measured |") == len(GOALS) + 3 + 4 + 7
    assert "met |" not in goals
    assert "$" not in text


@pytest.mark.parametrize(
    ("last", "verdict"),
    [
        ((1.4e-3, 5e-4, 370), "met"),
        ((1.6e-3, 5e-4, 370), "missed"),
        ((1.4e-3, 7e-4, 370), "missed"),
        ((1.4e-3, 5e-4, 380), "missed: over budget"),
    ],
)
def test_a_goal_is_met_when_the_worst_seed_meets_both_numbers_in_time(tmp_path, last, verdict):
    for seed in SEEDS[:-1]:
        keep_accuracy(tmp_path, "sampled", 6, seed, 1e-3, 4e-4)
    (goal,) = rows(render.render(tmp_path), "sampled targets, 6 CPU-min")
    assert goal[-1] == "not all seeds measured"
    keep_accuracy(tmp_path, "sampled", 6, SEEDS[-1], *last)
    (goal,) = rows(render.render(tmp_path), "sampled targets, 6 CPU-min")
    assert goal[2] == f"{last[0]:.3g}, {last[1]:.3g} in {last[2]} s (sampled)"
    assert goal[3] == verdict


def test_a_longer_goal_is_judged_by_a_shorter_run_and_plain_batches_come_first(tmp_path):
    for seed in SEEDS:
        keep_accuracy(tmp_path, "sampled", 6, seed, 7e-4, 3e-4)
        keep_accuracy(tmp_path, "balanced sampled", 6, seed, 6e-4, 1e-4)
    text = render.render(tmp_path)
    found = {m: rows(text, f"sampled targets, {m} CPU-min")[0][2:] for m in (6, 20, 40)}
    assert found[6] == ["0.0007, 0.0003 in 30 s (sampled)", "met"]
    assert found[20] == ["0.0006, 0.0001 in 30 s (balanced sampled)", "met"]
    assert found[40] == ["0.0006, 0.0001 in 30 s (balanced sampled)", "missed"]


def test_every_seed_stands_in_the_table_with_its_interval(tmp_path):
    for seed in SEEDS:
        keep_accuracy(tmp_path, "posterior", 2, seed, 1e-4 * (seed + 1), 1e-5)
    text = render.render(tmp_path)
    seeds = [row for row in rows(text, "posterior") if row[1] == "2"]
    assert [row[2] for row in seeds] == ["0", "1", "2", "**worst of 3**"]
    assert seeds[1][3] == "0.0002 (0.00018 to 0.00022)"
    assert seeds[3][3] == "**0.0003**"


def test_operations_are_compared_with_the_published_run_where_its_error_is_reached(tmp_path):
    for seed in SEEDS:
        keep_accuracy(tmp_path, "sampled", 6, seed, 2e-3, 4e-4)
    text = render.render(tmp_path)
    early, late = text.split("Entropy error 0.003 bits")[1].split("Entropy error 0.00078 bits")
    published = 6 * 2.67e6 * 37 * 150_000 * 64
    assert f"{published / 1e13:,.0f} times fewer" in early
    assert "No budget measured so far" in late


def test_arms_are_sorted_below_the_recipe(tmp_path):
    for name, constant in (("width 24", 30_000), (REFERENCE, 20_000), ("depth 2", 10_000)):
        for seed in (0, 1):
            keep_arm(tmp_path, name, seed, constant + 1000 * seed)
    text = render.render(tmp_path)
    table = text.split("## What makes training efficient")[1]
    names = re.findall(r"^\| (\**[\w ]+\**) \| [\d,]+ \(", table, re.M)
    assert names == [f"**{REFERENCE}**", "depth 2", "width 24"]
    (depth,) = rows(text, "depth 2")
    assert depth[1:3] == ["10,500 (10,000, 11,000)", "0.51"]


def test_each_arm_differs_from_the_recipe_and_from_the_others():
    reference = recipe("sampled", "35 cpu-s", 0)
    variants = list(arms(reference).values())
    assert variants[0] == reference
    assert all(variants.count(variant) == 1 for variant in variants)
    assert len(variants) > 15


def test_ratios_of_a_step_are_medians_over_alternations(tmp_path, monkeypatch):
    machine = {**results.machine(), "packages": {"torch": "2", "transformers": "5.24.0"}}
    monkeypatch.setattr(results, "machine", lambda: machine)
    rounds = [
        {
            "ours": ours,
            "ours with Muon": 2 * ours,
            "plain loop": 1.1 * ours,
            "transformers": lead * ours,
            "transformers with gelu": 1.2 * ours,
            "products": 0.5 * ours,
            "best_rate": 1e11,
        }
        for ours, lead in ((0.5, 1.1), (0.4, 1.3), (1.0, 1.2))
    ]
    facts = {
        "size": "published",
        "parameters": 2_675_712,
        "batch": 64,
        "tokens": 2496,
        "nominal_operations": 4e10,
        "computed_share": 0.93,
        "alternations": rounds,
    }
    results.keep(tmp_path, "step_time/published", "x", facts)
    text = render.render(tmp_path)
    (row,) = rows(text, "published")
    assert row[2] == "500.0 (400.0 to 1000.0)"
    assert row[4] == "80 % (40 % to 100 %)"  # 0.4 s at the best rate, over 0.5, 1 and 0.4 s
    assert row[7] == "1.20 (1.10 to 1.30)"
    assert "*transformers* (5.24.0)" in text
    verdicts = [goal[-1] for goal in rows(text, ("step at", "the same step"))]
    assert verdicts == ["met", "met", "met"]


def test_a_kept_result_names_no_machine_and_is_not_measured_again(tmp_path):
    results.keep(tmp_path, "accuracy/one", "x", {"number": float("inf")})
    content = json.loads((tmp_path / "accuracy" / "one.json").read_text())
    assert content["number"] == "inf"
    assert set(content["machine"]) == {"processor", "cores", "python", "packages", "load"}
    assert results.is_kept(tmp_path, "accuracy/one", "x")
    assert not results.is_kept(tmp_path, "accuracy/one", "another recipe")


def test_results_of_a_former_recipe_are_dropped(tmp_path):
    for name in ("accuracy/kept", "accuracy/changed", "accuracy/gone", "step_time/other"):
        results.keep(tmp_path, name, "x", {})
    results.drop_others(tmp_path, "accuracy", {"accuracy/kept": "x", "accuracy/changed": "y"})
    left = sorted(path.stem for path in tmp_path.rglob("*.json"))
    assert left == ["kept", "other"]
