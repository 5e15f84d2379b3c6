from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from beliefspace.claims.collection import FinishedRun
from beliefspace.claims.ledger import find, ledger
from beliefspace.claims.schema import Claim, Companion, Level, Protocol, Published, Setting
from beliefspace.claims.tables import COLUMNS, table
from beliefspace.claims.verdict import counts, level_reached, lookup, verdict
from beliefspace.core.errors import InvalidInput, UnknownName
from beliefspace.core.jsonable import to_json
from beliefspace.windtunnel.calibration import score
from beliefspace.windtunnel.recipe import Evaluation, Hardware, Schedule
from beliefspace.windtunnel.tasks.bijection import Bijection

INF = math.inf


def steps(budget: str) -> Setting:
    return Setting("schedule.budget", budget)


PROTOCOL = Protocol(
    "train",
    (Bijection(4), Bijection(4, pairs=4)),
    (Setting("model.kind", "transformer"), Setting("targets", "sampled")),
    smoke=Level(1, (steps("10 steps"),)),
    standard=Level(2, (steps("100 steps"),)),
    paper=Level(3, (steps("100 steps"), Setting("model.width", 128))),
)
SMOKE, STANDARD, PAPER = (PROTOCOL.recipe(name) for name in ("smoke", "standard", "paper"))


def claim(relation="at most", value=1.0, tolerance=0.0, kind="relative", **changes) -> Claim:
    return Claim(
        id="bijection/made-up",
        label="Made up",
        arxiv="2512.22471",
        statement="Something was measured.",
        quantity=changes.pop("quantity", "score.kl_bits.mean"),
        published=Published(value, "bits", "paper", ""),
        relation=relation,
        protocol=PROTOCOL,
        tolerance=tolerance,
        tolerance_kind=kind,
        **changes,
    )


def result(mean, low=None, high=None, **more) -> dict:
    interval = None
    if low is not None:
        interval = {"low": low, "high": high, "level": 0.95, "method": "bootstrap", "count": 9}
    score = {"kl_bits": {"mean": mean, "interval": interval}, **more}
    # As it comes back from result.json.
    return json.loads(to_json({"score": score}))


def run(recipe, seed, given, place="runs") -> FinishedRun:
    given = given if isinstance(given, dict) else result(given)
    return FinishedRun(Path(f"{place}/{seed}"), replace(recipe, seed=seed), given)


def seeds(recipe, values, place="runs") -> list[FinishedRun]:
    return [run(recipe, seed, value, place) for seed, value in enumerate(values)]


# With two values x -+ d the 95 % t interval is x -+ 12.706 d.
@pytest.mark.parametrize(
    ("relation", "published", "tolerance", "values", "expected"),
    [
        ("at most", 1.0, 0.0, [0.49, 0.51], "agrees"),
        ("at most", 1.0, 0.0, [0.90, 1.00], "not shown"),  # 0.95 -+ 0.64 holds 1
        ("at most", 1.0, 0.0, [1.19, 1.21], "differs"),
        ("at most", 1.0, 0.4, [1.19, 1.21], "agrees"),
        ("at most", 1.0, 0.2, [1.19, 1.21], "not shown"),
        ("at most", 1.0, 0.0, [1.0, 1.0], "agrees"),
        ("at most", 1.0, 0.0, [0.5, INF], "differs"),
        ("at most", INF, 0.1, [0.5, INF], "agrees"),
        ("at least", 1.0, 0.0, [1.19, 1.21], "agrees"),
        ("at least", 1.0, 0.0, [0.49, 0.51], "differs"),
        ("at least", 1.0, 0.0, [0.9, 1.1], "not shown"),
        ("at least", 1.0, 0.0, [0.5, INF], "agrees"),
        ("at least", INF, 0.0, [0.5, 0.6], "differs"),
        ("about", 1.0, 0.3, [0.99, 1.01], "agrees"),
        ("about", 1.0, 0.3, [1.19, 1.21], "not shown"),  # up to 1.327
        ("about", 1.0, 0.3, [0.49, 0.51], "differs"),
        ("about", 1.0, 0.3, [1.99, 2.01], "differs"),
        ("about", 1.0, 0.3, [-9.0, 11.0], "not shown"),
        ("about", 1.0, 0.3, [1.0, INF], "differs"),
        ("about", INF, 0.0, [INF, INF], "agrees"),
        ("about", INF, 0.0, [1.0, 1.0], "differs"),
    ],
)
def test_the_rules_at_the_standard_level(relation, published, tolerance, values, expected):
    found = verdict(claim(relation, published, tolerance), seeds(STANDARD, values))
    assert found.status == expected
    assert (found.seeds, found.one_seed, found.level) == (2, False, "standard")
    assert found.measured.mean == np.mean(values)


@pytest.mark.parametrize("recipe", [SMOKE, replace(SMOKE, schedule=Schedule(steps=3))])
@pytest.mark.parametrize("relation", ["at most", "about"])
def test_a_small_run_that_misses_shows_nothing_and_one_that_does_not_agrees(recipe, relation):
    missed = verdict(claim(relation, 1.0, 0.5), seeds(recipe, [1.99, 2.01]))
    assert missed.status == "not shown"
    assert "smaller than the claim's standard level" in missed.reason
    assert verdict(claim(relation, 1.0, 0.5), seeds(recipe, [0.99, 1.01])).status == "agrees"


def test_a_miss_counts_with_the_seeds_of_its_level_only():
    one = result(2.0, 1.9, 2.1)
    few = verdict(claim(), [run(STANDARD, 0, one)])
    assert (few.status, few.one_seed) == ("not shown", True)
    assert "fewer than the seeds of the claim's standard level" in few.reason
    # The paper level asks for three.
    assert verdict(claim(), seeds(PAPER, [2.0, 2.01])).status == "not shown"
    assert verdict(claim(), seeds(PAPER, [2.0, 2.01, 2.0])).status == "differs"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (result(0.8, 0.7, 0.9), "agrees"),
        (result(0.8, 0.7, 1.1), "not shown"),
        (result(0.8), "agrees"),  # no interval beside it
        (result(INF), "not shown"),
    ],
)
def test_one_seed_has_the_interval_over_sequences_and_is_marked(given, expected):
    found = verdict(claim(), [run(STANDARD, 3, given)])
    assert (found.status, found.one_seed, found.seeds) == (expected, True, 1)
    assert "one seed" in found.reason
    interval = found.measured.interval
    assert ("no interval" in found.reason) == (interval is None)
    assert interval is None or interval.method == "bootstrap"


def test_a_quantity_without_a_mean_has_no_interval_of_its_neighbour():
    given = result(0.8, 0.7, 2.0)
    given["score"]["kl_bits"]["worst"] = 0.9
    found = verdict(claim(quantity="score.kl_bits.worst"), [run(STANDARD, 0, given)])
    assert (found.status, found.measured.interval) == ("agrees", None)


def test_entropies_that_agree_by_cancellation_do_not_settle_a_claim():
    guarded = claim(companion=Companion("score.other.mean", 0.1))

    def judged(other):
        return verdict(guarded, [run(STANDARD, 0, result(0.5, other={"mean": other}))])

    assert judged(0.1).status == "agrees"
    blind = judged(INF)
    assert blind.status == "not shown"
    assert "score.other.mean is inf, more than 0.1" in blind.reason
    assert judged("nan").status == "not shown"


def test_an_evidence_blind_predictor_does_not_pass_as_exact():
    exact = find("bijection/transformer-exact")
    task = exact.protocol.tasks[0]

    def knows_the_position_only(inputs):
        logits = np.full((*inputs.shape, 20), -np.inf)
        for pair in range(20):
            logits[:, 2 * pair, : 20 - pair] = 0.0
        logits[:, 1::2] = 0.0
        return logits

    blind = {"score": score(knows_the_position_only, task, sequences=64).to_dict()}
    assert lookup(blind, exact.quantity) < 1e-12
    recipe = exact.protocol.recipe("standard")
    assert verdict(exact, seeds(recipe, [blind] * 3)).status == "not shown"


def test_runs_of_other_targets_tasks_and_models_do_not_count():
    assert counts(PROTOCOL, STANDARD)
    assert counts(PROTOCOL, replace(STANDARD, task=Bijection(4, pairs=4), seed=9))
    others = [
        replace(STANDARD, targets="posterior"),
        replace(STANDARD, task=Bijection(4, pairs=3)),
        replace(STANDARD, task=Bijection(4, pool=5)),
    ]
    assert not any(counts(PROTOCOL, other) for other in others)
    elsewhere = replace(PROTOCOL, settings=(Setting("model.kind", "lstm-of-later"),))
    assert not counts(elsewhere, STANDARD)
    found = verdict(claim(), [run(other, 0, 0.1) for other in others])
    assert (found.status, found.measured, found.paths) == ("not run", None, ())


def test_what_reaches_a_level():
    def reached(**changes):
        return level_reached(PROTOCOL, replace(STANDARD, **changes))

    schedule = STANDARD.schedule
    assert reached() == "standard"
    assert level_reached(PROTOCOL, PAPER) == "paper"
    assert level_reached(PROTOCOL, SMOKE) == "smoke"
    assert reached(seed=8, hardware=Hardware("cuda", 2)) == "standard"
    assert reached(schedule=replace(schedule, budget="9 min", steps=101)) == "standard"
    assert reached(schedule=replace(schedule, steps=99)) == "smoke"
    assert reached(schedule=replace(schedule, batch=schedule.batch - 1)) is None
    assert reached(schedule=replace(schedule, decay="constant")) is None
    assert reached(evaluation=Evaluation(sequences=100)) is None
    assert reached(evaluation=Evaluation(sequences=9999, seed=4, looks=1)) == "standard"
    assert reached(model=replace(STANDARD.model, width=32)) is None


def test_recipes_are_not_pooled_and_the_largest_decides_whatever_it_found():
    longer = replace(SMOKE, schedule=replace(SMOKE.schedule, steps=50))
    wide = replace(SMOKE, schedule=replace(SMOKE.schedule, steps=5000), targets="sampled",
                   model=replace(SMOKE.model, width=32))  # fmt: skip
    good, bad = [0.5, 0.5], [2.0, 2.0]
    small, large = seeds(SMOKE, good, "a"), seeds(longer, bad, "b")
    found = verdict(claim(), [*small, *large])
    assert found.status == "not shown"
    assert found.paths == (Path("b/0"), Path("b/1"))
    assert "2 runs of other recipes" in found.reason
    # The claim's own standard recipe comes before a longer run of another one.
    own, other = seeds(STANDARD, bad, "c"), seeds(wide, good, "d")
    assert verdict(claim(), [*other, *own, *small]).status == "differs"
    assert verdict(claim(), other).status == "agrees"


def test_a_seed_counts_once():
    copies = [run(STANDARD, 0, 0.5, "a"), run(STANDARD, 0, 0.5, "b")]
    found = verdict(claim(), copies)
    assert (found.seeds, found.one_seed, found.paths) == (1, True, (Path("a/0"),))
    machines = [copies[0], run(replace(STANDARD, hardware=Hardware("cuda")), 1, 0.5)]
    assert verdict(claim(), machines).seeds == 2


def test_seeds_of_one_time_budget_are_one_experiment_and_the_shortest_says_how_large():
    schedule = replace(STANDARD.schedule, budget="6 cpu-min")

    def timed(steps):
        return replace(STANDARD, schedule=replace(schedule, steps=steps))

    found = verdict(claim(), [run(timed(120), 0, 2.0), run(timed(101), 1, 2.01)])
    assert (found.status, found.seeds, found.level) == ("differs", 2, "standard")
    found = verdict(claim(), [run(timed(99), 1, 2.01), run(timed(120), 0, 2.0)])
    assert (found.status, found.seeds, found.level) == ("not shown", 2, "smoke")
    # Chosen steps are settings: other numbers are other experiments.
    chosen = replace(STANDARD, schedule=replace(STANDARD.schedule, budget="120 steps", steps=120))
    found = verdict(claim(), [run(timed(101), 0, 2.0), run(chosen, 1, 2.0)])
    assert (found.seeds, found.paths) == (1, (Path("runs/1"),))


def test_balanced_batches_are_said():
    found = verdict(claim(), seeds(replace(STANDARD, balanced=True), [0.5, 0.5]))
    assert found.balanced
    assert "95 % interval 0.5 to 0.5, trained on balanced batches) is at most 1" in found.reason
    plain = verdict(claim(), seeds(STANDARD, [0.5, 0.5]))
    assert not plain.balanced
    assert "balanced" not in plain.reason


def test_a_run_without_a_number_is_not_averaged_away():
    for broken in (result("nan"), {}, {"score": 3}, {"score": {"kl_bits": {"mean": True}}}):
        found = verdict(claim(), seeds(STANDARD, [0.5, broken, 0.5]))
        assert (found.status, found.measured) == ("not shown", None)
        assert found.reason == "no number at score.kl_bits.mean in runs/1"


def test_a_statement_without_a_quantity_and_a_model_that_is_not_there_are_not_run():
    found = verdict(find("bijection/no-memorisation"), [])
    assert (found.status, found.reason) == (
        "not run",
        "no quantity is defined for this statement yet",
    )
    settings = (Setting("model.kind", "lstm-of-later"),)
    later = replace(claim(), protocol=replace(PROTOCOL, settings=settings))
    found = verdict(later, seeds(STANDARD, [0.1, 0.1]))
    assert found.status == "not run"
    assert "this version has no model 'lstm-of-later'" in found.reason


@pytest.mark.parametrize(
    "claim", [one for one in ledger() if one.protocol.study == "ladder"], ids=lambda one: one.id
)
def test_training_free_claims_are_computed_and_agree(claim):
    found = verdict(claim, [])
    assert (found.status, found.seeds, found.one_seed) == ("agrees", 3, False), found.reason


def test_training_free_values_are_those_of_the_closed_form():
    for pairs in (19, 20):
        entropies = np.log2(20 - np.arange(pairs))
        uniform = verdict(find(f"bijection/uniform-{pairs}"), [])
        assert uniform.measured.mean == pytest.approx(np.log2(20) - entropies.mean())
        constant = verdict(find(f"bijection/constant-{pairs}"), [])
        errors = [np.abs(entropies - guess).mean() for guess in np.linspace(0, 5, 5001)]
        assert constant.measured.mean == pytest.approx(min(errors), abs=1e-4)
    size = verdict(find("bijection/hypothesis-space"), [])
    assert size.measured.mean == pytest.approx(math.log2(math.factorial(20)))


def test_a_training_free_claim_can_differ():
    uniform = find("bijection/uniform-20")
    wrong = replace(uniform, published=replace(uniform.published, value=1.3))
    assert verdict(wrong, []).status == "differs"
    with pytest.raises(UnknownName, match="nearest: uniform"):
        verdict(replace(uniform, quantity="score.ladder.unifrom.kl_bits.mean"), [])


def test_a_verdict_is_json_without_infinities():
    found = verdict(claim(), seeds(STANDARD, [INF, INF]))
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["measured"]["mean"] == "inf"
    assert plain["paths"] == ["runs/0", "runs/1"]
    assert set(plain) == {field.name for field in dataclasses.fields(found)}


def test_the_table_fits_and_keeps_order():
    claims = ledger()
    verdicts = [verdict(one, []) for one in claims]
    rows = table(claims, verdicts)
    assert [row["claim"] for row in rows] == [one.id for one in claims]
    assert all(tuple(row) == COLUMNS for row in rows)
    widths = [max(len(row[name]) for row in [*rows, {name: name}]) for name in COLUMNS]
    measured = COLUMNS.index("measured")
    widths[measured] = max(widths[measured], len("0.00127 [0.00121, 0.00133]"))
    widths[COLUMNS.index("verdict")] = len("not shown")
    assert sum(widths) + 2 * (len(widths) - 1) <= 100
    by_claim = {row["claim"]: row for row in rows}
    assert by_claim["bijection/position-kl"]["measured"] == "inf"
    assert by_claim["bijection/no-memorisation"]["published"] == ""
    with pytest.raises(InvalidInput, match="expected"):
        table(claims, verdicts[1:])


def test_the_table_marks_one_seed():
    one = verdict(claim(), [run(STANDARD, 0, result(0.8, 0.7, 0.9))])
    (row,) = table([claim()], [one])
    assert row["measured"] == "0.8, 1 seed"
    assert row["published"] == "≤ 1 bits"
