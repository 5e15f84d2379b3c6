"""The reference predictors against published numbers (2512.22471) and their definitions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.windtunnel.toys import Coin, NormalMean

from beliefspace.core.distributions import Categorical, Normal
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.calibration import measure
from beliefspace.windtunnel.ladder import ladder
from beliefspace.windtunnel.tasks.bijection import Bijection

STREAM = Stream(7, "ladder")
COMMON = ("uniform", "best constant", "best by position", "position entropy")


def entropies(pairs):
    """Bayes entropy at each key of 20, in bits."""
    return np.array([math.log2(20 - k) for k in range(pairs)])


def measures(task, n=40):
    batch = task.batch(n, STREAM)
    return {name: measure(rung, batch) for name, rung in ladder(task, batch).items()}


def divergence(p, q):
    """KL in bits of rows of probabilities, written out term by term."""
    return np.array(
        [
            sum(a * math.log2(a / b) if b else math.inf for a, b in zip(x, y, strict=True) if a)
            for x, y in zip(p, q, strict=True)
        ]
    )


@pytest.mark.parametrize(("pairs", "published"), [(19, 1.1073), (20, 1.2681)])
def test_uniform_output(pairs, published):
    """Also the released controls that never read their input."""
    uniform = measures(Bijection(20, pairs))["uniform"]
    assert uniform.entropy_error_bits.mean == pytest.approx(published, abs=5e-5)
    expected = np.mean(math.log2(20) - entropies(pairs))
    assert uniform.entropy_error_bits.mean == pytest.approx(expected, rel=1e-12)
    # A uniform belief on the values left is nested in the uniform one: KL is the same.
    assert uniform.kl_bits.mean == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("pairs", "published"), [(19, 3.215), (20, 3.054)])
def test_point_mass(pairs, published):
    batch = Bijection(20, pairs).batch(40, STREAM)
    sure = np.full((40 * pairs, 20), -np.inf)
    sure[:, 3] = 0
    point = measure(Categorical(sure, batch.predictive.support), batch)
    assert point.entropy_error_bits.mean == pytest.approx(published, abs=5e-4)
    assert point.kl_bits.mean == math.inf


@pytest.mark.parametrize(("pairs", "published"), [(19, 0.739), (20, 0.875)])
def test_best_constant_entropy_is_the_median(pairs, published):
    """No constant entropy is nearer to log2 20 ... than their median; found here by search."""
    bits = entropies(pairs)
    best = min(np.abs(bits - c).mean() for c in np.linspace(0, 4.4, 4401))
    assert np.abs(bits - np.median(bits)).mean() <= best + 1e-9
    assert np.abs(bits - np.median(bits)).mean() == pytest.approx(published, abs=6e-4)
    # Some distribution of just that entropy scores just that, whatever the position.
    batch = Bijection(20, pairs).batch(30, STREAM)
    low, high = 0.0, 1.0
    for _ in range(100):
        mass = (low + high) / 2
        p = np.array([1 - mass + mass / 20, *[mass / 20] * 19])
        low, high = (mass, high) if -(p * np.log2(p)).sum() < np.median(bits) else (low, mass)
    constant = Categorical(np.tile(np.log(p), (30 * pairs, 1)), batch.predictive.support)
    assert measure(constant, batch).entropy_error_bits.mean == pytest.approx(published, abs=6e-4)


@pytest.mark.parametrize(
    ("penalty", "published", "digits"), [(10, 1.2e-3, 5e-5), (20, 1.1e-7, 5e-9)]
)
def test_bag_of_values(penalty, published, digits):
    """Weights 1 for values left and e^-c for those seen: exact up to e^-c."""
    rung = measures(Bijection(20, 19))[f"bag-of-values c={penalty}"]
    error, kl = [], []
    for seen in range(19):
        total = 20 - seen + seen * math.exp(-penalty)
        left, gone = 1 / total, math.exp(-penalty) / total
        entropy = -(20 - seen) * left * math.log2(left) - seen * gone * math.log2(gone)
        error.append(entropy - math.log2(20 - seen))
        kl.append(math.log1p(seen * math.exp(-penalty) / (20 - seen)) / math.log(2))
    assert rung.entropy_error_bits.mean == pytest.approx(np.mean(error), rel=1e-4)
    assert rung.entropy_error_bits.mean == pytest.approx(published, abs=digits)
    assert rung.kl_bits.mean == pytest.approx(np.mean(kl), rel=1e-6)
    assert rung.kl_bits.by_position == pytest.approx(kl, rel=1e-6, abs=1e-15)


def test_bags_do_not_bind():
    """Where a key comes again its value is certain, and a bag of values rules just that one out."""
    task = Bijection(8, 12, keys="repeated")
    assert measures(task)["bag-of-values c=20"].kl_bits.mean > 1
    exact = measures(Bijection(8))["bag-of-values c=20"].kl_bits.mean
    assert 0 < exact < 1e-6


@pytest.mark.parametrize(
    "task", [Bijection(6), Bijection(5, 8, "A", "repeated"), Bijection(5, pool=4), Coin(4)], ids=str
)
def test_means_overall_and_by_position(task):
    batch = task.batch(60, STREAM)
    rungs = ladder(task, batch)
    exact = np.exp(batch.predictive.log_probs)
    places = np.array([t for row in batch.scored for t in np.flatnonzero(row)])
    assert next(iter(rungs)) == "uniform"
    assert set(COMMON) <= set(rungs)
    np.testing.assert_allclose(np.exp(rungs["uniform"].log_probs), 1 / exact.shape[1])
    constant = np.exp(rungs["best constant"].log_probs)
    np.testing.assert_allclose(constant, np.tile(exact.mean(axis=0), (len(exact), 1)), rtol=1e-10)
    by_position = np.exp(rungs["best by position"].log_probs)
    for place in set(places.tolist()):
        mean = exact[places == place].mean(axis=0)
        np.testing.assert_allclose(
            by_position[places == place], mean[None].repeat((places == place).sum(), 0)
        )
    for rung in rungs.values():
        assert rung.log_probs.shape == exact.shape
        assert rung.support == batch.predictive.support


def test_no_other_constant_is_closer():
    task = Bijection(5, pool=3)
    batch = task.batch(200, STREAM)
    exact = np.exp(batch.predictive.log_probs)
    best = np.exp(ladder(task, batch)["best constant"].log_probs[0])
    own = divergence(exact, [best] * len(exact)).mean()
    generator = np.random.default_rng(0)
    for _ in range(30):
        other = best * np.exp(0.1 * generator.normal(size=5))
        assert divergence(exact, [other / other.sum()] * len(exact)).mean() > own


def test_position_entropy_knows_nothing_and_has_no_entropy_error():
    """Why entropy error never stands alone."""
    position = measures(Bijection(20, 19))["position entropy"]
    assert position.entropy_error_bits.mean == pytest.approx(0, abs=1e-9)
    assert position.kl_bits.mean > 1
    assert position.total_variation.mean > 0.3


def test_position_entropy_is_the_median_there():
    task = Bijection(6, 9, keys="repeated")
    batch = task.batch(101, STREAM)
    bits = batch.predictive.entropy_bits().reshape(101, 9)
    rung = ladder(task, batch)["position entropy"].entropy_bits().reshape(101, 9)
    np.testing.assert_allclose(rung, np.tile(np.median(bits, axis=0), (101, 1)), atol=1e-9)


def test_worst_comes_first():
    kl = {name: m.kl_bits.mean for name, m in measures(Bijection(12), n=400).items()}
    assert kl["uniform"] >= kl["best constant"] >= kl["best by position"] > 0.5
    bags = [value for name, value in kl.items() if name.startswith("bag-of-values")]
    assert len(bags) >= 2
    assert bags == sorted(bags, reverse=True)


def test_evidence_blind_rungs_do_not_see_the_inputs():
    """Rows of the common rungs are equal wherever the position is."""
    task = Bijection(6)
    batch = task.batch(30, STREAM)
    for name in COMMON:
        rows = ladder(task, batch)[name].log_probs.reshape(30, 6, 6)
        np.testing.assert_array_equal(rows, np.tile(rows[0], (30, 1, 1)))


def test_normal_constants_match_mean_and_variance():
    task = NormalMean(3)
    batch = task.batch(500, STREAM)
    exact = batch.predictive
    rungs = ladder(task, batch)
    constant, by_position = rungs["best constant"], rungs["best by position"]
    assert isinstance(constant, Normal)
    np.testing.assert_allclose(constant.mean, exact.mean.mean(), rtol=1e-10)
    # The law of total variance.
    np.testing.assert_allclose(
        constant.variance, exact.variance.mean() + exact.mean.var(), rtol=1e-10
    )
    mean, variance = exact.mean.reshape(500, 3), exact.variance.reshape(500, 3)
    np.testing.assert_allclose(by_position.mean.reshape(500, 3)[7], mean.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(
        by_position.variance.reshape(500, 3)[7],
        variance.mean(axis=0) + mean.var(axis=0),
        rtol=1e-10,
    )


def test_a_task_adds_its_own_rungs():
    class Guess(Coin):
        def ladder(self, batch):
            return {"a fair coin": Categorical(np.full((batch.predictive.rows, 2), -math.log(2)))}

    task = Guess(3)
    rungs = ladder(task, task.batch(5, STREAM))
    assert set(rungs) == {*COMMON, "a fair coin"}


def test_certain_everywhere_has_finite_rungs():
    """Where there is nothing to learn the common rungs still normalise, zeros exactly."""
    task = Coin(2)
    usual = task.batch(6, STREAM)
    sure = Categorical(np.tile([0.0, -np.inf], (12, 1)), (0, 1))
    batch = replace(usual, _predictive=lambda: sure)
    rungs = ladder(task, batch)
    for name in ("best constant", "best by position"):
        np.testing.assert_array_equal(rungs[name].log_probs, sure.log_probs)
    np.testing.assert_array_equal(rungs["position entropy"].entropy_bits(), 0)
