"""Associative recall against what its tokens say, and against every table that could be stored."""

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
from beliefspace.windtunnel.tasks.recall import AssociativeRecall

STREAM = Stream(11, "oracle")
RARE = 1e-4
"""Seeds are fixed: a p-value below this is a wrong distribution, not bad luck."""

STORE, SEP, QUERY, PAD = 0, 1, 2, 3


def read(task, row):
    """Parse a row from left to right by the format: the pairs, the queries, and the filler."""
    tokens, pairs, queries, filler = row.tolist(), {}, [], []
    place = 0
    while place < len(tokens):
        if tokens[place] == STORE:
            key, sep, value = tokens[place + 1 : place + 4]
            assert sep == SEP
            assert 10 <= key < 10 + task.keys
            assert key not in pairs
            assert 10 + task.keys <= value < 10 + task.keys + task.values
            pairs[key], place = value, place + 4
        elif tokens[place] == QUERY:
            assert tokens[place + 2] == PAD
            queries.append((place + 1, tokens[place + 1]))
            place += 3
        else:
            filler.append(tokens[place])
            place += 1
    return pairs, queries, filler


def even_counts(values, categories):
    """The p-value of all categories being equally likely."""
    counts = Counter(values)
    assert set(counts) <= set(categories)
    return chisquare([counts[c] for c in categories]).pvalue


# ---------------------------------------------------------------- format


@pytest.mark.parametrize(
    ("task", "length"),
    [
        (AssociativeRecall(), 329),
        (AssociativeRecall(pairs=16, filler=16), 105),
        (AssociativeRecall(pairs=1, keys=1, values=2, queries=1, filler=0), 7),
        (AssociativeRecall(pairs=2, queries=2, filler=3), 8 + 3 + 3 + 1 + 3),
    ],
)
def test_length_and_vocabulary_are_those_of_the_released_format(task, length):
    batch = task.batch(3, STREAM)
    assert task.length == batch.inputs.shape[1] == length
    assert task.inputs == TokenInputs(10 + task.keys + task.values)
    first = 10 + task.keys
    assert task.outputs == CategoricalOutputs(tuple(range(first, first + task.values)))


def test_default_ids_are_the_released_ones():
    task = AssociativeRecall()
    assert task.inputs.vocabulary == 522
    assert task.outputs.support == tuple(range(266, 522))


def test_blocks_stand_where_the_format_puts_them():
    task = AssociativeRecall(pairs=4, keys=9, values=7, queries=3, filler=5)
    row = task.batch(1, STREAM).inputs[0].tolist()
    kinds = "".join(
        "SEQP"[t] if t < 4 else "f" if t < 10 else "k" if t < 10 + 9 else "v" for t in row
    )
    assert kinds == "SkEv" * 4 + "f" * 5 + "QkP" + "ff" + "QkP" + "ff" + "QkP"


def test_filler_contradicts_no_pair_and_uses_each_of_its_tokens():
    task = AssociativeRecall(pairs=3, keys=5, values=5, queries=2, filler=40)
    fillers = [token for row in task.batch(100, STREAM).inputs for token in read(task, row)[2]]
    assert len(fillers) == 100 * 60
    assert even_counts(fillers, range(5, 10)) > RARE


@st.composite
def tasks(draw):
    keys, repeat = draw(st.integers(1, 9)), draw(st.booleans())
    values = draw(st.integers(2, 9))
    pairs = draw(st.integers(1, keys if repeat else min(keys, values)))
    queries, filler = draw(st.integers(1, pairs)), draw(st.integers(0, 7))
    return AssociativeRecall(pairs, keys, values, queries, filler, repeat)


@settings(max_examples=60)
@given(task=tasks(), seed=st.integers(0, 2**40), step=st.integers(0, 10**6), n=st.integers(1, 6))
def test_answer_is_the_value_last_stored_with_the_key_asked_for(task, seed, step, n):
    batch = task.batch(n, Stream(seed, "property"), step)
    expected, columns, shares = [], [], []
    for row in batch.inputs:
        pairs, queries, _ = read(task, row)
        assert (len(pairs), len(queries)) == (task.pairs, task.queries)
        assert len({key for _, key in queries}) == task.queries, "a key is asked for once"
        if not task.values_repeat:
            assert len(set(pairs.values())) == task.pairs
        for column, key in queries:
            columns.append(column)
            expected.append([float(value == pairs[key]) for value in task.outputs.support])
            stored = Counter(pairs.values())
            shares.append([stored[value] / task.pairs for value in task.outputs.support])
    probabilities = np.exp(batch.predictive.log_probs)
    np.testing.assert_array_equal(probabilities, expected)
    np.testing.assert_array_equal(np.exp(batch.belief.log_probs), expected)
    np.testing.assert_array_equal(batch.columns, columns)
    np.testing.assert_array_equal(batch.outcomes, np.argmax(expected, axis=1))
    (rung,) = task.ladder(batch).values()
    np.testing.assert_allclose(np.exp(rung.log_probs), shares, rtol=1e-12)


def test_latent_says_what_the_tokens_say():
    task = AssociativeRecall(pairs=4, keys=9, values=7, queries=2, filler=5)
    batch = task.batch(20, STREAM)
    for row, table in zip(batch.inputs, batch.latent.table, strict=True):
        pairs, _, _ = read(task, row)
        told = [pairs.get(10 + key, 18) - 19 for key in range(9)]
        np.testing.assert_array_equal(table, told)


# ---------------------------------------------------------------- beliefs


@pytest.mark.parametrize("task", AssociativeRecall.tiny(), ids=str)
def test_reference_by_enumeration_agrees_exactly(task):
    batch = task.batch(30, STREAM)
    np.testing.assert_array_equal(task.reference(batch).log_probs, batch.predictive.log_probs)


def test_reference_reads_the_tokens_and_not_the_latent():
    task = AssociativeRecall.tiny()[0]
    batch = task.batch(1, STREAM)
    before = np.exp(task.reference(batch).log_probs)
    batch.inputs[0, [3, 7]] = batch.inputs[0, [7, 3]]
    after = np.exp(task.reference(batch).log_probs)
    np.testing.assert_array_equal(after, before[::-1])


def test_bayes_is_certain():
    batch = AssociativeRecall().batch(50, STREAM)
    assert batch.predictive.rows == 150
    np.testing.assert_array_equal(batch.predictive.entropy_bits(), 0)
    np.testing.assert_array_equal(batch.predictive.surprisal_bits(batch.outcomes), 0)


def test_ladder_has_the_published_chance_and_the_guess_among_stored_values():
    task = AssociativeRecall()
    batch = task.batch(50, STREAM)
    rungs = ladder(task, batch)
    for name, bits, accuracy in (("uniform", 8, 0.0039), ("one of the stored values", 6, 0.0156)):
        kl = batch.predictive.kl_bits(rungs[name])
        np.testing.assert_allclose(kl, bits, rtol=1e-12)
        right = 2.0 ** -rungs[name].surprisal_bits(batch.outcomes)
        np.testing.assert_allclose(right, accuracy, atol=5e-5)


def test_repeated_values_are_guessed_by_their_share():
    task = AssociativeRecall(pairs=3, keys=3, values=2, queries=3, filler=0, values_repeat=True)
    batch = task.batch(40, STREAM)
    guess = np.exp(task.ladder(batch)["one of the stored values"].log_probs)
    counts = np.array([np.bincount(row, minlength=2) for row in batch.latent.values]) / 3
    np.testing.assert_allclose(guess, np.repeat(counts, 3, axis=0), rtol=1e-12)


def test_hypotheses_are_tables():
    def tables(keys, values, pairs, repeat):
        if repeat:
            assigned = list(product(range(values), repeat=pairs))
        else:
            assigned = list(permutations(range(values), pairs))
        return {
            frozenset(zip(chosen, given, strict=True))
            for chosen in permutations(range(keys), pairs)
            for given in assigned
        }

    for keys, values, pairs, repeat in ((3, 3, 2, False), (4, 3, 2, True), (2, 5, 2, False)):
        task = AssociativeRecall(pairs, keys, values, 1, values_repeat=repeat)
        count = len(tables(keys, values, pairs, repeat))
        assert task.hypothesis_bits == pytest.approx(math.log2(count), rel=1e-12)
    exact = math.log2(math.comb(256, 64) * math.perm(256, 64))
    assert AssociativeRecall().hypothesis_bits == pytest.approx(exact, rel=1e-12)


def test_only_binding_is_needed_and_the_prior_names_its_kind():
    assert AssociativeRecall().primitives == ("binding",)
    assert "different values" in AssociativeRecall().prior
    assert "replacement" in AssociativeRecall(values_repeat=True).prior


# ---------------------------------------------------------------- drawing


@pytest.mark.parametrize("repeat", [False, True])
def test_pairs_and_queries_are_uniform_and_independent(repeat):
    task = AssociativeRecall(2, 3, 3, 1, 0, repeat)
    latent = task.batch(20_000, STREAM).latent
    drawn = np.hstack([latent.keys, latent.values, latent.queries]).tolist()
    values = product(range(3), repeat=2) if repeat else permutations(range(3), 2)
    everything = [
        (*k, *v, q) for k, v, q in product(permutations(range(3), 2), list(values), range(2))
    ]
    assert even_counts(map(tuple, drawn), everything) > RARE


def test_rows_depend_on_seed_purpose_step_and_row_alone():
    task = AssociativeRecall()
    many, few = task.batch(40, STREAM, 4), task.batch(3, STREAM, 4)
    np.testing.assert_array_equal(many.inputs[:3], few.inputs)
    np.testing.assert_array_equal(many.targets[:3], few.targets)
    for stream, step in ((STREAM, 5), (Stream(12, "oracle"), 4), (Stream(11, "other"), 4)):
        assert (task.batch(3, stream, step).inputs != few.inputs).any(axis=1).all()


@pytest.mark.parametrize("sequences", [0, -1, 2.5, "3", True, None])
def test_number_of_sequences_is_checked(sequences):
    with pytest.raises(InvalidInput):
        AssociativeRecall().batch(sequences, STREAM)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pairs": 0}, "pairs"),
        ({"pairs": 2.5}, "pairs"),
        ({"pairs": True}, "pairs"),
        ({"keys": 0}, "keys"),
        ({"keys": 63}, "63 keys.*pairs = 64"),
        ({"keys": "256"}, "keys"),
        ({"values": 1}, "values"),
        ({"values": 63}, "63.*pairs = 64.*values_repeat"),
        ({"values": None}, "values"),
        ({"queries": 0}, "queries"),
        ({"queries": 65}, "64 pairs.*queries = 65"),
        ({"filler": -1}, "filler"),
        ({"filler": 1.0}, "filler"),
        ({"values_repeat": 1}, "values_repeat"),
        ({"values_repeat": "yes"}, "values_repeat"),
        ({"pairs": 300, "values_repeat": True}, "256 keys.*pairs = 300"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(given, said):
    with pytest.raises(InvalidInput, match=said) as refusal:
        AssociativeRecall(**given)
    assert "\n" not in str(refusal.value)


def test_more_pairs_than_values_are_allowed_when_values_repeat():
    assert AssociativeRecall(values=2, values_repeat=True).inputs.vocabulary == 268


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(FrozenInstanceError):
        AssociativeRecall().pairs = 3
