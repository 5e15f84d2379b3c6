"""Both measures of memory, of filters whose memory is known."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import lru_cache

import numpy as np
import pytest

from beliefspace.core.statistics import Interval
from beliefspace.core.streams import Stream
from beliefspace.windtunnel import memory as memory_module
from beliefspace.windtunnel.calibration import evaluation_batch, measure, score
from beliefspace.windtunnel.memory import LAGS, Lag, Memory, measure_memory
from beliefspace.windtunnel.predictions import predict
from beliefspace.windtunnel.tasks import hmm_parameters
from beliefspace.windtunnel.tasks.hmm import HMM, HiddenChains
from beliefspace.windtunnel.tasks.hmm_filter import Observed

TASK = HMM(3, 3, 12)
SEQUENCES = 200


def observed(task, inputs):
    """What a model sees, taken apart: parameters from the header or as given, and symbols."""
    seen = inputs[:, task.layout.columns]
    if seen.ndim == 3:
        symbols = seen[:, :, -task.symbols :].argmax(axis=2)
    else:
        symbols = seen - task.layout.first_symbol
    if task.transition is None:
        return Observed(task.layout.read(inputs), False, symbols)
    given = hmm_parameters.given(task.transition, task.emission, task.states, task.symbols)
    return Observed(given, True, symbols)


def answering(task, answer):
    """A predictor from a function of what is seen to log-probabilities of the states."""

    def predictor(inputs):
        out = np.zeros((*inputs.shape[:2], task.states))
        out[:, task.layout.columns] = answer(observed(task, inputs))
        return out

    return predictor


def exact(seen):
    return seen.state(seen.belief())


def window(size, restart="uniform"):
    def answer(seen):
        return seen.state(list(seen.windows(restart))[size - 1])

    return answer


def mixed(weight):
    """The exact belief with some of the uniform one: its changes are smaller by the weight."""

    def answer(seen):
        belief = np.exp(exact(seen))
        return np.log(weight * belief + (1 - weight) / belief.shape[2])

    return answer


def softened(seen):
    return exact(seen) / 2


def noisy(seen):
    """The exact belief with noise that is a function of the last two symbols and the place."""
    belief, symbols = exact(seen), seen.symbols
    before = np.roll(symbols, 1, axis=1)
    place = np.arange(symbols.shape[1])
    key = 7.1 * symbols + 3.3 * before + 1.7 * place + seen.parameters.transition[:, 0, :1] * 100
    return belief + 0.5 * np.sin(key[..., None] * np.arange(1, belief.shape[2] + 1))


def constant(seen):
    return np.broadcast_to(np.log([0.5, 0.3, 0.2]), (*seen.symbols.shape, 3))


@lru_cache
def scored(answer, task=TASK):
    return score(answering(task, answer), task, SEQUENCES)


def by_lag(memory, name):
    return [getattr(lag, name) for lag in memory.influence]


# ---------------------------------------------------------------- filters


def test_the_exact_filter_remembers_everything():
    memory = scored(exact).memory
    assert memory.window_equivalent == {"uniform": 12, "stationary": 12}
    assert (memory.steps, memory.sequences) == (12, SEQUENCES)
    assert by_lag(memory, "lag") == [lag for lag in LAGS if lag < 12]
    np.testing.assert_allclose(by_lag(memory, "slope"), 1, rtol=1e-6)
    np.testing.assert_allclose(by_lag(memory, "correlation"), 1, rtol=1e-6)
    assert memory.reach == 10
    for lag in memory.influence:
        assert lag.slope_interval.low <= lag.slope <= lag.slope_interval.high
        assert abs(lag.null_correlation) < 0.25
    changes = by_lag(memory, "exact_change")
    assert changes == sorted(changes, reverse=True), "the past is forgotten"


@pytest.mark.parametrize("size", [1, 2, 4, 5])
def test_a_window_is_worth_itself_and_nothing_beyond_it_has_influence(size):
    memory = scored(window(size)).memory
    assert memory.window_equivalent["uniform"] == size
    assert memory.reach == size - 1
    beyond = [lag for lag in memory.influence if lag.lag >= size]
    assert len(beyond) == len([lag for lag in LAGS if size <= lag < 12])
    for lag in beyond:
        assert lag.slope == lag.correlation == lag.null_correlation == 0
        assert (lag.slope_interval.low, lag.slope_interval.high) == (0, 0)
        assert not lag.right


def test_a_window_from_the_stationary_law_is_worth_itself_by_that_restart():
    memory = scored(window(2, "stationary")).memory
    assert memory.window_equivalent["stationary"] == 2
    assert memory.window_equivalent["uniform"] > 2


def test_a_constant_remembers_nothing():
    s = scored(constant)
    assert s.memory.window_equivalent == {"uniform": 1, "stationary": 1}
    assert s.window_equivalent == 1
    assert s.memory.reach is None
    assert set(by_lag(s.memory, "slope")) == set(by_lag(s.memory, "correlation")) == {0.0}
    assert str(s.memory).endswith("influence right at no lag")


def test_a_noisy_filter_is_in_between():
    memory = scored(noisy).memory
    assert 1 <= memory.window_equivalent["uniform"] < 12
    first, last = memory.influence[0], memory.influence[-1]
    assert 0.7 < first.correlation < 0.999
    assert all(lag.correlation > 0 for lag in memory.influence[:4])
    # Noise of the last two symbols does not change with an older one.
    assert last.correlation > first.correlation


def test_a_softened_filter_changes_too_little_but_in_the_right_direction():
    memory = scored(softened).memory
    slopes = np.array(by_lag(memory, "slope"))
    assert np.all((slopes > 0.2) & (slopes < 0.9))
    assert np.all(np.array(by_lag(memory, "correlation")) > 0.7)
    assert memory.window_equivalent["uniform"] < 4


@pytest.mark.parametrize(("weight", "reach"), [(0.7, 10), (0.4, None)])
def test_the_slope_of_a_mixture_is_its_weight(weight, reach):
    """y = weight x, exactly: beyond what counts as right, no lag is."""
    memory = score(answering(TASK, mixed(weight)), TASK, 60).memory
    np.testing.assert_allclose(by_lag(memory, "slope"), weight, rtol=1e-6)
    np.testing.assert_allclose(by_lag(memory, "correlation"), 1, rtol=1e-6)
    assert memory.reach == reach


def test_a_belief_about_other_states_is_wrong_at_every_lag():
    memory = scored(lambda seen: np.roll(exact(seen), 1, axis=2)).memory
    assert memory.reach is None
    assert memory.influence[0].correlation < 0.2


# ---------------------------------------------------------------- the two can disagree


def test_an_error_worth_a_window_need_not_come_from_one():
    """Exact but for the last step, where all but the last symbol is forgotten."""

    def forgetful(seen):
        answer = exact(seen).copy()
        answer[:, -1] = window(1)(seen)[:, -1]
        return answer

    memory = scored(forgetful).memory
    assert memory.window_equivalent["uniform"] > 2
    assert memory.reach == 0
    assert all(lag.slope == lag.correlation == 0 for lag in memory.influence[1:])


def test_a_belief_that_is_carried_forward_can_have_the_error_of_hardly_any_memory():
    s = score(answering(TASK, mixed(0.55)), TASK, 60)
    assert s.memory.reach == 10
    assert s.memory.window_equivalent == {"uniform": 2, "stationary": 1}
    assert s.kl_bits.mean > 5 * s.ladder["window-2"].kl_bits.mean


# ---------------------------------------------------------------- what is measured


def test_a_whole_vocabulary_is_measured_inside_the_support():
    """Half of the mass lies on tokens that are no states: changes inside are half as large."""
    task = HMM(3, 3, 6, "tokens")
    vocabulary = task.inputs.vocabulary

    def spread(outside):
        def predictor(inputs):
            mass = np.zeros((*inputs.shape, vocabulary))
            inside = answering(task, exact)(inputs)
            mass[..., list(task.outputs.support)] = (1 - outside) * np.exp(inside)
            mass[..., vocabulary - 1] = outside
            with np.errstate(divide="ignore"):
                return np.log(mass)

        return predictor

    whole, half = (score(spread(outside), task, 60) for outside in (0.0, 0.5))
    assert whole.support == half.support == "vocabulary"
    assert by_lag(whole.memory, "lag") == list(range(6))
    np.testing.assert_allclose(by_lag(whole.memory, "slope"), 1, rtol=1e-6)
    np.testing.assert_allclose(by_lag(half.memory, "slope"), 0.5, rtol=1e-6)
    np.testing.assert_allclose(by_lag(half.memory, "correlation"), 1, rtol=1e-6)
    assert whole.window_equivalent == 6
    assert half.window_equivalent == 1


# Symbol 1 shows the last state, which cannot be there again for three steps.
ZEROS = HMM(
    3,
    2,
    5,
    transition=((0.5, 0.5, 0.0), (0.0, 0.25, 0.75), (1.0, 0.0, 0.0)),
    emission=((1.0, 0.0), (1.0, 0.0), (0.0, 1.0)),
)


@pytest.mark.parametrize("step", range(5))
def test_a_change_that_no_path_explains_is_left_out(step):
    batch = ZEROS.batch(80, Stream(0, "any"))
    changed = ZEROS.changed(batch, step, Stream(0, "other"))
    transition, emission = np.array(ZEROS.transition), np.array(ZEROS.emission)

    def possible(symbols):
        states = np.ones(3, dtype=bool)
        for place, symbol in enumerate(symbols):
            states = states if place == 0 else (transition[states] > 0).any(axis=0)
            states = states & (emission[:, symbol] > 0)
        return states.any()

    symbols = observed(ZEROS, batch.inputs).symbols.copy()
    symbols[:, step] = 1 - symbols[:, step]
    assert [possible(row) for row in symbols] == changed.kept.tolist()
    assert 0 < changed.kept.sum() < 80
    after = observed(ZEROS, changed.batch.inputs).symbols
    np.testing.assert_array_equal(after, symbols[changed.kept])


def test_changes_to_or_from_certainty_are_measured():
    memory = score(answering(ZEROS, exact), ZEROS, 100).memory
    assert by_lag(memory, "lag") == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(by_lag(memory, "slope"), 1, rtol=1e-6)
    batch = ZEROS.batch(100, Stream(0, "influence"))
    for lag in memory.influence:
        # There are two symbols, so what is drawn in their place is no matter of chance.
        kept = ZEROS.changed(batch, 4 - lag.lag, Stream(0, "any")).kept
        assert lag.slope_interval.count == kept.sum()


def given(transition, emission, observations=4):
    states, symbols = len(transition), len(emission[0])
    return HMM(states, symbols, observations, transition=transition, emission=emission)


def test_lags_at_which_the_exact_belief_does_not_change_are_left_out():
    memoryless = given(((0.25, 0.75), (0.25, 0.75)), ((0.75, 0.25), (0.25, 0.75)))
    assert by_lag(score(answering(memoryless, exact), memoryless, 40).memory, "lag") == [0]
    silent = given(((0.75, 0.25), (0.25, 0.75)), ((0.5, 0.5), (0.5, 0.5)))
    memory = score(answering(silent, exact), silent, 40).memory
    assert (memory.influence, memory.reach) == ((), None)


def test_lags_at_which_no_change_is_possible_are_left_out():
    """A cycle that shows its states: each observation follows from any other."""
    cycle = given(((0.0, 1.0), (1.0, 0.0)), ((1.0, 0.0), (0.0, 1.0)))
    memory = score(answering(cycle, exact), cycle, 40).memory
    assert (memory.influence, memory.reach) == ((), None)
    alone = given(((0.0, 1.0), (1.0, 0.0)), ((1.0, 0.0), (0.0, 1.0)), observations=1)
    (lag,) = score(answering(alone, exact), alone, 40).memory.influence
    assert (lag.lag, lag.exact_change, lag.slope) == (0, 1.0, 1.0)


def test_the_order_of_the_sequences_does_not_matter():
    task, predictor = TASK, answering(TASK, noisy)
    batch = evaluation_batch(task, 60, 0)
    order = Stream(0, "order").permutations(0, 1, 60)[0]
    chains = (getattr(batch.latent, field.name)[order] for field in fields(batch.latent))
    rows = np.arange(60 * task.steps).reshape(60, -1)[order].ravel()
    shuffled = replace(
        batch,
        inputs=batch.inputs[order],
        scored=batch.scored[order],
        targets=batch.targets[order],
        latent=HiddenChains(*chains),
        _predictive=lambda: batch.predictive.take(rows),
    )
    errors = [measure(predict(predictor, task, b), b).kl_bits.mean for b in (batch, shuffled)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-12)
    one, two = (measure_memory(predictor, task, b, errors[0], 0) for b in (batch, shuffled))
    assert one == two


def test_influence_is_measured_on_some_sequences_of_its_own(monkeypatch):
    """However many are evaluated, the first few hundred of the seed's own are changed."""
    monkeypatch.setattr(memory_module, "_SEQUENCES", 40)
    predictor = answering(TASK, noisy)
    one, two, other = (
        score(predictor, TASK, sequences, seed).memory
        for sequences, seed in ((40, 1), (70, 1), (40, 2))
    )
    assert one.influence == two.influence
    assert one.sequences == two.sequences == 40
    assert one.influence != other.influence


def test_fewer_sequences_than_that_are_measured_all():
    assert score(answering(TASK, exact), TASK, 25).memory.sequences == 25


@pytest.mark.parametrize("answer", [exact, constant, noisy, window(2)])
def test_a_memory_is_written_plainly(answer):
    s = scored(answer)
    written = json.loads(json.dumps(s.to_dict(), allow_nan=False))["memory"]
    assert written["window_equivalent"] == s.memory.window_equivalent
    assert (written["steps"], written["sequences"]) == (12, SEQUENCES)
    assert [lag["slope"] for lag in written["influence"]] == by_lag(s.memory, "slope")
    assert set(written["influence"][0]["slope_interval"]) >= {"low", "high", "count"}


# ---------------------------------------------------------------- right, and the interval


def a_lag(number, slope=1.0, correlation=0.9):
    return Lag(number, 0.1, slope, Interval(0, 2, 0.95, "bootstrap", 9), correlation, 0.0)


@pytest.mark.parametrize(
    ("slope", "correlation", "right"),
    [
        (1.0, 0.9, True),
        (0.5, 0.7, True),
        (1.5, 1.0, True),
        (0.49, 0.9, False),
        (1.51, 0.9, False),
        (1.0, 0.69, False),
        (-1.0, -1.0, False),
    ],
)
def test_a_lag_is_right_in_sign_and_roughly_in_size(slope, correlation, right):
    assert a_lag(0, slope, correlation).right is right


def test_reach_ends_at_the_first_lag_that_is_wrong():
    wrong = a_lag(2, slope=0.1)
    lags = (a_lag(0), a_lag(1), wrong, a_lag(3))
    assert Memory({"uniform": 3}, 8, lags, 9).reach == 1
    assert Memory({"uniform": 3}, 8, lags[:2], 9).reach == 1
    assert Memory({"uniform": 3}, 8, lags[2:], 9).reach is None
    assert Memory({"uniform": 3}, 8, (), 9).reach is None
    text = str(Memory({"uniform": 3, "stationary": 2}, 8, lags, 9))
    windows = "window-equivalent of 8: 3 (uniform restart), 2 (stationary restart)"
    assert text == f"{windows}; influence right to lag 1"


def drawn(slope, seed, sequences=150):
    """Changes of a distribution over 4 outcomes, and others with a slope on them and noise."""
    x, noise = Stream(seed, "made").normals(0, sequences, 8, "changes").reshape(2, sequences, 4)
    x, noise = (one - one.mean(axis=1, keepdims=True) for one in (0.2 * x, 0.1 * noise))
    return x, slope * x + noise


def test_slope_and_correlation_are_those_of_a_regression_with_an_intercept():
    x, y = drawn(0.8, 0)
    lag = memory_module._regressed(3, x, y, Stream(0, "any"))
    slope, intercept = np.polyfit(x.ravel(), y.ravel(), 1)
    assert lag.slope == pytest.approx(slope, rel=1e-9)
    assert intercept == pytest.approx(0, abs=1e-12)
    assert lag.correlation == pytest.approx(np.corrcoef(x.ravel(), y.ravel())[0, 1], rel=1e-9)
    assert lag.exact_change == pytest.approx(np.abs(x).sum(axis=1).mean() / 2, rel=1e-12)
    assert abs(lag.null_correlation) < 4.5 / np.sqrt(150 * 3)


def test_the_interval_covers_the_slope_about_as_often_as_it_says():
    covered = 0
    for seed in range(60):
        interval = memory_module._regressed(
            0, *drawn(0.8, seed), Stream(seed, "any")
        ).slope_interval
        covered += interval.low <= 0.8 <= interval.high
    assert 51 <= covered <= 60
    width = interval.high - interval.low
    # The error of a slope: noise / (spread sqrt(values)), with 3 free values a sequence.
    assert width == pytest.approx(2 * 1.96 * 0.1 / (0.2 * np.sqrt(150 * 3)), rel=0.25)
