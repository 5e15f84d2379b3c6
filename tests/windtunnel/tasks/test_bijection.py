"""Bijection elimination against beliefs derived from the tokens alone: urns, enumeration, votes."""

from __future__ import annotations

import math
import tracemalloc
from collections import Counter, defaultdict
from dataclasses import FrozenInstanceError, replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.tasks.base import CategoricalOutputs, TokenInputs
from beliefspace.windtunnel.tasks.bijection import Bijection

STREAM = Stream(11, "oracle")
RARE = 1e-4
"""Seeds are fixed: a p-value below this is a wrong distribution, not bad luck."""


def offset(task):
    """Token of value 0: values come after the keys in format B, and share their tokens in A."""
    return task.values if task.format == "B" else 0


def beliefs(task, row, belief):
    """Read a row from left to right; keys stand at the even places, each followed by its value."""
    seen, rows = {}, []
    for place, token in enumerate(row.tolist()):
        if place % 2 == 0:
            rows.append(belief(seen, token))
        else:
            seen[int(row[place - 1])] = token - offset(task)
    return rows


def urn(task):
    """The rule in words: a seen key is certain; else all values not ruled out are alike."""

    def belief(seen, key):
        p = np.zeros(task.values)
        if key in seen:
            p[seen[key]] = 1
        elif task.mapping == "map":
            p[:] = 1 / task.values
        else:
            left = [value for value in range(task.values) if value not in seen.values()]
            p[left] = 1 / len(left)
        return p

    return belief


def vote(task, latents):
    """Bayes' rule with equally likely latents: count those that agree with every pair."""

    def belief(seen, key):
        p = np.zeros(task.values)
        for latent in latents:
            if all(latent[k] == v for k, v in seen.items()):
                p[latent[key]] += 1
        return p / p.sum()

    return belief


def assert_beliefs(categorical, expected):
    """Equal to rounding, and impossible exactly where it is impossible."""
    expected = np.array(expected)
    assert categorical.log_probs.dtype == np.float64
    np.testing.assert_allclose(np.exp(categorical.log_probs), expected, rtol=1e-12, atol=0)
    np.testing.assert_array_equal(np.isneginf(categorical.log_probs), expected == 0)


def all_rows(task, batch, belief):
    return [p for row in batch.inputs for p in beliefs(task, row, belief)]


def pool_of(task, rows=600):
    """The members of a pool, found by drawing: index of the member and the table drawn."""
    latent = task.batch(rows, Stream(3, "find the pool")).latent
    found = {
        int(i): tuple(table) for i, table in zip(latent.member, latent.table.tolist(), strict=True)
    }
    assert sorted(found) == list(range(task.pool)), "every member is drawn sooner or later"
    return [found[i] for i in range(task.pool)]


def even_counts(values, categories):
    """The p-value of all categories being equally likely."""
    counts = Counter(values)
    assert set(counts) <= set(categories)
    return chisquare([counts[c] for c in categories]).pvalue


# ---------------------------------------------------------------- layout


def test_format_b_is_key_value_and_ends_at_a_key():
    task = Bijection(values=20, pairs=19)
    batch = task.batch(50, STREAM)
    assert task.length == 37
    assert task.inputs == TokenInputs(40)
    assert task.outputs == CategoricalOutputs(tuple(range(20, 40)))
    assert batch.inputs.shape == batch.scored.shape == batch.targets.shape == (50, 37)
    assert (batch.inputs.dtype, batch.targets.dtype) == (np.int64, np.int64)
    assert batch.scored.dtype == np.bool_
    keys, values = batch.inputs[:, 0::2], batch.inputs[:, 1::2]
    assert keys.min() >= 0
    assert keys.max() < 20
    assert values.min() >= 20
    assert values.max() < 40
    np.testing.assert_array_equal(batch.scored, np.tile(np.arange(37) % 2 == 0, (50, 1)))
    # The answer to a key is the value token that comes next, never the token in place.
    np.testing.assert_array_equal(batch.targets[:, 0:-1:2] + 20, values)
    assert (batch.targets[:, 1::2] == -1).all()
    assert batch.predictive.support == tuple(range(20, 40))
    assert batch.predictive.log_probs.shape == (50 * 19, 20)


def test_format_a_shares_tokens_and_ends_with_a_recall():
    task = Bijection(values=20, pairs=19, format="A")
    batch = task.batch(50, STREAM)
    assert task.length == 39
    assert task.inputs == TokenInputs(20)
    assert task.outputs == CategoricalOutputs(tuple(range(20)))
    assert batch.inputs.shape == (50, 39)
    assert batch.inputs.min() >= 0
    assert batch.inputs.max() < 20
    np.testing.assert_array_equal(batch.scored, np.tile(np.arange(39) % 2 == 0, (50, 1)))
    np.testing.assert_array_equal(batch.targets[:, 0:-1:2], batch.inputs[:, 1::2])
    for row, target in zip(batch.inputs.tolist(), batch.targets[:, -1], strict=True):
        shown = dict(zip(row[0:-1:2], row[1::2], strict=True))
        assert target == shown[row[-1]]
    recall = batch.predictive.entropy_bits().reshape(50, 20)[:, -1]
    np.testing.assert_array_equal(recall, 0)


def test_rows_are_distinct_keys_and_one_to_one_values_unless_told_otherwise():
    for row in Bijection(values=6).batch(40, STREAM).inputs.tolist():
        assert len(set(row[0::2])) == 6
        assert len(set(row[1::2])) == 5
    repeated = Bijection(values=6, pairs=12, keys="repeated").batch(40, STREAM).inputs.tolist()
    assert any(len(set(row[0::2])) < 6 for row in repeated)
    for row in repeated:
        table = set(zip(row[0:-1:2], row[1::2], strict=True))
        assert len({k for k, _ in table}) == len({v for _, v in table}) == len(table)
    mapped = Bijection(values=6, pairs=12, keys="repeated", mapping="map").batch(40, STREAM)
    many = 0
    for row in mapped.inputs.tolist():
        table = set(zip(row[0:-1:2], row[1::2], strict=True))
        assert len({k for k, _ in table}) == len(table)
        many += len({v for _, v in table}) < len(table)
    assert many > 0, "values of a map repeat"


@pytest.mark.parametrize(
    ("task", "tokens", "queries"),
    [
        (Bijection(values=2, pairs=1), 1, 1),
        (Bijection(values=2), 3, 2),
        (Bijection(values=2, pairs=1, format="A"), 3, 2),
        (Bijection(values=3, pairs=9, keys="repeated"), 17, 9),
        (Bijection(values=3, pairs=9, keys="repeated", format="A"), 19, 10),
    ],
)
def test_smallest_and_longest(task, tokens, queries):
    batch = task.batch(20, STREAM)
    assert task.length == tokens
    assert batch.inputs.shape == (20, tokens)
    assert batch.scored.sum() == 20 * queries
    assert_beliefs(batch.predictive, all_rows(task, batch, urn(task)))


def test_latent_is_what_the_tokens_say():
    task = Bijection(values=5, format="A")
    batch = task.batch(30, STREAM)
    keys, values = batch.inputs[:, 0:-1:2], batch.inputs[:, 1::2]
    np.testing.assert_array_equal(batch.latent.keys, keys)
    np.testing.assert_array_equal(batch.latent.values, values)
    np.testing.assert_array_equal(np.take_along_axis(batch.latent.table, keys, axis=1), values)
    np.testing.assert_array_equal(batch.latent.queries, batch.inputs[:, 0::2])
    np.testing.assert_array_equal(np.sort(batch.latent.table), np.tile(np.arange(5), (30, 1)))
    assert batch.latent.member is None


# ---------------------------------------------------------------- beliefs


def test_elimination_entropy_is_a_function_of_position():
    entropy = Bijection(values=20).batch(30, STREAM).predictive.entropy_bits().reshape(30, 20)
    expected = [math.log2(20 - k + 1) for k in range(1, 21)]
    np.testing.assert_allclose(entropy, np.tile(expected, (30, 1)), atol=1e-12)


def test_with_replacement_entropy_is_zero_or_what_is_not_seen():
    task = Bijection(values=8, pairs=15, keys="repeated")
    batch = task.batch(60, STREAM)
    entropy = batch.predictive.entropy_bits().reshape(60, 15)
    expected = np.zeros((60, 15))
    for i, keys in enumerate(batch.inputs[:, 0::2].tolist()):
        for k, key in enumerate(keys):
            if key not in keys[:k]:
                expected[i, k] = math.log2(8 - len(set(keys[:k])))
    np.testing.assert_allclose(entropy, expected, atol=1e-12)
    assert (expected == 0).any(axis=0)[1:].all(), "entropy varies at a fixed position"
    assert (expected > 0).any(axis=0)[:8].all()


def test_binding_variant_is_all_or_nothing():
    task = Bijection(values=20, pairs=19, keys="repeated", mapping="map")
    entropy = task.batch(4000, STREAM).predictive.entropy_bits().reshape(4000, 19)
    new = entropy > 1
    np.testing.assert_array_equal(entropy[~new], 0)
    np.testing.assert_allclose(entropy[new], math.log2(20), rtol=1e-14)
    # A key drawn with replacement is new at query k with probability (1 - 1/V)^(k - 1).
    chance = 0.95 ** np.arange(19)
    error = np.sqrt(chance * (1 - chance) / 4000)
    assert (np.abs(new.mean(axis=0) - chance) <= 4.5 * error).all()


def test_hypotheses_in_bits():
    assert Bijection(values=20).hypothesis_bits == pytest.approx(61.08, abs=5e-3)
    assert Bijection(values=4).hypothesis_bits == pytest.approx(math.log2(24), rel=1e-12)
    assert Bijection(values=20, mapping="map").hypothesis_bits == pytest.approx(20 * math.log2(20))
    assert Bijection(values=20, pool=8).hypothesis_bits == pytest.approx(3)
    assert Bijection(values=20, pool=1).hypothesis_bits == 0
    # 300! is past the largest float.
    assert Bijection(values=300).hypothesis_bits == pytest.approx(
        math.fsum(math.log2(k) for k in range(1, 301))
    )


def test_primitives_name_what_is_needed():
    assert set(Bijection().primitives) == {"accumulation"}
    assert set(Bijection(keys="repeated", mapping="map").primitives) == {"binding"}
    assert "binding" in Bijection(keys="repeated").primitives
    assert "binding" in Bijection(format="A").primitives


@pytest.mark.parametrize("form", ["A", "B"])
@pytest.mark.parametrize("keys", ["distinct", "repeated"])
@pytest.mark.parametrize("mapping", ["bijection", "map"])
def test_against_every_latent(form, keys, mapping):
    task = Bijection(values=4, format=form, keys=keys, mapping=mapping)
    latents = list(
        permutations(range(4)) if mapping == "bijection" else product(range(4), repeat=4)
    )
    batch = task.batch(25, STREAM)
    assert_beliefs(batch.predictive, all_rows(task, batch, vote(task, latents)))
    assert_beliefs(task.reference(batch), all_rows(task, batch, vote(task, latents)))
    assert task.alternatives(batch) == {}


@st.composite
def tasks(draw):
    values = draw(st.integers(2, 9))
    keys = draw(st.sampled_from(["distinct", "repeated"]))
    pairs = draw(st.none() | st.integers(1, values if keys == "distinct" else 14))
    form = draw(st.sampled_from(["A", "B"]))
    return Bijection(values, pairs, form, keys, draw(st.sampled_from(["bijection", "map"])))


@settings(max_examples=80)
@given(task=tasks(), seed=st.integers(0, 2**40), step=st.integers(0, 10**6), n=st.integers(1, 6))
def test_any_task_follows_the_urn(task, seed, step, n):
    batch = task.batch(n, Stream(seed, "property"), step)
    pairs = task.pairs or task.values
    queries = pairs + (task.format == "A")
    assert task.length == batch.inputs.shape[1] == 2 * queries - 1
    assert batch.scored.sum() == n * queries
    assert task.inputs.vocabulary == (2 * task.values if task.format == "B" else task.values)
    expected = all_rows(task, batch, urn(task))
    assert_beliefs(batch.predictive, expected)
    assert_beliefs(batch.belief, expected)
    assert all(p[target] > 0 for p, target in zip(expected, batch.outcomes, strict=True))
    np.testing.assert_array_equal(batch.outcomes, batch.targets[batch.scored])
    np.testing.assert_array_equal(batch.columns, np.tile(np.arange(0, task.length, 2), n))


# ---------------------------------------------------------------- drawing


def test_latents_and_orders_are_uniform_and_independent():
    latent = Bijection(values=3).batch(20_000, STREAM).latent
    orders = list(permutations(range(3)))
    both = [(*t, *k) for t, k in zip(latent.table.tolist(), latent.keys.tolist(), strict=True)]
    assert even_counts(both, [(*t, *k) for t in orders for k in orders]) > RARE


def test_maps_and_repeated_keys_are_uniform():
    latent = (
        Bijection(values=3, pairs=2, keys="repeated", mapping="map").batch(20_000, STREAM).latent
    )
    both = [(*t, *k) for t, k in zip(latent.table.tolist(), latent.keys.tolist(), strict=True)]
    assert even_counts(both, list(product(range(3), repeat=5))) > RARE


def test_recall_asks_for_any_pair_of_the_context():
    batch = Bijection(values=6, pairs=4, format="A").batch(8000, STREAM)
    keys, query = batch.inputs[:, 0:-1:2], batch.inputs[:, -1]
    place = np.argmax(keys == query[:, None], axis=1)
    assert even_counts(place.tolist(), range(4)) > RARE


def test_rows_depend_on_seed_purpose_step_and_row_alone():
    task = Bijection(values=9, format="A", keys="repeated", pairs=7, pool=5)
    many, few = task.batch(300, STREAM, 4), task.batch(3, STREAM, 4)
    np.testing.assert_array_equal(many.inputs[:3], few.inputs)
    np.testing.assert_array_equal(many.targets[:3], few.targets)
    np.testing.assert_array_equal(many.predictive.log_probs[:24], few.predictive.log_probs)
    others = [(STREAM, 5), (Stream(12, "oracle"), 4), (Stream(11, "other"), 4)]
    for stream, step in others:
        assert (task.batch(3, stream, step).inputs != few.inputs).any(axis=1).all()
    assert len({row.tobytes() for row in many.inputs}) > 250


@pytest.mark.parametrize("method", ["batch", "balanced"])
@pytest.mark.parametrize("sequences", [0, -1, 2.5, "3", True, None])
def test_number_of_sequences_is_checked(method, sequences):
    with pytest.raises(InvalidInput):
        getattr(Bijection(values=4), method)(sequences, STREAM)


# ---------------------------------------------------------------- balanced batches


@pytest.mark.parametrize(
    "task",
    [
        Bijection(values=7),
        Bijection(values=7, format="A"),
        Bijection(values=8),
        Bijection(values=7, pairs=10, keys="repeated"),
    ],
)
def test_balanced_set_runs_through_a_cycle_of_the_values(task):
    """V rows share their keys, and the same V relabellings lead from any of them to the set."""
    size = task.values
    batch = task.balanced(5 * size, STREAM)
    sets = defaultdict(list)
    for i, keys in enumerate(batch.latent.keys.tolist()):
        sets[tuple(keys)].append(i)
    assert [len(rows) for rows in sets.values()] == [size] * 5
    for rows in sets.values():
        tables = batch.latent.table[rows]
        np.testing.assert_array_equal(np.sort(tables.T), np.tile(np.arange(size), (size, 1)))
        # At every key of the context; what format A asks again is drawn for each row.
        answers = batch.targets[rows][:, : 2 * task.shown : 2].T
        np.testing.assert_array_equal(np.sort(answers), np.tile(np.arange(size), (len(answers), 1)))
        moves = {start: relabellings(tables, start) for start in range(size)}
        assert all(moves[start] == moves[0] for start in range(size))
        assert max(cycle_length(move) for move in moves[0]) == size
    assert_beliefs(batch.predictive, all_rows(task, batch, urn(task)))


def relabellings(tables, start):
    """What happens to each value that row ``start`` shows, on the way to each other row."""
    return {
        tuple(sorted(set(zip(tables[start].tolist(), table.tolist(), strict=True))))
        for table in tables
    }


def cycle_length(move):
    """How often a relabelling must be applied until the first value is back."""
    to, value, count = dict(move), move[0][0], 0
    assert len(to) == len(move), "a value goes to one value only"
    while count == 0 or value != move[0][0]:
        value, count = to[value], count + 1
    return count


def test_balanced_maps_answer_every_value_once_a_set():
    task = Bijection(values=6, pairs=10, keys="repeated", mapping="map")
    batch = task.balanced(24, STREAM)
    sets = defaultdict(list)
    for queries, answers in zip(batch.latent.queries, batch.targets, strict=True):
        sets[tuple(queries.tolist())].append(answers[::2])
    assert len(sets) == 4
    for answers in sets.values():
        np.testing.assert_array_equal(
            np.sort(np.transpose(answers)), np.tile(np.arange(6), (10, 1))
        )
    assert_beliefs(batch.predictive, all_rows(task, batch, urn(task)))


@pytest.mark.parametrize(("n", "step"), [(1, 0), (5, 0), (5, 2)])
def test_each_balanced_row_is_distributed_as_a_plain_one(n, step):
    task = Bijection(values=3)
    orders = list(permutations(range(3)))
    drawn = [task.balanced(n, Stream(seed, "rows"), step).latent for seed in range(1800)]
    for row in range(n):
        both = [(*d.table[row].tolist(), *d.keys[row].tolist()) for d in drawn]
        assert even_counts(both, [(*t, *k) for t in orders for k in orders]) > RARE


def test_balanced_has_as_many_rows_as_asked_and_new_ones_each_step():
    task = Bijection(values=5)
    for n in (1, 4, 5, 6, 11):
        assert task.balanced(n, STREAM).inputs.shape == (n, 9)
    assert not np.array_equal(
        task.balanced(10, STREAM, 0).inputs, task.balanced(10, STREAM, 1).inputs
    )


def test_a_pool_is_not_balanced_for_it_has_no_symmetry():
    """A cyclic shift of a member is in general no member: its exact posterior would be void."""
    with pytest.raises(InvalidInput, match="pool"):
        Bijection(values=5, pool=3).balanced(10, STREAM)


# ---------------------------------------------------------------- pools


@pytest.mark.parametrize(
    "task",
    [
        Bijection(values=5, pool=7),
        Bijection(values=5, pool=1),
        Bijection(values=4, pairs=9, pool=6, format="A", keys="repeated"),
        Bijection(values=4, pairs=6, pool=6, keys="repeated", mapping="map"),
        Bijection(values=3, pool=5, format="A", mapping="map"),
        Bijection(values=2, pool=1),
        Bijection(values=2, pool=5),
        Bijection(values=2, pool=9, format="A", keys="repeated", mapping="map"),
        Bijection(values=5, pool=7, pool_seed=1),
    ],
)
def test_pool_against_brute_force(task):
    pool = pool_of(task)
    batch = task.batch(40, STREAM)
    expected = all_rows(task, batch, vote(task, pool))
    assert_beliefs(batch.predictive, expected)
    assert_beliefs(task.reference(batch), expected)
    assert all(p[target] > 0 for p, target in zip(expected, batch.outcomes, strict=True))
    # The belief is over the members themselves.
    members = []
    for row in batch.inputs:
        for place in range(0, task.length, 2):
            pairs = zip(row[0:place:2], row[1:place:2] - offset(task), strict=True)
            agree = np.ones(task.pool)
            for key, value in pairs:
                agree *= [latent[key] == value for latent in pool]
            members.append(agree / agree.sum())
    assert batch.belief.support == tuple(range(task.pool))
    assert_beliefs(batch.belief, members)
    drawn = np.repeat(batch.latent.member, int(batch.scored[0].sum()))
    assert np.isfinite(batch.belief.log_probs[np.arange(drawn.size), drawn]).all()


def test_pool_of_two_values_has_duplicates_that_count_twice():
    task = Bijection(values=2, pool=5)
    pool = pool_of(task)
    assert len(set(pool)) == 2, "five draws of two permutations: some come twice"
    batch = task.batch(10, STREAM)
    first = np.exp(batch.predictive.log_probs[0::2])
    share = [[sum(m[key] == v for m in pool) / 5 for v in (0, 1)] for key in batch.inputs[:, 0]]
    np.testing.assert_allclose(first, share, rtol=1e-12)
    assert not np.allclose(first, 0.5)


def test_pool_is_fixed_by_its_seed_and_drawn_evenly():
    task = Bijection(values=6, pool=4)
    pool = pool_of(task)
    assert pool_of(Bijection(values=6, pool=4)) == pool
    assert pool_of(replace(task, format="A", pairs=3)) is not None
    assert pool_of(replace(task, pool_seed=1)) != pool
    assert all(sorted(member) == list(range(6)) for member in pool)
    members = task.batch(8000, STREAM).latent.member.tolist()
    assert even_counts(members, range(4)) > RARE


def test_distance_to_the_full_prior():
    """One latent, known: the full prior is off by its whole entropy, log2(V - k + 1)."""
    task = Bijection(values=6, pool=1)
    batch = task.batch(10, STREAM)
    ((name, full),) = task.alternatives(batch).items()
    assert name == "full prior"
    assert_beliefs(full, all_rows(task, batch, urn(task)))
    kl = batch.predictive.kl_bits(full).reshape(10, 6)
    np.testing.assert_allclose(
        kl, np.tile([math.log2(6 - k) for k in range(6)], (10, 1)), atol=1e-12
    )


def test_full_prior_of_maps_and_of_a_large_pool():
    task = Bijection(values=4, pairs=8, keys="repeated", mapping="map", pool=3)
    batch = task.batch(20, STREAM)
    assert_beliefs(task.alternatives(batch)["full prior"], all_rows(task, batch, urn(task)))
    # A pool with far more members than latents is nearly the full prior.
    near = Bijection(values=3, pool=6000)
    batch = near.batch(20, STREAM)
    assert batch.predictive.kl_bits(near.alternatives(batch)["full prior"]).max() < 0.01


def test_large_pool_fits_in_memory():
    task = Bijection(values=20, pool=20_000)
    table = task.batch(1, STREAM).latent.table
    assert table.shape == (1, 20)
    tracemalloc.start()
    try:
        predictive = task.batch(6, STREAM).predictive
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A dense count over queries, members and values would take 384 MB.
    assert peak < 150e6
    entropy = predictive.entropy_bits().reshape(6, 20)
    # All 20,000 members agree with nothing: each value has close to 1,000 votes.
    np.testing.assert_allclose(np.exp(predictive.log_probs[0::20]), 0.05, atol=0.01)
    votes = np.exp(predictive.log_probs[0::20]) * 20_000
    np.testing.assert_allclose(votes, np.round(votes), atol=1e-6)
    # Ten pairs single one member out of 20,000: 20!/10! arrangements are 6.7e11.
    np.testing.assert_array_equal(entropy[:, 10:], 0)
    assert (entropy[:, 1] > 3).all()


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "given",
    [
        {"values": 1},
        {"values": 0},
        {"values": -3},
        {"values": 4, "pairs": 5},
        {"values": 4, "pairs": 0},
        {"values": 4, "pairs": -1},
        {"values": 4, "pairs": 0, "keys": "repeated"},
        {"values": 4, "pool": 0},
        {"values": 4, "pool": -1},
        {"values": True},
        {"values": "20"},
        {"values": 2.5},
        {"values": 4.0},
        {"values": None},
        {"values": 4, "pairs": True},
        {"values": 4, "pairs": 2.5},
        {"values": 4, "pairs": "2"},
        {"values": 4, "pool": True},
        {"values": 4, "pool": 2.5},
        {"values": 4, "pool": "2"},
        {"values": 4, "pool": 2, "pool_seed": 1.5},
        {"values": 4, "pool": 2, "pool_seed": "1"},
        {"values": 4, "format": "C"},
        {"values": 4, "format": "a"},
        {"values": 4, "keys": "unique"},
        {"values": 4, "mapping": "function"},
    ],
    ids=str,
)
def test_bad_settings_are_refused(given):
    with pytest.raises(InvalidInput) as refusal:
        Bijection(**given)
    assert "\n" not in str(refusal.value)


def test_a_refusal_says_what_was_given():
    with pytest.raises(InvalidInput, match=r"4.*5"):
        Bijection(values=4, pairs=5)


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(FrozenInstanceError):
        Bijection().values = 3
