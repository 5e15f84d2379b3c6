from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.stats import entropy as scipy_entropy
from scipy.stats import norm

from beliefspace.core.distributions import Categorical, Normal
from beliefspace.core.errors import InvalidInput
from beliefspace.core.information import log_softmax


def categorical(rows, support=()):
    with np.errstate(divide="ignore"):
        return Categorical(np.log(np.array(rows, dtype=np.float64)), support)


P = categorical([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], (7, 2, 4))
Q = categorical([[0.25, 0.5, 0.25], [0.2, 0.3, 0.5]], (7, 2, 4))
N = Normal(np.array([0.0, 1.0, 2.0]), np.array([1.0, 4.0, 0.25]))
M = Normal(np.array([0.5, 1.0, -2.0]), np.array([2.0, 4.0, 1.0]))


class TestCategorical:
    def test_measures_row_by_row(self):
        ln2 = math.log(2.0)
        p, q = np.exp(P.log_probs), np.exp(Q.log_probs)
        want = [scipy_entropy(row) / ln2 for row in p]
        np.testing.assert_allclose(P.entropy_bits(), want, rtol=1e-14)
        np.testing.assert_allclose(P.kl_bits(Q), [0.5, 0.0], rtol=1e-14)
        np.testing.assert_allclose(P.cross_entropy_bits(Q), [1.5, want[1]], rtol=1e-14)
        np.testing.assert_allclose(P.total_variation(Q), np.abs(p - q).sum(axis=1) / 2)
        np.testing.assert_allclose(Q.surprisal_bits(np.array([2, 0])), [2.0, math.log2(5)])
        np.testing.assert_array_equal(Q.kl_bits(P), [np.inf, 0.0])

    def test_left_out_support_counts_from_zero(self):
        assert categorical([[0.5, 0.5]]).support == (0, 1)

    def test_support_becomes_plain_integers(self):
        support = categorical([[0.5, 0.5]], tuple(np.array([3, 1]))).support
        assert support == (3, 1)
        assert {type(name) for name in support} == {int}

    @pytest.mark.parametrize(
        "rows",
        [np.array([1]), np.array([False, True]), slice(1, None)],
        ids=["index", "mask", "slice"],
    )
    def test_take(self, rows):
        taken = P.take(rows)
        assert taken.rows == 1
        assert taken.support == P.support
        np.testing.assert_array_equal(taken.log_probs, P.log_probs[1:])

    def test_no_rows(self):
        none = P.take(slice(0, 0))
        assert none.rows == 0
        assert none.entropy_bits().shape == (0,)

    def test_expand_puts_each_outcome_at_its_id(self):
        wide = P.expand(9)
        assert wide.support == tuple(range(9))
        for outcome, name in enumerate(P.support):
            np.testing.assert_array_equal(wide.log_probs[:, name], P.log_probs[:, outcome])
        elsewhere = [name for name in range(9) if name not in P.support]
        assert np.all(wide.log_probs[:, elsewhere] == -np.inf)

    @given(arrays(np.float64, (2, 4, 3), elements=st.floats(-50, 50)))
    def test_expanding_changes_no_measure(self, logits):
        p, q = (Categorical(log_softmax(rows), (5, 0, 3)) for rows in logits)
        wide_p, wide_q = p.expand(7), q.expand(7)
        np.testing.assert_allclose(wide_p.entropy_bits(), p.entropy_bits(), atol=1e-13)
        np.testing.assert_allclose(wide_p.kl_bits(wide_q), p.kl_bits(q), rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(
            wide_p.total_variation(wide_q), p.total_variation(q), rtol=1e-12, atol=1e-15
        )

    def test_expand_refuses_a_vocabulary_that_is_too_small(self):
        with pytest.raises(InvalidInput, match="id 7; expected 0 to 6"):
            P.expand(7)
        with pytest.raises(InvalidInput, match="id -1"):
            categorical([[0.5, 0.5]], (0, -1)).expand(3)

    def test_the_worst_row_is_named(self):
        with pytest.raises(InvalidInput, match=r"row 2 of log_probs sums to 1\.2"):
            categorical([[0.5, 0.5], [0.5, 0.4], [0.6, 0.6]])

    @pytest.mark.parametrize("bad", [np.nan, np.inf, 800.0, -np.inf])
    def test_a_row_that_is_no_distribution(self, bad):
        with pytest.raises(InvalidInput, match="row 1 of"):
            Categorical(np.array([[0.0], [bad]]))

    def test_the_tolerance_of_the_sum(self):
        assert Categorical(np.array([[5e-10]])).rows == 1
        with pytest.raises(InvalidInput, match="expected 1 within 1e-09"):
            Categorical(np.array([[2e-9]]))

    @pytest.mark.parametrize(
        "log_probs", [np.zeros((2, 1), dtype=np.float32), np.zeros(1), np.zeros((2, 1), dtype=int)]
    )
    def test_other_dtypes_and_shapes(self, log_probs):
        with pytest.raises(InvalidInput, match="expected float64 with 2 dimensions"):
            Categorical(log_probs)

    def test_not_an_array(self):
        with pytest.raises(InvalidInput, match="log_probs is a list"):
            Categorical([[0.0]])

    @pytest.mark.parametrize("support", [(1,), (1, 2, 3), (4, 4)])
    def test_a_support_that_does_not_name_each_outcome(self, support):
        with pytest.raises(InvalidInput, match="expected one name for each"):
            categorical([[0.5, 0.5]], support)

    def test_no_outcomes(self):
        with pytest.raises(InvalidInput, match="names 0 outcomes"):
            Categorical(np.zeros((0, 0)))

    @pytest.mark.parametrize("measure", ["kl_bits", "cross_entropy_bits", "total_variation"])
    def test_mismatches(self, measure):
        compare = getattr(P, measure)
        with pytest.raises(InvalidInput, match="id 4 is in only one"):
            compare(Categorical(P.log_probs, (7, 2, 5)))
        with pytest.raises(InvalidInput, match="the order differs"):
            compare(Categorical(P.log_probs, (2, 7, 4)))
        with pytest.raises(InvalidInput, match="2 rows against 1"):
            compare(P.take(slice(1)))
        with pytest.raises(InvalidInput, match="a Categorical cannot be compared with a Normal"):
            compare(N)

    def test_frozen(self):
        with pytest.raises(dataclasses.FrozenInstanceError):
            P.support = (1, 2, 3)


class TestNormal:
    def test_measures_against_quadrature(self):
        value = np.array([0.1, -1.0, 2.5])
        for row in range(N.rows):
            p = norm(N.mean[row], N.variance[row] ** 0.5)
            q = norm(M.mean[row], M.variance[row] ** 0.5)

            def expected(function, p=p):
                ends = p.mean() - 12 * p.std(), p.mean() + 12 * p.std()
                return quad(lambda x: p.pdf(x) * function(x), *ends, limit=200)[0] / math.log(2)

            entropy = expected(lambda x, p=p: -p.logpdf(x))
            cross = expected(lambda x, q=q: -q.logpdf(x))
            cut = np.linspace(-15, 15, 60_001)
            distance = 0.5 * np.abs(np.diff(p.cdf(cut)) - np.diff(q.cdf(cut))).sum()
            surprisal = -math.log2(p.pdf(value[row]))
            close = {"rtol": 1e-8, "atol": 1e-10}
            np.testing.assert_allclose(N.entropy_bits()[row], entropy, **close)
            np.testing.assert_allclose(N.cross_entropy_bits(M)[row], cross, **close)
            np.testing.assert_allclose(N.kl_bits(M)[row], cross - entropy, **close)
            np.testing.assert_allclose(N.total_variation(M)[row], distance, atol=1e-6)
            np.testing.assert_allclose(N.surprisal_bits(value)[row], surprisal, **close)

    def test_take(self):
        taken = N.take(np.array([2, 0]))
        np.testing.assert_array_equal(taken.mean, [2.0, 0.0])
        np.testing.assert_array_equal(taken.variance, [0.25, 1.0])

    @pytest.mark.parametrize("mean", [np.nan, np.inf])
    def test_the_bad_row_is_named_for_a_mean(self, mean):
        with pytest.raises(InvalidInput, match=f"row 1 has mean {mean}"):
            Normal(np.array([0.0, mean]), np.ones(2))

    @pytest.mark.parametrize("variance", [0.0, -1.0, np.nan, np.inf])
    def test_the_bad_row_is_named_for_a_variance(self, variance):
        with pytest.raises(InvalidInput, match=f"row 1 has mean 0.0 and variance {variance}"):
            Normal(np.zeros(2), np.array([1.0, variance]))

    def test_other_dtypes_shapes_and_lengths(self):
        with pytest.raises(InvalidInput, match="mean is float32"):
            Normal(np.zeros(2, dtype=np.float32), np.ones(2))
        with pytest.raises(InvalidInput, match=r"variance is float64 of shape \(2, 1\)"):
            Normal(np.zeros(2), np.ones((2, 1)))
        with pytest.raises(InvalidInput, match="mean has 2 rows and variance 3"):
            Normal(np.zeros(2), np.ones(3))

    @pytest.mark.parametrize("measure", ["kl_bits", "cross_entropy_bits", "total_variation"])
    def test_mismatches(self, measure):
        compare = getattr(N, measure)
        with pytest.raises(InvalidInput, match="3 rows against 2"):
            compare(N.take(slice(2)))
        with pytest.raises(InvalidInput, match="a Normal cannot be compared with a Categorical"):
            compare(P)
