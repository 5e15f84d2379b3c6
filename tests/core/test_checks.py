"""Checks of single settings: what they let through, and what they say when they do not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beliefspace.core.checks import (
    as_rows,
    check_choice,
    check_finite,
    check_rows_of_probabilities,
    check_whole,
    check_within,
)
from beliefspace.core.errors import InvalidInput

NO_NUMBERS = [True, False, None, "1", [1], 1j]


def refusal(check, *given, **more):
    with pytest.raises(InvalidInput) as caught:
        check(*given, **more)
    return str(caught.value)


# ---------------------------------------------------------------- numbers


@given(st.integers(2, 1000))
def test_whole_numbers_of_the_range_pass(value):
    check_whole("size", value, 2, most=1000)


@pytest.mark.parametrize("value", [*NO_NUMBERS, 1, -5, 2.0, math.nan])
def test_what_is_no_whole_number_or_too_small_is_shown(value):
    expected = f"size is a whole number of at least 2; got {value!r}"
    assert refusal(check_whole, "size", value, 2) == expected


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1001, "1,001"),
        (10**12 - 1, "999,999,999,999"),
        (10**12, "a number of 13 digits"),
        (10**400, "a number of 401 digits"),
    ],
)
def test_a_number_that_is_too_large_is_shown_unless_it_is_too_long(value, shown):
    said = refusal(check_whole, "size", value, 2, most=1000)
    assert said == f"size is at most 1,000; got {shown}"


@given(st.floats(0, 1e307) | st.integers(0, 10**307))
def test_finite_numbers_pass(value):
    check_finite("rate", value)


@pytest.mark.parametrize("value", [*NO_NUMBERS, -1e-9, math.nan, math.inf, -math.inf, 10**400])
def test_what_is_not_finite_or_negative_is_shown(value):
    expected = f"rate is a finite number at least 0; got {value!r}"
    assert refusal(check_finite, "rate", value) == expected


def test_a_bound_that_is_to_be_exceeded_is_itself_refused():
    check_finite("rate", 1e-300, above=0)
    assert refusal(check_finite, "rate", 0, above=0) == (
        "rate is a finite number greater than 0; got 0"
    )


@given(st.floats(0.5, 2) | st.integers(1, 2))
def test_numbers_within_pass_ends_included(value):
    check_within("share", value, 0.5, 2)


@pytest.mark.parametrize(
    "value", [*NO_NUMBERS, 0.4999, 2.0001, math.nan, math.inf, -math.inf, 10**400, -(10**400)]
)
def test_what_is_not_within_is_shown_with_the_range(value):
    expected = f"share is a number from 0.5 to 2; got {value!r}"
    assert refusal(check_within, "share", value, 0.5, 2) == expected


def test_a_long_bound_is_written_shortly():
    assert "from 1e-06 to 1e+06" in refusal(check_within, "share", 0, 1e-6, 1e6)


# ---------------------------------------------------------------- choices


def test_a_choice_passes_and_a_near_miss_is_told_the_nearest():
    check_choice("colour", "red", ("red", "green"))
    said = refusal(check_choice, "colour", "gren", ("red", "green"))
    assert said == "colour is one of red, green; got 'gren' (nearest: green)"


@pytest.mark.parametrize("value", [None, 3, ["red"], {"red": 1}, b"red"])
def test_what_is_no_word_is_no_choice(value):
    said = refusal(check_choice, "colour", value, ("red", "green"))
    assert said.startswith(f"colour is one of red, green; got {value!r}")


def test_an_array_is_no_choice():
    """Though one of numpy's words compares equal to a word, element by element."""
    said = refusal(check_choice, "colour", np.array(["red", "green"]), ("red", "green"))
    assert said.startswith("colour is one of red, green")


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize(
    "table", [[[1, 2.5], [3, 4]], ((1, 2.5), (3, 4)), np.array([[1, 2.5], [3, 4]])]
)
def test_tables_become_tuples_of_floats(table):
    rows = as_rows("table", table)
    assert rows == ((1.0, 2.5), (3.0, 4.0))
    assert all(type(entry) is float for row in rows for entry in row)


@pytest.mark.parametrize(
    "table", [3, None, [1, 2], "12", ["12"], [["1"]], [[True]], [[None]], [[1j]], [[10**400]]]
)
def test_what_is_no_table_of_numbers_is_refused(table):
    assert refusal(as_rows, "table", table).startswith("table is rows of numbers; got ")


def test_a_long_table_is_shown_in_part():
    said = refusal(as_rows, "table", [["x" * 100]])
    assert said.endswith("...")
    assert len(said) < 100


def test_rows_of_probabilities_are_scaled_to_one():
    table = check_rows_of_probabilities("table", [(0.5, 0.5), (0.3333333, 0.6666666)], 2)
    np.testing.assert_allclose(table.sum(axis=1), 1, rtol=1e-15)
    np.testing.assert_allclose(table, [[1 / 2, 1 / 2], [1 / 3, 2 / 3]], atol=1e-6)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ((1.0,), "row 1 of table has 1 entries; expected 2"),
        ((1.5, -0.5), "row 1 of table holds -0.5; expected probabilities, 0 to 1"),
        ((math.nan, 1.0), "row 1 of table holds nan; expected probabilities, 0 to 1"),
        ((0.5, 0.6), "row 1 of table sums to 1.1; expected 1"),
    ],
    ids=str,
)
def test_a_row_that_is_no_distribution_is_named(row, expected):
    assert refusal(check_rows_of_probabilities, "table", [(0.5, 0.5), row], 2) == expected
