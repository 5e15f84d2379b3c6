"""Gaussian processes in context against precisions, closed forms and published kernels."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import gamma, kv

import beliefspace as bs
from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.calibration import measure
from beliefspace.windtunnel.tasks.base import CategoricalOutputs, NormalOutputs, RealInputs
from beliefspace.windtunnel.tasks.gaussian_process import GaussianProcess, Kernel

STREAM = Stream(11, "oracle")
RARE = 1e-4
"""Seeds are fixed: a p-value below this is a wrong distribution, not bad luck."""

KERNELS = [kernel for kernel in get_args(Kernel) if kernel != "given"]
GIVEN = ((2.0, -0.5, 0.3), (-0.5, 1.0, 0.4), (0.3, 0.4, 0.5))


def kernel_at(task, one, other):
    """The covariance of f at two x, as the task itself says it."""
    return task.covariance(np.array([[one, other]], dtype=float))[0, 0, 1]


def by_position(task, batch):
    exact = batch.predictive
    shape = (len(batch.inputs), task.examples)
    return exact.mean.reshape(shape), exact.variance.reshape(shape)


# ---------------------------------------------------------------- layout


def test_pairs_alternate_with_a_place_and_a_mark_for_y():
    task = GaussianProcess(dimensions=2, examples=5)
    batch = task.batch(20, STREAM)
    assert task.length == 9
    assert task.inputs == RealInputs(4)
    assert task.outputs == NormalOutputs()
    assert task.hypothesis_bits == math.inf
    assert batch.inputs.shape == (20, 9, 4)
    np.testing.assert_array_equal(batch.inputs[:, 0::2, :2], batch.latent.x)
    np.testing.assert_array_equal(batch.inputs[:, 0::2, 2:], 0)
    np.testing.assert_array_equal(batch.inputs[:, 1::2, :2], 0)
    np.testing.assert_array_equal(batch.inputs[:, 1::2, 2], batch.latent.y[:, :-1])
    np.testing.assert_array_equal(batch.inputs[:, 1::2, 3], 1)
    np.testing.assert_array_equal(batch.targets[:, 0::2], batch.latent.y)
    np.testing.assert_array_equal(batch.scored, np.tile(np.arange(9) % 2 == 0, (20, 1)))


def test_a_given_location_is_a_one_hot_vector():
    task = GaussianProcess("given", examples=30, covariance_matrix=GIVEN)
    batch = task.batch(100, STREAM)
    assert task.inputs == RealInputs(5)
    x = batch.latent.x
    np.testing.assert_array_equal(np.sort(x, axis=2), np.tile([0.0, 0.0, 1.0], (100, 30, 1)))
    counts = x.sum(axis=(0, 1))
    assert stats.chisquare(counts).pvalue > RARE


def test_binned_outcomes_are_indices_of_bins():
    task = GaussianProcess(examples=5, bins=4)
    batch, real = task.batch(40, STREAM), replace(task, bins=None).batch(40, STREAM)
    assert task.outputs == CategoricalOutputs((0, 1, 2, 3))
    edges = stats.norm.ppf([0.25, 0.5, 0.75], scale=math.sqrt(1.01))
    np.testing.assert_array_equal(batch.outcomes, (real.outcomes[:, None] > edges).sum(axis=1))


# ---------------------------------------------------------------- kernels


@pytest.mark.parametrize(
    ("kernel", "at_one_length"),
    [
        ("rbf", math.exp(-0.5)),
        ("matern-1/2", math.exp(-1)),
        ("matern-3/2", (1 + math.sqrt(3)) * math.exp(-math.sqrt(3))),
        ("matern-5/2", (1 + math.sqrt(5) + 5 / 3) * math.exp(-math.sqrt(5))),
        ("powered-exponential", math.exp(-1)),
    ],
)
def test_kernels_at_a_distance_of_one_length_scale(kernel, at_one_length):
    task = GaussianProcess(kernel, 2, scale=1.5, length_scale=0.5)
    # 0.3 and 0.4 along two coordinates are 0.5 apart.
    assert kernel_at(task, [0.1, 0.2], [0.4, 0.6]) == pytest.approx(2.25 * at_one_length)
    assert kernel_at(task, [0.1, 0.2], [0.1, 0.2]) == 2.25


@pytest.mark.parametrize("order", ["1/2", "3/2", "5/2"])
def test_matern_kernels_are_bessel_functions(order):
    """The general form, Rasmussen and Williams (2006), equation 4.14."""
    task, nu = GaussianProcess(f"matern-{order}", length_scale=0.3), float(Fraction(order))
    for distance in (0.01, 0.1, 0.5, 0.9):
        z = math.sqrt(2 * nu) * distance / 0.3
        expected = 2 ** (1 - nu) / gamma(nu) * z**nu * kv(nu, z)
        assert kernel_at(task, [0.0], [distance]) == pytest.approx(expected, rel=1e-10)


def test_the_periodic_kernel_repeats():
    task = GaussianProcess("periodic", length_scale=0.8, period=0.25)
    assert kernel_at(task, [0.1], [0.35]) == pytest.approx(1)
    assert kernel_at(task, [0.1], [0.6]) == pytest.approx(1)
    assert kernel_at(task, [0.1], [0.225]) == pytest.approx(math.exp(-2 / 0.64))
    expected = math.exp(-2 * math.sin(math.pi * 0.07 / 0.25) ** 2 / 0.64)
    assert kernel_at(task, [0.1], [0.17]) == pytest.approx(expected)


def test_powered_exponential_covers_its_neighbours():
    for power, kernel, factor in ((1.0, "matern-1/2", 1.0), (2.0, "rbf", math.sqrt(2))):
        powered = GaussianProcess("powered-exponential", length_scale=0.3 * factor, power=power)
        other = GaussianProcess(kernel, length_scale=0.3)
        one, two = [0.2], [0.61]
        assert kernel_at(powered, one, two) == pytest.approx(kernel_at(other, one, two))


@pytest.mark.parametrize("kernel", KERNELS)
@settings(max_examples=15)
@given(
    d=st.integers(1, 3),
    length=st.floats(0.02, 5),
    power=st.floats(0.1, 2),
    period=st.floats(0.1, 3),
    seed=st.integers(0, 2**32),
)
def test_every_kernel_matrix_is_a_covariance(kernel, d, length, power, period, seed):
    own = {"powered-exponential": {"power": power}, "periodic": {"period": period}}
    task = GaussianProcess(kernel, d, length_scale=length, **own.get(kernel, {}))
    x = np.random.default_rng(seed).uniform(size=(1, 12, d))
    covariance = task.covariance(x)[0]
    np.testing.assert_array_equal(covariance, covariance.T)
    np.testing.assert_array_equal(np.diag(covariance), 1)
    assert np.linalg.eigvalsh(covariance)[0] > -1e-13


# ---------------------------------------------------------------- what is drawn


@pytest.mark.parametrize("kernel", ["rbf", "matern-1/2", "periodic"])
def test_function_and_noise_have_their_laws(kernel):
    task = GaussianProcess(kernel, examples=4, scale=1.3, length_scale=0.4, noise=0.3)
    latent = task.batch(3000, STREAM).latent
    assert stats.kstest(latent.x.ravel(), "uniform").pvalue > RARE
    noise = (latent.y - latent.hypothesis) / 0.3
    assert stats.kstest(noise.ravel(), "norm").pvalue > RARE
    assert stats.kstest(latent.hypothesis[:, 0] / 1.3, "norm").pvalue > RARE
    # What the function is at one x, given another, in standard units.
    covariance = task.covariance(latent.x)
    f, k, v = latent.hypothesis, covariance[:, 0, 1], 1.69
    unit = (f[:, 1] - k / v * f[:, 0]) / np.sqrt(v - k**2 / v)
    assert stats.kstest(unit, "norm").pvalue > RARE


def test_a_function_is_the_same_wherever_a_location_comes_again():
    task = GaussianProcess("given", examples=12, covariance_matrix=GIVEN)
    latent = task.batch(50, STREAM).latent
    place = latent.x.argmax(axis=2)
    for values, places in zip(latent.hypothesis, place, strict=True):
        for location in range(3):
            own = values[places == location]
            assert own.size == 0 or np.ptp(own) < 1e-3


def test_outcomes_in_standard_units_are_independent_standard_normals():
    task = GaussianProcess(examples=6, noise=0.01)
    batch = task.batch(2000, STREAM)
    mean, variance = by_position(task, batch)
    whitened = (batch.latent.y - mean) / np.sqrt(variance)
    assert stats.kstest(whitened.ravel(), "norm").pvalue > RARE
    assert np.abs(np.corrcoef(whitened.T) - np.eye(6)).max() < 5 / math.sqrt(2000)


def test_rows_depend_on_seed_purpose_step_and_row_alone():
    task = GaussianProcess("matern-3/2", 2, 5)
    many, few = task.batch(300, STREAM, 4), task.batch(3, STREAM, 4)
    np.testing.assert_array_equal(many.inputs[:3], few.inputs)
    np.testing.assert_array_equal(many.targets[:3], few.targets)
    for stream, step in [(STREAM, 5), (Stream(12, "oracle"), 4), (Stream(11, "other"), 4)]:
        other = task.batch(3, stream, step).inputs
        assert (other != few.inputs).any(axis=(1, 2)).all()


# ---------------------------------------------------------------- beliefs


@settings(max_examples=40)
@given(
    kernel=st.sampled_from(KERNELS),
    d=st.integers(1, 2),
    examples=st.integers(1, 6),
    scale=st.floats(0.2, 3),
    noise=st.floats(0.1, 2),
    seed=st.integers(0, 2**40),
)
def test_any_task_follows_the_textbook(kernel, d, examples, scale, noise, seed):
    """Mean and variance by solving against the pairs so far (Rasmussen and Williams, 2.23-2.24)."""
    task = GaussianProcess(kernel, d, examples, scale, noise=max(noise, 0.01 * scale))
    batch = task.batch(2, Stream(seed, "property"))
    mean, variance = by_position(task, batch)
    for i in range(2):
        x, y = batch.latent.x[i], batch.latent.y[i]
        joint = np.array([[kernel_at(task, one, other) for other in x] for one in x])
        for k in range(examples):
            seen = joint[:k, :k] + task.noise**2 * np.eye(k)
            gain = np.linalg.solve(seen, joint[:k, k])
            assert mean[i, k] == pytest.approx(gain @ y[:k], abs=1e-8)
            left = joint[k, k] + task.noise**2 - gain @ joint[:k, k]
            assert variance[i, k] == pytest.approx(left, rel=1e-8)


def test_a_wiener_like_process_forgets_all_but_its_nearest_neighbours():
    """The kernel exp(-r) is Markov: beyond noise, only the neighbours on either side matter."""
    task = GaussianProcess("matern-1/2", examples=8, noise=1e-3, length_scale=0.3)
    batch = task.batch(40, STREAM)
    mean, _ = by_position(task, batch)
    x, y = batch.latent.x[:, :, 0], batch.latent.y
    compared = 0
    for i in range(40):
        order = np.argsort(x[i, :-1])
        at = np.searchsorted(x[i, order], x[i, -1])
        gaps = np.diff(np.sort(x[i]))
        if not 0 < at < 7 or gaps.min() < 0.01:
            continue
        below, above = order[at - 1], order[at]
        low, high = (abs(x[i, -1] - x[i, one]) / 0.3 for one in (below, above))
        expected = y[i, below] * math.sinh(high) + y[i, above] * math.sinh(low)
        assert mean[i, -1] == pytest.approx(expected / math.sinh(low + high), abs=1e-3)
        compared += 1
    assert compared > 10


def test_with_a_length_scale_past_all_features_f_is_one_number():
    """The mean of k noisy copies of one normal number, in closed form."""
    task = GaussianProcess(examples=6, length_scale=1e6, scale=2.0, noise=0.5)
    batch = task.batch(10, STREAM)
    mean, variance = by_position(task, batch)
    seen = np.arange(6)
    sums = np.cumsum(batch.latent.y, axis=1) - batch.latent.y
    left = 1 / (1 / 4 + seen / 0.25)
    np.testing.assert_allclose(mean, left * sums / 0.25, atol=1e-9)
    np.testing.assert_allclose(variance, np.tile(left + 0.25, (10, 1)), rtol=1e-9)


def test_with_a_length_scale_of_nothing_pairs_tell_nothing():
    task = GaussianProcess(examples=6, length_scale=1e-6)
    mean, variance = by_position(task, task.batch(10, STREAM))
    np.testing.assert_array_equal(mean, 0)
    np.testing.assert_allclose(variance, 1.01, rtol=1e-14)


def test_given_locations_are_conditioned_on_what_was_seen_there():
    task = GaussianProcess("given", examples=5, noise=0.4, covariance_matrix=GIVEN)
    batch = task.batch(20, STREAM)
    mean, variance = by_position(task, batch)
    prior = np.linalg.inv(np.array(GIVEN))
    for i in range(20):
        place, y = batch.latent.x[i].argmax(axis=1), batch.latent.y[i]
        for k in range(5):
            counts = np.bincount(place[:k], minlength=3)
            sums = np.bincount(place[:k], y[:k], minlength=3)
            posterior = np.linalg.inv(prior + np.diag(counts) / 0.16)
            centre = posterior @ sums / 0.16
            assert mean[i, k] == pytest.approx(centre[place[k]], abs=1e-10)
            assert variance[i, k] == pytest.approx(posterior[place[k], place[k]] + 0.16)


# ---------------------------------------------------------------- the ladder


def test_rungs_use_none_or_one_of_the_pairs():
    task = GaussianProcess(examples=7, scale=1.4, noise=0.3)
    batch = task.batch(20, STREAM)
    rungs = task.ladder(batch)
    assert list(rungs) == ["prior", "last observation", "nearest neighbour"]
    np.testing.assert_array_equal(rungs["prior"].mean, 0)
    np.testing.assert_allclose(rungs["prior"].variance, 1.96 + 0.09)
    x, y = batch.latent.x[:, :, 0], batch.latent.y
    for name in ("last observation", "nearest neighbour"):
        mean, variance = (part.reshape(20, 7) for part in (rungs[name].mean, rungs[name].variance))
        np.testing.assert_array_equal(mean[:, 0], 0)
        np.testing.assert_allclose(variance[:, 0], 2.05)
        for i in range(20):
            for k in range(1, 7):
                one = k - 1 if name == "last observation" else np.abs(x[i, :k] - x[i, k]).argmin()
                cross = 1.96 * math.exp(-(((x[i, k] - x[i, one]) / 0.2) ** 2) / 2)
                assert mean[i, k] == pytest.approx(cross / 2.05 * y[i, one])
                assert variance[i, k] == pytest.approx(2.05 - cross**2 / 2.05)


def test_rungs_stand_worst_first_and_meet_bayes_at_first():
    for task in (GaussianProcess(), GaussianProcess("matern-1/2", bins=12)):
        batch = task.batch(300, STREAM)
        own = [measure(rung, batch).kl_bits for rung in task.ladder(batch).values()]
        assert own[0].mean > own[1].mean > own[2].mean > 0.05
        # One pair is all there is at the second place.
        assert own[1].by_position[:2] == pytest.approx((0, 0), abs=1e-12)
        assert own[2].by_position[:2] == pytest.approx((0, 0), abs=1e-12)


def test_the_prior_is_the_exact_answer_to_a_callable_that_knows_nothing():
    task = GaussianProcess(examples=5)

    def prior(inputs):
        outputs = np.zeros((*inputs.shape[:2], 2))
        outputs[..., 1] = math.log(1.01)
        return outputs

    score = bs.score(prior, task, sequences=40)
    assert score.kl_bits.mean == pytest.approx(score.ladder["prior"].kl_bits.mean)
    assert score.kl_bits.by_position[0] == pytest.approx(0, abs=1e-12)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kernel": "rbff"}, "kernel is one of rbf, .*nearest: rbf"),
        ({"dimensions": 0}, "dimensions is a whole number of at least 1; got 0"),
        ({"examples": 0}, "examples is a whole number"),
        ({"examples": 257}, "examples is at most 256"),
        ({"bins": 1}, "bins is a whole number of at least 2"),
        ({"scale": 0.0}, r"^scale is a number from 1e-06 to 1e\+06; got 0.0"),
        ({"length_scale": -1.0}, r"length_scale is a number from 1e-06 .* got -1.0"),
        ({"length_scale": math.nan}, "length_scale .* got nan"),
        ({"period": 0.0}, "period is a number from 1e-06 .* got 0.0"),
        ({"noise": 0.0}, "zero noise"),
        ({"noise": math.inf}, "noise .* got inf"),
        (
            {"kernel": "powered-exponential", "power": 3.0},
            "power is a number from 0 to 2; got 3.0",
        ),
        ({"power": 2.01}, "power is a number from 0 to 2; got 2.01"),
        ({"power": -0.5}, "power is a number from 0 to 2; got -0.5"),
        ({"power": 0.0}, "power is greater than 0; got 0"),
        ({"power": math.nan}, "power is a number from 0 to 2; got nan"),
        ({"power": math.inf}, "power is a number from 0 to 2; got inf"),
        ({"power": 1.5}, 'power is no setting of kernel "rbf"; leave it out'),
        ({"kernel": "periodic", "power": 2.0}, 'power is no setting of kernel "periodic"'),
        ({"kernel": "matern-1/2", "period": 0.3}, 'period is no setting of kernel "matern-1/2"'),
        (
            {"kernel": "given", "covariance_matrix": GIVEN, "length_scale": 0.3},
            'length_scale is no setting of kernel "given"; leave it out',
        ),
        ({"kernel": "given"}, 'got kernel = "given" without a covariance_matrix'),
        ({"covariance_matrix": GIVEN}, 'got kernel = "rbf" with a covariance_matrix'),
        (
            {"kernel": "given", "covariance_matrix": GIVEN, "dimensions": 2},
            "dimensions stays 1; got 2",
        ),
        (
            {"kernel": "given", "covariance_matrix": ((1.0, 1.5), (1.5, 1.0))},
            "covariance_matrix .* definite: its smallest eigenvalue is -0.5, its largest 2.5",
        ),
        (
            {"kernel": "given", "covariance_matrix": ((1.0, 0.5), (0.4, 1.0))},
            "covariance_matrix is not symmetric",
        ),
        (
            {"kernel": "given", "covariance_matrix": ((1.0, 0.5, 0.0), (0.5, 1.0, 0.0))},
            "2 rows of .3. numbers; expected 2 rows of 2",
        ),
        ({"kernel": "given", "covariance_matrix": ()}, "covariance_matrix has 0 rows"),
        ({"kernel": "given", "covariance_matrix": ((math.inf,),)}, "holds inf"),
        (
            {"kernel": "given", "covariance_matrix": ((1e13,),)},
            "covariance_matrix holds 10000000000000.0; expected numbers up to 1e12 in size",
        ),
    ],
    ids=str,
)
def test_bad_settings_are_refused(given, said):
    with pytest.raises(InvalidInput, match=said) as refusal:
        GaussianProcess(**given)
    assert "\n" not in str(refusal.value)


def test_number_of_sequences_is_checked():
    with pytest.raises(InvalidInput):
        GaussianProcess().batch(0, STREAM)


def test_the_prior_and_what_is_needed_in_words():
    assert GaussianProcess().primitives == ("accumulation", "binding")
    assert GaussianProcess("periodic", 2).prior == (
        "f ~ GP(0, periodic) with scale 1, length scale 0.2; x uniform on [0, 1]^2; "
        "noise N(0, σ²) with σ = 0.1"
    )
    given = GaussianProcess("given", covariance_matrix=GIVEN)
    assert "x one of 3 locations" in given.prior
