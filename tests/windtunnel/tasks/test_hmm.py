"""The HMM task against filters written anew, sums over paths, and the values of 2512.22471."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare, kstest
from tests.cli.conftest import run_command

from beliefspace.core.config import from_toml, to_toml
from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.ladder import ladder
from beliefspace.windtunnel.tasks.base import CategoricalOutputs, RealInputs, TokenInputs
from beliefspace.windtunnel.tasks.hmm import HMM

STREAM = Stream(23, "oracle")
RARE = 1e-4
"""Seeds are fixed: a p-value below this is a wrong distribution, not bad luck."""

ZEROS = {
    "transition": ((0.5, 0.5, 0.0), (0.0, 0.25, 0.75), (1.0, 0.0, 0.0)),
    "emission": ((1.0, 0.0), (0.5, 0.5), (0.0, 1.0)),
}
LOCKED = {
    "transition": ((0.5, 0.5, 0.0), (0.0, 0.0, 1.0), (0.5, 0.5, 0.0)),
    "emission": ((1.0, 0.0), (0.0, 1.0), (1.0, 0.0)),
}
"""No 1 comes after a 1, and a 0 may be of two states."""

FLIP = ((0.9, 0.1), (0.2, 0.8))
TILT = ((0.7, 0.2, 0.1), (0.1, 0.3, 0.6))

VARIANTS = [
    HMM(),
    HMM(target="symbol"),
    HMM(header="tokens"),
    HMM(header="tokens", target="symbol"),
    HMM(3, 4, 12, generator="dirichlet"),
    HMM(4, 3, 12, target="symbol", generator="dirichlet", stay=0.9, concentration=0.3),
    HMM(4, 3, 12, pool=3),
    HMM(4, 3, 12, pool=3, target="symbol", generator="dirichlet", stay=0.5),
    HMM(4, 3, 12, "rows", pool=3),
    HMM(4, 3, 12, "tokens", pool=3),
    HMM(3, 2, 9, **ZEROS),
    HMM(3, 2, 9, target="symbol", **ZEROS),
    HMM(3, 2, 9, **LOCKED),
    HMM(3, 2, 9, target="symbol", **LOCKED),
    HMM(2, 3, 1, transition=FLIP, emission=TILT),
]


def variants(*, header):
    return [task for task in VARIANTS if task.shown == header]


# ---------------------------------------------------------------- derivations


def exact(transition, emission, symbols, start=None):
    """Beliefs [n, K, S] and log evidence [n, K], by Bayes' rule at each step.

    The first state is uniform and no transition comes before the first symbol.
    """
    rows, states = np.arange(len(symbols)), transition.shape[1]
    law = np.full((len(symbols), states), 1 / states) if start is None else start
    beliefs, evidence, total = [], [], np.zeros(len(symbols))
    for t in range(symbols.shape[1]):
        if t:
            law = np.einsum("ns,nst->nt", law, transition)
        joint = law * emission[rows, :, symbols[:, t]]
        chance = joint.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            total = total + np.log(chance)
            law = joint / chance[:, None]
        beliefs.append(law)
        evidence.append(total)
    return np.stack(beliefs, axis=1), np.stack(evidence, axis=1)


def asked(task, transition, emission, beliefs):
    """Turn beliefs [n, K, S] into what the task asks for, one row a scored position."""
    if task.target == "symbol":
        beliefs = np.einsum("nks,nst,nto->nko", beliefs, transition, emission)
    return beliefs.reshape(-1, beliefs.shape[2])


def drawn(task, batch):
    """T, E of each sequence as drawn, and the symbols shown."""
    both = batch.latent.parameters
    return both[:, :, : task.states], both[:, :, task.states :], batch.latent.observations[:, :-1]


def cents(tokens):
    """Probability tokens 0 ... 95 say 5 ... 100 cents."""
    assert tokens.min() >= 0
    assert tokens.max() <= 95
    return (tokens + 5) / 100


def read_tokens(task, inputs):
    """The released format: TRANS, S x S, EMIT, S x O, SEP, then OBS and a symbol a step."""
    states, symbols = task.states, task.symbols
    split = 1 + states * states
    header = split + 1 + states * symbols + 1
    trans, emit, sep, obs, first = 96, 97, 98, 99, 100
    assert (inputs[:, 0] == trans).all()
    assert (inputs[:, split] == emit).all()
    assert (inputs[:, header - 1] == sep).all()
    assert (inputs[:, header::2] == obs).all()
    transition = cents(inputs[:, 1:split]).reshape(-1, states, states)
    emission = cents(inputs[:, split + 1 : header - 1]).reshape(-1, states, symbols)
    return transition, emission, inputs[:, header + 1 :: 2] - first


def read_rows(task, inputs):
    """Vectors [S T - 1 | O E - 1 | which state the row is of | symbol]."""
    states, symbols = task.states, task.symbols
    parts = np.split(inputs.astype(float), np.cumsum([states, symbols, states]), axis=2)
    grid = 100 if task.generator == "released" else 2**20
    transition = np.rint((parts[0][:, :states] + 1) / states * grid) / grid
    emission = np.rint((parts[1][:, states : 2 * states] + 1) / symbols * grid) / grid
    one_hot = parts[3][:, 2 * states :]
    assert (np.sort(one_hot, axis=2)[:, :, :-1] == 0).all()
    assert (one_hot.max(axis=2) == 1).all()
    return transition, emission, one_hot.argmax(axis=2)


def members(task, sequences=400):
    """The parameter sets of a pool, found by drawing."""
    found = task.batch(sequences, Stream(5, "find the pool")).latent.parameters
    both = np.unique(found, axis=0)
    assert len(both) == task.pool, "every member is drawn sooner or later"
    return both[:, :, : task.states], both[:, :, task.states :]


def mixture(task, sets, symbols):
    """P(member, state | symbols so far), [n, K, N, S]: each member's filter and its evidence."""
    parts = []
    for transition, emission in zip(*sets, strict=True):
        every = [np.repeat(table[None], len(symbols), axis=0) for table in (transition, emission)]
        beliefs, evidence = exact(*every, symbols)
        parts.append(beliefs * np.exp(evidence)[..., None])
    joint = np.stack(parts, axis=2)
    return joint / joint.sum(axis=(2, 3), keepdims=True)


def assert_same(categorical, expected, atol=1e-12):
    np.testing.assert_allclose(np.exp(categorical.log_probs), expected, rtol=1e-10, atol=atol)


def in_batch(task, values):
    """One value a scored position as one row a sequence."""
    return np.asarray(values).reshape(-1, task.observations)


# ---------------------------------------------------------------- layout


@pytest.mark.parametrize(("observations", "length"), [(20, 93), (30, 113), (50, 153)])
def test_the_released_format_has_the_released_lengths_and_vocabulary(observations, length):
    task = HMM(observations=observations, header="tokens")
    batch = task.batch(20, STREAM)
    assert task.length == length
    assert task.inputs == TokenInputs(105)
    assert task.prefix == 0
    assert batch.inputs.shape == (20, length)
    assert batch.inputs.dtype == np.int64
    assert not batch.scored[:, :53].any(), "the header is 53 tokens"
    places = [53 + 2 * t + 1 for t in range(observations)]
    np.testing.assert_array_equal(np.flatnonzero(batch.scored[0]), places)
    assert ((batch.inputs[:, places] >= 100) & (batch.inputs[:, places] < 105)).all()
    assert length - 1 in places, "nothing is shown after the last symbol"


def test_a_header_of_rows_is_a_prefix_of_two_vectors_a_state():
    task = HMM()
    batch = task.batch(20, STREAM)
    assert task.shown == "rows"
    assert (task.length, task.prefix) == (30, 10)
    assert task.inputs == RealInputs(20)
    assert batch.inputs.shape == (20, 30, 20)
    assert batch.inputs.dtype == np.float32
    np.testing.assert_array_equal(batch.scored, np.tile(np.arange(30) >= 10, (20, 1)))
    marks = batch.inputs[:, :, 10:15]
    expected = np.concatenate([np.eye(5), np.eye(5), np.zeros((20, 5))])
    np.testing.assert_array_equal(marks, np.tile(expected, (20, 1, 1)))
    assert (batch.inputs[:, :5, 5:10] == 0).all(), "a row of T has nothing of E"
    assert (batch.inputs[:, 5:10, :5] == 0).all(), "a row of E has nothing of T"
    assert (batch.inputs[:, :10, 15:] == 0).all(), "a row of the header has no symbol"
    assert (batch.inputs[:, 10:, :15] == 0).all(), "a symbol is nothing else"


def test_without_a_header_there_are_symbols_alone():
    task = HMM(4, 3, 12, pool=3)
    batch = task.batch(20, STREAM)
    assert task.shown == "hidden"
    assert (task.length, task.prefix) == (12, 0)
    assert task.inputs == TokenInputs(3)
    assert batch.scored.all()
    np.testing.assert_array_equal(batch.inputs, batch.latent.observations[:, :-1])


@pytest.mark.parametrize("task", variants(header="tokens"), ids=str)
def test_tokens_state_the_parameters_exactly(task):
    batch = task.batch(60, STREAM)
    for read, true in zip(read_tokens(task, batch.inputs), drawn(task, batch), strict=True):
        np.testing.assert_array_equal(read, true)


@pytest.mark.parametrize(
    "task",
    [*variants(header="rows"), HMM(20, 20, 3), HMM(30, 7, 3, generator="dirichlet")],
    ids=str,
)
def test_rows_state_the_parameters_exactly(task):
    batch = task.batch(60, STREAM)
    for read, true in zip(read_rows(task, batch.inputs), drawn(task, batch), strict=True):
        np.testing.assert_array_equal(read, true)


@pytest.mark.parametrize("task", VARIANTS, ids=str)
def test_targets_are_the_hidden_states_or_the_symbols_to_come(task):
    batch = task.batch(60, STREAM)
    latent, outcomes = batch.latent, in_batch(task, batch.outcomes)
    assert latent.states.shape == latent.observations.shape == (60, task.observations + 1)
    assert (batch.targets[~batch.scored] == -1).all()
    if task.target == "state":
        np.testing.assert_array_equal(outcomes, latent.states[:, :-1])
        assert task.outputs == CategoricalOutputs(tuple(range(task.states)))
    else:
        np.testing.assert_array_equal(outcomes, latent.observations[:, 1:])
        first = 100 if task.shown == "tokens" else 0
        assert task.outputs == CategoricalOutputs(tuple(range(first, first + task.symbols)))
    if task.target == "symbol" and task.shown != "rows":
        support = np.array(task.outputs.support)
        shown = batch.inputs[batch.scored].reshape(60, -1)
        np.testing.assert_array_equal(support[outcomes[:, :-1]], shown[:, 1:])


# ---------------------------------------------------------------- the exact answer


@pytest.mark.parametrize("task", variants(header="tokens") + variants(header="rows"), ids=str)
def test_the_answer_is_the_filter_with_the_parameters_in_the_header(task):
    batch = task.batch(200, STREAM)
    read = read_tokens if task.shown == "tokens" else read_rows
    transition, emission, symbols = read(task, batch.inputs)
    beliefs, _ = exact(transition, emission, symbols)
    assert_same(batch.predictive, asked(task, transition, emission, beliefs))
    assert_same(batch.belief, beliefs.reshape(-1, task.states))


@pytest.mark.parametrize(
    ("parameters", "target"), [(ZEROS, "state"), (LOCKED, "state"), (LOCKED, "symbol")]
)
def test_the_answer_is_exact_for_given_parameters_with_zeros(parameters, target):
    task = HMM(3, 2, 9, target=target, **parameters)
    batch = task.batch(200, STREAM)
    tables = [np.tile(parameters[name], (200, 1, 1)) for name in ("transition", "emission")]
    beliefs, _ = exact(*tables, batch.inputs)
    expected = asked(task, *tables, beliefs)
    assert_same(batch.predictive, expected, atol=0)
    np.testing.assert_array_equal(np.isneginf(batch.predictive.log_probs), expected == 0)
    assert (expected == 0).any()


@pytest.mark.parametrize("target", ["state", "symbol"])
def test_the_answer_for_a_pool_is_the_mixture_of_its_members_filters(target):
    task = HMM(4, 3, 12, target=target, pool=5)
    batch = task.batch(150, STREAM)
    sets = members(task)
    pairs = mixture(task, sets, batch.inputs)
    if target == "state":
        expected = pairs.sum(axis=2)
    else:
        expected = np.einsum("nkms,mst,mto->nko", pairs, *sets)
    assert_same(batch.predictive, expected.reshape(batch.predictive.rows, -1))


def test_the_answer_for_a_pool_is_a_sum_over_members_and_paths():
    task = HMM(2, 3, 5, pool=3)
    batch = task.batch(12, STREAM)
    sets = list(zip(*members(task), strict=True))
    rows = []
    for seen in batch.inputs:
        for end in range(1, 6):
            weights = np.zeros(2)
            for transition, emission in sets:
                for path in itertools.product(range(2), repeat=end):
                    chance = math.prod(emission[s, o] for s, o in zip(path, seen, strict=False))
                    moves = math.prod(transition[move] for move in itertools.pairwise(path))
                    weights[path[-1]] += chance * moves / 2 / len(sets)
            rows.append(weights / weights.sum())
    assert_same(batch.predictive, rows)


def test_the_belief_for_a_pool_is_over_pairs_of_member_and_state():
    task = HMM(4, 3, 12, pool=3)
    batch = task.batch(150, STREAM)
    pairs = mixture(task, members(task), batch.inputs)
    found = np.exp(batch.belief.log_probs).reshape(pairs.shape)
    # Which member comes first is the task's own business, but it is the same for all sequences.
    fits = [
        order
        for order in itertools.permutations(range(3))
        if np.allclose(found[:, :, list(order)], pairs, rtol=1e-10, atol=1e-14)
    ]
    assert len(fits) == 1


@pytest.mark.parametrize("task", [HMM(4, 3, 12, pool=5), HMM(4, 3, 12)], ids=str)
def test_what_is_done_in_parts_for_lack_of_memory_is_the_same(task, monkeypatch):
    whole = task.batch(25, STREAM).predictive
    for entries in (1, 700):
        monkeypatch.setattr("beliefspace.windtunnel.tasks.hmm._ENTRIES", entries)
        assert_same(task.batch(25, STREAM).predictive, np.exp(whole.log_probs))


def test_a_longer_sequence_tells_which_member_it_is_from():
    task = HMM(3, 3, 300, pool=4, generator="dirichlet", concentration=0.5)
    batch = task.batch(200, STREAM)
    transition, emission = members(task)
    sets = np.concatenate([transition, emission], axis=2)
    same = (batch.latent.parameters[:, None] == sets[None]).all(axis=(2, 3))
    true = same.argmax(axis=1)
    posterior = np.exp(batch.belief.log_probs).reshape(200, 300, 4, 3).sum(axis=3)
    order = [int(posterior[true == member, -1].mean(axis=0).argmax()) for member in range(4)]
    assert sorted(order) == [0, 1, 2, 3]
    on_truth = posterior[np.arange(200), :, np.array(order)[true]]
    by_length = on_truth[:, [0, 4, 19, 79, 299]].mean(axis=0)
    assert (np.diff(by_length) > 0).all()
    assert by_length[0] < 0.5
    assert by_length[-1] > 0.95


def test_a_header_tells_the_member_at_once():
    """With a header the pool does not matter to the answer."""
    task = HMM(4, 3, 12, "tokens", pool=3)
    batch = task.batch(80, STREAM)
    assert batch.belief.log_probs.shape == (80 * 12, 4)
    beliefs, _ = exact(*drawn(task, batch))
    assert_same(batch.predictive, beliefs.reshape(-1, 4))


def test_a_pool_of_one_is_the_same_as_giving_its_parameters():
    pool = HMM(3, 4, 10, pool=1, generator="dirichlet")
    batch = pool.batch(50, STREAM)
    (transition,), (emission,) = members(pool)
    rows = [tuple(map(tuple, table.tolist())) for table in (transition, emission)]
    given_rows = HMM(3, 4, 10, transition=rows[0], emission=rows[1])
    same = given_rows.batch(50, STREAM)
    np.testing.assert_array_equal(same.inputs, batch.inputs)
    np.testing.assert_array_equal(same.targets, batch.targets)
    assert_same(same.predictive, np.exp(batch.predictive.log_probs))


@pytest.mark.parametrize("source", [{}, {"header": "tokens"}, {"pool": 3}], ids=str)
def test_asking_for_the_next_symbol_changes_the_question_alone(source):
    one = HMM(4, 3, 12, **source)
    other = replace(one, target="symbol")
    state, symbol = one.batch(80, STREAM), other.batch(80, STREAM)
    np.testing.assert_array_equal(state.inputs, symbol.inputs)
    np.testing.assert_array_equal(state.latent.states, symbol.latent.states)
    if one.pool is None:
        transition, emission, _ = drawn(one, state)
        beliefs = np.exp(state.belief.log_probs).reshape(80, 12, 4)
        assert_same(symbol.predictive, asked(other, transition, emission, beliefs))


@given(
    st.integers(2, 4),
    st.integers(2, 4),
    st.integers(1, 8),
    st.sampled_from(["state", "symbol"]),
    st.sampled_from(["rows", "tokens"]),
    st.integers(0, 10**6),
)
@settings(max_examples=40)
def test_any_size_agrees_with_the_filter(states, symbols, observations, target, header, seed):
    task = HMM(states, symbols, observations, header, target)
    batch = task.batch(3, Stream(seed, "any size"))
    transition, emission, seen = drawn(task, batch)
    beliefs, _ = exact(transition, emission, seen)
    assert_same(batch.predictive, asked(task, transition, emission, beliefs))


def test_a_long_sequence_does_not_underflow():
    task = HMM(observations=5000)
    batch = task.batch(2, STREAM)
    beliefs, evidence = exact(*drawn(task, batch))
    assert evidence.min() < -5000, "the likelihood itself is below any float"
    assert_same(batch.predictive, beliefs.reshape(-1, 5), atol=1e-11)


# ---------------------------------------------------------------- sampling


@pytest.mark.parametrize("task", [HMM(), HMM(4, 3, 12, pool=3, generator="dirichlet")], ids=str)
def test_states_and_symbols_follow_the_parameters_of_their_sequence(task):
    """Each row of T and E is another law, so what is added up are the deviations from each."""
    batch = task.batch(3000, STREAM)
    transition, emission, _ = drawn(task, batch)
    rows, states = np.arange(3000)[:, None], batch.latent.states
    moves = transition[rows, states[:, :-1]]
    emits = emission[rows, states]
    for chances, outcomes in ((moves, states[:, 1:]), (emits, batch.latent.observations)):
        deviation = np.eye(chances.shape[2])[outcomes] - chances
        spread = np.sqrt((chances * (1 - chances)).sum(axis=(0, 1)))
        assert np.abs(deviation.sum(axis=(0, 1)) / spread).max() < 4.5
        # The likely ones come up as often as they are likely, whichever they are.
        picked = np.take_along_axis(chances, outcomes[..., None], axis=2)[..., 0]
        expected = (chances**2).sum(axis=2)
        wobble = np.sqrt(((chances**3).sum(axis=2) - expected**2).sum())
        assert abs((picked - expected).sum() / wobble) < 4.5
    assert chisquare(np.bincount(states[:, 0], minlength=task.states)).pvalue > RARE


def test_given_parameters_are_what_is_sampled():
    task = HMM(3, 2, 50, **ZEROS)
    latent = task.batch(600, STREAM).latent
    for table, before, after in (
        (ZEROS["transition"], latent.states[:, :-1], latent.states[:, 1:]),
        (ZEROS["emission"], latent.states, latent.observations),
    ):
        for state, row in enumerate(table):
            counts = np.bincount(after[before == state], minlength=len(row))
            possible = np.array(row) > 0
            assert (counts[~possible] == 0).all()
            if possible.sum() > 1:
                expected = np.array(row)[possible] * counts.sum()
                assert chisquare(counts[possible], expected).pvalue > RARE


def test_the_symbol_at_a_time_tells_nothing_beyond_the_state_then():
    """Given the state, the next symbol does not depend on the last one."""
    task = HMM(2, 3, 30, transition=FLIP, emission=TILT)
    latent = task.batch(1000, STREAM).latent
    counts = np.zeros((2, 2, 3, 3))
    states, symbols = latent.states, latent.observations
    where = (states[:, :-1], states[:, 1:], symbols[:, :-1], symbols[:, 1:])
    np.add.at(counts, where, 1)
    for before, after in itertools.product(range(2), repeat=2):
        assert chi2_contingency(counts[before, after]).pvalue > RARE


def test_members_of_a_pool_come_up_equally_often():
    task = HMM(3, 3, 2, pool=7)
    drawn_sets = task.batch(7000, STREAM).latent.parameters
    counts = np.unique(drawn_sets, axis=0, return_counts=True)[1]
    assert len(counts) == 7
    assert chisquare(counts).pvalue > RARE


def test_a_pool_is_the_same_in_every_stream_and_another_with_another_seed():
    one, other = HMM(3, 3, 2, pool=4), HMM(3, 3, 2, pool=4, pool_seed=1)
    first = np.unique(one.batch(200, STREAM).latent.parameters, axis=0)
    again = np.unique(one.batch(200, Stream(9, "another"), step=3).latent.parameters, axis=0)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, np.unique(other.batch(200, STREAM).latent.parameters, axis=0))


# ---------------------------------------------------------------- generators


def released_rows(random, rows, columns):
    """The generator of the released code in cents, one row at a time, written anew."""
    found = []
    for weights in random.dirichlet(np.ones(columns), rows):
        floored = np.maximum(weights, 0.05)
        counts = np.round(floored / floored.sum() * 100).astype(int)
        counts = np.maximum(counts, 5)
        counts[counts.argmax()] += 100 - counts.sum()
        found.append(counts)
    return np.array(found)


def test_released_rows_are_cents_of_at_least_five_that_sum_to_a_hundred():
    transition, emission, _ = drawn(HMM(), HMM().batch(3000, STREAM))
    for table in (transition, emission):
        counts = np.rint(table * 100)
        np.testing.assert_array_equal(table, counts / 100)
        assert (counts.sum(axis=2) == 100).all()
        assert counts.min() == 5
        assert counts.max() == 80, "the most that four floors leave"


def test_released_rows_are_distributed_as_in_the_released_code():
    expected = released_rows(np.random.default_rng(0), 15_000, 5)
    transition, emission, _ = drawn(HMM(), HMM().batch(3000, STREAM))
    for table in (transition, emission):
        found = np.rint(table * 100).astype(int).reshape(-1, 5)
        for ours, theirs in (
            (found.ravel(), expected.ravel()),
            (found.max(axis=1), expected.max(axis=1)),
            (np.sort(found, axis=1)[:, 3], np.sort(expected, axis=1)[:, 3]),
            ((found == 5).sum(axis=1), (expected == 5).sum(axis=1)),
        ):
            counts = np.stack([np.bincount(side, minlength=101) for side in (ours, theirs)])
            often = counts.sum(axis=0) >= 20
            pooled = np.column_stack([counts[:, often], counts[:, ~often].sum(axis=1)])
            pooled = pooled[:, pooled.sum(axis=0) > 0]
            assert chi2_contingency(pooled).pvalue > RARE
        # No state and no symbol is special.
        means = found.mean(axis=0)
        assert np.abs(means - 20).max() < 4.5 * found.std() / math.sqrt(len(found))


@pytest.mark.parametrize("symbols", [2, 5, 12, 15, 18, 19, 20])
def test_released_rows_keep_their_floor_however_many_entries_they_have(symbols):
    task = HMM(2, symbols, 2)
    _, emission, _ = drawn(task, task.batch(2000, STREAM))
    counts = np.rint(emission * 100)
    assert counts.min() >= 5
    assert (counts.sum(axis=2) == 100).all()


def test_dirichlet_rows_are_uniform_on_the_simplex():
    task = HMM(generator="dirichlet")
    transition, emission, _ = drawn(task, task.batch(2000, STREAM))
    for table in (transition, emission):
        np.testing.assert_allclose(table.sum(axis=2), 1, rtol=1e-12)
        assert table.min() >= 2**-20
        # An entry of Dirichlet(1, ..., 1) is Beta(1, 4).
        assert kstest(table[:, 0, 0], "beta", args=(1, 4)).pvalue > RARE
        assert kstest(table[:, 4, 4], "beta", args=(1, 4)).pvalue > RARE


@pytest.mark.parametrize("stay", [0.5, 0.95])
def test_a_sticky_chain_stays(stay):
    task = HMM(4, 3, 5, generator="dirichlet", stay=stay)
    transition, _, _ = drawn(task, task.batch(2000, STREAM))
    diagonal = np.einsum("nss->ns", transition)
    assert diagonal.min() >= stay - 2**-18
    beyond = (diagonal[:, 0] - stay) / (1 - stay)
    assert kstest(beyond.clip(0, 1), "beta", args=(1, 3)).pvalue > RARE
    assert kstest(transition[:, 0, 1] / (1 - stay), "beta", args=(1, 3)).pvalue > RARE


@pytest.mark.parametrize("concentration", [0.1, 0.5, 3.0])
def test_concentration_is_that_of_the_rows_of_emission(concentration):
    task = HMM(4, 3, 5, generator="dirichlet", concentration=concentration)
    transition, emission, _ = drawn(task, task.batch(3000, STREAM))
    beta = (concentration, 2 * concentration)
    # The grid of 2^-20 gathers what is below it, so the test looks at the part above.
    entry = emission[:, 0, 0]
    variance = (1 / 3) * (2 / 3) / (3 * concentration + 1)
    assert entry.mean() == pytest.approx(1 / 3, abs=4.5 * math.sqrt(variance / 3000))
    assert entry.var() == pytest.approx(variance, rel=0.1)
    if concentration >= 0.5:
        assert kstest(entry, "beta", args=beta).pvalue > RARE
    assert kstest(transition[:, 0, 0], "beta", args=(1, 3)).pvalue > RARE


# ---------------------------------------------------------------- hypotheses, words


def test_hypothesis_bits_count_what_can_be_drawn():
    def rows(columns):
        """Ways to share 100 cents among entries of at least 5, counted one by one."""
        ways = Counter({0: 1})
        for _ in range(columns):
            more = Counter()
            for spent, count in ways.items():
                for entry in range(5, 101 - spent):
                    more[spent + entry] += count
            ways = more
        return ways[100]

    assert rows(2) == 91
    for states, symbols in ((2, 2), (2, 3), (5, 5), (3, 20)):
        expected = states * (math.log2(rows(states)) + math.log2(rows(symbols)))
        assert HMM(states, symbols).hypothesis_bits == pytest.approx(expected, rel=1e-12)
    assert HMM(generator="dirichlet").hypothesis_bits == math.inf
    assert HMM(pool=16).hypothesis_bits == 4
    assert HMM(pool=16, header="tokens").hypothesis_bits == 4
    assert HMM(pool=16, generator="dirichlet").hypothesis_bits == 4
    assert HMM(3, 2, **ZEROS).hypothesis_bits == 0


def test_the_prior_is_put_into_words():
    assert "0.05" in HMM().prior
    assert "cents" in HMM().prior
    sticky = HMM(generator="dirichlet", stay=0.95, concentration=0.3).prior
    assert "0.95" in sticky
    assert "Dirichlet(0.3)" in sticky
    assert "pool of 6" in HMM(pool=6).prior
    assert "given" in HMM(3, 2, **ZEROS).prior
    for task in VARIANTS:
        assert "the first state uniform" in task.prior
        assert "\n" not in task.prior


def test_only_a_pool_that_is_not_shown_has_to_be_inferred():
    for task in VARIANTS:
        inferred = task.pool is not None and task.shown == "hidden"
        assert task.primitives == (("accumulation",) if inferred else ()) + ("transport",)
    assert HMM(pool=1).primitives == ("transport",), "a pool of one is known"


# ---------------------------------------------------------------- published values


def mean_and_error(task, values, chosen):
    """Mean over sequences and chosen steps, and its standard error if both samples were as large.

    The published values are means over 2,000 sequences of another draw, so both errors count.
    """
    per_sequence = in_batch(task, values)[:, chosen].mean(axis=1)
    return per_sequence.mean(), per_sequence.std() * math.sqrt(1 / 2000 + 1 / len(per_sequence))


def printed(text):
    """A number as printed, and half a unit of its last digit."""
    digits, _, power = text.partition("e")
    unit = 10.0 ** (-len(digits.partition(".")[2]) + int(power or 0))
    return float(text), unit / 2


def assert_printed(task, values, chosen, text):
    mean, error = mean_and_error(task, values, chosen)
    value, half_a_digit = printed(text)
    assert abs(mean - value) <= 3 * error + half_a_digit, f"{mean} against {text}, error {error}"


COLUMNS = {
    "released": (HMM(), 1500, 0),
    "longer": (HMM(observations=50), 700, 20),
    "dirichlet": (HMM(generator="dirichlet"), 1500, 0),
}


@pytest.fixture(scope="module")
def columns():
    """Each column's task, batch, entropies, ladder and the steps that count."""
    found = {}
    for name, (task, sequences, first) in COLUMNS.items():
        batch = task.batch(sequences, Stream(3, "published"))
        steps = slice(first, None)
        found[name] = (task, batch, batch.predictive.entropy_bits(), ladder(task, batch), steps)
    return found


EVERYWHERE = slice(None)


@pytest.mark.parametrize(
    ("column", "mean", "sd"), [("released", "1.907", 0.246), ("dirichlet", "1.805", 0.306)]
)
def test_entropies_have_the_published_mean_and_spread(columns, column, mean, sd):
    task, _, entropy, _, _ = columns[column]
    assert_printed(task, entropy, EVERYWHERE, mean)
    squares, error = mean_and_error(task, (entropy - entropy.mean()) ** 2, EVERYWHERE)
    assert abs(math.sqrt(squares) - sd) <= 3 * error / (2 * sd) + 0.0005


@pytest.mark.parametrize(
    ("column", "uniform", "constant"),
    [("released", "0.415", "0.187"), ("longer", "0.424", "0.191"), ("dirichlet", "0.517", "0.233")],
)
def test_predictors_that_see_nothing_have_the_published_errors(columns, column, uniform, constant):
    """The best constant entropy is the median; the published ones count all steps."""
    task, batch, entropy, rungs, _ = columns[column]
    error = np.abs(rungs["uniform"].entropy_bits() - entropy)
    assert_printed(task, error, EVERYWHERE, uniform)
    assert_printed(task, np.abs(entropy - np.median(entropy)), EVERYWHERE, constant)
    # What a uniform prediction loses is exactly how far its entropy is off.
    np.testing.assert_allclose(batch.predictive.kl_bits(rungs["uniform"]), error, atol=1e-12)
    assert error.mean() == pytest.approx(math.log2(5) - entropy.mean(), abs=1e-12)


PUBLISHED = {
    "window-1": ("0.160", "0.169", "0.186"),
    "emission x stationary": ("0.087", "0.086", "0.104"),
    "window-2": ("0.048", "0.054", "0.061"),
    "window-2 stationary": ("0.0247", "0.028", "0.033"),
    "window-4": ("0.0049", "0.0063", "0.0075"),
    "window-4 stationary": ("0.0027", "0.0035", "0.0041"),
    "window-8": ("1.0e-4", "1.8e-4", "2.2e-4"),
    "window-8 stationary": ("6e-5", "1.0e-4", "1.2e-4"),
}


@pytest.mark.parametrize("column", range(3))
@pytest.mark.parametrize("rung", PUBLISHED)
def test_filters_with_a_short_memory_have_the_published_errors(columns, rung, column):
    task, _, entropy, rungs, steps = columns[list(COLUMNS)[column]]
    error = np.abs(rungs[rung].entropy_bits() - entropy)
    assert_printed(task, error, steps, PUBLISHED[rung][column])


@pytest.mark.parametrize(
    ("column", "rung", "value"),
    [
        ("released", "uniform", ".4164"),
        ("released", "window-2", ".0481"),
        ("released", "window-2 stationary", ".0254"),
        ("released", "window-4", ".0049"),
        ("released", "window-4 stationary", ".0028"),
        ("released", "window-8", "9.7e-5"),
        ("released", "window-8 stationary", "6.4e-5"),
        ("longer", "window-2", ".0541"),
        ("longer", "window-2 stationary", ".0281"),
        ("longer", "window-4", ".0064"),
        ("longer", "window-4 stationary", ".0035"),
        ("dirichlet", "uniform", ".518"),
        ("dirichlet", "window-2", ".0603"),
        ("dirichlet", "window-2 stationary", ".0328"),
        ("dirichlet", "window-4", ".0075"),
        ("dirichlet", "window-4 stationary", ".0042"),
        ("dirichlet", "window-8", "2.2e-4"),
        ("dirichlet", "window-8 stationary", "1.3e-4"),
    ],
)
def test_a_second_computation_of_the_errors_agrees_too(columns, column, rung, value):
    task, _, entropy, rungs, steps = columns[column]
    assert_printed(task, np.abs(rungs[rung].entropy_bits() - entropy), steps, value)


@pytest.mark.parametrize(
    ("rung", "value"),
    [("window-2", "0.012"), ("window-2 stationary", "0.0037"), ("window-4", "2.3e-4")],
)
def test_filters_with_a_short_memory_have_the_published_kl(columns, rung, value):
    task, batch, _, rungs, _ = columns["released"]
    assert_printed(task, batch.predictive.kl_bits(rungs[rung]), EVERYWHERE, value)


@pytest.mark.parametrize(
    ("stay", "values"),
    [
        (0.8, ("0.43", "0.29", "0.15", "0.050", "0.0075", "3e-4")),
        (0.95, ("0.92", "0.71", "0.47", "0.24", "0.092", "0.019")),
    ],
)
def test_sticky_chains_need_the_published_memory(stay, values):
    task = HMM(observations=64, generator="dirichlet", stay=stay)
    batch = task.batch(600, Stream(3, "published"))
    entropy = batch.predictive.entropy_bits()
    shorter = itertools.islice(task.windows(batch, "stationary"), 32)
    published = dict(zip((1, 2, 4, 8, 16, 32), values, strict=True))
    for window, predictive in enumerate(shorter, start=1):
        if window in published:
            error = np.abs(predictive.entropy_bits() - entropy)
            assert_printed(task, error, slice(32, None), published[window])


# ---------------------------------------------------------------- ladder


@pytest.mark.parametrize("column", COLUMNS)
def test_more_memory_and_a_better_start_are_better(columns, column):
    _, batch, _, rungs, _ = columns[column]
    kl = {name: batch.predictive.kl_bits(rung).mean() for name, rung in rungs.items()}
    for suffix in ("", " stationary"):
        lengths = [kl[f"window-{window}{suffix}"] for window in (1, 2, 4, 8)]
        assert lengths == sorted(lengths, reverse=True)
        assert lengths[0] < kl["uniform"]
    assert all(kl[f"window-{w} stationary"] < kl[f"window-{w}"] for w in (1, 2, 4, 8))
    assert kl["window-1 stationary"] < kl["emission x stationary"] < kl["window-1"]


def laws(transition):
    """Stationary laws by solving for them."""
    found = []
    for matrix in transition:
        states = len(matrix)
        equations = np.vstack([matrix.T - np.eye(states), np.ones(states)])
        found.append(np.linalg.lstsq(equations, np.eye(states + 1)[-1])[0])
    return np.array(found)


@pytest.mark.parametrize("target", ["state", "symbol"])
@pytest.mark.parametrize("restart", ["uniform", "stationary"])
def test_a_window_is_a_filter_begun_anew(restart, target):
    task = HMM(4, 3, 7, target=target)
    batch = task.batch(40, STREAM)
    transition, emission, symbols = drawn(task, batch)
    law = np.full((40, 4), 0.25) if restart == "uniform" else laws(transition)
    found = list(task.windows(batch, restart))
    assert len(found) == 7
    for window, predictive in enumerate(found, start=1):
        beliefs = []
        for end in range(1, 8):
            first = max(0, end - window)
            start = law if first else np.full((40, 4), 0.25)
            beliefs.append(exact(transition, emission, symbols[:, first:end], start)[0][:, -1])
        expected = asked(task, transition, emission, np.stack(beliefs, axis=1))
        assert_same(predictive, expected, atol=1e-11)
        rung = f"window-{window}" + (" stationary" if restart == "stationary" else "")
        if window in (1, 2, 4):
            named = task.ladder(batch)[rung]
            np.testing.assert_array_equal(named.log_probs, predictive.log_probs)
    assert_same(found[-1], np.exp(batch.predictive.log_probs))


def test_emission_times_stationary_looks_at_nothing_else():
    task = HMM(4, 3, 7)
    batch = task.batch(40, STREAM)
    transition, emission, symbols = drawn(task, batch)
    weights = laws(transition)[:, None] * emission[np.arange(40)[:, None], :, symbols]
    expected = weights / weights.sum(axis=2, keepdims=True)
    assert_same(task.ladder(batch)["emission x stationary"], expected.reshape(-1, 4), atol=1e-11)


@pytest.mark.parametrize("restart", ["uniform", "stationary"])
def test_a_window_of_a_pool_is_a_mixture_begun_anew(restart):
    """Each member starts from its own law, and what came before says nothing about the member."""
    task = HMM(3, 3, 6, pool=3)
    batch = task.batch(40, STREAM)
    transition, emission = members(task)
    law = np.full((3, 3), 1 / 3) if restart == "uniform" else laws(transition)
    for window, predictive in enumerate(task.windows(batch, restart), start=1):
        columns = []
        for end in range(1, 7):
            first = max(0, end - window)
            joint = np.zeros((40, 3))
            for member in range(3):
                start = np.tile(law[member] if first else np.full(3, 1 / 3), (40, 1))
                tables = [np.tile(part[member], (40, 1, 1)) for part in (transition, emission)]
                beliefs, evidence = exact(*tables, batch.inputs[:, first:end], start)
                joint += beliefs[:, -1] * np.exp(evidence[:, -1:])
            columns.append(joint / joint.sum(axis=1, keepdims=True))
        assert_same(predictive, np.stack(columns, axis=1).reshape(-1, 3), atol=1e-11)


def test_windows_that_see_everything_are_not_rungs():
    assert set(HMM(observations=3).ladder(HMM(observations=3).batch(5, STREAM))) == {
        "window-1",
        "window-2",
        "window-1 stationary",
        "window-2 stationary",
        "emission x stationary",
    }


def test_a_chain_that_leaves_a_state_for_good_has_no_stationary_rungs():
    """A filter begun in the long run could rule out the state that the chain is in."""
    task = HMM(2, 2, 6, transition=((0.9, 0.1), (0.0, 1.0)), emission=((0.8, 0.2), (0.2, 0.8)))
    batch = task.batch(30, STREAM)
    assert task.restarts == ("uniform",)
    assert set(task.ladder(batch)) == {"window-1", "window-2", "window-4"}
    with pytest.raises(InvalidInput, match="restart is one of uniform; got 'stationary'"):
        next(task.windows(batch, "stationary"))
    assert HMM(3, 2, **ZEROS).restarts == ("uniform", "stationary")


# ---------------------------------------------------------------- one observation changed


@pytest.mark.parametrize("task", VARIANTS, ids=str)
def test_a_change_is_of_one_observation_and_nothing_else(task):
    batch = task.batch(60, STREAM)
    place = batch.columns[: task.observations]
    for step in {0, task.observations // 2, task.observations - 1}:
        changed = task.changed(batch, step, Stream(1, "change"))
        kept, after = changed.kept, changed.batch
        assert kept.shape == (60,)
        assert kept.dtype == np.bool_
        assert kept.any()
        before = batch.inputs[kept]
        differs = before != after.inputs
        while differs.ndim > 2:
            differs = differs.any(axis=2)
        np.testing.assert_array_equal(
            differs, np.tile(np.arange(task.length) == place[step], (kept.sum(), 1))
        )
        np.testing.assert_array_equal(after.scored, batch.scored[kept])
        np.testing.assert_array_equal(after.latent.parameters, batch.latent.parameters[kept])
        np.testing.assert_array_equal(after.latent.states, batch.latent.states[kept])
        exact_before = in_rows(batch.predictive, 60)[kept]
        exact_after = in_rows(after.predictive, kept.sum())
        np.testing.assert_allclose(exact_after[:, :step], exact_before[:, :step], atol=1e-12)


def in_rows(categorical, sequences):
    return np.exp(categorical.log_probs).reshape(sequences, -1, categorical.log_probs.shape[1])


@pytest.mark.parametrize("task", variants(header="rows") + variants(header="tokens"), ids=str)
def test_a_changed_batch_has_its_own_exact_answer(task):
    batch = task.batch(60, STREAM)
    changed = task.changed(batch, task.observations // 2, Stream(1, "change"))
    assert changed.kept.all(), "with no zeros every change is possible"
    read = read_tokens if task.shown == "tokens" else read_rows
    transition, emission, symbols = read(task, changed.batch.inputs)
    beliefs, _ = exact(transition, emission, symbols)
    assert_same(changed.batch.predictive, asked(task, transition, emission, beliefs))


@pytest.mark.parametrize("step", [0, 4, 8])
def test_sequences_that_a_change_makes_impossible_are_left_out(step):
    task = HMM(3, 2, 9, **LOCKED)
    batch = task.batch(200, STREAM)
    symbols = batch.inputs.copy()
    symbols[:, step] = 1 - symbols[:, step]  # the only other symbol
    tables = [np.tile(LOCKED[name], (200, 1, 1)) for name in ("transition", "emission")]
    beliefs, evidence = exact(*tables, symbols)
    possible = np.isfinite(evidence[:, -1])
    assert 0 < possible.sum() < 200
    changed = task.changed(batch, step, STREAM)
    np.testing.assert_array_equal(changed.kept, possible)
    np.testing.assert_array_equal(changed.batch.inputs, symbols[possible])
    assert_same(changed.batch.predictive, beliefs[possible].reshape(-1, 3), atol=0)


def test_a_change_that_is_never_possible_leaves_no_sequence():
    """A cycle that shows its state: each symbol follows from the first."""
    task = HMM(2, 2, 4, transition=((0.0, 1.0), (1.0, 0.0)), emission=((1.0, 0.0), (0.0, 1.0)))
    batch = task.batch(10, STREAM)
    changed = task.changed(batch, 2, STREAM)
    assert not changed.kept.any()
    assert changed.batch.inputs.shape == (0, 4)
    assert changed.batch.predictive.rows == 0


def test_all_other_symbols_are_alike_in_a_change():
    task = HMM(5, 5, 3)
    batch = task.batch(4000, STREAM)
    changed = task.changed(batch, 1, Stream(1, "change"))
    before = batch.latent.observations[:, 1]
    after = changed.batch.latent.observations[:, 1]
    shifts = np.bincount((after - before) % 5, minlength=5)
    assert shifts[0] == 0
    assert chisquare(shifts[1:]).pvalue > RARE


def test_a_step_that_does_not_exist_cannot_be_changed():
    task = HMM(2, 2, 3)
    batch = task.batch(2, STREAM)
    for step in (-1, 3, 1.0):
        with pytest.raises(InvalidInput, match="step is"):
            task.changed(batch, step, STREAM)


# ---------------------------------------------------------------- bad input

THIRDS = ((0.5, 0.5), (0.5, 0.5))
BAD = [
    ({"states": 1}, "states is a whole number of at least 2; got 1"),
    ({"symbols": 1}, "symbols is a whole number of at least 2; got 1"),
    ({"observations": 0}, "observations is a whole number of at least 1; got 0"),
    ({"states": 5.0}, "states is a whole number of at least 2; got 5.0"),
    ({"states": True}, "states is a whole number of at least 2; got True"),
    ({"symbols": 2.5}, "symbols is a whole number of at least 2; got 2.5"),
    ({"observations": True}, "observations is a whole number of at least 1; got True"),
    ({"pool": 0}, "pool is a whole number of at least 1; got 0"),
    ({"pool": 10_001}, "pool is at most 10,000; got 10,001"),
    (
        {"pool": 10_000, "observations": 101, "states": 5, "header": "hidden"},
        "takes pool x observations x states² = 25,250,000 numbers a sequence; expected at most 5,0",
    ),
    ({"pool": True}, "pool is a whole number of at least 1; got True"),
    ({"pool": 2.0}, "pool is a whole number of at least 1; got 2.0"),
    ({"pool": 2, "pool_seed": -1}, "pool_seed is a whole number of at least 0; got -1"),
    ({"target": "states"}, "target is one of state, symbol; got 'states' (nearest: state)"),
    ({"generator": "realeased"}, "got 'realeased' (nearest: released)"),
    ({"header": "token"}, "header is one of rows, tokens, hidden; got 'token' (nearest: tokens)"),
    ({"generator": "dirichlet", "stay": 1.0}, "stay is less than 1; got 1"),
    ({"generator": "dirichlet", "stay": -0.1}, "stay is a finite number at least 0; got -0.1"),
    ({"generator": "dirichlet", "stay": math.nan}, "stay is a finite number at least 0; got nan"),
    (
        {"generator": "dirichlet", "concentration": 0.0},
        "concentration is a number from 0.001 to 1e+06; got 0.0",
    ),
    (
        {"generator": "dirichlet", "concentration": math.inf},
        "concentration is a number from 0.001 to 1e+06; got inf",
    ),
    ({"stay": 0.5}, "the released generator has no stay and no concentration; got 0.5 and 1"),
    ({"concentration": 0.5}, "the released generator has no stay and no concentration; got 0 and"),
    ({"states": 21}, "a row has at most 20; got 21 states, 5 symbols"),
    ({"symbols": 21}, "a row has at most 20; got 5 states, 21 symbols"),
    ({"header": "hidden"}, "use a header, a pool, or give transition and emission"),
    ({"header": "hidden", "generator": "dirichlet"}, "no tractable posterior"),
    ({"header": "tokens", "generator": "dirichlet"}, 'use generator = "released", or header'),
    ({"transition": THIRDS}, "transition and emission are given together, or neither is"),
    ({"emission": THIRDS}, "transition and emission are given together, or neither is"),
    ({"pool": 2, **ZEROS}, "parameters are given, or they come from a pool; got both"),
    ({"header": "rows", **ZEROS}, "parameters that are given need no header; got 'rows'"),
    ({"header": "tokens", **ZEROS}, "parameters that are given need no header; got 'tokens'"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD, ids=[str(wrong) for wrong, _ in BAD])
def test_settings_that_do_not_go_together_are_refused(wrong, message):
    sizes = {"states": 3, "symbols": 2} if "transition" in wrong and "emission" in wrong else {}
    with pytest.raises(InvalidInput) as caught:
        HMM(**{**sizes, **wrong})
    assert message in str(caught.value)


HALF = (0.5, 0.5)
WRONG_ROWS = [
    (((0.5, 0.4), HALF), "row 0 of {} sums to 0.9; expected 1"),
    ((HALF, (1.5, -0.5)), "row 1 of {} holds -0.5; expected probabilities"),
    ((HALF, (math.nan, 0.5)), "row 1 of {} holds nan; expected probabilities"),
    (((math.inf, 0.5), HALF), "row 0 of {} holds inf; expected probabilities"),
    ((HALF,), "{} has 1 rows; expected one a state, 2"),
    ((HALF, HALF, HALF), "{} has 3 rows; expected one a state, 2"),
    ((HALF, (0.5, 0.25, 0.25)), "row 1 of {} has 3 entries; expected 2"),
    ((HALF, ()), "row 1 of {} has 0 entries; expected 2"),
    ((), "{} has 0 rows; expected one a state, 2"),
]


@pytest.mark.parametrize("name", ["transition", "emission"])
@pytest.mark.parametrize(("rows", "message"), WRONG_ROWS, ids=[str(rows) for rows, _ in WRONG_ROWS])
def test_rows_that_are_no_distributions_are_refused(name, rows, message):
    good = {"transition": (HALF, HALF), "emission": (HALF, HALF)}
    with pytest.raises(InvalidInput) as caught:
        HMM(2, 2, 3, **{**good, name: rows})
    assert message.format(name) in str(caught.value)


def test_a_state_that_emits_nothing_is_named():
    with pytest.raises(InvalidInput, match="state 1 emits nothing: row 1 of emission is all zero"):
        HMM(2, 2, 3, transition=(HALF, HALF), emission=(HALF, (0.0, 0.0)))


@pytest.mark.parametrize("sequences", [0, -1, 2.0, True])
def test_a_batch_of_no_sequences_is_refused(sequences):
    with pytest.raises(InvalidInput, match="sequences is a whole number of at least 1"):
        HMM().batch(sequences, STREAM)


@pytest.mark.parametrize("size", [21, 30])
def test_given_parameters_can_have_any_size(size):
    """The released generator's floor is no concern of parameters that it does not draw."""
    rows = tuple(map(tuple, np.full((size, size), 1 / size).tolist()))
    task = HMM(size, size, 2, transition=rows, emission=rows)
    np.testing.assert_allclose(np.exp(task.batch(3, STREAM).predictive.log_probs), 1 / size)


def test_rows_are_scaled_to_sum_to_one_where_they_were_rounded():
    third = (0.3333333, 0.3333333, 0.3333333)
    task = HMM(3, 3, 4, transition=(third,) * 3, emission=(third,) * 3)
    probabilities = np.exp(task.batch(5, STREAM).predictive.log_probs)
    np.testing.assert_allclose(probabilities, 1 / 3, rtol=1e-12)


# ---------------------------------------------------------------- configuration, command line


@pytest.mark.parametrize("task", [*VARIANTS, *HMM.tiny()], ids=str)
def test_settings_survive_their_file(task):
    again = from_toml(HMM, to_toml(task))
    assert again == task
    np.testing.assert_array_equal(again.batch(4, STREAM).inputs, task.batch(4, STREAM).inputs)


def test_rows_are_written_as_in_mathematics():
    text = """
        states = 2
        symbols = 3
        transition = [[0.9, 0.1], [0.2, 0.8]]
        emission = [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]
    """
    assert from_toml(HMM, text) == HMM(2, 3, transition=FLIP, emission=TILT)
    with pytest.raises(InvalidInput, match=r"row 1 of transition sums to 1.1; expected 1"):
        from_toml(HMM, text.replace("0.2, 0.8]", "0.3, 0.8]"))


def test_a_person_meets_the_task_on_the_command_line(tmp_path):
    described = run_command("describe", "hmm", cwd=tmp_path)
    assert described.returncode == 0, described.stderr
    for words in ("Filter a hidden Markov chain", HMM().prior, "10 positions", "205.2 bits"):
        assert words in described.stdout
    small = ["--model.width", "8", "--model.depth", "1", "--evaluation.sequences", "16"]
    trained = run_command(
        "train",
        "hmm",
        "--schedule.budget",
        "5 steps",
        *small,
        "--out",
        "run",
        "--json",
        cwd=tmp_path,
    )
    assert trained.returncode == 0, trained.stderr
    (run,) = json.loads(trained.stdout)["runs"]
    assert run["training"]["steps"] == 5
    assert run["score"]["kl_bits"]["mean"] > 0
    assert set(PUBLISHED) < set(run["score"]["ladder"])
