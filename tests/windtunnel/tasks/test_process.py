"""Belief-simplex processes against machines written out in fractions, words counted one by one, and
published entropy rates."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.calibration import measure
from beliefspace.windtunnel.tasks.base import CategoricalOutputs, TokenInputs
from beliefspace.windtunnel.tasks.process import Process

STREAM = Stream(7, "process")
RARE = 1e-4
"""Seeds are fixed: a p-value below this is a wrong distribution, not bad luck."""

HALF, THIRD, SIXTH = Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)


def mess3(x, a):
    """The three matrices as printed in 2405.15943, with b = (1 - a) / 2 and y = 1 - 2 x."""
    b, y = (1 - a) / 2, 1 - 2 * x
    printed = [
        [[a * y, b * x, b * x], [a * x, b * y, b * x], [a * x, b * x, b * y]],
        [[b * y, a * x, b * x], [b * x, a * y, b * x], [b * x, a * x, b * y]],
        [[b * y, b * x, a * x], [b * x, b * y, a * x], [b * x, b * x, a * y]],
    ]
    return {
        (i, token): [(j, printed[token][i][j]) for j in range(3)]
        for i, token in product(range(3), range(3))
    }


def unifilar(**states):
    """Edges of machines in which state and token tell the next state, by name of the state."""
    number = {name: i for i, name in enumerate(states)}
    return {
        (number[name], token): [(number[following], chance)]
        for name, edges in states.items()
        for token, following, chance in edges
    }


MACHINES = {
    "mess3": (mess3(Fraction(1, 16), Fraction(7, 8)), [THIRD] * 3),
    "rrxor": (
        unifilar(
            S=[(0, "zero", HALF), (1, "one", HALF)],
            zero=[(0, "same", HALF), (1, "differ", HALF)],
            one=[(0, "differ", HALF), (1, "same", HALF)],
            same=[(0, "S", 1)],
            differ=[(1, "S", 1)],
        ),
        [THIRD, SIXTH, SIXTH, SIXTH, SIXTH],
    ),
    "z1r": (
        unifilar(
            zero=[(0, "one", 1)],
            one=[(1, "random", 1)],
            random=[(0, "zero", HALF), (1, "zero", HALF)],
        ),
        [THIRD] * 3,
    ),
    "golden-mean": (
        unifilar(free=[(1, "free", HALF), (0, "after", HALF)], after=[(1, "free", 1)]),
        [2 * THIRD, THIRD],
    ),
    "even": (
        unifilar(even=[(0, "even", HALF), (1, "odd", HALF)], odd=[(1, "even", 1)]),
        [2 * THIRD, THIRD],
    ),
}
NAMES = list(MACHINES)


def process(name, length=12, **more):
    """The task whose machine is written out above."""
    own = {"x": 1 / 16, "a": 7 / 8} if name == "mess3" else {}
    return Process(name, length, **own, **more)


def moved(edges, belief, token):
    """P(state, token) from P(state), in whatever numbers those are."""
    after = [0] * len(belief)
    for state, weight in enumerate(belief):
        for following, chance in edges.get((state, token), []):
            after[following] += weight * chance
    return after


def filtered(name, tokens, start=None):
    """Mixed states and next-token laws after each token, in fractions."""
    edges, law = MACHINES[name]
    belief, beliefs, predictives = start or law, [], []
    for token in tokens:
        joint = moved(edges, belief, token)
        belief = [weight / sum(joint) for weight in joint]
        beliefs.append(belief)
        predictives.append(
            [sum(moved(edges, belief, k)) for k in range(3 if name == "mess3" else 2)]
        )
    return beliefs, predictives


def word_probabilities(name, length):
    """Every word of the process with its probability."""
    edges, law = MACHINES[name]
    words = {(): law}
    for _ in range(length):
        words = {
            (*word, token): joint
            for word, belief in words.items()
            for token in range(3 if name == "mess3" else 2)
            if sum(joint := moved(edges, belief, token)) > 0
        }
    return {word: sum(joint) for word, joint in words.items()}


def entropy(chances):
    return -math.fsum(float(p) * math.log2(p) for p in chances if p > 0)


def close(categorical, expected):
    """Equal to rounding, and impossible exactly where it is impossible."""
    expected = np.array(expected, dtype=np.float64)
    np.testing.assert_allclose(np.exp(categorical.log_probs), expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(np.isneginf(categorical.log_probs), expected == 0)


# ---------------------------------------------------------------- machines


@pytest.mark.parametrize("name", NAMES)
def test_machines_are_those_written_out(name):
    edges, law = MACHINES[name]
    task = process(name)
    expected = np.zeros_like(task.machine)
    for (state, token), ends in edges.items():
        for following, chance in ends:
            expected[token, state, following] = chance
    np.testing.assert_allclose(task.machine, expected, rtol=1e-15)
    np.testing.assert_allclose(task.start, np.array(law, dtype=np.float64), rtol=1e-14)
    assert task.hypothesis_bits == pytest.approx(entropy(law))
    assert task.inputs == TokenInputs(len(task.machine))
    assert task.outputs == CategoricalOutputs(tuple(range(len(task.machine))))
    assert task.primitives == ("transport",)


def test_defaults_are_the_mess3_that_needs_its_past():
    task = Process()
    assert (task.name, task.length, task.x, task.a) == ("mess3", 32, 0.05, 0.85)
    started = "started in its stationary distribution"
    assert task.prior == f"the mess3 machine (x = 0.05, a = 0.85), {started}"
    assert Process("z1r").prior == f"the z1r machine, {started}"
    assert Process("even", p=0.3).prior == f"the even machine (p = 0.3), {started}"


@pytest.mark.parametrize("name", NAMES)
def test_beliefs_and_predictives_are_the_fractions(name):
    task = process(name)
    batch = task.batch(12, STREAM)
    both = [filtered(name, tokens) for tokens in batch.inputs.tolist()]
    close(batch.belief, [row for beliefs, _ in both for row in beliefs])
    close(batch.predictive, [row for _, predictives in both for row in predictives])
    np.testing.assert_array_equal(
        task.filtered(batch.inputs).reshape(batch.belief.log_probs.shape),
        np.exp(batch.belief.log_probs),
    )


def test_the_sequence_drawn_in_the_module_is_true():
    batch = Process("even", 6).batch(2, Stream(0, "draw"))
    assert batch.inputs[1].tolist() == [1, 1, 0, 0, 1, 1]
    assert batch.targets[1].tolist() == [1, 0, 0, 1, 1, 0]
    assert batch.latent[1, :-1].tolist() == [0, 1, 0, 0, 0, 1, 0]
    np.testing.assert_allclose(
        np.exp(batch.predictive.log_probs[6:, 1]), [3 / 4, 2 / 3, 1 / 2, 1 / 2, 1, 1 / 2]
    )
    np.testing.assert_allclose(
        np.exp(batch.belief.log_probs[6:, 1]), [1 / 2, 1 / 3, 0, 0, 1, 0], atol=0
    )
    bits = batch.predictive.entropy_bits()[6:]
    np.testing.assert_allclose(bits, [0.81, 0.92, 1, 1, 0, 1], atol=5e-3)


def test_every_position_is_scored_with_the_token_after_it():
    batch = process("rrxor", 9).batch(5, STREAM)
    assert batch.scored.all()
    np.testing.assert_array_equal(batch.targets[:, :-1], batch.inputs[:, 1:])
    assert batch.latent.shape == (5, 11)


@pytest.mark.parametrize("name", NAMES)
def test_words_come_as_often_as_they_should(name):
    """From the first token on: the start is stationary."""
    batch = process(name, 4).batch(20_000, STREAM)
    words = word_probabilities(name, 4)
    for inputs in (batch.inputs, np.hstack([batch.inputs[:, 1:], batch.targets[:, -1:]])):
        counts = dict.fromkeys(words, 0)
        for word in map(tuple, inputs.tolist()):
            counts[word] += 1
        expected = [float(20_000 * chance) for chance in words.values()]
        assert chisquare(list(counts.values()), expected).pvalue > RARE


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 4), tokens=st.integers(2, 4))
def test_any_machine_agrees_with_its_paths(seed, size, tokens):
    generator = np.random.default_rng(seed)
    rows = generator.dirichlet(np.full(tokens * size, 0.3), size=size) + 1e-6
    rows /= rows.sum(axis=1, keepdims=True)
    machine = rows.reshape(size, tokens, size).transpose(1, 0, 2)
    given = tuple(tuple(tuple(row) for row in matrix) for matrix in machine.tolist())
    task = Process("custom", 4, matrices=given)
    np.testing.assert_allclose(task.machine, machine, rtol=1e-12)
    batch = task.batch(5, Stream(seed, "property"))
    close(batch.predictive, np.exp(task.reference(batch).log_probs))


def test_a_state_that_is_nearly_ruled_out_is_not_forgotten():
    """After 2,000 zeros the second state has probability 9**-2000; only it can write a 2."""
    given = (
        ((0.9, 0.0), (0.0, 0.1)),
        ((0.0, 0.1), (0.0, 0.0)),
        ((0.0, 0.0), (0.9, 0.0)),
    )
    task = Process("custom", 2001, matrices=given)
    tokens = np.array([[0] * 2000 + [2]])
    np.testing.assert_array_equal(task.filtered(tokens)[0, -1], [1, 0])
    with pytest.raises(InvalidInput, match="token 2 at position 2 of sequence 0"):
        task.filtered(np.array([[0, 2, 2]]))


# ---------------------------------------------------------------- entropies


@pytest.mark.parametrize(
    ("task", "bits"),
    [
        (Process("golden-mean"), 2 / 3),
        (Process("even"), 2 / 3),
        (Process("z1r"), 1 / 3),
        (Process("rrxor"), 2 / 3),
        # Only the first state is open, and it has a share of 1 / (2 - p).
        (Process("golden-mean", p=0.2), entropy([0.2, 0.8]) / 1.8),
        (Process("even", p=0.7), entropy([0.7, 0.3]) / 1.3),
        (Process("golden-mean", p=0.0), 0),
        # Mess3 whose tokens name the state moves on with probabilities x, x and 1 - 2 x.
        (Process("mess3", x=0.1, a=1.0), entropy([0.8, 0.1, 0.1])),
        # Mess3 whose tokens say nothing, or whose moves are to anywhere.
        (Process("mess3", a=1 / 3), math.log2(3)),
        (Process("mess3", x=1 / 3), math.log2(3)),
    ],
    ids=str,
)
def test_entropy_rates_have_known_values(task, bits):
    lower, upper = task.entropy_rate_bounds_bits(within=1e-9)
    assert lower - 1e-12 <= bits <= upper + 1e-12
    assert upper - lower < 1e-9
    assert task.entropy_rate_bits == pytest.approx(bits, abs=1e-6)


def test_entropy_rate_of_mess3_is_bracketed():
    task = Process()
    lower, upper = task.entropy_rate_bounds_bits(within=1e-9)
    assert 0 < upper - lower < 2.5e-7, "as near as a million mixed states come"
    nearly = task.entropy_rate_bounds_bits()
    assert upper - lower < nearly[1] - nearly[0] < 1e-6
    assert nearly[0] <= lower < upper <= nearly[1]
    assert task.entropy_rate_bits == sum(nearly) / 2
    # What long sequences cost agrees, within its own error.
    surprise = Process(length=200).batch(1000, STREAM).predictive.entropy_bits()
    late = surprise.reshape(1000, 200)[:, 30:].mean(axis=1)
    assert abs(late.mean() - upper) < 4.5 * late.std() / math.sqrt(1000)


@pytest.mark.parametrize("name", NAMES)
def test_myopic_entropies_are_differences_of_block_entropies(name):
    longest = 5 if name == "mess3" else 9
    blocks = [entropy(word_probabilities(name, n).values()) for n in range(longest + 1)]
    myopic = process(name).myopic_entropy_bits(longest)
    np.testing.assert_allclose(myopic, np.diff(blocks), atol=1e-12)
    assert (np.diff(myopic) < 1e-12).all()
    assert sum(process(name).entropy_rate_bounds_bits(within=1e-9)) / 2 < myopic[-1] + 1e-9


def test_myopic_entropies_of_finite_machines_go_as_deep_as_asked():
    assert Process("rrxor").myopic_entropy_bits(300)[-1] == pytest.approx(2 / 3, abs=1e-9)
    with pytest.raises(InvalidInput, match=r"position 14 has over 1,000,000 .* at most 13; got 40"):
        Process().myopic_entropy_bits(40)
    with pytest.raises(InvalidInput, match="length"):
        Process().myopic_entropy_bits(0)


@pytest.mark.parametrize("name", NAMES)
def test_mean_entropy_of_the_predictive_is_the_myopic_entropy(name):
    task = process(name, 8)
    entropies = task.batch(4000, STREAM).predictive.entropy_bits().reshape(4000, 8)
    myopic = np.array(task.myopic_entropy_bits(9))[1:]
    error = entropies.std(axis=0) / math.sqrt(4000)
    assert (np.abs(entropies.mean(axis=0) - myopic) < 4.5 * error + 1e-12).all()


# ---------------------------------------------------------------- windows


@pytest.mark.parametrize("name", NAMES)
def test_a_stationary_window_is_the_best_table_of_its_tokens(name):
    """P(next | last w tokens) = P(those w and next) / P(those w), words counted in fractions."""
    task = process(name, 6)
    batch = task.batch(30, STREAM)
    for w, window in zip(range(1, 4), task.windows(batch, "stationary"), strict=False):
        before, with_next = word_probabilities(name, w), word_probabilities(name, w + 1)
        table = [
            [float(with_next.get((*word, k), 0) / before[word]) for k in task.outputs.support]
            for tokens in batch.inputs.tolist()
            for word in [tuple(tokens[end - w : end]) for end in range(w, 7)]
        ]
        late = np.tile(np.arange(6) >= w - 1, 30)
        close(window.take(late), table)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("restart", ["uniform", "stationary"])
def test_windows_are_filters_of_the_last_tokens(name, restart):
    task = process(name, 5)
    batch = task.batch(8, STREAM)
    size = len(task.start)
    start = [Fraction(1, size)] * size if restart == "uniform" else None
    windows = list(task.windows(batch, restart))
    assert task.steps == len(windows) == 5
    for w, window in enumerate(windows, start=1):
        expected = [
            filtered(name, tokens[max(end - w, 0) : end], start if end > w else None)[1][-1]
            for tokens in batch.inputs.tolist()
            for end in range(1, 6)
        ]
        close(window, expected)
    close(windows[-1], np.exp(batch.predictive.log_probs))


def test_windows_refuse_another_restart():
    task = process("even")
    assert set(task.restarts) == {"uniform", "stationary"}
    with pytest.raises(InvalidInput, match="restart"):
        next(task.windows(task.batch(2, STREAM), "first"))


def test_ladder_is_worst_first():
    task = Process()
    batch = task.batch(500, STREAM)
    rungs = task.ladder(batch)
    assert list(rungs) == [f"window-{w} stationary" for w in (1, 2, 3, 4)]
    errors = [measure(rung, batch).kl_bits.mean for rung in rungs.values()]
    assert errors == sorted(errors, reverse=True)
    # More than 1e-3 bits after four tokens: this machine does need its past.
    assert errors[-1] > 1e-3


def test_ladder_holds_no_window_that_sees_everything():
    assert _ladder_size(1) == 0
    assert _ladder_size(3) == 2
    assert _ladder_size(6) == 4


def _ladder_size(length):
    task = process("even", length)
    return len(task.ladder(task.batch(2, STREAM)))


def test_published_mess3_is_nearly_memoryless():
    """At x = 0.15, a = 0.6 two tokens leave 7e-4 bits, and four tell 0.997 of the belief."""
    task = Process(x=0.15, a=0.6)
    batch = task.batch(4000, STREAM)
    left = measure(task.ladder(batch)["window-2 stationary"], batch).kl_bits.mean
    assert f"{left:.0e}" == "7e-04"
    belief = task.filtered(batch.inputs)[:, -1]
    table = task.filtered(batch.inputs[:, -4:])[:, -1]
    unexplained = ((belief - table) ** 2).sum() / ((belief - belief.mean(axis=0)) ** 2).sum()
    assert f"{1 - unexplained:.3f}" == "0.997"


# ---------------------------------------------------------------- changed tokens


@pytest.mark.parametrize("task", Process.tiny(), ids=str)
def test_changed_sequences_have_exact_answers(task):
    batch = task.batch(60, STREAM)
    whole = np.hstack([batch.inputs, batch.targets[:, -1:]])
    for step in range(task.steps):
        changed = task.changed(batch, step, Stream(1, "change"))
        assert changed.kept.shape == (60,)
        assert len(changed.batch.inputs) == changed.kept.sum()
        same = changed.batch.inputs == batch.inputs[changed.kept]
        assert not same[:, step].any()
        assert np.delete(same, step, axis=1).all()
        if not changed.kept.any():
            continue
        close(changed.batch.predictive, np.exp(task.reference(changed.batch).log_probs))
        assert np.isfinite(changed.batch.predictive.surprisal_bits(changed.batch.outcomes)).all()
        after = np.hstack([changed.batch.inputs, changed.batch.targets[:, -1:]])[:, step + 1 :]
        np.testing.assert_array_equal(after, whole[changed.kept, step + 1 :])


def test_changes_keep_exactly_the_possible_sequences():
    task = process("even", 6)
    batch = task.batch(80, STREAM)
    possible = word_probabilities("even", 7)
    whole = np.hstack([batch.inputs, batch.targets[:, -1:]])
    for step in range(6):
        other = whole.copy()
        other[:, step] = 1 - other[:, step]
        expected = [tuple(word) in possible for word in other.tolist()]
        changed = task.changed(batch, step, Stream(1, "change"))
        np.testing.assert_array_equal(changed.kept, expected)
        assert 0 < changed.kept.sum() < 80


def test_changes_run_through_the_other_tokens():
    task = Process(length=3)
    batch = task.batch(3000, STREAM)
    changed = task.changed(batch, 1, Stream(1, "change"))
    assert changed.kept.all()
    shift = (changed.batch.inputs[:, 1] - batch.inputs[:, 1]) % 3
    assert chisquare(np.bincount(shift, minlength=3)[1:]).pvalue > RARE


def test_a_change_that_no_sequence_survives_leaves_an_empty_batch():
    """Without chance every word but its own is impossible."""
    task = process("golden-mean", 6, p=0.0)
    changed = task.changed(task.batch(10, STREAM), 2, Stream(1, "change"))
    assert not changed.kept.any()
    assert changed.batch.predictive.rows == 0


@pytest.mark.parametrize("step", [-1, 6, 1.5])
def test_the_changed_step_is_checked(step):
    task = process("even", 6)
    with pytest.raises(InvalidInput, match="step"):
        task.changed(task.batch(2, STREAM), step, STREAM)


# ---------------------------------------------------------------- refusals


def test_an_impossible_token_is_named_with_its_place():
    with pytest.raises(InvalidInput, match=r"token 0 at position 2 of sequence 1 .* even"):
        Process("even").filtered(np.array([[0, 1, 1, 0], [0, 1, 0, 0]]))
    with pytest.raises(InvalidInput, match="token 0 at position 1 of sequence 0"):
        Process("golden-mean").filtered(np.array([[0, 0]]))


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([[0, 2]], "hold 2; expected 0 to 1"),
        ([[0, -1]], "hold -1; expected 0 to 1"),
        ([0, 1], "expected integers"),
        ([[0.0, 1.0]], "expected integers"),
    ],
)
def test_tokens_are_checked(tokens, expected):
    with pytest.raises(InvalidInput, match=expected):
        Process("even").filtered(np.array(tokens))


GOOD = (((0.5, 0.0), (0.5, 0.0)), ((0.0, 0.5), (0.0, 0.5)))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"name": "mess-3"}, "nearest: mess3"),
        ({"length": 0}, "length"),
        ({"length": 2.5}, "length"),
        ({"x": -0.1}, "x is a number from 0 to 0.5; got -0.1"),
        ({"x": 0.6}, "x is a number from 0 to 0.5; got 0.6"),
        ({"x": math.nan}, "x is a number"),
        ({"x": "0.1"}, "x is a number"),
        ({"a": 1.1}, "a is a number from 0 to 1; got 1.1"),
        ({"a": True}, "a is a number"),
        ({"p": math.inf}, "p is a number"),
        ({"p": None}, "p is a number"),
        ({"x": 0.0}, "state 0 never leads to state 1 .*x = 0"),
        ({"name": "even", "p": 1.0}, "state 0 never leads to state 1 .*p = 1"),
        ({"name": "rrxor", "x": 0.1}, "x is no setting of rrxor; leave it out"),
        ({"name": "z1r", "p": 0.3}, "p is no setting of z1r; leave it out"),
        ({"name": "golden-mean", "a": 0.3}, "a is no setting of golden-mean; leave it out"),
        ({"p": 0.3}, "p is no setting of mess3; leave it out"),
        ({"name": "custom", "matrices": GOOD, "x": 0.1}, "x is no setting of custom"),
        ({"name": "rrxor", "x": 0.1, "a": 0.3}, "x is no setting of rrxor"),
        ({"name": "custom", "matrices": 3}, "matrices are one table a token; got 3"),
        ({"name": "custom"}, "matrices"),
        ({"name": "even", "matrices": GOOD}, "matrices"),
        ({"name": "custom", "matrices": ()}, "matrices"),
        ({"name": "custom", "matrices": GOOD[:1]}, "matrices"),
        ({"name": "custom", "matrices": ((), ())}, "rows of a matrix"),
        ({"name": "custom", "matrices": (GOOD[0], ((1.0,),))}, "matrix 1 has 1 rows of \\[1\\]"),
        ({"name": "custom", "matrices": (((0.5, 0.0),), ((0.0, 0.5),))}, "matrix 0"),
        # A state that writes nothing; one whose edges sum to too much; signs; NaN.
        (
            {"name": "custom", "matrices": (((0.5, 0.5), (0.0, 0.0)), ((0.0, 0.0), (0.0, 0.0)))},
            "row 1 of matrices side by side sums to 0; expected 1",
        ),
        (
            {"name": "custom", "matrices": (GOOD[0], ((0.0, 0.6), (0.0, 0.5)))},
            "row 0 .* sums to 1.1",
        ),
        ({"name": "custom", "matrices": (GOOD[0], ((1.0, -0.5), (0.0, 0.5)))}, "row 0 .* -0.5"),
        ({"name": "custom", "matrices": (GOOD[0], ((0.0, math.nan), (0.0, 0.5)))}, "row 0 .* nan"),
        # Two machines in one, and a state that is left for good.
        (
            {"name": "custom", "matrices": (((0.5, 0.0), (0.0, 0.5)), ((0.5, 0.0), (0.0, 0.5)))},
            "state 0 never leads to state 1",
        ),
        (
            {"name": "custom", "matrices": (((0.0, 0.5), (0.0, 0.5)), ((0.0, 0.5), (0.0, 0.5)))},
            "state 0 never leads to state 0|state 1 never leads to state 0",
        ),
    ],
    ids=str,
)
def test_bad_settings_are_refused(given, expected):
    with pytest.raises(InvalidInput, match=expected) as refusal:
        Process(**given)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("sequences", [0, -1, 2.5, True])
def test_number_of_sequences_is_checked(sequences):
    with pytest.raises(InvalidInput):
        Process().batch(sequences, STREAM)
