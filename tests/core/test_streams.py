"""Streams: pure functions of (seed, purpose, lane, step, row), with the right distributions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream

STREAM = Stream(0, "test")


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 7), st.integers(0, 5))
def test_a_row_does_not_depend_on_how_many_are_drawn(few, more, width, step):
    rows = STREAM.uniforms(step, few, width)
    assert np.array_equal(rows, STREAM.uniforms(step, few + more, width)[:few])


def test_every_coordinate_changes_the_numbers():
    draws = [
        Stream(0, "a").uniforms(0, 4, 4),
        Stream(1, "a").uniforms(0, 4, 4),
        Stream(0, "b").uniforms(0, 4, 4),
        Stream(0, "a").child("b").uniforms(0, 4, 4),
        Stream(0, "a").uniforms(1, 4, 4),
        Stream(0, "a").uniforms(0, 4, 4, lane="other"),
    ]
    for index, one in enumerate(draws):
        for other in draws[index + 1 :]:
            assert not np.intersect1d(one, other).size


def test_purpose_and_lane_cannot_be_confused():
    joined = Stream(0, "ab").uniforms(0, 2, 2, lane="c")
    assert not np.array_equal(joined, Stream(0, "a").uniforms(0, 2, 2, lane="bc"))


def test_steps_do_not_overlap_however_wide_they_are():
    wide = STREAM.uniforms(0, 1000, 64)
    assert not np.intersect1d(wide, STREAM.uniforms(1, 1000, 64)).size


def test_known_numbers():
    """The streams of a recorded run stay what they were."""
    assert Stream(7, "train").uniforms(3, 2, 2, "keys").ravel() == pytest.approx(
        [0.003501386583412036, 0.7072200150551531, 0.7002516069798577, 0.7302517550821902],
        abs=0,
    )


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (lambda s: s.uniforms(0, 4000, 3), stats.uniform()),
        (lambda s: s.normals(0, 4000, 3), stats.norm()),
        (lambda s: s.exponentials(0, 4000, 3), stats.expon()),
    ],
)
def test_continuous_draws_have_their_law(draw, law):
    assert stats.kstest(draw(STREAM).ravel(), law.cdf).pvalue > 1e-3


def test_integers_and_permutations_are_uniform():
    counts = np.bincount(STREAM.integers(0, 5000, 2, below=7).ravel(), minlength=7)
    assert stats.chisquare(counts).pvalue > 1e-3
    permutations = STREAM.permutations(0, 6000, 4)
    assert (np.sort(permutations, axis=1) == np.arange(4)).all()
    _, counts = np.unique(permutations, axis=0, return_counts=True)
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-3


def test_row_generators_are_their_own():
    first = STREAM.generator(0, 0).random(5)
    assert np.array_equal(first, STREAM.generator(0, 0).random(5))
    for other in (STREAM.generator(0, 1), STREAM.generator(1, 0), STREAM.generator(0, 0, "x")):
        assert not np.intersect1d(first, other.random(5)).size
    assert not np.intersect1d(first, STREAM.uniforms(0, 5, 1)).size


@pytest.mark.parametrize("step", [-1, 0.5, True, 2**63 + 1])
def test_a_step_is_a_whole_number_that_the_counter_can_hold(step):
    with pytest.raises(InvalidInput, match="step is"):
        STREAM.uniforms(step, 2, 2)
    with pytest.raises(InvalidInput, match="step is"):
        STREAM.generator(step, 0)


def test_the_last_step_is_as_good_as_any():
    assert not np.intersect1d(STREAM.uniforms(2**63, 50, 4), STREAM.uniforms(0, 50, 4)).size


def test_a_seed_is_an_integer():
    with pytest.raises(InvalidInput, match=r"integer; got 1\.5"):
        Stream(1.5, "x")
