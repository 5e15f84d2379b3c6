"""The Gaussian chain against sums over all paths, the published entropies, and a filter by hand."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import FrozenInstanceError
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest, norm

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.ladder import ladder
from beliefspace.windtunnel.tasks.base import CategoricalOutputs, RealInputs
from beliefspace.windtunnel.tasks.gaussian_chain import GaussianChain

STREAM = Stream(11, "oracle")
RARE = 1e-4
"""Seeds are fixed: a p-value below this is a wrong distribution, not bad luck."""


def densities(task, points):
    """The density of each point about each symbol, coordinate by coordinate, as floats."""
    return [
        [
            math.prod(norm.pdf(float(x), m, task.noise) for x, m in zip(point, mean, strict=True))
            for mean in task.means
        ]
        for point in points
    ]


def over_paths(task, points):
    """P(y_t | x_0 ... x_t) and P(y_{t+1} | x_0 ... x_t) at the last point, from all paths."""
    seen, size = densities(task, points), task.symbols
    now, later = np.zeros(size), np.zeros(size)
    for path in product(range(size), repeat=len(points)):
        weight = 1 / size
        for t, symbol in enumerate(path):
            weight *= seen[t][symbol] * (task.transition[path[t - 1], symbol] if t else 1)
        now[path[-1]] += weight
        later += weight * task.transition[path[-1]]
    return now / now.sum(), later / later.sum()


def filtered(task, points):
    """The predictive after each point, step by step in plain probabilities."""
    belief, rows = np.full(task.symbols, 1 / task.symbols), []
    for density in densities(task, points):
        belief = belief * density
        belief = belief / belief.sum() @ task.transition
        rows.append(belief)
    return rows


# ---------------------------------------------------------------- the chain


@pytest.mark.parametrize(
    ("double_counted", "stay", "nats", "bits"),
    [(False, 0.3, 1.8833, 2.717), (True, 0.3498, 1.8292, 2.639)],
)
def test_chain_has_the_published_entropy_rate_and_stays_as_often(double_counted, stay, nats, bits):
    task = GaussianChain(double_counted=double_counted)
    assert np.diag(task.transition) == pytest.approx(np.full(8, stay), abs=5e-5)
    assert task.entropy_rate_bits == pytest.approx(bits, abs=5e-4)
    assert task.entropy_rate_bits * math.log(2) == pytest.approx(nats, abs=5e-5)
    assert f"{stay:.4g}" in task.prior


def test_moves_are_as_likely_as_near():
    row = GaussianChain().transition[0]
    weights = [1, 1 / 2, 1 / 3, 1 / 4, 1 / 3, 1 / 2, 1]
    np.testing.assert_allclose(row[1:], 0.7 * np.array(weights) / sum(weights), rtol=1e-14)
    np.testing.assert_allclose(GaussianChain(symbols=2).transition, [[0.3, 0.7], [0.7, 0.3]])
    np.testing.assert_allclose(
        GaussianChain(symbols=3, stay=0.5).transition, 0.25 + 0.25 * np.eye(3)
    )


@pytest.mark.parametrize("symbols", [2, 5, 8])
@pytest.mark.parametrize("double_counted", [False, True])
def test_stationary_law_is_uniform(symbols, double_counted):
    transition = GaussianChain(symbols, double_counted=double_counted).transition
    np.testing.assert_allclose(transition.sum(axis=0), 1, rtol=1e-12)
    np.testing.assert_allclose(transition.sum(axis=1), 1, rtol=1e-12)


def test_means_are_standard_normal_and_fixed_by_their_seed():
    task = GaussianChain(symbols=50, dimensions=40)
    assert kstest(task.means.ravel(), "norm").pvalue > RARE
    np.testing.assert_array_equal(task.means, GaussianChain(50, 40, length=3, noise=2.0).means)
    assert (task.means != GaussianChain(50, 40, means_seed=1).means).all()
    with pytest.raises(ValueError, match="read-only"):
        task.means[0, 0] = 0.0


# ---------------------------------------------------------------- drawing


def test_points_are_shown_and_the_next_symbol_is_asked_for():
    task = GaussianChain()
    batch = task.batch(30, STREAM)
    assert (task.length, task.steps) == (64, 64)
    assert task.inputs == RealInputs(20)
    assert task.outputs == CategoricalOutputs(tuple(range(8)))
    assert batch.inputs.shape == (30, 64, 20)
    assert batch.inputs.dtype == np.float32
    assert batch.scored.all()
    np.testing.assert_array_equal(batch.targets, batch.latent[:, 1:])
    blur = batch.inputs - task.means[batch.latent[:, :-1]]
    assert kstest(blur.ravel(), "norm").pvalue > RARE


def test_symbols_follow_the_chain_from_a_uniform_start():
    task = GaussianChain(symbols=4, dimensions=1, length=3, stay=0.6)
    path = task.batch(20_000, STREAM).latent
    counts = Counter(map(tuple, path.tolist()))
    words = list(product(range(4), repeat=4))
    chance = [math.prod(task.transition[pair] for pair in pairwise(w)) / 4 for w in words]
    assert chisquare([counts[w] for w in words], np.array(chance) * 20_000).pvalue > RARE


def test_rows_depend_on_seed_purpose_step_and_row_alone():
    task = GaussianChain(length=5)
    many, few = task.batch(200, STREAM, 4), task.batch(3, STREAM, 4)
    np.testing.assert_array_equal(many.inputs[:3], few.inputs)
    np.testing.assert_array_equal(many.latent[:3], few.latent)
    for stream, step in [(STREAM, 5), (Stream(12, "oracle"), 4), (Stream(11, "other"), 4)]:
        assert (task.batch(3, stream, step).inputs != few.inputs).all()


# ---------------------------------------------------------------- beliefs


@settings(max_examples=25, deadline=None)
@given(
    symbols=st.integers(2, 4),
    dimensions=st.integers(1, 3),
    length=st.integers(1, 4),
    stay=st.floats(0.01, 0.99),
    noise=st.floats(0.2, 3.0),
    double_counted=st.booleans(),
    seed=st.integers(0, 2**40),
)
def test_any_task_follows_the_sum_over_all_paths(
    symbols, dimensions, length, stay, noise, double_counted, seed
):
    task = GaussianChain(symbols, dimensions, length, stay, noise, double_counted)
    batch = task.batch(2, Stream(seed, "property"))
    pasts = [points[: t + 1] for points in batch.inputs for t in range(length)]
    now, later = zip(*(over_paths(task, past) for past in pasts), strict=True)
    np.testing.assert_allclose(np.exp(batch.belief.log_probs), now, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(np.exp(batch.predictive.log_probs), later, rtol=1e-9)
    np.testing.assert_allclose(np.exp(task.reference(batch).log_probs), later, rtol=1e-9)


def test_defaults_follow_a_filter_by_hand():
    task = GaussianChain()
    batch = task.batch(2, STREAM)
    expected = np.concatenate([filtered(task, points) for points in batch.inputs])
    np.testing.assert_allclose(np.exp(batch.predictive.log_probs), expected, rtol=1e-9)


def test_points_without_noise_to_speak_of_leave_the_chain_alone():
    task = GaussianChain(noise=0.001)
    batch = task.batch(10, STREAM)
    expected = task.transition[batch.latent[:, :-1].ravel()]
    np.testing.assert_allclose(np.exp(batch.predictive.log_probs), expected, rtol=1e-12)
    np.testing.assert_allclose(batch.predictive.entropy_bits(), task.entropy_rate_bits)


def test_points_of_noise_alone_leave_the_uniform_law():
    batch = GaussianChain(noise=1000.0).batch(10, STREAM)
    np.testing.assert_allclose(np.exp(batch.predictive.log_probs), 1 / 8, atol=1e-3)


def test_released_chain_costs_what_was_measured_and_needs_hardly_any_memory():
    """2512.22473, run again: NLL 1.841 and 1.809 nats on two single sequences of 2,000 symbols."""
    task = GaussianChain(double_counted=True)
    batch = task.batch(800, STREAM)
    exact, nats = batch.predictive, math.log(2)
    cost = exact.surprisal_bits(batch.outcomes) * nats
    assert 1.809 < cost.mean() < 1.841
    assert exact.entropy_bits().mean() * nats == pytest.approx(cost.mean(), abs=0.01)
    memoryless = next(task.windows(batch, "stationary"))
    gap = exact.kl_bits(memoryless).mean() * nats
    assert 1e-5 < gap < 0.002


@pytest.mark.parametrize("means_seed", [0, 1, 2])
def test_intended_chain_needs_hardly_any_memory_whatever_the_means(means_seed):
    task = GaussianChain(means_seed=means_seed)
    batch = task.batch(400, STREAM)
    gap = batch.predictive.kl_bits(next(task.windows(batch, "stationary"))).mean() * math.log(2)
    assert gap < 0.002


# ---------------------------------------------------------------- memory


def test_windows_are_filters_that_saw_the_last_points_only():
    task = GaussianChain(4, 1, 5, stay=0.9, noise=2.0)
    batch = task.batch(3, STREAM)
    for width, predictive in enumerate(task.windows(batch, "stationary"), start=1):
        expected = [
            over_paths(task, points[max(0, t + 1 - width) : t + 1])[1]
            for points in batch.inputs
            for t in range(5)
        ]
        np.testing.assert_allclose(np.exp(predictive.log_probs), expected, rtol=1e-9)
    assert width == 5
    np.testing.assert_allclose(predictive.log_probs, batch.predictive.log_probs, atol=1e-12)
    with pytest.raises(InvalidInput, match="restart"):
        next(task.windows(batch, "uniform"))


def test_ladder_is_in_order():
    task = GaussianChain(length=20, stay=0.9, noise=3.0)
    batch = task.batch(300, STREAM)
    rungs = ladder(task, batch)
    assert list(rungs)[-2:] == ["window-1 stationary", "window-2 stationary"]
    kl = {name: batch.predictive.kl_bits(rung).mean() for name, rung in rungs.items()}
    assert kl["best constant"] > kl["window-1 stationary"] > kl["window-2 stationary"] > 0.01
    assert list(GaussianChain(length=1).ladder(GaussianChain(length=1).batch(2, STREAM))) == []


@pytest.mark.parametrize("step", [0, 3, 5])
def test_a_changed_point_stands_about_another_symbol(step):
    task = GaussianChain(5, 3, 6, noise=0.01)
    batch = task.batch(400, STREAM)
    changed = task.changed(batch, step, STREAM.child("changed"))
    assert changed.kept.all()
    other = changed.batch.inputs
    rest = np.arange(6) != step
    np.testing.assert_array_equal(other[:, rest], batch.inputs[:, rest])
    np.testing.assert_array_equal(changed.batch.latent, batch.latent)
    np.testing.assert_array_equal(changed.batch.targets, batch.targets)
    distance = ((other[:, step, None] - task.means) ** 2).sum(axis=2)
    shift = (distance.argmin(axis=1) - batch.latent[:, step]) % 5
    assert distance.min(axis=1).max() < 0.01
    assert set(shift) == {1, 2, 3, 4}
    assert chisquare(np.bincount(shift)[1:]).pvalue > RARE
    expected = np.concatenate([filtered(task, points) for points in other[:5]])
    got = np.exp(changed.batch.predictive.log_probs[: 5 * 6])
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    # The sequences that were given are left as they were.
    np.testing.assert_array_equal(batch.inputs, task.batch(400, STREAM).inputs)


@pytest.mark.parametrize("step", [-1, 6, 1.0, True])
def test_only_a_step_of_the_sequence_can_be_changed(step):
    task = GaussianChain(3, 2, 6)
    with pytest.raises(InvalidInput, match="step"):
        task.changed(task.batch(2, STREAM), step, STREAM)


# ---------------------------------------------------------------- settings


def test_what_it_says_of_itself():
    task = GaussianChain()
    assert task.hypothesis_bits == 3
    assert task.primitives == ("transport",)
    assert task.restarts == ("stationary",)
    assert "8" in task.prior
    assert "0.3" in task.prior


@pytest.mark.parametrize(
    "given",
    [
        {"symbols": 1},
        {"symbols": True},
        {"symbols": 8.0},
        {"dimensions": 0},
        {"dimensions": "20"},
        {"length": 0},
        {"stay": 0},
        {"stay": 1},
        {"stay": -0.3},
        {"stay": math.nan},
        {"stay": True},
        {"stay": "0.3"},
        {"noise": 0},
        {"noise": -1.0},
        {"noise": math.inf},
        {"noise": 1e-4},
        {"noise": None},
        {"means_seed": -1},
        {"means_seed": 0.5},
        {"double_counted": 1},
        {"double_counted": "yes"},
        {"double_counted": None},
    ],
    ids=str,
)
def test_bad_settings_are_refused(given):
    with pytest.raises(InvalidInput, match=next(iter(given))) as refusal:
        GaussianChain(**given)
    assert "\n" not in str(refusal.value)


def test_a_refused_share_is_shown_with_its_range():
    with pytest.raises(InvalidInput, match=r"stay is a number from 1e-06 to 0\.999999; got 1"):
        GaussianChain(stay=1)


@pytest.mark.parametrize("sequences", [0, -1, 2.5, "3", True, None])
def test_number_of_sequences_is_checked(sequences):
    with pytest.raises(InvalidInput):
        GaussianChain().batch(sequences, STREAM)


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(FrozenInstanceError):
        GaussianChain().noise = 3.0
