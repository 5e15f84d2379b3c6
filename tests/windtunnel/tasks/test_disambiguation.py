"""Delayed disambiguation against Bayes' rule by hand, from the tokens and the likelihoods alone."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import FrozenInstanceError
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.ladder import ladder
from beliefspace.windtunnel.tasks.base import CategoricalOutputs, TokenInputs
from beliefspace.windtunnel.tasks.disambiguation import DelayedDisambiguation

STREAM = Stream(11, "oracle")
RARE = 1e-4
"""Seeds are fixed: a p-value below this is a wrong distribution, not bad luck."""

VARIANTS = [*DelayedDisambiguation.tiny(), DelayedDisambiguation(), DelayedDisambiguation.hard()]


def by_hand(task, row, remembered=None):
    """Filter a row: the belief over places after each token from the last candidate on."""
    belief = np.full(task.candidates, 1 / task.candidates)
    rows = [belief] * (1 + task.filler)
    for token in row[task.candidates + task.filler :]:
        if remembered == 1:
            belief = np.full(task.candidates, 1 / task.candidates)
        belief = belief * task.likelihood[:, token - task.identities]
        belief = belief / belief.sum()
        rows.append(belief)
    return np.array(rows)


def on_ids(task, row, places):
    table = np.zeros((len(places), task.identities))
    for place, identity in enumerate(row[: task.candidates]):
        table[:, identity] = places[:, place]
    return table


def even_counts(values, categories):
    """The p-value of all categories being equally likely."""
    counts = Counter(values)
    assert set(counts) <= set(categories)
    return chisquare([counts[c] for c in categories]).pvalue


# ---------------------------------------------------------------- format


@pytest.mark.parametrize("task", VARIANTS, ids=str)
def test_candidates_then_filler_then_evidence(task):
    batch = task.batch(20, STREAM)
    shown, kinds = task.candidates, task.likelihood.shape[1]
    assert task.length == batch.inputs.shape[1] == shown + task.filler + task.evidence
    assert task.inputs == TokenInputs(task.identities + kinds + 1)
    assert task.outputs == CategoricalOutputs(tuple(range(task.identities)))
    ids, rest = batch.inputs[:, :shown], batch.inputs[:, shown:]
    assert all(len(set(row)) == shown for row in ids.tolist())
    assert ids.max() < task.identities
    assert (rest[:, : task.filler] == task.identities + kinds).all()
    evidence = rest[:, task.filler :]
    assert evidence.min() >= task.identities
    assert evidence.max() < task.identities + kinds
    np.testing.assert_array_equal(batch.scored.all(axis=0), batch.scored.any(axis=0))
    np.testing.assert_array_equal(np.flatnonzero(batch.scored[0]), range(shown - 1, task.length))
    meant = np.array([row[place] for row, place in zip(ids, batch.latent.place, strict=True)])
    np.testing.assert_array_equal(
        batch.targets[:, shown - 1 :].T, [meant] * (task.length - shown + 1)
    )
    np.testing.assert_array_equal(batch.targets[:, : shown - 1], -1)
    np.testing.assert_array_equal(batch.latent.candidates, ids)
    np.testing.assert_array_equal(batch.latent.evidence, evidence - task.identities)


def test_defaults_and_hard_version_are_the_published_ones():
    easy, hard = DelayedDisambiguation(), DelayedDisambiguation.hard()
    assert (easy.candidates, easy.identities, easy.concentration) == (2, 100, None)
    assert (hard.candidates, hard.evidence, hard.concentration) == (16, 5, 0.3)
    assert hard.likelihood.shape == (16, 16)


# ---------------------------------------------------------------- beliefs


@pytest.mark.parametrize("task", VARIANTS, ids=str)
def test_reference_in_fractions_agrees(task):
    batch = task.batch(6, STREAM)
    reference, exact = task.reference(batch).log_probs, batch.predictive.log_probs
    np.testing.assert_array_equal(np.isneginf(reference), np.isneginf(exact))
    np.testing.assert_allclose(reference, exact, rtol=1e-12, atol=1e-12)


@st.composite
def tasks(draw):
    candidates = draw(st.integers(2, 6))
    concentration = draw(st.none() | st.floats(0.1, 10))
    return DelayedDisambiguation(
        candidates,
        candidates + draw(st.integers(0, 4)),
        draw(st.integers(0, 4)),
        draw(st.integers(1, 6)),
        concentration,
        None if concentration is None else draw(st.none() | st.integers(2, 8)),
        draw(st.integers(0, 9)),
    )


@settings(max_examples=60)
@given(task=tasks(), seed=st.integers(0, 2**40), step=st.integers(0, 10**6), n=st.integers(1, 5))
def test_beliefs_follow_bayes_rule_step_by_step(task, seed, step, n):
    batch = task.batch(n, Stream(seed, "property"), step)
    places = np.concatenate([by_hand(task, row) for row in batch.inputs])
    ids = np.concatenate([on_ids(task, row, by_hand(task, row)) for row in batch.inputs])
    latest = [on_ids(task, row, by_hand(task, row, remembered=1)) for row in batch.inputs]
    np.testing.assert_allclose(np.exp(batch.belief.log_probs), places, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(np.exp(batch.predictive.log_probs), ids, rtol=1e-9, atol=1e-300)
    rung = task.ladder(batch).get("latest evidence only", batch.predictive)
    np.testing.assert_allclose(
        np.exp(rung.log_probs), np.concatenate(latest), rtol=1e-9, atol=1e-300
    )


def test_a_cue_turns_one_bit_into_certainty():
    task = DelayedDisambiguation()
    batch = task.batch(50, STREAM)
    entropy = batch.predictive.entropy_bits().reshape(50, -1)
    np.testing.assert_allclose(entropy[:, :-1], 1, rtol=1e-12)
    np.testing.assert_array_equal(entropy[:, -1], 0)
    assert (np.isneginf(batch.predictive.log_probs).sum(axis=1) >= 98).all()


def test_soft_evidence_narrows_four_bits_step_by_step():
    task = DelayedDisambiguation.hard()
    batch = task.batch(2000, STREAM)
    entropy = batch.predictive.entropy_bits().reshape(2000, -1).mean(axis=0)
    np.testing.assert_allclose(entropy[: 1 + task.filler], 4, rtol=1e-12)
    assert (np.diff(entropy[task.filler :]) < 0).all()
    # One token: H(place | e) = log2 C + H(e | place) - H(e), all of them sums over the table.
    table = task.likelihood
    mean = table.mean(axis=0)
    told = -(mean * np.log2(mean)).sum() + np.nansum(table * np.log2(table), axis=1).mean()
    assert entropy[1 + task.filler] == pytest.approx(4 - told, abs=0.05)


def test_long_evidence_does_not_underflow():
    """2,000 tokens make every product of likelihoods 0 in floating point; the posterior is not."""
    task = DelayedDisambiguation(
        candidates=3, identities=4, filler=0, evidence=2000, concentration=50.0, kinds=4
    )
    batch = task.batch(2, STREAM)
    final = batch.belief.log_probs.reshape(2, -1, 3)[:, -1]
    assert np.isfinite(final).all()
    for tokens, belief in zip(batch.latent.evidence, final, strict=True):
        counts = np.bincount(tokens, minlength=4)
        assert math.prod(task.likelihood[0, tokens]) == 0
        logs = np.log(task.likelihood) @ counts
        np.testing.assert_allclose(belief - belief[0], logs - logs[0], rtol=1e-9, atol=1e-9)


def test_what_a_table_rules_out_is_exactly_impossible_and_never_drawn():
    task = DelayedDisambiguation(
        candidates=4, identities=6, filler=0, evidence=3, concentration=0.001, kinds=5
    )
    assert (task.likelihood == 0).any(), "so small a concentration underflows to zero entries"
    batch = task.batch(400, STREAM)
    drawn = task.likelihood[batch.latent.place[:, None], batch.latent.evidence]
    assert (drawn > 0).all()
    zero = np.array([by_hand(task, row)[1] == 0 for row in batch.inputs])
    first = batch.belief.log_probs.reshape(400, -1, 4)[:, 1]
    np.testing.assert_array_equal(np.isneginf(first), zero)
    assert zero.any()


def test_ladder_climbs_from_chance_to_bayes():
    task = DelayedDisambiguation.hard()
    batch = task.batch(500, STREAM)
    rungs = ladder(task, batch)
    own = ["uniform", "one of the candidates", "latest evidence only"]
    assert list(task.ladder(batch)) == own[1:]
    divergence = [batch.predictive.kl_bits(rungs[name]).reshape(500, -1) for name in own]
    before = slice(0, 1 + task.filler)
    np.testing.assert_allclose(divergence[0][:, before], math.log2(100 / 16), rtol=1e-12)
    np.testing.assert_allclose(divergence[1][:, before], 0, atol=1e-12)
    final = [kl[:, -1].mean() for kl in divergence]
    assert final[0] > final[1] > final[2] > 0.1
    np.testing.assert_allclose(divergence[2][:, 1 + task.filler], 0, atol=1e-12)
    # Against a predictor uniform on the candidates the divergence is what has been learned.
    learned = 4 - batch.predictive.entropy_bits().reshape(500, -1)
    np.testing.assert_allclose(divergence[1], learned, atol=1e-9)


def test_latest_evidence_is_a_rung_only_where_there_is_earlier_evidence():
    for evidence, names in ((1, 1), (2, 2)):
        task = DelayedDisambiguation(evidence=evidence, concentration=1.0)
        assert len(task.ladder(task.batch(2, STREAM))) == names


def test_hypotheses_are_arrangements():
    for task in (DelayedDisambiguation(2, 5), DelayedDisambiguation(3, 3)):
        count = len(list(permutations(range(task.identities), task.candidates)))
        assert task.hypothesis_bits == pytest.approx(math.log2(count * task.candidates), rel=1e-12)


def test_a_cue_is_bound_and_soft_evidence_accumulates_besides():
    assert DelayedDisambiguation().primitives == ("binding",)
    assert set(DelayedDisambiguation.hard().primitives) == {"accumulation", "binding"}
    assert "cue" in DelayedDisambiguation().prior
    assert "Dirichlet(0.3)" in DelayedDisambiguation.hard().prior


# ---------------------------------------------------------------- drawing


def test_arrangements_are_uniform():
    drawn = DelayedDisambiguation(2, 4).batch(20_000, STREAM).latent.hypothesis.tolist()
    everything = [(*ids, c) for ids, c in product(permutations(range(4), 2), range(2))]
    assert even_counts(map(tuple, drawn), everything) > RARE


def test_evidence_is_drawn_from_the_row_of_the_place_that_is_meant():
    task = DelayedDisambiguation(3, 4, 0, 2, concentration=1.0)
    latent = task.batch(30_000, STREAM).latent
    for place in range(3):
        mine = latent.evidence[latent.place == place]
        both = np.bincount(3 * mine[:, 0] + mine[:, 1], minlength=9)
        row = task.likelihood[place]
        assert chisquare(both, np.outer(row, row).ravel() * len(mine)).pvalue > RARE


def test_likelihoods_are_fixed_by_the_task_and_differ_by_seed():
    task = DelayedDisambiguation.hard()
    np.testing.assert_allclose(task.likelihood.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(task.likelihood, DelayedDisambiguation.hard().likelihood)
    other = DelayedDisambiguation(candidates=16, evidence=5, concentration=0.3, likelihood_seed=1)
    assert not np.allclose(task.likelihood, other.likelihood)
    with pytest.raises(ValueError, match="read-only"):
        task.likelihood[0, 0] = 1.0
    # The expected square of an entry of Dirichlet(c, ..., c) of size K is (c + 1) / (K (K c + 1)).
    wide = DelayedDisambiguation(500, 500, concentration=0.3, kinds=16).likelihood
    assert (wide**2).mean() == pytest.approx(1.3 / (16 * 5.8), rel=0.05)


def test_rows_depend_on_seed_purpose_step_and_row_alone():
    task = DelayedDisambiguation.hard()
    many, few = task.batch(40, STREAM, 4), task.batch(3, STREAM, 4)
    np.testing.assert_array_equal(many.inputs[:3], few.inputs)
    np.testing.assert_array_equal(many.targets[:3], few.targets)
    for stream, step in ((STREAM, 5), (Stream(12, "oracle"), 4), (Stream(11, "other"), 4)):
        assert (task.batch(3, stream, step).inputs != few.inputs).any(axis=1).all()


@pytest.mark.parametrize("sequences", [0, -1, 2.5, "3", True, None])
def test_number_of_sequences_is_checked(sequences):
    with pytest.raises(InvalidInput):
        DelayedDisambiguation().batch(sequences, STREAM)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"candidates": 1}, "candidates"),
        ({"candidates": 101}, "100 ids.*candidates = 101"),
        ({"candidates": 2.0}, "candidates"),
        ({"identities": 1}, "identities"),
        ({"identities": True}, "identities"),
        ({"filler": -1}, "filler"),
        ({"evidence": 0}, "evidence"),
        ({"evidence": "5"}, "evidence"),
        ({"concentration": 0.0}, "concentration.*0.0"),
        ({"concentration": -0.3}, "concentration"),
        ({"concentration": 1e-9}, "concentration is a number from 0.001 to 1e\\+06; got 1e-09"),
        ({"concentration": 1e7}, "concentration is a number from 0.001 to 1e\\+06; got 1"),
        ({"concentration": math.nan}, "concentration.*nan"),
        ({"concentration": math.inf}, "concentration.*inf"),
        ({"concentration": "0.3"}, "concentration"),
        ({"concentration": True}, "concentration"),
        ({"kinds": 4}, "kinds = 4.*concentration"),
        (
            {"candidates": 1001, "identities": 1001, "concentration": 1.0},
            "candidates times kinds of evidence is at most 1,000,000; got 1,002,001",
        ),
        (
            {"candidates": 101, "identities": 101, "concentration": 1.0, "kinds": 10_000},
            "candidates times kinds of evidence is at most 1,000,000; got 1,010,000",
        ),
        ({"concentration": 0.3, "kinds": 1}, "kinds"),
        ({"likelihood_seed": -1}, "likelihood_seed"),
        ({"likelihood_seed": 0.5}, "likelihood_seed"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(given, said):
    with pytest.raises(InvalidInput, match=said) as refusal:
        DelayedDisambiguation(**given)
    assert "\n" not in str(refusal.value)


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(FrozenInstanceError):
        DelayedDisambiguation().filler = 3
