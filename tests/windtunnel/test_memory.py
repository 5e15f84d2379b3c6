"""Both measures of memory, of filters whose memory is known."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import lru_cache

import numpy as np
import pytest
from scipy.special import ndtri

from beliefspace.core.information import kl_bits
from beliefspace.core.statistics import Interval
from beliefspace.core.streams import Stream
from beliefspace.windtunnel import memory as memory_module
from beliefspace.windtunnel.calibration import evaluation_batch, measure, score
from beliefspace.windtunnel.memory import (
    LAGS,
    LEAST_CHANGE,
    LEAST_CORRELATION,
    Lag,
    Memory,
    measure_memory,
)
from beliefspace.windtunnel.predictions import predict
from beliefspace.windtunnel.tasks import hmm_parameters
from beliefspace.windtunnel.tasks.gaussian_chain import GaussianChain
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


def normals_of(inputs, count):
    """Independent normal numbers for every different past: [n, T, count]."""
    bits = inputs.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits = bits.reshape(*inputs.shape[:2], -1)
    odd = 1 + 2 * Stream(0, "key").generator(0).integers(2**62, size=bits.shape[1:])
    key = np.cumsum((bits * odd.astype(np.uint64)).sum(axis=2), axis=1)
    key = key[..., None] + np.arange(1, 1 + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        key = (key ^ (key >> np.uint64(shift))) * np.uint64(factor)
    return ndtri(((key >> np.uint64(12)) + 0.5) * 2.0**-52)


def blurred(predictor, deviation):
    """A perfect memory with an error: another noise on the logits for every different past."""

    def other(inputs):
        logits = predictor(inputs)
        return logits + deviation * normals_of(inputs, logits.shape[2])

    return other


def chain_filter(task):
    """The exact predictor of a chain that is seen in noisy points, written out."""

    def predictor(inputs):
        apart = ((inputs[:, :, None].astype(np.float64) - task.means) ** 2).sum(axis=3)
        nearness = -0.5 * (apart - apart.min(axis=2, keepdims=True)) / task.noise**2
        ahead = np.full((len(inputs), task.symbols), 1 / task.symbols)
        out = np.zeros(apart.shape)
        for step in range(task.length):
            belief = ahead * np.exp(nearness[:, step])
            ahead = belief / belief.sum(axis=1, keepdims=True) @ task.transition
            out[:, step] = np.log(ahead)
        return out

    return predictor


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
    assert memory.window_interval == {"uniform": (12, 12), "stationary": (12, 12)}
    assert (memory.steps, memory.sequences) == (12, SEQUENCES)
    assert by_lag(memory, "lag") == [lag for lag in LAGS if lag < 12]
    np.testing.assert_allclose(by_lag(memory, "slope"), 1, rtol=1e-6)
    np.testing.assert_allclose(by_lag(memory, "correlation"), 1, rtol=1e-6)
    np.testing.assert_allclose(by_lag(memory, "control_correlation"), 1, rtol=1e-6)
    assert memory.reach == memory.shown == 10
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
    assert s.memory.reach is s.memory.shown is None
    assert set(by_lag(s.memory, "slope")) == set(by_lag(s.memory, "correlation")) == {0.0}
    windows = "window-equivalent of 12: at most 1 (uniform restart), at most 1 (stationary restart)"
    perfect = "a perfect memory with the same error: at no lag"
    assert str(s.memory) == f"{windows}; influence right at no lag ({perfect})"


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
    memory = score(answering(TASK, mixed(weight)), TASK, SEQUENCES).memory
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
    """Noise of that size would hide it; a belief that is only too flat changes as Bayes does."""
    s = score(answering(TASK, mixed(0.55)), TASK, SEQUENCES)
    assert (s.memory.reach, s.memory.shown) == (10, 0)
    assert s.memory.window_equivalent == {"uniform": 2, "stationary": 1}
    assert s.kl_bits.mean > 5 * s.ladder["window-2"].kl_bits.mean


# ---------------------------------------------------------------- what an error lets be shown


@pytest.mark.parametrize(
    ("deviation", "shown", "window"), [(1e-3, 8, 9), (1e-2, 4, 5), (0.5, 0, 1)]
)
def test_a_perfect_memory_with_noise_is_right_as_far_as_can_be_shown(deviation, shown, window):
    """The model is what the control is: both see the same, though each has noise of its own."""
    task = HMM()
    memory = score(blurred(answering(task, exact), deviation), task, 500).memory
    assert memory.reach == memory.shown == shown
    assert memory.window_equivalent["uniform"] == window
    correlation = np.array(by_lag(memory, "correlation"))
    control = np.array(by_lag(memory, "control_correlation"))
    # The error of a correlation r of n sequences: (1 - r^2) / sqrt(n).
    assert np.all(np.abs(correlation - control) < 4.5 * (1.1 - control**2) / np.sqrt(500))
    assert not np.any(correlation == control)
    if shown < memory.influence[-1].lag:
        assert control[-1] < LEAST_CORRELATION / 2, "what lies far back is drowned"


@pytest.mark.parametrize(
    ("task", "shown"), [(GaussianChain(), 1), (GaussianChain(stay=0.9, noise=3.0), 12)]
)
def test_memory_cannot_be_shown_where_history_is_worth_nothing(task, shown):
    """Points that name their symbol leave nothing to remember, however near a model is."""
    near = score(blurred(chain_filter(task), 1e-2), task, SEQUENCES).memory
    assert near.reach == near.shown == shown
    assert near.window_equivalent["stationary"] > 1


@pytest.mark.parametrize("size", [1, 2, 4, 5])
def test_beyond_a_window_its_correlation_is_below_that_of_its_control(size):
    """A window's error is just what its end costs, so it hides nearly as much as was forgotten.

    Reach and what could be shown are the same; the correlation beyond them tells the two apart.
    """
    memory = scored(window(size)).memory
    assert memory.reach == memory.shown == size - 1
    beyond = memory.influence[size]
    assert beyond.correlation == 0
    assert 0.4 < beyond.control_correlation < LEAST_CORRELATION


def last_beliefs(task, sequences=500):
    batch = task.batch(sequences, Stream(0, "any"))
    return batch.predictive.log_probs.reshape(sequences, task.steps, -1)[:, -1]


@pytest.mark.parametrize("weight", [0.9999, 0.99, 0.9, 0.5, 0.0])
def test_the_noise_of_the_control_costs_what_the_model_does(weight):
    belief = last_beliefs(TASK)
    model = np.log(weight * np.exp(belief) + (1 - weight) / 3)
    deviation = memory_module._matching_noise(belief, model, Stream(0, "any"))
    noisier = belief + deviation * np.random.default_rng(0).normal(size=belief.shape)
    control = noisier - np.log(np.exp(noisier).sum(axis=1, keepdims=True))
    costs = [kl_bits(belief, one).mean() for one in (control, model)]
    assert costs[0] == pytest.approx(costs[1], rel=0.2)


def test_the_noise_of_the_control_is_none_for_bayes_and_bounded_for_the_infinitely_wrong():
    some, certain = last_beliefs(TASK), np.where(np.eye(3) > 0, 0.0, -np.inf)
    ruled_out = np.where(np.arange(3) > 0, np.log(0.5), -np.inf) * np.ones((len(some), 1))
    stream = Stream(0, "any")
    assert memory_module._matching_noise(some, some, stream) == 0
    assert memory_module._matching_noise(certain, certain, stream) == 0
    assert memory_module._matching_noise(some, ruled_out, stream) == 100
    # Noise cannot cost anything on what is certain.
    assert memory_module._matching_noise(certain, np.log(np.ones((3, 3)) / 3), stream) == 100


# ---------------------------------------------------------------- windows and their interval


def smallest_window(task, batch, restart, error):
    """By its definition, one window after the other."""
    distances = [
        batch.predictive.kl_bits(window).mean()
        for window in list(task.windows(batch, restart))[: task.steps - 1]
    ]
    near = [size for size, kl in enumerate(distances, start=1) if kl <= error * (1 + 1e-9)]
    return min(near, default=task.steps)


@pytest.mark.parametrize("sequences", [20, SEQUENCES])
@pytest.mark.parametrize("answer", [noisy, softened, constant, mixed(0.95), window(3)])
def test_the_windows_at_both_ends_of_the_interval_of_the_error(answer, sequences):
    s = score(answering(TASK, answer), TASK, sequences)
    batch, interval = evaluation_batch(TASK, sequences, 0), s.kl_bits.interval
    for restart in TASK.restarts:
        size = s.memory.window_equivalent[restart]
        assert size == smallest_window(TASK, batch, restart, s.kl_bits.mean)
        least, most = s.memory.window_interval[restart]
        assert least == smallest_window(TASK, batch, restart, interval.high)
        assert most == smallest_window(TASK, batch, restart, interval.low)
        assert least <= size <= most


def test_a_larger_error_is_worth_a_smaller_window():
    batch = evaluation_batch(TASK, 60, 0)
    windows = list(TASK.windows(batch, "uniform"))
    worth = [batch.predictive.kl_bits(windows[size - 1]).mean() for size in (3, 5, 2)]
    memory = measure_memory(answering(TASK, exact), TASK, batch, np.array(worth), 0)
    assert memory.window_equivalent["uniform"] == 3
    assert memory.window_interval["uniform"] == (2, 5)


def test_an_error_without_an_interval_is_worth_one_window():
    s = score(answering(TASK, noisy), TASK, 19)
    assert s.kl_bits.interval is None
    for restart, size in s.memory.window_equivalent.items():
        assert s.memory.window_interval[restart] == (size, size)


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
    means = [measure(predict(predictor, task, b), b).kl_bits.mean for b in (batch, shuffled)]
    assert means[0] == pytest.approx(means[1], rel=1e-12)
    error = means[0] * np.array([1.0, 0.5, 2.0])
    one, two = (measure_memory(predictor, task, b, error, 0) for b in (batch, shuffled))
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


def test_changes_of_the_size_of_rounding_are_left_out(monkeypatch):
    kept = score(answering(TASK, exact), TASK, 60).memory.influence
    assert all(lag.exact_change >= LEAST_CHANGE for lag in kept)
    monkeypatch.setattr(memory_module, "LEAST_CHANGE", 0.0)
    everything = score(answering(TASK, exact), TASK, 60).memory.influence
    large = tuple(lag for lag in everything if lag.exact_change >= LEAST_CHANGE)
    assert 0 < len(kept) < len(everything)
    assert kept == large


def test_lags_at_which_few_changes_are_possible_are_left_out():
    """There are two symbols, so what is drawn in their place is no matter of chance."""
    batch = ZEROS.batch(60, Stream(0, "influence"))
    possible = [ZEROS.changed(batch, 4 - lag, Stream(0, "any")).kept.sum() for lag in range(5)]
    assert min(possible) < 20 < max(possible)
    memory = score(answering(ZEROS, exact), ZEROS, 60).memory
    assert by_lag(memory, "lag") == [lag for lag in range(5) if possible[lag] >= 20]


@pytest.mark.parametrize("answer", [exact, constant, noisy, window(2)])
def test_a_memory_is_written_plainly(answer):
    s = scored(answer)
    written = json.loads(json.dumps(s.to_dict(), allow_nan=False))["memory"]
    assert written["window_equivalent"] == s.memory.window_equivalent
    intervals = {name: list(ends) for name, ends in s.memory.window_interval.items()}
    assert written["window_interval"] == intervals
    assert (written["steps"], written["sequences"]) == (12, SEQUENCES)
    for name in ("slope", "correlation", "control_correlation", "null_correlation"):
        assert [lag[name] for lag in written["influence"]] == by_lag(s.memory, name)
    assert set(written["influence"][0]["slope_interval"]) >= {"low", "high", "count"}


# ---------------------------------------------------------------- right, and the interval


def a_lag(number, slope=1.0, correlation=0.9, control=0.8):
    interval = Interval(0, 2, 0.95, "bootstrap", 9)
    return Lag(number, 0.1, slope, interval, correlation, control, 0.0)


def a_memory(lags, window_equivalent=None):
    windows = window_equivalent or {"uniform": 3}
    return Memory(windows, {name: (size, size) for name, size in windows.items()}, 8, lags, 9)


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


@pytest.mark.parametrize(("control", "shown"), [(1.0, True), (0.7, True), (0.69, False)])
def test_a_lag_is_shown_where_a_perfect_memory_with_the_error_is_right(control, shown):
    """Whether the model itself is right has no part in it."""
    assert a_lag(0, control=control).shown is shown
    assert a_lag(0, slope=-1.0, correlation=-1.0, control=control).shown is shown
    assert a_lag(0, control=control).right


def test_reach_ends_at_the_first_lag_that_is_wrong():
    lags = (a_lag(0), a_lag(1), a_lag(2, slope=0.1), a_lag(3))
    assert a_memory(lags).reach == 1
    assert a_memory(lags[:2]).reach == 1
    assert a_memory(lags[2:]).reach is None
    assert a_memory(()).reach is None
    assert a_memory(lags).shown == 3


def test_what_could_be_shown_ends_at_the_first_lag_that_could_not():
    lags = (a_lag(0), a_lag(1), a_lag(2), a_lag(3, control=0.2), a_lag(4))
    assert a_memory(lags).shown == 2
    assert a_memory(lags[:2]).shown == 1
    assert a_memory(lags[3:]).shown is None
    assert a_memory(()).shown is None
    assert a_memory(lags).reach == 4


def test_a_memory_says_what_a_perfect_one_with_its_error_would_show():
    lags = (a_lag(0), a_lag(1), a_lag(2, slope=0.1), a_lag(3, control=0.2))
    text = str(a_memory(lags, {"uniform": 3, "stationary": 1}))
    windows = "window-equivalent of 8: 3 (uniform restart), at most 1 (stationary restart)"
    perfect = "a perfect memory with the same error: to lag 2"
    assert text == f"{windows}; influence right to lag 1 ({perfect})"


def drawn(slope, seed, sequences=150):
    """Changes of a distribution over 4 outcomes, and others with a slope on them and noise."""
    x, noise = Stream(seed, "made").normals(0, sequences, 8, "changes").reshape(2, sequences, 4)
    x, noise = (one - one.mean(axis=1, keepdims=True) for one in (0.2 * x, 0.1 * noise))
    return x, slope * x + noise


def test_slope_and_correlation_are_those_of_a_regression_with_an_intercept():
    x, y = drawn(0.8, 0)
    _, control = drawn(0.3, 0)
    lag = memory_module._regressed(3, x, y, control, Stream(0, "any"))
    slope, intercept = np.polyfit(x.ravel(), y.ravel(), 1)
    assert lag.slope == pytest.approx(slope, rel=1e-9)
    assert intercept == pytest.approx(0, abs=1e-12)
    assert lag.correlation == pytest.approx(np.corrcoef(x.ravel(), y.ravel())[0, 1], rel=1e-9)
    of_control = np.corrcoef(x.ravel(), control.ravel())[0, 1]
    assert lag.control_correlation == pytest.approx(of_control, rel=1e-9)
    assert lag.exact_change == pytest.approx(np.abs(x).sum(axis=1).mean() / 2, rel=1e-12)
    assert abs(lag.null_correlation) < 4.5 / np.sqrt(150 * 3)


def test_the_interval_covers_the_slope_about_as_often_as_it_says():
    covered = 0
    for seed in range(60):
        x, y = drawn(0.8, seed)
        interval = memory_module._regressed(0, x, y, y, Stream(seed, "any")).slope_interval
        covered += interval.low <= 0.8 <= interval.high
    assert 51 <= covered <= 60
    width = interval.high - interval.low
    # The error of a slope: noise / (spread sqrt(values)), with 3 free values a sequence.
    assert width == pytest.approx(2 * 1.96 * 0.1 / (0.2 * np.sqrt(150 * 3)), rel=0.25)
