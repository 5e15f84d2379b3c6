"""Modular recurrence against every program, one by one, and against closed forms."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import FrozenInstanceError
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.ladder import ladder
from beliefspace.windtunnel.tasks.base import CategoricalOutputs, TokenInputs
from beliefspace.windtunnel.tasks.recurrence import ModularRecurrence

STREAM = Stream(11, "oracle")
TASK = ModularRecurrence()
RARE = 1e-4
"""Seeds are fixed: a p-value below this is a wrong distribution, not bad luck."""


def bayes(tokens, p, noise):
    """Bayes' rule over whole sequences: the next token, and the multiplier (last: noise)."""
    following, hypotheses = np.full(p, noise / p ** len(tokens) / p), np.zeros(p + 1)
    hypotheses[p] = noise / p ** len(tokens)
    for a, b in product(range(p), repeat=2):
        if all((a * x + b - y) % p == 0 for x, y in pairwise(tokens)):
            share = (1 - noise) / p**2 / p
            following[(a * tokens[-1] + b) % p] += share
            hypotheses[a] += share
    return following / following.sum(), hypotheses / hypotheses.sum()


def assert_beliefs(categorical, expected):
    """Equal to rounding, and impossible exactly where it is impossible."""
    expected = np.array(expected)
    assert categorical.log_probs.dtype == np.float64
    np.testing.assert_allclose(np.exp(categorical.log_probs), expected, rtol=1e-11, atol=0)
    np.testing.assert_array_equal(np.isneginf(categorical.log_probs), expected == 0)


def by_position(values, task):
    return values.reshape(-1, task.length)


def even_counts(values, categories):
    """The p-value of all categories being equally likely."""
    counts = Counter(values)
    assert set(counts) <= set(categories)
    return chisquare([counts[c] for c in categories]).pvalue


# ---------------------------------------------------------------- layout


def test_every_token_is_shown_and_the_next_one_is_asked_for():
    task = ModularRecurrence()
    batch = task.batch(40, STREAM)
    assert (task.modulus, task.length, task.noise_prior) == (17, 16, 0.5)
    assert task.inputs == TokenInputs(17)
    assert task.outputs == CategoricalOutputs(tuple(range(17)))
    assert batch.inputs.shape == batch.targets.shape == (40, 16)
    assert batch.scored.all()
    np.testing.assert_array_equal(batch.targets[:, :-1], batch.inputs[:, 1:])
    assert batch.belief.log_probs.shape == (40 * 16, 18)


def test_latent_is_the_program_or_minus_one_for_noise():
    task = ModularRecurrence(modulus=7, length=9)
    batch = task.batch(60, STREAM)
    tokens = np.hstack([batch.inputs, batch.targets[:, -1:]])
    noise = (batch.latent == -1).all(axis=1)
    assert 10 < noise.sum() < 50
    a, b = batch.latent[~noise].T[:, :, None]
    np.testing.assert_array_equal(tokens[~noise][:, 1:], (a * tokens[~noise][:, :-1] + b) % 7)
    assert batch.latent[~noise].min() >= 0


# ---------------------------------------------------------------- drawing


def test_kinds_programs_and_first_tokens_are_drawn_from_the_prior():
    task = ModularRecurrence(modulus=3, length=2, noise_prior=0.25)
    batch = task.batch(20_000, STREAM)
    noise = batch.latent[:, 0] == -1
    assert noise.mean() == pytest.approx(0.25, abs=4.5 * math.sqrt(0.25 * 0.75 / 20_000))
    drawn = np.hstack([batch.latent, batch.inputs[:, :1]])[~noise].tolist()
    assert even_counts(map(tuple, drawn), list(product(range(3), repeat=3))) > RARE
    tokens = np.hstack([batch.inputs, batch.targets[:, -1:]])[noise].tolist()
    assert even_counts(map(tuple, tokens), list(product(range(3), repeat=3))) > RARE


def test_rows_depend_on_seed_purpose_step_and_row_alone():
    task = ModularRecurrence()
    many, few = task.batch(200, STREAM, 4), task.batch(3, STREAM, 4)
    np.testing.assert_array_equal(many.inputs[:3], few.inputs)
    np.testing.assert_array_equal(many.latent[:3], few.latent)
    for stream, step in [(STREAM, 5), (Stream(12, "oracle"), 4), (Stream(11, "other"), 4)]:
        assert (task.batch(3, stream, step).inputs != few.inputs).any()


# ---------------------------------------------------------------- beliefs


@settings(max_examples=60)
@given(
    modulus=st.integers(2, 7),
    length=st.integers(1, 7),
    noise_prior=st.sampled_from([0.0, 0.01, 0.5, 0.9, 1.0]),
    seed=st.integers(0, 2**40),
)
def test_any_task_follows_bayes_rule_over_all_programs(modulus, length, noise_prior, seed):
    task = ModularRecurrence(modulus, length, noise_prior)
    batch = task.batch(3, Stream(seed, "property"))
    pasts = [row[: t + 1] for row in batch.inputs.tolist() for t in range(length)]
    following, hypotheses = zip(*(bayes(past, modulus, noise_prior) for past in pasts), strict=True)
    assert_beliefs(batch.predictive, following)
    assert_beliefs(batch.belief, hypotheses)
    np.testing.assert_allclose(
        np.exp(task.reference(batch).log_probs), following, rtol=1e-11, atol=0
    )


@pytest.mark.parametrize(("modulus", "length"), [(3, 4), (4, 4)])
def test_over_all_sequences_outcomes_are_as_likely_as_believed(modulus, length):
    """Each sequence with its prior probability, written out: the predictives telescope to it."""
    task = ModularRecurrence(modulus, length)
    words = np.array(list(product(range(modulus), repeat=length + 1)))
    followed = Counter()
    for a, b, x in product(range(modulus), repeat=3):
        word = [x]
        for _ in range(length):
            word.append((a * word[-1] + b) % modulus)
        followed[tuple(word)] += 1
    predictive = task._predictive(words[:, :-1], 0.5).log_probs.reshape(-1, length, modulus)
    chain = np.take_along_axis(predictive, words[:, 1:, None], axis=2).sum(axis=(1, 2))
    exact = [
        0.5 / modulus ** (length + 1) + 0.5 * followed[tuple(w)] / modulus**3
        for w in words.tolist()
    ]
    np.testing.assert_allclose(np.exp(chain) / modulus, exact, rtol=1e-12)


def test_two_tokens_tell_nothing():
    batch = TASK.batch(50, STREAM)
    entropy = by_position(batch.predictive.entropy_bits(), TASK)
    moved = batch.inputs[:, 0] != batch.inputs[:, 1]
    np.testing.assert_allclose(entropy[:, 0], math.log2(17), rtol=1e-12)
    np.testing.assert_allclose(entropy[moved, 1], math.log2(17), rtol=1e-12)


def test_with_a_prime_modulus_three_tokens_leave_one_program_and_noise_decays_with_each_more():
    batch = TASK.batch(300, STREAM)
    found = (batch.latent[:, 0] >= 0) & (batch.inputs[:, 0] != batch.inputs[:, 1])
    belief = np.exp(batch.belief.log_probs).reshape(300, 16, 18)[found]
    assert found.sum() > 100
    possible = (belief[:, :, :-1] > 0).sum(axis=2)
    assert (possible[:, :2] == 17).all()
    assert (possible[:, 2:] == 1).all()
    np.testing.assert_array_equal(belief[:, 2, :-1].argmax(axis=1), batch.latent[found, 0])
    # From equal odds after two steps, each step that fits is 17 times likelier under the program.
    decay = 1 / (1 + 17.0 ** np.arange(14))
    np.testing.assert_allclose(belief[:, 2:, -1], np.tile(decay, (found.sum(), 1)), rtol=1e-10)


def test_noise_is_certain_once_no_program_fits_and_then_all_tokens_are_alike():
    batch = TASK.batch(300, STREAM)
    noise = batch.latent[:, 0] == -1
    last = np.exp(batch.belief.log_probs).reshape(300, 16, 18)[noise, -1, -1]
    assert (last == 1).all()
    entropy = by_position(batch.predictive.entropy_bits(), TASK)[noise, -1]
    np.testing.assert_allclose(entropy, math.log2(17), rtol=1e-12)


def test_a_constant_sequence_leaves_one_program_for_each_multiplier():
    constant = np.full((1, 16), 5)
    belief = np.exp(TASK._log_belief(constant, 0.5))[0]
    odds = 17 / 17.0**2 * 17.0 ** np.arange(1, 16)  # of the 17 programs, against noise
    np.testing.assert_allclose(belief[1:, -1], 1 / (1 + odds), rtol=1e-10)
    np.testing.assert_allclose(belief[1:, :17], np.tile(belief[1:, :1], (1, 17)), rtol=1e-12)
    predicted = np.exp(TASK._predictive(constant, 0.5).log_probs)
    assert predicted[-1, 5] == pytest.approx(1, abs=1e-15)


def test_where_a_step_is_no_unit_several_programs_are_left():
    """Modulo 4, from 0 to 2 and back: a step of 2 tells a multiplier's last bit only."""
    task = ModularRecurrence(modulus=4, length=4)
    left = np.isfinite(task._log_belief(np.array([[0, 2, 0, 2]]), 0.5)[0, :, :-1])
    np.testing.assert_array_equal(left[2], [False, True, False, True])
    np.testing.assert_array_equal(left[3], [False, True, False, True])


def test_long_sequences_rule_nothing_out_by_underflow():
    task = ModularRecurrence(length=600)
    batch = task.batch(6, STREAM)
    assert 0 < (batch.latent[:, 0] >= 0).sum() < 6
    assert np.isfinite(batch.predictive.log_probs).all()
    program = np.flatnonzero(batch.latent[:, 0] >= 0)[0]
    last = batch.predictive.log_probs.reshape(6, 600, 17)[program, -1]
    # 597 steps beyond those that leave noise at one half.
    assert np.sort(last)[0] == pytest.approx(-598 * math.log(17), rel=1e-9)


def test_hypotheses_in_bits():
    assert ModularRecurrence().hypothesis_bits == pytest.approx(1 + math.log2(17))
    assert ModularRecurrence(noise_prior=0.0).hypothesis_bits == pytest.approx(2 * math.log2(17))
    assert ModularRecurrence(noise_prior=1.0).hypothesis_bits == 0
    assert ModularRecurrence().primitives == ("accumulation",)
    assert "0.5" in ModularRecurrence().prior
    assert "mod 17" in ModularRecurrence().prior


# ---------------------------------------------------------------- ladder


def test_ladder_is_in_order_and_each_rung_is_what_it_says():
    batch = TASK.batch(1500, STREAM)
    rungs = TASK.ladder(batch)
    assert list(rungs) == ["last two steps", "noise prior 0.001"]
    kl = [batch.predictive.kl_bits(rung).mean() for rung in ladder(TASK, batch).values()]
    assert kl[0] > kl[-2] > kl[-1] > 0.1
    assert np.isfinite(kl).all()


def test_short_memory_is_bayes_on_the_last_three_tokens():
    task = ModularRecurrence(modulus=5, length=7)
    batch = task.batch(20, STREAM)
    expected = [
        bayes(row[max(0, t - 2) : t + 1], 5, 0.5)[0]
        for row in batch.inputs.tolist()
        for t in range(7)
    ]
    assert_beliefs(task.ladder(batch)["last two steps"], expected)
    other = [bayes(r[: t + 1], 5, 0.001)[0] for r in batch.inputs.tolist() for t in range(7)]
    assert_beliefs(task.ladder(batch)["noise prior 0.001"], other)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_short_sequences_have_a_ladder(length):
    task = ModularRecurrence(modulus=3, length=length)
    batch = task.batch(10, STREAM)
    recent = task.ladder(batch)["last two steps"]
    np.testing.assert_array_equal(recent.log_probs, batch.predictive.log_probs)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "given",
    [
        {"modulus": 1},
        {"modulus": 0},
        {"modulus": True},
        {"modulus": 17.0},
        {"modulus": "17"},
        {"modulus": 1001},
        {"length": 0},
        {"length": 2.5},
        {"noise_prior": -0.1},
        {"noise_prior": 1.1},
        {"noise_prior": math.nan},
        {"noise_prior": True},
        {"noise_prior": "0.5"},
        {"noise_prior": None},
    ],
    ids=str,
)
def test_bad_settings_are_refused(given):
    with pytest.raises(InvalidInput, match=next(iter(given))) as refusal:
        ModularRecurrence(**given)
    assert "\n" not in str(refusal.value)


def test_a_refused_probability_is_shown_with_its_range():
    with pytest.raises(InvalidInput, match=r"noise_prior is a number from 0 to 1; got 1\.1"):
        ModularRecurrence(noise_prior=1.1)


@pytest.mark.parametrize("sequences", [0, -1, 2.5, "3", True, None])
def test_number_of_sequences_is_checked(sequences):
    with pytest.raises(InvalidInput):
        TASK.batch(sequences, STREAM)


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(FrozenInstanceError):
        ModularRecurrence().modulus = 3
