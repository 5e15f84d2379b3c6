"""Regression in context against the posterior over weights, quadrature, exact fractions."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import beliefspace as bs
from beliefspace.core.distributions import Categorical, Normal
from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.calibration import measure
from beliefspace.windtunnel.ladder import ladder
from beliefspace.windtunnel.tasks.base import CategoricalOutputs, NormalOutputs, RealInputs
from beliefspace.windtunnel.tasks.binning import bin_edges, bin_index, binned, binned_by_quadrature
from beliefspace.windtunnel.tasks.linear_regression import LinearRegression
from beliefspace.windtunnel.tasks.sequential_normal import sequential

STREAM = Stream(11, "oracle")
RARE = 1e-4
"""Seeds are fixed: a p-value below this is a wrong distribution, not bad luck."""

CORRELATED = ((2.0, 0.6), (0.6, 0.5))


def pairs(task, batch):
    """What the inputs say: features and outcomes; the last outcome is a target only."""
    inputs = batch.inputs.astype(np.float64)
    x = inputs[:, 0::2, : task.coordinates]
    y = np.concatenate([inputs[:, 1::2, task.coordinates], batch.targets[:, -1:]], axis=1)
    return x, y


def by_position(task, batch):
    exact = batch.predictive
    shape = (len(batch.inputs), task.examples)
    return exact.mean.reshape(shape), exact.variance.reshape(shape)


# ---------------------------------------------------------------- layout


def test_pairs_alternate_with_a_place_and_a_mark_for_y():
    task = LinearRegression(3, 5)
    batch = task.batch(20, STREAM)
    assert task.length == 9
    assert task.inputs == RealInputs(5)
    assert task.outputs == NormalOutputs()
    assert task.hypothesis_bits == math.inf
    assert batch.inputs.shape == (20, 9, 5)
    assert batch.inputs.dtype == np.float32
    np.testing.assert_array_equal(batch.inputs[:, 0::2, 3:], 0)
    np.testing.assert_array_equal(batch.inputs[:, 1::2, :3], 0)
    np.testing.assert_array_equal(batch.inputs[:, 1::2, 4], 1)
    np.testing.assert_array_equal(batch.scored, np.tile(np.arange(9) % 2 == 0, (20, 1)))
    assert batch.targets.dtype == np.float64
    np.testing.assert_array_equal(batch.targets[:, 1::2], 0)
    # The answer to an x is the y that comes next.
    np.testing.assert_array_equal(batch.targets[:, 0:-1:2], batch.inputs[:, 1::2, 3])


def test_latent_is_what_the_inputs_say():
    task = LinearRegression(3, 6)
    batch = task.batch(30, STREAM)
    x, y = pairs(task, batch)
    np.testing.assert_array_equal(batch.latent.x, x)
    np.testing.assert_array_equal(batch.latent.y, y)
    assert batch.latent.hypothesis.shape == (30, 3)


def test_binned_outcomes_are_indices_of_bins():
    task = LinearRegression(2, 5, bins=7)
    batch, real = task.batch(40, STREAM), replace(task, bins=None).batch(40, STREAM)
    assert task.outputs == CategoricalOutputs(tuple(range(7)))
    np.testing.assert_array_equal(batch.inputs, real.inputs)
    assert batch.targets.dtype == np.int64
    assert (batch.targets[~batch.scored] == -1).all()
    spread = math.sqrt(2 + 0.25)
    edges = stats.norm.ppf(np.arange(1, 7) / 7, scale=spread)
    np.testing.assert_array_equal(batch.outcomes, (real.outcomes[:, None] > edges).sum(axis=1))


# ---------------------------------------------------------------- what is drawn


def test_weights_features_and_noise_have_their_laws():
    task = LinearRegression(2, 8, 1.5, 0.5, CORRELATED)
    latent = task.batch(3000, STREAM).latent
    weights = latent.hypothesis / 1.5
    assert stats.kstest(weights.ravel(), "norm").pvalue > RARE
    noise = (latent.y - (latent.x * latent.hypothesis[:, None]).sum(axis=2)) / 0.5
    assert stats.kstest(noise.ravel(), "norm").pvalue > RARE
    white = np.linalg.solve(np.linalg.cholesky(np.array(CORRELATED)), latent.x.reshape(-1, 2).T)
    assert stats.kstest(white.ravel(), "norm").pvalue > RARE
    error = 1 / math.sqrt(white.shape[1])
    assert np.abs(np.cov(white) - np.eye(2)).max() < 5 * math.sqrt(2) * error
    assert abs(np.corrcoef(weights.T)[0, 1]) < 5 / math.sqrt(3000)
    assert latent.y.var() == pytest.approx(1.5**2 * 2.5 + 0.25, rel=0.1)


def test_rows_depend_on_seed_purpose_step_and_row_alone():
    task = LinearRegression(2, 5, feature_covariance=CORRELATED)
    many, few = task.batch(300, STREAM, 4), task.batch(3, STREAM, 4)
    np.testing.assert_array_equal(many.inputs[:3], few.inputs)
    np.testing.assert_array_equal(many.targets[:3], few.targets)
    for stream, step in [(STREAM, 5), (Stream(12, "oracle"), 4), (Stream(11, "other"), 4)]:
        other = task.batch(3, stream, step).inputs
        assert (other != few.inputs).any(axis=(1, 2)).all()


# ---------------------------------------------------------------- beliefs


@settings(max_examples=40)
@given(
    d=st.integers(1, 4),
    examples=st.integers(1, 7),
    scale=st.floats(0.1, 3),
    noise=st.floats(0.1, 3),
    seed=st.integers(0, 2**40),
)
def test_any_task_follows_the_posterior_over_weights(d, examples, scale, noise, seed):
    task = LinearRegression(d, examples, scale, noise)
    batch = task.batch(3, Stream(seed, "property"))
    x, y = pairs(task, batch)
    mean, variance = by_position(task, batch)
    for i in range(3):
        for k in range(examples):
            seen = x[i, :k]
            posterior = np.linalg.inv(np.eye(d) / scale**2 + seen.T @ seen / noise**2)
            weights = posterior @ seen.T @ y[i, :k] / noise**2
            assert mean[i, k] == pytest.approx(x[i, k] @ weights, abs=1e-9)
            left = x[i, k] @ posterior @ x[i, k]
            assert variance[i, k] == pytest.approx(noise**2 + left, rel=1e-9)


def test_one_weight_by_quadrature():
    """Bayes' rule on a fine grid of the weight: evidence, mean and variance of the next outcome."""
    task = LinearRegression(1, 4, 0.8, 0.5)
    batch = task.batch(5, STREAM)
    x, y = pairs(task, batch)
    mean, variance = by_position(task, batch)
    w = np.linspace(-12, 12, 40_001)
    for i in range(5):
        log_posterior = stats.norm.logpdf(w, scale=0.8)
        for k in range(4):
            mass = np.exp(log_posterior - log_posterior.max())
            mass /= mass.sum()
            centre = mass @ (w * x[i, k, 0])
            spread = mass @ (w * x[i, k, 0] - centre) ** 2 + 0.25
            assert mean[i, k] == pytest.approx(centre, abs=1e-9)
            assert variance[i, k] == pytest.approx(spread, abs=1e-9)
            log_posterior += stats.norm.logpdf(y[i, k], w * x[i, k, 0], 0.5)


def test_one_weight_in_bins_by_quadrature_over_the_weight():
    task = LinearRegression(1, 3, bins=4)
    batch = task.batch(3, STREAM)
    y, x = batch.latent.y, batch.latent.x[..., 0]
    masses = np.exp(batch.predictive.log_probs).reshape(3, 3, 4)
    edges = stats.norm.ppf(np.arange(5) / 4, scale=math.sqrt(1.25))
    for i in range(3):
        for k in range(3):

            def joint(w, i=i, k=k):
                return stats.norm.pdf(w) * np.prod(
                    stats.norm.pdf(y[i, :k], w * x[i, :k], 0.5), initial=1.0
                )

            def mass(w, bin_, i=i, k=k, joint=joint):
                cut = stats.norm.cdf(edges[bin_ : bin_ + 2], w * x[i, k], 0.5)
                return joint(w) * (cut[1] - cut[0])

            evidence = integrate.quad(joint, -9, 9, epsabs=1e-13, limit=200)[0]
            for bin_ in range(4):
                found = integrate.quad(mass, -9, 9, (bin_,), epsabs=1e-13, limit=200)[0]
                assert masses[i, k, bin_] == pytest.approx(found / evidence, abs=1e-8)


def test_little_noise_in_exact_fractions():
    """At the least noise allowed, nine digits are left of what rational elimination gives."""
    task = LinearRegression(2, 6, noise=0.0015)
    batch = task.batch(3, STREAM)
    x, y = pairs(task, batch)
    mean, variance = by_position(task, batch)
    for i in range(3):
        rows = [[Fraction(float(v)) for v in one] for one in x[i]]
        outcomes = [Fraction(float(v)) for v in y[i]]
        for k in range(6):
            expected, left = conditioned(rows[: k + 1], outcomes[:k], Fraction(0.0015) ** 2)
            assert variance[i, k] == pytest.approx(float(left), rel=1e-8)
            assert mean[i, k] == pytest.approx(float(expected), abs=1e-8 * math.sqrt(left))


def conditioned(x, y, noise):
    """Mean and variance of the last outcome given the others, by eliminating one at a time."""
    joint = [
        [
            sum(a * b for a, b in zip(one, other, strict=True)) + noise * (one is other)
            for other in x
        ]
        for one in x
    ]
    mean = [Fraction(0)] * len(x)
    for step, seen in enumerate(y):
        pivot = list(joint[step])
        surprise = (seen - mean[step]) / pivot[step]
        for i in range(step + 1, len(x)):
            mean[i] += pivot[i] * surprise
            for j in range(step + 1, len(x)):
                joint[i][j] -= pivot[i] * pivot[j] / pivot[step]
    return mean[-1], joint[-1][-1]


def test_before_any_pair_nothing_is_known_of_the_weights():
    task = LinearRegression(3, 4, 0.7, 0.3)
    batch = task.batch(10, STREAM)
    mean, variance = by_position(task, batch)
    np.testing.assert_array_equal(mean[:, 0], 0)
    expected = 0.49 * (batch.latent.x[:, 0] ** 2).sum(axis=1) + 0.09
    np.testing.assert_allclose(variance[:, 0], expected, rtol=1e-14)


def test_after_many_pairs_only_the_noise_is_left():
    task = LinearRegression(2, 250)
    mean, variance = by_position(task, task.batch(4, STREAM))
    latent = task.batch(4, STREAM).latent
    truth = (latent.x * latent.hypothesis[:, None]).sum(axis=2)
    assert np.abs(mean[:, -20:] - truth[:, -20:]).max() < 0.4
    # An example takes away d / k of the noise's variance, on average.
    left = variance[:, 100:] / 0.25 - 1
    np.testing.assert_allclose((left * np.arange(100, 250)).mean(), 2, atol=0.2)


def test_the_predictive_uses_no_later_input():
    task = LinearRegression(2, 6)
    batch = task.batch(5, STREAM)
    latent = batch.latent
    for k in range(1, 6):
        covariance = task.covariance(latent.x[:, :k]) + 0.25 * np.eye(k)
        prefix = sequential(covariance, latent.y[:, :k])
        mean, variance = by_position(task, batch)
        np.testing.assert_allclose(prefix.mean.reshape(5, k), mean[:, :k], atol=1e-13)
        np.testing.assert_allclose(prefix.variance.reshape(5, k), variance[:, :k], atol=1e-13)


def test_outcomes_in_standard_units_are_independent_standard_normals():
    task = LinearRegression(3, 6, feature_covariance=None)
    batch = task.batch(2000, STREAM)
    mean, variance = by_position(task, batch)
    whitened = (batch.latent.y - mean) / np.sqrt(variance)
    assert stats.kstest(whitened.ravel(), "norm").pvalue > RARE
    off = np.corrcoef(whitened.T) - np.eye(6)
    assert np.abs(off).max() < 5 / math.sqrt(2000)


# ---------------------------------------------------------------- the ladder


def test_rungs_are_what_they_say():
    task = LinearRegression(3, 8, 0.7, 0.4)
    batch = task.batch(20, STREAM)
    rungs = task.ladder(batch)
    assert list(rungs) == ["ridge", "least squares", "prior"]
    x, y = batch.latent.x, batch.latent.y
    np.testing.assert_array_equal(rungs["prior"].mean, 0)
    np.testing.assert_allclose(
        rungs["prior"].variance, 0.49 * (x**2).sum(axis=2).ravel() + 0.16, rtol=1e-14
    )
    penalised = rungs["ridge"].mean.reshape(20, 8)
    fitted = rungs["least squares"].mean.reshape(20, 8)
    spread = rungs["least squares"].variance.reshape(20, 8)
    for i in range(20):
        for k in range(8):
            # Ridge as least squares with d more examples, of outcome 0.
            extra = np.vstack([x[i, :k], np.eye(3) * 0.4 / 0.7])
            weights = np.linalg.lstsq(extra, np.append(y[i, :k], np.zeros(3)))[0]
            assert penalised[i, k] == pytest.approx(weights @ x[i, k], abs=1e-10)
            if k:
                weights = np.linalg.lstsq(x[i, :k], y[i, :k])[0]
                assert fitted[i, k] == pytest.approx(weights @ x[i, k], abs=1e-9)
            inverse = np.linalg.pinv(x[i, :k].T @ x[i, :k])
            expected = 0.16 * (1 + x[i, k] @ inverse @ x[i, k])
            assert spread[i, k] == pytest.approx(expected, rel=1e-6)
    np.testing.assert_array_equal(rungs["ridge"].variance, 0.4**2)
    np.testing.assert_array_equal(fitted[:, 0], 0)


def test_rungs_stand_worst_first_but_late_in_a_sequence_the_prior_is_worst():
    task = LinearRegression()
    batch = task.batch(500, STREAM)
    own = [measure(rung, batch).kl_bits for rung in task.ladder(batch).values()]
    assert own[0].mean > own[1].mean > own[2].mean > 0
    assert own[1].by_position[-1] < own[0].by_position[-1] < own[2].by_position[-1]
    common = measure(ladder(task, batch)["best by position"], batch).kl_bits.mean
    assert common > own[2].mean


def test_the_prior_rung_is_off_by_what_the_pairs_tell():
    """KL averages to the mutual information, here the mean log ratio of the two variances."""
    task = LinearRegression(2, 6)
    batch = task.batch(4000, STREAM)
    prior = task.ladder(batch)["prior"]
    told = 0.5 * np.log2(prior.variance / batch.predictive.variance)
    divergence = batch.predictive.kl_bits(prior)
    error = (divergence - told).std() / math.sqrt(len(told) / 6)
    assert abs((divergence - told).mean()) < 5 * error


def test_in_bins_the_rungs_are_the_same_in_bins():
    real, cut = LinearRegression(2, 5), LinearRegression(2, 5, bins=6)
    rungs, edges = real.ladder(real.batch(10, STREAM)), bin_edges(6, math.sqrt(2.25))
    for name, rung in cut.ladder(cut.batch(10, STREAM)).items():
        assert isinstance(rung, Categorical)
        np.testing.assert_array_equal(rung.log_probs, binned(rungs[name], edges).log_probs)


# ---------------------------------------------------------------- bins


@pytest.mark.parametrize("bins", [2, 3, 10, 101])
def test_bins_are_equally_probable_beforehand(bins):
    edges = bin_edges(bins, 1.7)
    assert edges[0] == -math.inf
    assert edges[-1] == math.inf
    assert len(edges) == bins + 1
    own = binned(Normal(np.zeros(1), np.array([1.7**2])), edges)
    np.testing.assert_allclose(np.exp(own.log_probs), 1 / bins, rtol=1e-12)
    values = np.array([-1e9, *edges[1:-1], 1e9])
    np.testing.assert_array_equal(bin_index(values, edges), [0, *range(1, bins), bins - 1])


@pytest.mark.parametrize("mean", [-30.0, -3.0, 0.0, 0.4, 8.0, 25.0])
def test_both_tails_keep_their_mass(mean):
    """Against scipy's survival and distribution function, each on the side where it is exact."""
    edges = bin_edges(9, 1.0)
    found = binned(Normal(np.array([mean]), np.array([0.25])), edges).log_probs[0]
    for bin_ in range(9):
        a, b = (edges[bin_] - mean) / 0.5, (edges[bin_ + 1] - mean) / 0.5
        tail = (stats.norm.logsf, (a, b)) if a + b > 0 else (stats.norm.logcdf, (b, a))
        outer, inner = (tail[0](edge) for edge in tail[1])
        expected = outer + math.log1p(-math.exp(inner - outer))
        assert found[bin_] == pytest.approx(expected, rel=1e-12, abs=1e-13)
    assert np.isfinite(found).all()
    assert np.exp(found).sum() == pytest.approx(1, abs=1e-12)


def test_bins_mirror_exactly():
    edges = bin_edges(7, 2.0)
    edges = (edges - edges[::-1]) / 2
    right = binned(Normal(np.array([11.0]), np.array([0.3])), edges).log_probs
    left = binned(Normal(np.array([-11.0]), np.array([0.3])), edges).log_probs
    np.testing.assert_array_equal(right, left[:, ::-1])


@settings(max_examples=30)
@given(
    mean=st.floats(-4, 4),
    deviation=st.floats(0.2, 3),
    bins=st.integers(2, 12),
    spread=st.floats(0.3, 3),
)
def test_bins_agree_with_quadrature(mean, deviation, bins, spread):
    assume(abs(mean) + 3 * spread < 30 * deviation)
    normal = Normal(np.array([mean]), np.array([deviation**2]))
    found = binned(normal, bin_edges(bins, spread))
    again = binned_by_quadrature(normal, bins, spread)
    np.testing.assert_allclose(np.exp(found.log_probs), np.exp(again.log_probs), atol=1e-12)


def test_more_bins_tell_as_much_as_the_density():
    """A fine histogram loses nothing: KL of the prior rung tends to that of the densities."""
    real = LinearRegression(2, 4)
    batch = real.batch(100, STREAM)
    expected = batch.predictive.kl_bits(real.ladder(batch)["prior"]).mean()
    found = []
    for bins in (4, 32, 256, 2048):
        cut = replace(real, bins=bins)
        again = cut.batch(100, STREAM)
        found.append(again.predictive.kl_bits(cut.ladder(again)["prior"]).mean())
    assert found == sorted(found)
    assert found[-1] < expected
    assert found[-1] == pytest.approx(expected, rel=0.01)


# ---------------------------------------------------------------- scoring


def exact_model(task):
    """A callable that has the predictive of the posterior over weights: mean and log variance."""

    def model(inputs):
        inputs = inputs.astype(np.float64)
        outputs = np.zeros((*inputs.shape[:2], 2))
        for i, row in enumerate(inputs):
            x, y = row[0::2, : task.dimensions], row[1::2, task.dimensions]
            for k in range(task.examples):
                seen = x[:k]
                precision = np.eye(task.dimensions) / task.prior_scale**2
                precision += seen.T @ seen / task.noise**2
                weights = np.linalg.solve(precision, seen.T @ y[:k]) / task.noise**2
                left = x[k] @ np.linalg.solve(precision, x[k])
                outputs[i, 2 * k] = x[k] @ weights, math.log(task.noise**2 + left)
        return outputs

    return model


def test_an_exact_model_scores_zero():
    task = LinearRegression(2, 6)
    score = bs.score(exact_model(task), task, sequences=50)
    assert score.kl_bits.mean == pytest.approx(0, abs=1e-12)
    assert score.entropy_error_bits.mean == pytest.approx(0, abs=1e-12)
    assert score.total_variation.mean == pytest.approx(0, abs=1e-7)
    assert score.accuracy is score.leaked_inside is score.leaked_outside is None
    names = ["best constant", "best by position", "ridge", "least squares", "prior"]
    assert list(score.ladder) == names
    assert all(rung.kl_bits.mean > 0.1 for rung in score.ladder.values())
    table = score.to_markdown().splitlines()
    assert {line.split("|")[1].strip() for line in table[2:]} == {"this model", *names}
    plain = json.loads(json.dumps(score.to_dict(), allow_nan=False))
    assert plain["accuracy"] is None
    assert plain["ladder"]["prior"]["kl_bits"]["mean"] == score.ladder["prior"].kl_bits.mean


def test_a_model_of_the_bins_is_scored_as_categorical():
    task = LinearRegression(2, 4, bins=5)
    score = bs.score(lambda inputs: np.zeros((*inputs.shape[:2], 5)), task, sequences=30)
    assert score.kl_bits.mean == pytest.approx(score.ladder["uniform"].kl_bits.mean)
    assert score.accuracy is not None
    # Nothing is impossible in a bin, so nothing leaks.
    assert score.leaked_inside.mean == 0


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dimensions": 0}, "dimensions is a whole number of at least 1; got 0"),
        ({"dimensions": 2.0}, "dimensions is a whole number"),
        ({"examples": 0}, "examples is a whole number of at least 1; got 0"),
        ({"bins": 1}, "bins is a whole number of at least 2; got 1"),
        ({"bins": True}, "bins is a whole number"),
        ({"noise": 0.0}, r"got 0.0 \(zero noise"),
        ({"noise": -0.5}, r"noise is a number from 0 to 1e\+06; got -0.5"),
        ({"noise": "0.5"}, "noise is a number from 0 .* got '0.5'"),
        ({"noise": True}, "noise is a number from 0 .* got True"),
        ({"noise": 1e-9}, "noise is from 0.001 of the signal's"),
        ({"noise": math.nan}, "noise .* got nan"),
        ({"noise": math.inf}, "noise .* got inf"),
        ({"prior_scale": 0.0}, r"prior_scale is a number from 1e-06 to 1e\+06; got 0.0"),
        ({"prior_scale": math.nan}, "prior_scale .* got nan"),
        ({"prior_scale": 1e9}, "prior_scale .* got 10"),
        (
            {"dimensions": 2, "feature_covariance": ((1.0, 1.0), (1.0, 1.0))},
            "feature_covariance is singular .* smallest eigenvalue is",
        ),
        (
            {"dimensions": 2, "feature_covariance": ((1.0, 2.0), (2.0, 1.0))},
            "not positive definite: its smallest eigenvalue is -1, its largest 3",
        ),
        (
            {"dimensions": 2, "feature_covariance": ((1.0, 0.5), (0.2, 1.0))},
            r"not symmetric: 0.5 at \(0, 1\) but 0.2 at \(1, 0\)",
        ),
        (
            {"dimensions": 2, "feature_covariance": ((1.0, math.nan), (math.nan, 1.0))},
            "feature_covariance holds nan",
        ),
        ({"dimensions": 2, "feature_covariance": ((0.0, 0.0), (0.0, 0.0))}, "singular"),
        ({"feature_covariance": CORRELATED}, r"2 rows of \[2\] numbers; expected 4 rows of 4"),
        ({"dimensions": 2, "feature_covariance": ((1.0,), (0.0, 1.0))}, r"rows of \[1, 2\]"),
        (
            {"dimensions": 2, "feature_covariance": ((1.0, 0.1 + 0.2), (0.3, 1.0))},
            r"not symmetric: 0.30000000000000004 at \(0, 1\) but 0.3 at \(1, 0\)",
        ),
        (
            {"dimensions": 1, "feature_covariance": ((-1e13,),)},
            "feature_covariance holds -10000000000000.0; expected numbers up to 1e12 in size",
        ),
        ({"dimensions": 1, "feature_covariance": ()}, "0 rows"),
        ({"dimensions": 1, "feature_covariance": ((1e-30,),)}, "the signal's standard deviation"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(given, said):
    with pytest.raises(InvalidInput, match=said) as refusal:
        LinearRegression(**given)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("sequences", [0, -1, 2.5, True, None])
def test_number_of_sequences_is_checked(sequences):
    with pytest.raises(InvalidInput):
        LinearRegression().batch(sequences, STREAM)


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(FrozenInstanceError):
        LinearRegression().noise = 3.0


def test_the_prior_and_what_is_needed_in_words():
    assert LinearRegression().primitives == ("accumulation",)
    assert LinearRegression(prior_scale=2.0).prior == (
        "weights N(0, τ² I) with τ = 2; features N(0, I); noise N(0, σ²) with σ = 0.5"
    )
    assert "C as given" in LinearRegression(2, feature_covariance=CORRELATED).prior
