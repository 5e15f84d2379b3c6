from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.special import rel_entr
from scipy.stats import norm

from beliefspace.core import information
from beliefspace.core.errors import InvalidInput

# Logits far apart enough for probabilities that underflow, with impossible outcomes among them.
LOGIT = st.one_of(st.floats(-5, 5), st.floats(-900, 900), st.just(-np.inf))
MEAN = st.floats(-20, 20)
VARIANCE = st.floats(1e-3, 1e3)


def simplex(rows=3, outcomes=5, elements=LOGIT):
    logits = arrays(np.float64, (rows, outcomes), elements=elements)
    possible = logits.filter(lambda a: np.all(a.max(axis=-1) > -np.inf))
    return possible.map(information.log_softmax)


def logs(*rows):
    with np.errstate(divide="ignore"):
        return np.log(np.array(rows))


def one(*values):
    return tuple(np.array([float(value)]) for value in values)


class TestLogSoftmax:
    def test_written_out(self):
        got = information.log_softmax(np.array([0.0, 1.0, -2.0]))
        total = 1.0 + math.e + math.exp(-2.0)
        np.testing.assert_allclose(np.exp(got), [1 / total, math.e / total, math.exp(-2) / total])

    def test_impossible_stays_impossible(self):
        got = information.log_softmax(np.array([[0.0, -np.inf, 0.0], [-np.inf, 7.0, -np.inf]]))
        half = -math.log(2.0)
        np.testing.assert_array_equal(got, [[half, -np.inf, half], [-np.inf, 0.0, -np.inf]])

    def test_float32_is_widened_before_anything_else(self):
        logits = np.array([0.1, 0.2, 0.7], dtype=np.float32)
        got = information.log_softmax(logits)
        assert got.dtype == np.float64
        assert abs(np.exp(got).sum() - 1.0) < 1e-15

    @given(simplex(), st.floats(-100, 100))
    def test_normalised_and_blind_to_a_shift(self, log_p, shift):
        np.testing.assert_allclose(np.exp(log_p).sum(axis=-1), 1.0, rtol=1e-14)
        np.testing.assert_allclose(information.log_softmax(log_p + shift), log_p, atol=1e-12)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_refuses_nan_and_positive_infinity(self, bad):
        with pytest.raises(InvalidInput, match="1 of 3 logits"):
            information.log_softmax(np.array([0.0, bad, -np.inf]))

    def test_refuses_a_row_with_nothing_possible(self):
        with pytest.raises(InvalidInput, match="row 1 is all -inf"):
            information.log_softmax(np.array([[0.0, 0.0], [-np.inf, -np.inf]]))

    @pytest.mark.parametrize("shape", [(), (3, 0)])
    def test_refuses_no_outcomes(self, shape):
        with pytest.raises(InvalidInput, match="at least one outcome"):
            information.log_softmax(np.zeros(shape))


class TestExactCases:
    def test_uniform_and_certain_entropy(self):
        got = information.entropy_bits(logs([0.25] * 4, [0.5, 0.5, 0, 0], [0, 1, 0, 0]))
        np.testing.assert_array_equal(got, [2.0, 1.0, 0.0])
        assert not np.signbit(got).any()

    def test_divergences_of_coins(self):
        p, q = logs([1.0, 0.0]), logs([0.5, 0.5])
        np.testing.assert_allclose(information.kl_bits(p, q), [1.0], rtol=1e-15)
        np.testing.assert_array_equal(information.cross_entropy_bits(p, q), [1.0])
        np.testing.assert_array_equal(information.total_variation(p, q), [0.5])

    def test_ruling_out_a_possibility_is_infinite_even_if_it_underflows(self):
        p = np.array([[0.0, -800.0]])
        q = np.array([[0.0, -np.inf]])
        assert np.exp(p[0, 1]) == 0.0
        np.testing.assert_array_equal(information.kl_bits(p, q), [np.inf])
        np.testing.assert_array_equal(information.cross_entropy_bits(p, q), [np.inf])
        np.testing.assert_array_equal(information.kl_bits(q, p), [0.0])

    def test_disjoint_supports(self):
        p, q = logs([1.0, 0.0]), logs([0.0, 1.0])
        assert information.kl_bits(p, q) == np.inf
        assert information.total_variation(p, q) == 1.0
        assert information.brier(p, q) == 2.0

    def test_a_tiny_divergence_keeps_its_digits(self):
        # To second order KL((1/2 + e, 1/2 - e) || (1/2, 1/2)) is 2 e^2; the next term is 4/3 e^4.
        e = 1e-9
        p = np.array([[np.log1p(2 * e) - np.log(2.0), np.log1p(-2 * e) - np.log(2.0)]])
        nats = information.kl_bits(p, logs([0.5, 0.5])) * np.log(2.0)
        np.testing.assert_allclose(nats, 2 * e**2, rtol=1e-6)

    def test_far_apart_without_overflow(self):
        p, q = np.array([[-1000.0, 0.0]]), np.array([[0.0, -1000.0]])
        np.testing.assert_allclose(information.kl_bits(p, q), [1000.0 / math.log(2.0)], rtol=1e-14)

    def test_surprisal_picks_the_outcome_that_happened(self):
        log_q = logs([0.5, 0.25, 0.25], [0.0, 1.0, 0.0])
        got = information.surprisal_bits(log_q, np.array([1, 1]))
        np.testing.assert_array_equal(got, [2.0, 0.0])
        assert not np.signbit(got).any()
        assert information.surprisal_bits(log_q, np.array([0, 2]))[1] == np.inf

    def test_brier_is_the_mean_squared_error_against_what_happens(self):
        p, q = np.array([0.2, 0.3, 0.5]), np.array([0.6, 0.1, 0.3])
        want = sum(p[y] * sum((q[k] - (k == y)) ** 2 for k in range(3)) for y in range(3))
        np.testing.assert_allclose(information.brier(logs(p), logs(q)), [want], rtol=1e-15)

    def test_one_distribution_without_rows(self):
        assert information.entropy_bits(np.log(np.full(8, 0.125))).shape == ()
        assert information.surprisal_bits(logs([0.5, 0.5])[0], np.array(1)) == 1.0


class TestAgainstPlainSums:
    @given(simplex(), simplex())
    def test_every_measure(self, log_p, log_q):
        p, q = np.exp(log_p), np.exp(log_q)
        for row in range(len(p)):
            pairs = list(zip(p[row], q[row], log_p[row], log_q[row], strict=True))
            entropy = -sum(a * math.log2(a) for a, *_ in pairs if a > 0)
            missed = any(la > -np.inf and lb == -np.inf for _, _, la, lb in pairs)
            nats = math.inf if missed else -sum(a * lb for a, _, la, lb in pairs if la > -np.inf)
            cross = nats / math.log(2)
            at = slice(row, row + 1)
            measure = (log_p[at], log_q[at])
            np.testing.assert_allclose(information.entropy_bits(log_p[at]), [entropy], atol=1e-12)
            np.testing.assert_allclose(information.cross_entropy_bits(*measure), [cross], atol=1e-9)
            np.testing.assert_allclose(
                information.kl_bits(*measure), [cross - entropy], atol=1e-9, rtol=1e-12
            )
            distance = sum(abs(a - b) for a, b, *_ in pairs) / 2
            np.testing.assert_allclose(information.total_variation(*measure), [distance])

    @given(simplex(elements=st.floats(-30, 30)), simplex(elements=st.floats(-30, 30)))
    def test_kl_against_scipy(self, log_p, log_q):
        want = rel_entr(np.exp(log_p), np.exp(log_q)).sum(axis=-1) / np.log(2.0)
        np.testing.assert_allclose(information.kl_bits(log_p, log_q), want, rtol=1e-9, atol=1e-14)


class TestLaws:
    @given(simplex(), simplex())
    def test_divergence_is_never_negative(self, log_p, log_q):
        assert np.all(information.kl_bits(log_p, log_q) >= 0.0)

    @given(simplex())
    def test_divergence_from_itself_is_exactly_zero(self, log_p):
        assert np.all(information.kl_bits(log_p, log_p.copy()) == 0.0)
        assert np.all(information.total_variation(log_p, log_p.copy()) == 0.0)

    @given(simplex(elements=st.floats(-10, 10)), simplex(elements=st.floats(-10, 10)))
    def test_zero_only_where_equal(self, log_p, log_q):
        differ = np.abs(np.exp(log_p) - np.exp(log_q)).max(axis=-1) > 1e-12
        assert np.all(information.kl_bits(log_p, log_q)[differ] > 0.0)
        assert np.all(information.total_variation(log_p, log_q)[differ] > 0.0)

    @given(st.integers(-30, 0), st.floats(-1, 1), st.floats(0.01, 0.99))
    def test_never_negative_next_to_equality(self, exponent, direction, share):
        nudge = direction * 2.0**exponent * 1e-7
        p = information.log_softmax(np.array([[math.log(share), math.log1p(-share)]]))
        q = information.log_softmax(p + np.array([[nudge, 0.0]]))
        assert np.all(information.kl_bits(p, q) >= 0.0)

    @given(simplex(2, 3), simplex(2, 3), simplex(3, 4), simplex(3, 4))
    def test_chain_rule(self, log_p, log_q, log_p_given, log_q_given):
        p_first, q_first = log_p[:1], log_q[:1]
        joint_p = (p_first[0, :, None] + log_p_given).reshape(1, -1)
        joint_q = (q_first[0, :, None] + log_q_given).reshape(1, -1)
        first, then = np.exp(p_first[0]), p_first[0] > -np.inf
        conditional = information.kl_bits(log_p_given[then], log_q_given[then])
        # A branch so rare that its weight underflows still counts as infinite if it is ruled out.
        rest = np.inf if np.any(conditional == np.inf) else (first[then] * conditional).sum()
        want = information.kl_bits(p_first, q_first) + rest
        got = information.kl_bits(joint_p, joint_q)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)

    @given(simplex(), simplex(), st.permutations(range(5)))
    def test_blind_to_the_order_of_outcomes(self, log_p, log_q, order):
        for measure in (
            information.kl_bits,
            information.cross_entropy_bits,
            information.total_variation,
            information.brier,
        ):
            np.testing.assert_allclose(
                measure(log_p[:, order], log_q[:, order]), measure(log_p, log_q), atol=1e-12
            )

    @given(simplex(), simplex())
    def test_pinsker(self, log_p, log_q):
        nats = information.kl_bits(log_p, log_q) * math.log(2.0)
        assert np.all(information.total_variation(log_p, log_q) <= np.sqrt(nats / 2.0) + 1e-7)

    @given(simplex())
    def test_entropy_is_between_zero_and_that_of_the_uniform(self, log_p):
        got = information.entropy_bits(log_p)
        assert np.all((got >= 0.0) & (got <= math.log2(5) + 1e-12))

    @given(simplex(), simplex())
    def test_no_forecast_scores_better_than_the_truth(self, log_p, log_q):
        assert np.all(information.brier(log_p, log_q) >= information.brier(log_p, log_p))


class TestNormals:
    @settings(max_examples=25, deadline=None)
    @given(MEAN, VARIANCE, MEAN, VARIANCE)
    def test_kl_against_quadrature(self, mean_p, var_p, mean_q, var_q):
        p, q = norm(mean_p, var_p**0.5), norm(mean_q, var_q**0.5)

        def integrand(z):
            x = mean_p + z * var_p**0.5
            return norm.pdf(z) * (p.logpdf(x) - q.logpdf(x)) / math.log(2.0)

        want, _ = quad(integrand, -12, 12, epsabs=1e-12, epsrel=1e-12, limit=200)
        got = information.normal_kl_bits(*one(mean_p, var_p, mean_q, var_q))
        np.testing.assert_allclose(got, [want], rtol=1e-8, atol=1e-10)

    @given(MEAN, VARIANCE, MEAN)
    def test_entropy_and_surprisal_against_scipy(self, mean, variance, value):
        reference = norm(mean, variance**0.5)
        mean, variance, value = one(mean, variance, value)
        got = information.normal_entropy_bits(variance)
        np.testing.assert_allclose(got, reference.entropy() / math.log(2.0), atol=1e-12)
        got = information.normal_surprisal_bits(mean, variance, value)
        np.testing.assert_allclose(got, -reference.logpdf(value) / math.log(2.0), atol=1e-12)

    @given(MEAN, VARIANCE, MEAN, VARIANCE)
    def test_total_variation_against_a_fine_sum(self, mean_p, var_p, mean_q, var_q):
        p, q = norm(mean_p, var_p**0.5), norm(mean_q, var_q**0.5)
        # Cell masses from the distribution functions: exact but for the two cells with a crossing.
        grids = [d.mean() + d.std() * np.linspace(-10, 10, 20_001) for d in (p, q)]
        edges = np.concatenate(([-np.inf], np.sort(np.concatenate(grids)), [np.inf]))
        want = 0.5 * np.abs(np.diff(p.cdf(edges)) - np.diff(q.cdf(edges))).sum()
        got = information.normal_total_variation(*one(mean_p, var_p, mean_q, var_q))
        np.testing.assert_allclose(got, [want], atol=2e-6)

    @given(MEAN, VARIANCE, MEAN, VARIANCE)
    def test_laws(self, mean_p, var_p, mean_q, var_q):
        p, q = one(mean_p, var_p), one(mean_q, var_q)
        distance = information.normal_total_variation(*p, *q)
        nats = information.normal_kl_bits(*p, *q) * math.log(2.0)
        assert 0.0 <= distance[0] <= 1.0
        assert nats[0] >= 0.0
        assert distance[0] <= math.sqrt(nats[0] / 2.0) + 1e-12
        np.testing.assert_allclose(information.normal_total_variation(*q, *p), distance, atol=1e-14)

    @given(MEAN, st.floats(1e-300, 1e300))
    def test_exactly_zero_against_itself(self, mean, variance):
        p = one(mean, variance)
        assert information.normal_kl_bits(*p, *p)[0] == 0.0
        assert information.normal_total_variation(*p, *p)[0] == 0.0

    def test_equal_variances(self):
        # 2 Phi(1/2) - 1 for means one standard deviation apart.
        got = information.normal_total_variation(*one(1.0, 4.0, 3.0, 4.0))
        np.testing.assert_allclose(got, [0.38292492254802624], rtol=1e-14)

    def test_equal_means(self):
        # N(0, 1) and N(0, 4) cross at x^2 = (8/3) ln 2.
        x = math.sqrt(8 / 3 * math.log(2.0))
        want = 2 * (norm.cdf(x) - norm.cdf(x / 2))
        got = information.normal_total_variation(*one(5.0, 4.0, 5.0, 1.0))
        np.testing.assert_allclose(got, [want], rtol=1e-13)

    @pytest.mark.parametrize("var_q", [1.0, 1e300])
    def test_extremes_do_not_warn(self, var_q):
        far = one(-1e300, 1e-300, 1e300, var_q)
        assert information.normal_kl_bits(*far)[0] > 1e200
        assert information.normal_total_variation(*far)[0] == 1.0
        assert information.normal_surprisal_bits(*one(0.0, 1e-300, 1e300))[0] == np.inf


class TestRefusals:
    def test_other_precisions(self):
        p = np.zeros((1, 1), dtype=np.float32)
        with pytest.raises(InvalidInput, match="float32; expected float64"):
            information.entropy_bits(p)
        with pytest.raises(InvalidInput, match="float32; expected float64"):
            information.normal_entropy_bits(np.ones(1, dtype=np.float32))

    def test_shapes_that_would_broadcast(self):
        with pytest.raises(InvalidInput, match=r"\(1, 2\) and \(2, 2\)"):
            information.kl_bits(logs([0.5, 0.5]), logs([0.5, 0.5], [0.5, 0.5]))
        with pytest.raises(InvalidInput, match="expected them equal"):
            information.normal_kl_bits(*one(0, 1), np.zeros(2), np.ones(2))

    def test_a_scalar(self):
        with pytest.raises(InvalidInput, match="scalar"):
            information.entropy_bits(np.array(0.0))

    @pytest.mark.parametrize("index", [np.array([-1]), np.array([2])])
    def test_an_outcome_that_does_not_exist(self, index):
        with pytest.raises(InvalidInput, match=f"holds {index[0]}; expected 0 to 1"):
            information.surprisal_bits(logs([0.5, 0.5]), index)

    @pytest.mark.parametrize("index", [np.array([0.0]), np.array([0, 1]), np.array([[0]])])
    def test_an_index_of_another_kind(self, index):
        with pytest.raises(InvalidInput, match=r"expected integers \(1,\)"):
            information.surprisal_bits(logs([0.5, 0.5]), index)

    @pytest.mark.parametrize("variance", [0.0, -1.0, np.inf, np.nan])
    def test_a_variance_that_is_not_positive_and_finite(self, variance):
        with pytest.raises(InvalidInput, match="expected positive and finite"):
            information.normal_entropy_bits(np.array([1.0, variance]))

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_a_value_that_is_not_finite(self, value):
        with pytest.raises(InvalidInput, match="expected finite"):
            information.normal_surprisal_bits(*one(0.0, 1.0, value))
