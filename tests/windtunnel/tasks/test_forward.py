"""The forward algorithm against sums over paths, exact fractions, and recursions written anew."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import rel_entr

from beliefspace.core.errors import InvalidInput
from beliefspace.windtunnel.tasks.forward import (
    Filtered,
    forward,
    forward_symbols,
    log_sum,
    normalised,
    stationary,
    windows,
)

INFINITY = math.inf


def log(values):
    with np.errstate(divide="ignore"):
        return np.log(values)


def chains(seed, sequences, steps, states, *, shared=False, zeros=0.0):
    """Random start, transitions and log-likelihoods; ``zeros`` is how often an entry is 0."""
    random = np.random.default_rng(seed)

    def distributions(*shape):
        weights = random.dirichlet(np.ones(states), shape)
        weights[random.random(weights.shape) < zeros] = 0
        weights[weights.sum(axis=-1) == 0] = 1
        return weights / weights.sum(axis=-1, keepdims=True)

    start = distributions()
    transition = distributions(states) if shared else distributions(sequences, states)
    likelihood = random.random((sequences, steps, states)) + 1e-3
    likelihood[random.random(likelihood.shape) < zeros] = 0
    return start, transition, log(likelihood)


def own(transition, sequence):
    return transition if transition.ndim == 2 else transition[sequence]


def by_paths(start, transition, likelihood):
    """P(state at t, o_1 ... o_t) of one sequence: the sum over all paths that end there."""
    steps, states = likelihood.shape
    joint = np.zeros((steps, states))
    for t in range(steps):
        for path in itertools.product(range(states), repeat=t + 1):
            weight = start[path[0]]
            for before, after in itertools.pairwise(path):
                weight = weight * transition[before, after]
            for moment, state in enumerate(path):
                weight = weight * likelihood[moment, state]
            joint[t, path[-1]] += weight
    return joint


def by_scaling(start, transition, likelihood):
    """Beliefs and log evidence of one sequence, normalised at each step, one state at a time."""
    states = len(start)
    beliefs, evidence, total = [], [], 0.0
    before = [float(p) for p in start]
    for t, row in enumerate(likelihood):
        if t:
            before = [
                math.fsum(before[s] * transition[s, after] for s in range(states))
                for after in range(states)
            ]
        weights = [before[s] * row[s] for s in range(states)]
        scale = math.fsum(weights)
        total += math.log(scale)
        before = [weight / scale for weight in weights]
        beliefs.append(before)
        evidence.append(total)
    return np.array(beliefs), np.array(evidence)


def by_logs(start, transition, log_likelihood):
    """The same in log space, one sum at a time, for numbers that no float can hold."""

    def sum_of(logs):
        top = max(logs)
        if top == -INFINITY:
            return top
        return top + math.log(math.fsum(math.exp(value - top) for value in logs))

    def log_of(p):
        return math.log(p) if p > 0 else -INFINITY

    states = range(len(start))
    before, total = [log_of(p) for p in start], 0.0
    beliefs, evidence = [], []
    for t, row in enumerate(log_likelihood):
        if t:
            before = [
                sum_of([beliefs[-1][s] + log_of(transition[s, after]) for s in states])
                for after in states
            ]
        joint = [before[s] + float(row[s]) for s in states]
        scale = sum_of(joint)
        total += scale
        beliefs.append([value - scale for value in joint])
        evidence.append(total)
    return np.array(beliefs), np.array(evidence)


def assert_filter(filtered, beliefs, evidence, rtol=1e-12):
    """Equal to rounding in every digit of the logarithms, and impossible exactly where it is."""
    assert filtered.belief.dtype == filtered.evidence.dtype == np.float64
    np.testing.assert_array_equal(np.isneginf(filtered.belief), np.isneginf(beliefs))
    # A belief is a difference of logs as large as the evidence: it has their last digits.
    rounding = 1e-12 + 1e-15 * np.abs(evidence).max()
    np.testing.assert_allclose(filtered.belief, beliefs, rtol=rtol, atol=rounding)
    np.testing.assert_allclose(filtered.evidence, evidence, rtol=rtol, atol=1e-12)


# ---------------------------------------------------------------- the exact filter


@pytest.mark.parametrize("zeros", [0.0, 0.25])
@pytest.mark.parametrize("shared", [False, True])
def test_every_path_of_states_is_summed(shared, zeros):
    start, transition, logs = chains(1, 8, 6, 3, shared=shared, zeros=zeros)
    filtered = forward(start, transition, logs)
    possible = 0
    for row, likelihood in enumerate(np.exp(logs)):
        joint = by_paths(start, own(transition, row), likelihood)
        total = joint.sum(axis=1)
        np.testing.assert_allclose(np.exp(filtered.joint[row]), joint, rtol=1e-12, atol=0)
        np.testing.assert_array_equal(np.isneginf(filtered.joint[row]), joint == 0)
        np.testing.assert_array_equal(np.isneginf(filtered.evidence[row]), total == 0)
        assert np.isnan(filtered.belief[row][total == 0]).all()
        here = total > 0
        expected = log(joint[here] / total[here, None])
        assert_filter(
            Filtered(filtered.belief[row][here], filtered.evidence[row][here]),
            expected,
            np.log(total[here]),
        )
        possible += here.sum()
    assert possible > 20, "most of it is possible, so that something was compared"


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("steps", "states"), [(1, 2), (2, 5), (7, 1), (60, 5), (200, 9)])
def test_a_scaled_recursion_gives_the_same(steps, states, shared):
    start, transition, logs = chains(2, 5, steps, states, shared=shared)
    filtered = forward(start, transition, logs)
    for row, likelihood in enumerate(np.exp(logs)):
        beliefs, evidence = by_scaling(start, own(transition, row), likelihood)
        assert_filter(
            Filtered(filtered.belief[row], filtered.evidence[row]), log(beliefs), evidence
        )


def test_exact_fractions_give_the_same():
    third, half, quarter = Fraction(1, 3), Fraction(1, 2), Fraction(1, 4)
    start = [third, third, third]
    transition = [[half, half, Fraction(0)], [Fraction(0), quarter, 3 * quarter], [1, 0, 0]]
    emission = [[1, 0], [half, half], [0, 1]]
    symbols = [0, 1, 1, 0, 1]
    joint = [[start[s] * emission[s][symbols[0]] for s in range(3)]]
    for symbol in symbols[1:]:
        joint.append(
            [
                emission[after][symbol] * sum(joint[-1][s] * transition[s][after] for s in range(3))
                for after in range(3)
            ]
        )
    totals = [sum(row) for row in joint]
    beliefs = [[float(p / sum(row)) for p in row] for row in joint]
    likelihood = np.array([[float(emission[s][symbol]) for s in range(3)] for symbol in symbols])
    filtered = forward(
        np.array(start, dtype=float), np.array(transition, dtype=float), log(likelihood)[None]
    )
    assert_filter(filtered, log([beliefs]), [[math.log(total) for total in totals]], rtol=1e-14)
    assert np.isneginf(filtered.belief[0, 0, 2]), "state 2 never emits a 0"


@given(
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([0.0, 0.3]),
)
def test_any_chain_agrees_with_paths(seed, sequences, steps, states, shared, zeros):
    start, transition, logs = chains(seed, sequences, steps, states, shared=shared, zeros=zeros)
    joint = forward(start, transition, logs).joint
    expected = np.array(
        [by_paths(start, own(transition, n), np.exp(row)) for n, row in enumerate(logs)]
    )
    np.testing.assert_allclose(np.exp(joint), expected, rtol=1e-11, atol=0)
    np.testing.assert_array_equal(np.isneginf(joint), expected == 0)


@given(st.integers(0, 10**6), st.floats(-1e5, 1e5))
def test_a_factor_on_a_likelihood_moves_the_evidence_alone(seed, shift):
    start, transition, logs = chains(seed, 2, 6, 3)
    plain = forward(start, transition, logs)
    logs[:, 3] += shift
    moved = forward(start, transition, logs)
    np.testing.assert_allclose(moved.belief, plain.belief, atol=1e-9)
    expected = plain.evidence + shift * (np.arange(6) >= 3)
    np.testing.assert_allclose(moved.evidence, expected, rtol=1e-12, atol=1e-9)


@given(st.integers(0, 10**6))
def test_the_names_of_states_do_not_matter(seed):
    start, transition, logs = chains(seed, 3, 8, 4)
    order = np.random.default_rng(seed).permutation(4)
    plain = forward(start, transition, logs)
    renamed = forward(start[order], transition[:, order][:, :, order], logs[:, :, order])
    np.testing.assert_allclose(renamed.belief, plain.belief[:, :, order], atol=1e-12)
    np.testing.assert_allclose(renamed.evidence, plain.evidence, atol=1e-12)


def test_a_belief_does_not_look_ahead():
    start, transition, logs = chains(3, 4, 12, 3)
    whole = forward(start, transition, logs)
    part = forward(start, transition, logs[:, :7].copy())
    np.testing.assert_allclose(whole.belief[:, :7], part.belief, atol=1e-13)
    np.testing.assert_allclose(whole.evidence[:, :7], part.evidence, atol=1e-13)


def test_the_first_belief_has_no_transition_before_it():
    start, transition, logs = chains(4, 3, 1, 4)
    weights = start * np.exp(logs[:, 0])
    filtered = forward(start, transition, logs)
    expected = log(weights / weights.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(filtered.belief[:, 0], expected, atol=1e-13)


def test_one_matrix_for_all_is_that_matrix_for_each():
    start, transition, logs = chains(5, 40, 30, 5, shared=True)
    shared = forward(start, transition, logs)
    each = forward(start, np.repeat(transition[None], 40, axis=0), logs)
    assert_filter(shared, each.belief, each.evidence, rtol=1e-13)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("sequences", [1023, 1024, 1025, 2500])
def test_many_sequences_are_those_sequences_alone(sequences, shared):
    start, transition, logs = chains(6, sequences, 6, 3, shared=shared, zeros=0.05)
    filtered = forward(start, transition, logs)
    assert filtered.belief.shape == (sequences, 6, 3)
    for row in [0, 1, 511, 1021, 1022, sequences - 2, sequences - 1]:
        matrix = transition if shared else transition[row : row + 1]
        alone = forward(start, matrix, logs[row : row + 1].copy())
        np.testing.assert_allclose(filtered.belief[row], alone.belief[0], atol=1e-13)
        np.testing.assert_allclose(filtered.evidence[row], alone.evidence[0], atol=1e-13)


def test_what_was_given_stays_as_it_was():
    parts = chains(7, 30, 9, 3, zeros=0.1)
    before = [part.copy() for part in parts]
    forward(*parts)
    for part, kept in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part, kept)


# ---------------------------------------------------------------- symbols


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("sequences", [5, 1500])
def test_symbols_are_looked_up_in_each_sequences_own_emission(sequences, shared):
    start, transition, _ = chains(8, sequences, 7, 3, shared=shared)
    random = np.random.default_rng(8)
    emission = random.dirichlet(np.ones(4), (sequences, 3))
    emission[:, 0, 0] = 0
    symbols = random.integers(0, 4, (sequences, 7))
    filtered = forward_symbols(start, transition, emission, symbols)
    for row in {0, 1, sequences // 2, sequences - 1}:
        likelihood = emission[row][:, symbols[row]].T
        beliefs, evidence = by_scaling(start, own(transition, row), likelihood)
        assert_filter(
            Filtered(filtered.belief[row], filtered.evidence[row]), log(beliefs), evidence
        )


@pytest.mark.parametrize("smallest", [1e-30, 1e-100, 1e-300])
def test_symbols_that_are_next_to_impossible_lose_no_digits(smallest):
    """For 40 steps each state in turn cannot have been, but one of them must have been."""
    emission = np.array([[[1 - smallest, smallest], [smallest, 1 - smallest]]])
    transition = np.array([[1 - smallest, smallest], [smallest, 1 - smallest]])
    symbols = np.tile([0, 1, 1, 0], 10)[None]
    start = np.array([0.5, 0.5])
    filtered = forward_symbols(start, transition, emission, symbols)
    beliefs, evidence = by_logs(start, transition, np.log(emission[0][:, symbols[0]].T))
    assert_filter(Filtered(filtered.belief[0], filtered.evidence[0]), beliefs, evidence)


# ---------------------------------------------------------------- range


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(
    ("low", "high"),
    [(-2000, -2000), (500, 500), (-2000, 500), (-1e4, 0), (0, 1e4), (-1e6, 1e6)],
)
def test_likelihoods_beyond_any_float_lose_no_digits(low, high, shared):
    start, transition, logs = chains(9, 6, 25, 4, shared=shared)
    logs += np.random.default_rng(9).choice([low, high], logs.shape)
    filtered = forward(start, transition, logs)
    for row, own_logs in enumerate(logs):
        beliefs, evidence = by_logs(start, own(transition, row), own_logs)
        assert_filter(Filtered(filtered.belief[row], filtered.evidence[row]), beliefs, evidence)
    assert np.isfinite(filtered.belief).all(), "small is not impossible"


def test_a_state_that_falls_behind_at_every_step_comes_back_with_all_its_digits():
    """Without mixing the belief is a race of sums, which is known in closed form."""
    lead = np.array([-30.0] * 40 + [30.0] * 40)
    logs = np.stack([np.zeros(80), lead], axis=1)[None]
    filtered = forward(np.array([0.5, 0.5]), np.eye(2), logs)
    gap = filtered.belief[0, :, 1] - filtered.belief[0, :, 0]
    np.testing.assert_allclose(gap, lead.cumsum(), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(gap[-1], 0, atol=1e-9)


def test_extreme_sequences_do_not_disturb_their_neighbours():
    start, transition, logs = chains(10, 9, 20, 3)
    plain = forward(start, transition, logs)
    logs[4] = np.random.default_rng(1).choice([-1e4, 0.0, -np.inf], logs[4].shape)
    logs[4, :, 0] = 0.0
    mixed = forward(start, transition, logs)
    others = np.arange(9) != 4
    np.testing.assert_array_equal(mixed.belief[others], plain.belief[others])
    np.testing.assert_array_equal(mixed.evidence[others], plain.evidence[others])
    beliefs, evidence = by_logs(start, transition[4], logs[4])
    assert_filter(Filtered(mixed.belief[4], mixed.evidence[4]), beliefs, evidence)


def test_the_evidence_of_all_possible_observations_is_one():
    start, transition, _ = chains(11, 1, 4, 3, shared=True)
    emission = np.random.default_rng(11).dirichlet(np.ones(2), 3)
    everything = np.array(list(itertools.product(range(2), repeat=4)))
    logs = np.log(emission.T[everything])
    evidence = forward(start, transition, logs).evidence[:, -1]
    assert math.fsum(np.exp(evidence)) == pytest.approx(1, abs=1e-14)


# ---------------------------------------------------------------- the impossible


def test_an_impossible_observation_is_named_with_its_sequence_and_position():
    start, transition, logs = chains(12, 5, 6, 2)
    logs[3, 4] = -np.inf
    logs[4, 1] = -np.inf
    filtered = forward(start, transition, logs)
    with pytest.raises(InvalidInput, match=r"position 4 of sequence 3 has probability zero"):
        filtered.checked()
    assert np.isneginf(filtered.evidence[3, 4:]).all()
    assert np.isfinite(filtered.evidence[3, :4]).all()
    assert np.isnan(filtered.belief[3, 4:]).all()
    assert np.isneginf(filtered.joint[3, 4:]).all()
    assert not np.isnan(filtered.joint).any()


def test_an_observation_can_be_impossible_because_of_those_before_it():
    """State 0 stays for ever and is known from the first symbol; the third needs state 1."""
    emission = np.eye(2)[None]
    possible = forward_symbols(np.array([0.5, 0.5]), np.eye(2), emission, np.array([[0, 0, 0]]))
    assert possible.checked() is possible
    np.testing.assert_allclose(np.exp(possible.evidence), [[0.5, 0.5, 0.5]], rtol=1e-15)
    with pytest.raises(InvalidInput, match="position 2 of sequence 0"):
        forward_symbols(np.array([0.5, 0.5]), np.eye(2), emission, np.array([[0, 0, 1]])).checked()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_likelihood_that_is_no_number_is_refused_with_its_place(value):
    start, transition, logs = chains(12, 5, 6, 2)
    logs[3, 4, 1] = value
    expected = r"position 4 of sequence 3 holds NaN or \+inf; expected finite numbers or -inf"
    with pytest.raises(InvalidInput, match=expected):
        forward(start, transition, logs)


@pytest.mark.parametrize("symbol", [-1, 4])
def test_a_symbol_out_of_range_is_refused_with_its_place(symbol):
    start, transition, _ = chains(12, 5, 6, 3)
    emission = np.full((5, 3, 4), 0.25)
    symbols = np.zeros((5, 6), dtype=np.int64)
    symbols[2, 3] = symbol
    expected = f"symbol {symbol} at position 3 of sequence 2; expected 0 to 3"
    with pytest.raises(InvalidInput, match=expected):
        forward_symbols(start, transition, emission, symbols)


def test_sums_and_normalisation_know_the_impossible():
    logs = np.array([[0.0, -np.inf], [-np.inf, -np.inf], [-1e5, -1e5], [1e5, -1e5]])
    expected = [0.0, -np.inf, -1e5 + math.log(2), 1e5]
    np.testing.assert_array_equal(log_sum(logs), expected)
    filtered = normalised(logs[None])
    np.testing.assert_array_equal(filtered.evidence[0], expected)
    np.testing.assert_array_equal(filtered.belief[0, 0], [0.0, -np.inf])
    assert np.isnan(filtered.belief[0, 1]).all()


# ---------------------------------------------------------------- windows


def restarted(start, restart, transition, likelihood, window):
    """Beliefs of a filter that saw the last ``window`` observations, each begun anew."""
    rows = []
    for end in range(1, len(likelihood) + 1):
        first = max(0, end - window)
        law = restart if first else start
        rows.append(by_scaling(law, transition, likelihood[first:end])[0][-1])
    return np.array(rows)


@pytest.mark.parametrize("laws", [1, 4])
@pytest.mark.parametrize("shared", [False, True])
def test_a_window_is_a_filter_begun_anew_that_many_observations_ago(shared, laws):
    start, transition, logs = chains(13, 4, 7, 3, shared=shared)
    restart = np.random.default_rng(13).dirichlet(np.ones(3), laws)
    found = list(windows(start, restart, transition, logs))
    assert len(found) == 7
    for window, joint in enumerate(found, start=1):
        for row in range(4):
            expected = restarted(
                start,
                restart[row if laws == 4 else 0],
                own(transition, row),
                np.exp(logs[row]),
                window,
            )
            beliefs = normalised(joint[row : row + 1]).belief[0]
            np.testing.assert_allclose(beliefs, log(expected), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("zeros", [0.0, 0.2])
def test_the_last_window_is_the_exact_filter(zeros):
    start, transition, logs = chains(14, 30, 6, 3, zeros=zeros)
    *_, last = windows(start, np.full((1, 3), 1 / 3), transition, logs)
    exact = forward(start, transition, logs).joint
    np.testing.assert_array_equal(np.isneginf(last), np.isneginf(exact))
    np.testing.assert_allclose(last, exact, rtol=1e-12, atol=1e-12)


def test_a_window_is_exact_as_far_as_it_reaches_back_to_the_start():
    start, transition, logs = chains(15, 20, 8, 3)
    exact = forward(start, transition, logs).belief
    found = windows(start, np.full((1, 3), 1 / 3), transition, logs)
    for window, joint in enumerate(found, start=1):
        gap = np.abs(normalised(joint).belief - exact).max(axis=(0, 2))
        assert gap[:window].max() < 1e-12
        assert (gap[window:] > 1e-6).all()


def test_more_memory_is_never_worse_on_average_of_what_the_chain_produces():
    """Sampled from the chain in its stationary law, a window is a coarser conditional law."""
    random = np.random.default_rng(16)
    transition = 0.7 * np.eye(3) + 0.3 * random.dirichlet(np.ones(3), 3)
    emission = random.dirichlet(np.ones(3), 3)
    law = stationary(transition)
    states = np.empty((4000, 12), dtype=int)
    states[:, 0] = random.choice(3, 4000, p=law)
    for t in range(1, 12):
        uniforms = random.random(4000)[:, None]
        states[:, t] = (uniforms > transition[states[:, t - 1]].cumsum(axis=1)[:, :-1]).sum(axis=1)
    uniforms = random.random((4000, 12, 1))
    symbols = (uniforms > emission[states].cumsum(axis=2)[:, :, :-1]).sum(axis=2)
    logs = np.log(emission.T[symbols])
    exact = np.exp(forward(law, transition, logs).belief[:, -1])
    kl = [
        rel_entr(exact, np.exp(normalised(joint).belief[:, -1])).sum(axis=1).mean()
        for joint in windows(law, law[None], transition, logs)
    ]
    assert kl[-1] == pytest.approx(0, abs=1e-14)
    assert all(more < less for less, more in itertools.pairwise(kl[:-1]))


# ---------------------------------------------------------------- the stationary law


def test_the_stationary_law_is_the_left_eigenvector():
    matrices = np.random.default_rng(17).dirichlet(np.ones(5), (30, 5))
    laws = stationary(matrices)
    for matrix, law in zip(matrices, laws, strict=True):
        values, vectors = np.linalg.eig(matrix.T)
        eigenvector = np.real(vectors[:, np.argmin(np.abs(values - 1))])
        np.testing.assert_allclose(law, eigenvector / eigenvector.sum(), rtol=1e-9)
    np.testing.assert_allclose(np.einsum("ns,nst->nt", laws, matrices), laws, atol=1e-13)


def test_one_matrix_has_one_law():
    two = stationary(np.array([[0.9, 0.1], [0.3, 0.7]]))
    np.testing.assert_allclose(two, [0.75, 0.25], rtol=1e-13)


@pytest.mark.parametrize("rate", [1e-3, 1e-6, 1e-9])
def test_a_chain_that_hardly_ever_moves_has_its_law_too(rate):
    slow = np.array([[1 - rate, rate], [3 * rate, 1 - 3 * rate]])
    # One step of a rate is known to about 1e-16 only, so that is what the law can be known to.
    np.testing.assert_allclose(stationary(slow), [0.75, 0.25], rtol=1e-15 / rate + 1e-12)


@pytest.mark.parametrize("rate", [1e-13, 1e-16, 1e-18])
def test_rates_that_one_less_does_not_hold_still_have_their_law(rate):
    """1 - rate is 1 in floating point; the rates themselves, and their ratio, are exact."""
    slow = np.array([[1.0, rate], [3 * rate, 1.0]])
    np.testing.assert_allclose(stationary(slow), [0.75, 0.25], rtol=1e-12)
    rare = np.array([[1.0, rate], [1.0, 0.0]])
    np.testing.assert_allclose(stationary(rare), [1.0, rate], rtol=1e-12)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_cycle_spends_its_time_evenly(size):
    np.testing.assert_allclose(stationary(np.roll(np.eye(size), 1, axis=1)), 1 / size, rtol=1e-12)


def test_a_periodic_chain_with_unequal_parts():
    """State 0 is every other one: the time is a half there and a quarter in each of the others."""
    matrix = np.array([[0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    np.testing.assert_allclose(stationary(matrix), [0.5, 0.25, 0.25], rtol=1e-12)


def test_a_reducible_chain_has_the_limit_from_a_uniform_start():
    np.testing.assert_allclose(stationary(np.eye(4)), 0.25, rtol=1e-12)
    # State 0 is left for good: to the trap 1 with 1/4, to the swap of 2 and 3 with 3/4.
    matrix = np.array([[0.6, 0.1, 0.3, 0.0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]])
    expected = [0, 0.25 + 0.25 / 4, (0.5 + 0.75 / 4) / 2, (0.5 + 0.75 / 4) / 2]
    np.testing.assert_allclose(stationary(matrix), expected, rtol=1e-9, atol=1e-15)
