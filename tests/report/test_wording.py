from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beliefspace.report.wording import clean, duration, interval, plural, power_of_ten, short, whole


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1.00"),
        (0.99996, "1.00"),
        (9.996, "10.0"),
        (12345.0, "12,300"),
        (99999.0, "1.00×10⁵"),
        (0.001234, "0.00123"),
        (0.00009999, "1.00×10⁻⁴"),
        (-2.5e-7, "−2.50×10⁻⁷"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_short(value, written):
    assert short(value) == written


SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


@given(st.floats(-1e300, 1e300, allow_subnormal=False))
def test_short_is_right_to_three_digits(value):
    mantissa, _, power = short(value).replace("−", "-").replace(",", "").partition("×10")
    read = float(mantissa) * float(f"1e{power.translate(SUPERSCRIPTS) or 0}")
    assert math.isclose(read, value, rel_tol=5.001e-3)


def test_other_words():
    assert interval(0.1, 0.2) == "[0.100, 0.200]"
    assert interval(None, None) == ""
    assert whole(900_000) == "900,000"
    assert whole(1.07e12) == "1.07×10¹²"
    assert whole(None) == "–"
    assert [duration(s) for s in (11.83, 754.0, 7200.0)] == ["11.8 s", "12.6 min", "2.00 h"]
    assert duration(None) == "–"
    assert [plural(n, "run") for n in (1, 2)] == ["1 run", "2 runs"]
    assert power_of_ten(-12) == "10⁻¹²"


@given(st.text())
def test_clean_text_has_nothing_that_xml_cannot_hold(text):
    cleaned = clean(text)
    assert len(cleaned) == len(text)
    assert cleaned.isprintable()
    cleaned.encode()
