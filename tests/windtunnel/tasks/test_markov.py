"""In-context Markov chains against urns, integrals over the simplex, simulation and hand counts."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import chisquare, kstest

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.calibration import measure
from beliefspace.windtunnel.ladder import ladder
from beliefspace.windtunnel.tasks.base import CategoricalOutputs, TokenInputs
from beliefspace.windtunnel.tasks.markov import MarkovChain

STREAM = Stream(5, "markov")
RARE = 1e-4
"""Seeds are fixed: a p-value below this is a wrong distribution, not bad luck."""


def probabilities(categorical, rows):
    return np.exp(categorical.log_probs).reshape(rows, -1, categorical.log_probs.shape[1])


def urn(tokens, order, size, alpha):
    """Replay a sequence: an urn a context, alpha balls of each colour, one more for each drawn."""
    urns, rows = {}, []
    for end in range(order, len(tokens) + 1):
        balls = urns.setdefault(tuple(tokens[end - order : end]), [Fraction(alpha)] * size)
        rows.append([float(share / sum(balls)) for share in balls])
        if end < len(tokens):
            balls[tokens[end]] += 1
    return rows


def by_integration(tokens, alpha):
    """P(next = 1) of two symbols: integrate the row of the last symbol over its posterior.

    With q = sin(angle)**2 the Dirichlet density has no pole at the ends for alpha >= 1/2.
    """
    after = [following for symbol, following in pairwise(tokens) if symbol == tokens[-1]]
    ones, zeros = sum(after), len(after) - sum(after)

    def moment(more):
        def density(angle):
            up = math.sin(angle) ** (2 * alpha - 1 + 2 * (ones + more))
            return up * math.cos(angle) ** (2 * alpha - 1 + 2 * zeros)

        return quad(density, 0, math.pi / 2, epsabs=0, epsrel=1e-11)[0]

    return moment(1) / moment(0)


def test_sequences_are_tokens_scored_from_the_first_full_context_on():
    task = MarkovChain(4, 9, order=3)
    batch = task.batch(6, STREAM)
    assert task.inputs == TokenInputs(4)
    assert task.outputs == CategoricalOutputs((0, 1, 2, 3))
    assert (batch.inputs.dtype, batch.targets.dtype) == (np.int64, np.int64)
    np.testing.assert_array_equal(batch.scored, np.tile(np.arange(9) >= 2, (6, 1)))
    np.testing.assert_array_equal(batch.targets[:, 2:-1], batch.inputs[:, 3:])
    assert (batch.targets[:, :2] == -1).all()
    np.testing.assert_array_equal(batch.latent.symbols[:, :-1], batch.inputs)
    np.testing.assert_array_equal(batch.latent.symbols[:, -1], batch.targets[:, -1])
    assert batch.latent.table.shape == (6, 64, 4)
    assert batch.belief is None


def test_defaults_are_three_symbols_of_order_one_in_64_positions():
    task = MarkovChain()
    assert (task.symbols, task.length, task.order, task.concentration) == (3, 64, 1, 1.0)
    assert task.hypothesis_bits == math.inf
    assert set(task.primitives) == {"accumulation", "binding"}
    assert task.prior == (
        "what follows each symbol is Dirichlet(1) over 3 symbols; the first symbol uniform"
    )
    assert "each 2 symbols" in MarkovChain(order=2).prior


def test_the_sequence_drawn_in_the_module_is_true():
    task = MarkovChain(3, 8)
    batch = task.batch(1, Stream(0, "draw"))
    assert batch.inputs[0].tolist() == [1, 2, 1, 2, 0, 1, 1, 2]
    assert batch.targets[0].tolist() == [2, 1, 2, 0, 1, 1, 2, 1]
    shares = [
        (1, 1, 1),
        (1, 1, 1),
        (1, 1, 2),
        (1, 2, 1),
        (1, 1, 1),
        (1, 1, 3),
        (1, 2, 3),
        (2, 2, 1),
    ]
    expected = [np.array(share) / sum(share) for share in shares]
    np.testing.assert_allclose(probabilities(batch.predictive, 1)[0], expected, rtol=1e-14)


@settings(max_examples=60)
@given(
    size=st.integers(2, 5),
    order=st.integers(1, 3),
    more=st.integers(0, 30),
    alpha=st.floats(0.01, 20),
    seed=st.integers(0, 2**40),
)
def test_any_chain_follows_the_urns(size, order, more, alpha, seed):
    task = MarkovChain(size, order + more, order, alpha)
    batch = task.batch(4, Stream(seed, "property"))
    expected = [row for tokens in batch.inputs.tolist() for row in urn(tokens, order, size, alpha)]
    np.testing.assert_allclose(np.exp(batch.predictive.log_probs), expected, rtol=1e-12)
    np.testing.assert_allclose(np.exp(task.reference(batch).log_probs), expected, rtol=1e-12)
    assert np.isfinite(batch.predictive.log_probs).all()


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.3])
def test_two_symbols_agree_with_an_integral_over_the_table(alpha):
    task = MarkovChain(2, 10, concentration=alpha)
    batch = task.batch(5, STREAM)
    expected = [
        [by_integration(tokens[: end + 1], alpha) for end in range(10)]
        for tokens in batch.inputs.tolist()
    ]
    np.testing.assert_allclose(probabilities(batch.predictive, 5)[:, :, 1], expected, rtol=1e-9)


def test_simulated_chains_continue_as_believed():
    """Tables and chains from numpy's own generator, sorted by what they look like so far."""
    generator, chains, alpha = np.random.default_rng(8), 400_000, 0.7
    table = generator.dirichlet([alpha, alpha], size=(chains, 2))
    symbols = np.empty((chains, 5), dtype=np.int64)
    symbols[:, 0] = generator.integers(2, size=chains)
    for t in range(1, 5):
        one = table[np.arange(chains), symbols[:, t - 1], 1]
        symbols[:, t] = generator.random(chains) < one
    task = MarkovChain(2, 4, concentration=alpha)
    batch = task.batch(300, STREAM)
    chance = probabilities(batch.predictive, 300)[:, -1, 1]
    pasts = {tuple(past): chance[i] for i, past in enumerate(batch.inputs.tolist())}
    assert len(pasts) == 16
    for past, believed in pasts.items():
        following = symbols[(symbols[:, :4] == past).all(axis=1), 4]
        error = math.sqrt(believed * (1 - believed) / len(following))
        assert abs(following.mean() - believed) < 4.5 * error


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_tables_are_dirichlet_and_contexts_independent(alpha):
    table = MarkovChain(3, 2, concentration=alpha).batch(6000, STREAM).latent.table
    np.testing.assert_allclose(table.sum(axis=2), 1, rtol=1e-12)
    for context in range(3):
        # One entry of Dirichlet(alpha, alpha, alpha) is Beta(alpha, 2 alpha).
        assert kstest(table[:, context, 1], "beta", (alpha, 2 * alpha)).pvalue > RARE
    correlation = np.corrcoef(table[:, :, 0].T)
    assert np.abs(correlation[np.triu_indices(3, 1)]).max() < 4.5 / math.sqrt(6000)


def test_the_first_context_is_uniform_and_symbols_follow_the_table():
    batch = MarkovChain(3, 6, order=2).batch(9000, STREAM)
    first = batch.inputs[:, 0] * 3 + batch.inputs[:, 1]
    assert chisquare(np.bincount(first, minlength=9)).pvalue > RARE
    # The row of a context a b is number 3 a + b.
    chance = batch.latent.table[np.arange(9000), first]
    surprise = np.eye(3)[batch.inputs[:, 2]] - chance
    # Weighted by the chance itself, which a wrong row would not be right about.
    error = np.sqrt((chance**3 * (1 - chance)).sum(axis=0))
    assert (np.abs((chance * surprise).sum(axis=0)) < 4.5 * error).all()


def test_a_long_sequence_teaches_the_table():
    batch = MarkovChain(2, 3000).batch(20, STREAM)
    table = batch.latent.table[np.arange(20), batch.inputs[:, -1]]
    believed = probabilities(batch.predictive, 20)[:, -1]
    np.testing.assert_allclose(believed, table, atol=0.1)


def test_entropy_falls_towards_the_mean_entropy_of_a_row():
    """E H = psi(S alpha + 1) - psi(alpha + 1) nats for a Dirichlet row: 1/2 nat for S = 2."""
    batch = MarkovChain(2, 400).batch(1500, STREAM)
    by_position = batch.predictive.entropy_bits().reshape(1500, 400).mean(axis=0)
    np.testing.assert_allclose(by_position[0], 1, rtol=1e-14)
    # Rows weighted by how often their symbol comes, not equally: near the closed form, not at it.
    assert by_position[-1] == pytest.approx(0.5 / math.log(2), abs=0.06)
    assert by_position[0] > by_position[20] > by_position[-1]


# ---------------------------------------------------------------- ladder


def test_ladder_of_order_one_is_counted_by_hand():
    task = MarkovChain(3, 8)
    rungs = task.ladder(task.batch(1, Stream(0, "draw")))
    assert list(rungs) == ["bigram frequencies", "unigram", "bigram add 1/2"]
    # 1 2 1 2 0 1 1 2: at the end 1 was followed by 2 2 1, 2 by 1 0, and 0, 1, 2 came 1, 4, 3 times.
    last = {name: np.exp(rung.log_probs[-1]) for name, rung in rungs.items()}
    np.testing.assert_allclose(last["bigram frequencies"], [1 / 2, 1 / 2, 0])
    np.testing.assert_allclose(last["unigram"], np.array([2, 5, 4]) / 11)
    np.testing.assert_allclose(last["bigram add 1/2"], np.array([3, 3, 1]) / 7)
    first = {name: np.exp(rung.log_probs[0]) for name, rung in rungs.items()}
    np.testing.assert_allclose(first["bigram frequencies"], [1 / 3] * 3)
    np.testing.assert_allclose(first["unigram"], [1 / 4, 2 / 4, 1 / 4])
    np.testing.assert_allclose(first["bigram add 1/2"], [1 / 3] * 3)


def test_ladder_names_follow_the_order():
    names = {order: list(_rungs(MarkovChain(2, 12, order=order))) for order in (2, 3, 4)}
    assert names[2] == ["trigram frequencies", "unigram", "bigram", "trigram add 1/2"]
    assert names[3] == ["4-gram frequencies", "unigram", "bigram", "trigram", "4-gram add 1/2"]
    assert names[4][-2:] == ["4-gram", "5-gram add 1/2"]


def _rungs(task):
    return task.ladder(task.batch(3, STREAM))


def test_the_added_count_is_never_the_true_one():
    task = MarkovChain(3, 30, concentration=0.5)
    batch = task.batch(20, STREAM)
    rungs = task.ladder(batch)
    assert list(rungs)[-1] == "bigram add 1"
    flat = MarkovChain(3, 30).reference(batch)
    np.testing.assert_allclose(rungs["bigram add 1"].log_probs, flat.log_probs, rtol=1e-12)


def test_shorter_contexts_are_exact_for_chains_of_their_order():
    task = MarkovChain(2, 20, order=3)
    batch = task.batch(10, STREAM)
    rungs = task.ladder(batch)
    for order, name in ((1, "bigram"), (2, "trigram")):
        shorter = MarkovChain(2, 20, order).reference(batch)
        expected = np.exp(shorter.log_probs).reshape(10, -1, 2)[:, 3 - order :]
        np.testing.assert_allclose(probabilities(rungs[name], 10), expected, rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_ladder_is_worst_first_and_frequencies_are_infinitely_wrong(order):
    task = MarkovChain(order=order)
    batch = task.batch(500, STREAM)
    own = list(task.ladder(batch))
    errors = [measure(ladder(task, batch)[name], batch).kl_bits.mean for name in own]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == math.inf
    assert errors[-1] > 0


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "given",
    [
        {"symbols": 1},
        {"symbols": 2.0},
        {"symbols": "3"},
        {"order": 0},
        {"order": True},
        {"order": 3, "length": 2},
        {"length": 0},
        {"length": None},
        {"concentration": 0.0},
        {"concentration": -1.0},
        {"concentration": math.nan},
        {"concentration": math.inf},
        {"concentration": 1e-4},
        {"concentration": 1e7},
        {"concentration": True},
        {"symbols": 101},
        {"symbols": 3, "order": 99},
    ],
    ids=str,
)
def test_bad_settings_are_refused(given):
    with pytest.raises(InvalidInput) as refusal:
        MarkovChain(**given)
    assert "\n" not in str(refusal.value)


def test_a_refused_concentration_is_shown_with_its_range():
    with pytest.raises(InvalidInput, match=r"concentration is a number from 0\.001 to .* 0\.0001"):
        MarkovChain(concentration=1e-4)


def test_a_table_too_large_is_counted():
    with pytest.raises(
        InvalidInput, match=r"order 4 over 10 symbols has 100,000 .* at most 10,000"
    ):
        MarkovChain(10, order=4)


@pytest.mark.parametrize("sequences", [0, -1, 2.5, True])
def test_number_of_sequences_is_checked(sequences):
    with pytest.raises(InvalidInput):
        MarkovChain().batch(sequences, STREAM)
