"""Draws of distributions, and from them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream, check_concentration, pick

STREAM = Stream(5, "drawing")


@pytest.mark.parametrize("concentration", [0.2, 1.0, 2.5])
def test_dirichlet_rows_have_the_marginal_beta_law(concentration):
    rows = STREAM.dirichlet(0, 4000, 3, concentration, "rows")
    assert np.allclose(rows.sum(axis=1), 1, atol=1e-14)
    law = stats.beta(concentration, 2 * concentration)
    for column in range(3):
        assert stats.kstest(rows[:, column], law.cdf).pvalue > 1e-3


@pytest.mark.parametrize("concentration", [0.3, 1.0])
def test_a_dirichlet_row_does_not_depend_on_the_number_of_rows(concentration):
    many, few = (STREAM.dirichlet(2, rows, 4, concentration) for rows in (50, 3))
    assert np.array_equal(many[:3], few)


def test_a_tiny_concentration_gives_distributions_and_no_nan():
    rows = STREAM.dirichlet(0, 1000, 5, 1e-3)
    assert np.allclose(rows.sum(axis=1), 1)
    assert np.median(rows.max(axis=1)) > 0.999


def test_a_huge_concentration_gives_rows_that_are_all_but_uniform():
    rows = STREAM.dirichlet(0, 1000, 5, 1e6)
    assert np.allclose(rows, 0.2, atol=2e-3)


@pytest.mark.parametrize(
    "concentration", [0.0, -1.0, 9e-4, 1.1e6, np.inf, -np.inf, np.nan, True, None, "1", 10**400]
)
def test_a_concentration_that_cannot_be_drawn_from_is_refused(concentration):
    expected = r"concentration is a number from 0\.001 to 1e\+06; got "
    with pytest.raises(InvalidInput, match=expected):
        check_concentration(concentration)
    with pytest.raises(InvalidInput, match=expected):
        STREAM.dirichlet(0, 2, 3, concentration)


@pytest.mark.parametrize("concentration", [1e-3, 1, 1e6])
def test_both_ends_of_the_range_of_concentrations_are_in_it(concentration):
    check_concentration(concentration)


def test_outcomes_are_picked_as_often_as_they_are_probable():
    probabilities = np.tile([0.2, 0.0, 0.5, 0.3], (20_000, 1))
    picked = np.bincount(pick(probabilities, STREAM.uniforms(0, 20_000, 1)[:, 0]), minlength=4)
    assert picked[1] == 0
    assert np.allclose(picked / 20_000, [0.2, 0, 0.5, 0.3], atol=0.015)


def test_no_impossible_outcome_is_picked_at_either_end():
    probabilities = np.array([[0.0, 0.1, 0.7, 0.2, 0.0]])
    assert pick(probabilities, np.array([0.0]))[0] == 1
    assert pick(probabilities, np.array([1 - 2**-53]))[0] == 3
    thirds = np.full((1, 3), 1 / 3)
    assert pick(thirds, np.array([1 - 2**-53]))[0] == 2
