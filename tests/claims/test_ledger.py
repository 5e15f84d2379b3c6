from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from beliefspace.claims.ledger import find, ledger, published, read_ledger
from beliefspace.claims.schema import LEVELS, Claim
from beliefspace.claims.verdict import level_reached, lookup
from beliefspace.core.config import from_dict, to_dict
from beliefspace.core.errors import InvalidInput, UnknownName
from beliefspace.core.registry import names
from beliefspace.studies import bijection
from beliefspace.windtunnel.calibration import score
from beliefspace.windtunnel.recipe import Recipe, Schedule
from beliefspace.windtunnel.tasks.bijection import Bijection

GOOD = """
arxiv = "2512.22471"

[protocols.small]
study = "train"
tasks = [{ kind = "bijection", values = 4 }]
settings = { model.kind = "transformer", targets = "sampled" }
smoke = { seeds = 1, settings.schedule.budget = "10 steps" }
standard = { seeds = 2, settings.schedule.budget = "100 steps" }
paper = { seeds = 3, settings.optimizer = { kind = "adamw", betas = [0.9, 0.999] }, settings.schedule.budget = "1k steps" }

[[claims]]
id = "bijection/small"
label = "Transformer"
protocol = "small"
statement = "A small transformer is exact."
quantity = "score.entropy_error_bits.mean"
relation = "at most"
published = { value = 0.01, unit = "bits", trust = "paper", note = "page 1" }
"""  # noqa: E501


def trained(claims: tuple[Claim, ...]) -> list[Claim]:
    return [claim for claim in claims if claim.protocol.study == "train"]


def model_kind(claim: Claim) -> str:
    (kind,) = [s.value for s in claim.protocol.settings if s.path == "model.kind"]
    return kind


def test_a_file_is_read_with_its_protocols_in_place():
    (claim,) = read_ledger(GOOD, "good.toml")
    assert claim.arxiv == "2512.22471"
    assert claim.protocol.tasks == (Bijection(4),)
    assert claim.band == (0.01, 0.01)
    assert [claim.protocol.level(level).seeds for level in LEVELS] == [1, 2, 3]
    recipe = claim.protocol.recipe("paper", seed=5)
    assert (recipe.task, recipe.seed, recipe.schedule.steps) == (Bijection(4), 5, 1000)
    assert recipe.optimizer.betas == (0.9, 0.999)
    # The whole claim is a config like any other.
    assert from_dict(Claim, to_dict(claim)) == claim


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('arxiv = "2512', "arxiv = 2512", r"bad.toml is not valid TOML: .*line 2"),
        ('arxiv = "2512.22471"', "", r"bad.toml lacks arxiv$"),
        ("[[claims]]", "[[claim]]", r"bad.toml: unknown key 'claim'; nearest: claims"),
        ('"2512.22471"', '"22471"', r"arxiv = '22471': expected an id such as"),
        ('"2512.22471"', "2512.22471", r"claims\[0\].arxiv = 2512.22471 \(float\): expected text"),
        ('id = "bijection/small"', 'id = "Small"', r"claims\[0\].*id = 'Small': expected"),
        ('label = "Transformer"', "", r"claims\[0\]\] lacks label \(text\)"),
        ('statement = "A', 'remark = "A', r"claims\[0\]\] has the unknown key 'remark'"),
        ('"at most"', '"at mots"', r"claims\[0\].relation = 'at mots' .*nearest: 'at most'"),
        ('trust = "paper"', 'trust = "rumour"', r"claims\[0\].published.trust = 'rumour'"),
        ("value = 0.01", "value = nan", r"a number or inf, not NaN"),
        ("value = 0.01,", "", r"bijection/small has a quantity but no published value"),
        ("error_bits.mean", "error_bits..mean", r"has quantity 'score.entropy_error_bits..mean'"),
        ('relation = "at', 'tolerance = -1\nrelation = "at', r"tolerance -1.0: expected 0 or more"),
        ('protocol = "small"', 'protocol = "smal"', r"unknown protocol 'smal'; nearest: small"),
        ('protocol = "small"', "protocol = 1", r"claims\[0\] has protocol = 1: expected the name"),
        ('protocol = "small"', 'protocol = "small"\narxiv = "1"', r"arxiv of its own"),
        ('study = "train"', 'study = "ladder"', r'"ladder" takes one task, no settings'),
        ("values = 4", "valuse = 4", r"has the unknown key 'valuse'; nearest: values"),
        ("values = 4", "values = 1", r"values is a whole number of at least 2; got 1"),
        ('kind = "bijection"', 'kind = "bijecton"', r"unknown task 'bijecton'; nearest: bijection"),
        ('model.kind = "transformer", ', "", r"needs model.kind among its settings"),
        ("targets =", "target =", r"can set 'target'; nearest: targets"),
        ("targets =", "model.widht =", r"smoke level: table \[model\] has the unknown key 'widht'"),
        ('"sampled"', '"samples"', r"the smoke level: targets = 'samples'"),
        ("seeds = 2", "seeds = 0", r"takes 1 seed or more; got seeds = 0"),
        ("seeds = 2", 'seeds = "2"', r"claims\[0\].protocol.standard.seeds = '2' \(str\)"),
        ("standard = {", "normal = {", r"protocol\] has the unknown key 'normal'"),
        ('"100 steps"', '"5min"', r"standard .*\"5min\": a claim's budget is a number of steps"),
        ("[protocols.small]", "[protocols.lost]\n[protocols.small]", r"no claim uses .*'lost'"),
    ],
)  # fmt: skip
def test_a_wrong_file_gives_one_clear_line(old, new, message):
    assert GOOD.count(old) >= 1
    with pytest.raises(InvalidInput, match=message) as caught:
        read_ledger(GOOD.replace(old, new, 1), "bad.toml")
    assert "bad.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_id_stands_once():
    twice = GOOD + GOOD[GOOD.index("[[claims]]") :]
    with pytest.raises(InvalidInput, match="two claims with the id 'bijection/small'"):
        read_ledger(twice, "twice.toml")


def test_a_claim_on_a_model_that_is_not_there_still_loads():
    (claim,) = read_ledger(GOOD.replace('"transformer"', '"oracle-machine"'), "later.toml")
    with pytest.raises(UnknownName, match="oracle-machine"):
        claim.protocol.recipe("smoke")


def test_the_ledger_has_what_the_first_task_needs():
    claims = {claim.id: claim for claim in ledger()}
    expected = {
        "transformer-exact": (1e-3, "paper"),
        "transformer-v1": (3e-3, "secondary source"),
        "transformer-v3": (7e-3, "secondary source"),
        "transformer-20k": (2.2e-3, "released code"),
        "transformer-50k": (7.8e-4, "released code"),
        "binding": (9.3e-5, "released code"),
        "lstm": (0.009, "secondary source"),
        "mamba": (0.010, "secondary source"),
        "mlp": (1.85, "secondary source"),
        "mlp-control": (1.1073, "released code"),
        "no-memorisation": (None, "secondary source"),
    }
    for name, value in expected.items():
        claim = claims[f"bijection/{name}"]
        assert (claim.published.value, claim.published.trust) == value
        assert claim.arxiv == "2512.22471"
        assert "sampled" in [setting.value for setting in claim.protocol.settings]


def test_texts_are_one_tidy_line():
    for claim in ledger():
        for text in (claim.statement, claim.published.note, claim.label):
            assert text == " ".join(text.split())
            assert text


@pytest.mark.parametrize("claim", trained(ledger()), ids=lambda claim: claim.id)
def test_every_quantity_is_in_a_real_result(claim):
    result = {"score": uniform_score(claim.protocol.tasks[0]).to_dict()}
    quantities = [claim.quantity, claim.companion.quantity if claim.companion else None]
    for quantity in quantities:
        assert quantity is None or lookup(result, quantity) is not None


def uniform_score(task):
    outcomes = len(task.outputs.support)
    return score(lambda inputs: np.zeros((*inputs.shape, outcomes)), task, sequences=4)


@pytest.mark.parametrize("claim", trained(ledger()), ids=lambda claim: claim.id)
def test_every_level_is_a_run_that_can_be_started(claim):
    if model_kind(claim) not in names("models"):
        with pytest.raises(UnknownName):
            claim.protocol.recipe("smoke")
        return
    recipes = [claim.protocol.recipe(level) for level in LEVELS]
    seen = [recipe.schedule.steps * recipe.schedule.batch for recipe in recipes]
    assert seen == sorted(seen)
    assert all(from_dict(Recipe, to_dict(recipe)) == recipe for recipe in recipes)


@pytest.mark.parametrize("name", ["transformer-v1", "transformer-20k", "transformer-50k"])
def test_the_standard_level_of_the_transformer_is_the_packages_own_recipe(name):
    protocol = find(f"bijection/{name}").protocol
    for level in ("smoke", "standard"):
        asked = protocol.recipe(level, seed=4)
        own = bijection.recipe("sampled", asked.schedule.budget, seed=4)
        assert asked.task.values == own.task.values
        schedule = replace(asked.schedule, steps=None)
        assert replace(asked, task=own.task, schedule=schedule) == own
    # A run of the demo's task, whose time came to more steps, reaches the level.
    timed = Schedule("6 cpu-min", steps=asked.schedule.steps + 100, batch=120)
    assert level_reached(protocol, replace(own, schedule=timed)) == "standard"


def test_the_published_transformer_is_the_one_of_the_paper_level():
    from beliefspace.windtunnel.models.transformer import Transformer

    recipe = find("bijection/transformer-v1").protocol.recipe("paper")
    assert recipe.model == Transformer.published()


def test_an_unknown_claim_names_the_nearest():
    assert find("bijection/lstm").label == "LSTM, version 3"
    with pytest.raises(UnknownName, match="nearest: bijection/lstm"):
        find("bijection/lstn")


def test_published_values_of_a_task_are_those_that_others_published():
    values = {value.claim: value for value in published("bijection")}
    assert values["bijection/mlp"].entropy_error_bits == 1.85
    assert values["bijection/mlp"].model == "mlp"
    assert values["bijection/binding"].task == Bijection(20, keys="repeated", mapping="map")
    assert "bijection/uniform-20" not in values
    assert {value.trust for value in values.values()} == {
        "paper",
        "secondary source",
        "released code",
    }
    assert published("hmm") == ()


def test_loading_the_ledger_and_judging_without_runs_imports_no_torch():
    code = (
        "import sys; from beliefspace.claims.ledger import ledger; "
        "from beliefspace.claims.verdict import verdict; "
        "[verdict(claim, []) for claim in ledger()]; sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
