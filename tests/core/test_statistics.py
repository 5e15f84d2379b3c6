from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from beliefspace.core.errors import InvalidInput
from beliefspace.core.jsonable import to_json
from beliefspace.core.statistics import (
    Estimate,
    Interval,
    benjamini_hochberg,
    curve_bootstrap,
    holm,
    mean_bootstrap,
    mean_t,
    paired_comparison,
)
from beliefspace.core.streams import Stream


def source(seed=0):
    return Stream(seed, "test")


VALUES = np.array([3.1, 2.7, 4.4, 3.3, 2.9])
P_VALUES = arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 1))


class TestMeanT:
    @pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
    def test_interval_against_scipy(self, level):
        got = mean_t(VALUES, level)
        low, high = stats.t.interval(level, 4, loc=VALUES.mean(), scale=stats.sem(VALUES))
        assert got.mean == pytest.approx(VALUES.mean(), rel=1e-15)
        assert (got.interval.low, got.interval.high) == pytest.approx((low, high), rel=1e-12)
        assert (got.interval.level, got.interval.method, got.interval.count) == (level, "t", 5)
        assert got.count == 5

    def test_one_value_has_no_interval(self):
        assert mean_t(np.array([2.5])) == Estimate(2.5, None, 1)

    def test_equal_values_have_an_interval_of_no_width(self):
        assert mean_t(np.array([2.0, 2.0])).interval == Interval(2.0, 2.0, 0.95, "t", 2)

    def test_one_infinite_divergence_is_an_infinite_mean(self):
        assert mean_t(np.array([1.0, np.inf, 2.0])) == Estimate(np.inf, None, 3)

    @pytest.mark.parametrize("bad", [np.nan, -np.inf])
    def test_refuses_what_cannot_be_averaged(self, bad):
        with pytest.raises(InvalidInput, match="1 of 3 values"):
            mean_t(np.array([1.0, bad, np.inf]))

    @pytest.mark.parametrize("shape", [(0,), (), (2, 2)])
    def test_refuses_other_shapes(self, shape):
        with pytest.raises(InvalidInput, match=r"expected \[n\], n >= 1"):
            mean_t(np.zeros(shape))

    @pytest.mark.parametrize("level", [0.0, 1.0, 95.0, np.nan])
    def test_refuses_other_levels(self, level):
        with pytest.raises(InvalidInput, match="expected between 0 and 1"):
            mean_t(VALUES, level)


class TestBootstrap:
    def test_interval_is_the_quantiles_of_resampled_means(self):
        got = mean_bootstrap(VALUES, source(), level=0.9, resamples=20_000)
        # All 5^5 equally likely resamples give the exact distribution that is sampled.
        means = [np.mean(draw) for draw in itertools.product(VALUES, repeat=5)]
        low, high = np.quantile(means, [0.05, 0.95])
        assert got.mean == pytest.approx(VALUES.mean(), rel=1e-15)
        assert got.interval.low == pytest.approx(low, abs=0.03)
        assert got.interval.high == pytest.approx(high, abs=0.03)
        assert (got.interval.level, got.interval.method, got.interval.count) == (
            0.9,
            "bootstrap",
            5,
        )

    def test_coverage(self):
        draws = np.random.default_rng(7).exponential(size=(400, 60))
        hits = 0
        for trial, values in enumerate(draws):
            interval = mean_bootstrap(values, source(trial), level=0.9, resamples=300).interval
            hits += interval.low <= 1.0 <= interval.high
        # 400 trials have a standard error of 0.015; skew and n = 60 cost this method 0.02 or so.
        assert 0.83 <= hits / 400 <= 0.95

    def test_same_source_same_interval(self):
        values = np.sqrt(np.arange(50.0))
        assert mean_bootstrap(values, source(1)) == mean_bootstrap(values, source(1))
        assert mean_bootstrap(values, source(1)) != mean_bootstrap(values, source(2))

    def test_wider_level_wider_interval(self):
        inner, outer = (mean_bootstrap(VALUES, source(), level).interval for level in (0.5, 0.99))
        assert outer.low < inner.low < inner.high < outer.high

    def test_one_value_has_no_interval(self):
        assert mean_bootstrap(np.array([2.5]), source()) == Estimate(2.5, None, 1)

    def test_a_curve_is_resampled_by_whole_rows(self):
        column = np.arange(20.0) ** 1.5
        one, twin, shifted = curve_bootstrap(
            np.stack([column, column, column + 100.0], axis=1), source()
        )
        assert one == twin
        # Any constant shift passes through only if all positions see the same rows.
        assert shifted.interval.low == pytest.approx(one.interval.low + 100.0, rel=1e-12)
        alone = mean_bootstrap(column, source())
        assert one.mean == pytest.approx(alone.mean, rel=1e-14)
        assert one.interval.low == pytest.approx(alone.interval.low, rel=1e-14)

    def test_an_infinite_position_leaves_the_others_alone(self):
        values = np.stack([VALUES, np.append(VALUES[:4], np.inf)], axis=1)
        finite, infinite = curve_bootstrap(values, source())
        assert infinite == Estimate(np.inf, None, 5)
        assert finite.interval.high == pytest.approx(mean_bootstrap(VALUES, source()).interval.high)

    def test_no_positions(self):
        assert curve_bootstrap(np.zeros((3, 0)), source()) == ()

    def test_refusals(self):
        with pytest.raises(InvalidInput, match="0 resamples"):
            mean_bootstrap(VALUES, source(), resamples=0)
        with pytest.raises(InvalidInput, match=r"expected \[n\]"):
            mean_bootstrap(VALUES[:, None], source())
        with pytest.raises(InvalidInput, match=r"expected \[n, positions\]"):
            curve_bootstrap(VALUES, source())
        with pytest.raises(InvalidInput, match="level 2"):
            mean_bootstrap(VALUES, source(), level=2)
        with pytest.raises(InvalidInput, match="NaN"):
            mean_bootstrap(np.array([1.0, np.nan]), source())


class TestPairedComparison:
    def test_large_samples_are_the_paired_t_test(self):
        rng = np.random.default_rng(3)
        a, b = rng.normal(0.3, 1.0, 13), rng.normal(size=13)
        got, want = paired_comparison(a, b), stats.ttest_rel(a, b)
        assert got.method == "t"
        assert got.p_value == pytest.approx(want.pvalue, rel=1e-10)
        low, high = want.confidence_interval(0.95)
        assert (got.interval.low, got.interval.high) == pytest.approx((low, high), rel=1e-10)
        assert (got.difference, got.count) == (pytest.approx(np.mean(a - b)), 13)

    @given(arrays(np.int64, st.integers(1, 7), elements=st.integers(-9, 9)))
    def test_small_samples_by_enumeration_of_sign_flips(self, differences):
        observed = abs(int(differences.sum()))
        flips = [
            abs(sum(s * int(d) for s, d in zip(signs, differences, strict=True)))
            for signs in itertools.product((1, -1), repeat=len(differences))
        ]
        want = sum(flip >= observed for flip in flips) / len(flips)
        # Tenths are not exact in binary: ties must survive the rounding.
        got = paired_comparison(differences / 10.0, np.zeros(len(differences)))
        assert got.method == "sign-flip"
        assert got.p_value == pytest.approx(want, abs=1e-15)

    def test_twelve_pairs_against_scipy(self):
        differences = np.random.default_rng(0).normal(0.4, 1.0, 12)
        want = stats.permutation_test(
            (differences,), np.mean, permutation_type="samples", n_resamples=np.inf
        )
        got = paired_comparison(differences, np.zeros(12))
        assert got.method == "sign-flip"
        assert got.p_value == pytest.approx(want.pvalue, rel=1e-12)

    def test_the_smallest_p_value(self):
        got = paired_comparison(np.array([1.0, 2.0, 3.0]), np.zeros(3))
        assert got.p_value == 0.25

    def test_one_pair_says_nothing(self):
        got = paired_comparison(np.array([5.0]), np.array([1.0]))
        assert (got.difference, got.interval, got.p_value, got.count) == (4.0, None, 1.0, 1)

    @pytest.mark.parametrize(("shift", "p_value"), [(0.0, 1.0), (0.5, 0.0)])
    def test_differences_without_spread(self, shift, p_value):
        a = np.arange(20.0)
        got = paired_comparison(a + shift, a)
        assert (got.difference, got.p_value) == (shift, p_value)

    def test_swapping_the_arms_swaps_the_sign_only(self):
        a, b = VALUES, VALUES[::-1] * 1.1
        forth, back = paired_comparison(a, b, level=0.8), paired_comparison(b, a, level=0.8)
        assert forth.difference == -back.difference
        assert forth.p_value == back.p_value
        assert forth.interval.low == pytest.approx(-back.interval.high)
        assert forth.interval.level == 0.8

    def test_refusals(self):
        with pytest.raises(InvalidInput, match=r"\(5,\) values against \(4,\)"):
            paired_comparison(VALUES, VALUES[1:])
        with pytest.raises(InvalidInput, match="expected finite"):
            paired_comparison(np.array([np.inf]), np.array([np.inf]))
        with pytest.raises(InvalidInput, match="n >= 1"):
            paired_comparison(np.zeros(0), np.zeros(0))


class TestCorrections:
    def test_holm_by_hand(self):
        # Ascending .005 .01 .03 .04, times 4 3 2 1, made monotone.
        got = holm(np.array([0.01, 0.04, 0.03, 0.005]))
        np.testing.assert_allclose(got, [0.03, 0.06, 0.06, 0.02], rtol=1e-14)

    @given(P_VALUES)
    def test_holm_as_the_step_down_procedure(self, p_values):
        adjusted = holm(p_values)
        for alpha in (0.01, 0.05, 0.2, 0.7):
            rejected = set()
            for step, at in enumerate(np.argsort(p_values, kind="stable")):
                if p_values[at] * (len(p_values) - step) > alpha:
                    break
                rejected.add(int(at))
            assert rejected == set(np.flatnonzero(adjusted <= alpha).tolist())

    def test_benjamini_hochberg_by_hand(self):
        got = benjamini_hochberg(np.array([0.01, 0.04, 0.03, 0.005]))
        np.testing.assert_allclose(got, [0.02, 0.04, 0.04, 0.02], rtol=1e-14)

    @given(P_VALUES)
    def test_benjamini_hochberg_against_scipy(self, p_values):
        np.testing.assert_allclose(
            benjamini_hochberg(p_values), stats.false_discovery_control(p_values), rtol=1e-13
        )

    @pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
    @given(p_values=P_VALUES)
    def test_an_adjusted_value_is_a_p_value_and_not_smaller(self, adjust, p_values):
        adjusted = adjust(p_values)
        assert np.all((adjusted >= p_values * (1 - 1e-15)) & (adjusted <= 1.0))

    @pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
    def test_none_one_and_bad(self, adjust):
        assert adjust(np.zeros(0)).shape == (0,)
        assert adjust(np.array([0.3])) == [0.3]
        for bad in ([1.1], [-0.1], [np.nan], 0.5):
            with pytest.raises(InvalidInput, match="expected a list of values 0 to 1"):
                adjust(np.array(bad))


class TestToDict:
    def test_plain_and_complete(self):
        got = paired_comparison(VALUES, VALUES[::-1] + 1.0).to_dict()
        assert set(got) == {"difference", "interval", "p_value", "method", "count"}
        assert set(got["interval"]) == {"low", "high", "level", "method", "count"}
        assert {type(got["difference"]), type(got["interval"]["low"])} == {float}
        assert math.isclose(json.loads(json.dumps(got))["difference"], -1.0)

    def test_an_infinite_mean_is_written_as_a_string(self):
        text = to_json(mean_t(np.array([np.inf, 1.0])).to_dict())
        assert json.loads(text) == {"mean": "inf", "interval": None, "count": 2}
        assert mean_t(VALUES).interval.to_dict()["method"] == "t"
