"""The filter set by hand: Bayes in both styles, and a window of w where it has w layers."""

from __future__ import annotations

import numpy as np
import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.calibration import score
from beliefspace.windtunnel.models.exact_filter import ExactFilter
from beliefspace.windtunnel.predictions import predict
from beliefspace.windtunnel.tasks.hmm import HMM
from beliefspace.windtunnel.tasks.recall import AssociativeRecall

torch = pytest.importorskip("torch")

from beliefspace.windtunnel.model_conformance import check_model  # noqa: E402

STREAM = Stream(0, "initial")
# In eighths, so that float32 parameters state them exactly.
STICKY = {
    "transition": ((0.75, 0.125, 0.125), (0.125, 0.75, 0.125), (0.25, 0.25, 0.5)),
    "emission": ((0.5, 0.25, 0.25), (0.25, 0.5, 0.25), (0.125, 0.125, 0.75)),
}
GIVEN = HMM(3, 3, 8, **STICKY)
ROWS = HMM(3, 4, 8)
FINE = HMM(3, 4, 6, "rows", "state", "dirichlet", 0.8, 0.3)
SYMBOLS = [HMM(2, 3, 5, target="symbol"), HMM(3, 3, 5, target="symbol", **STICKY)]
# Short, so that the first layers of a transformer are not yet forgotten by the last.
TINY = [task for task in HMM.tiny() if task.shown == "rows" or task.transition is not None]
ZEROS = [task for task in TINY if task.transition is not None]
POOL = HMM(2, 3, 4, "rows", pool=3)
TASKS = [GIVEN, ROWS, FINE, POOL, *SYMBOLS, *ZEROS]
STYLES = [ExactFilter(), ExactFilter("transformer")]

tasks = pytest.mark.parametrize("task", TASKS, ids=str)
style = pytest.mark.parametrize("spec", STYLES, ids=lambda spec: spec.style)


def built(spec, task):
    return spec.build(task, STREAM).double()


def by_loop(task, inputs):
    """Probabilities of the outcomes at the symbols, one sequence and one state at a time."""
    rows = []
    for row in inputs:
        if task.prefix:
            states, symbols = task.states, task.symbols
            header = row[: 2 * states].astype(np.float64)
            transition = (header[:states, :states] + 1) / states
            emission = (header[states:, states : states + symbols] + 1) / symbols
            seen = row[2 * states :, -symbols:].argmax(axis=1)
        else:
            transition, emission, seen = task.transition, task.emission, row
        belief = None
        for symbol in seen:
            prior = [1 / task.states] * task.states
            if belief is not None:
                prior = [
                    sum(belief[s] * transition[s][into] for s in range(task.states))
                    for into in range(task.states)
                ]
            joint = [prior[s] * emission[s][symbol] for s in range(task.states)]
            belief = [weight / sum(joint) for weight in joint]
            if task.target == "state":
                rows.append(belief)
                continue
            ahead = np.array(belief) @ np.array(transition)
            rows.append([ahead @ np.array(emission)[:, o] for o in range(task.symbols)])
    return np.array(rows)


# ---------------------------------------------------------------- exact


@style
@tasks
def test_probabilities_are_those_of_a_loop(spec, task):
    batch = task.batch(12, STREAM)
    outputs = built(spec, task)(batch.inputs).exp().numpy()[batch.scored]
    np.testing.assert_allclose(outputs, by_loop(task, batch.inputs), atol=1e-12)


@style
@tasks
def test_it_is_bayes_in_single_and_in_double_precision(spec, task):
    batch = task.batch(200, STREAM)
    for network in (spec.build(task, STREAM), built(spec, task)):
        believed = predict(network, task, batch)
        assert batch.predictive.kl_bits(believed).max() < 1e-9
        assert abs(believed.entropy_bits() - batch.predictive.entropy_bits()).max() < 1e-5


@style
@pytest.mark.parametrize("task", TINY, ids=str)
def test_it_keeps_every_rule_of_a_model(spec, task):
    check_model(spec, task)


@style
def test_it_remembers_everything_and_rightly_at_every_lag(spec):
    memory = score(built(spec, GIVEN), GIVEN, 50).memory
    assert set(memory.window_equivalent.values()) == {GIVEN.steps}
    assert memory.reach == GIVEN.steps - 1
    for lag in memory.influence:
        assert lag.slope == pytest.approx(1, abs=1e-9)
        assert lag.correlation == pytest.approx(1, abs=1e-9)


def test_the_recurrent_one_is_exact_at_any_length():
    longer = HMM(3, 4, 60)
    batch = longer.batch(20, STREAM)
    believed = predict(built(ExactFilter(), ROWS), longer, batch)
    assert batch.predictive.kl_bits(believed).max() < 1e-9


@pytest.mark.parametrize("task", [GIVEN, FINE], ids=str)
def test_the_recurrent_state_is_the_exact_belief(task):
    batch = task.batch(20, STREAM)
    trace = built(ExactFilter(), task).record(batch.inputs, ["layers.0.state"])
    state = trace["layers.0.state"].numpy()
    np.testing.assert_allclose(state[batch.scored], np.exp(batch.belief.log_probs), atol=1e-12)
    assert not state[:, : task.prefix].any()  # nothing is believed before the first symbol


# ---------------------------------------------------------------- windows


@pytest.mark.parametrize("window", [1, 2, 4])
@pytest.mark.parametrize("task", [GIVEN, FINE, SYMBOLS[0]], ids=str)
def test_with_w_layers_it_is_the_rung_window_w(task, window):
    batch = task.batch(50, STREAM)
    believed = predict(built(ExactFilter("transformer", window), task), task, batch)
    rung = task.ladder(batch)[f"window-{window}"]
    np.testing.assert_allclose(believed.log_probs, rung.log_probs, atol=1e-6)


@pytest.mark.parametrize("window", [1, 3])
def test_its_window_is_found_by_the_score(window):
    result = score(built(ExactFilter("transformer", window), GIVEN), GIVEN, 100)
    assert result.window_equivalent == window
    assert result.memory.reach == window - 1


def test_each_layer_holds_the_belief_of_one_observation_more():
    batch = GIVEN.batch(30, STREAM)
    trace = built(ExactFilter("transformer"), GIVEN).record(batch.inputs, ["layers.*.state"])
    for layer, exact in enumerate(GIVEN.windows(batch, "uniform")):
        state = trace[f"layers.{layer}.state"].numpy().reshape(-1, GIVEN.states)
        np.testing.assert_allclose(state, np.exp(exact.log_probs), atol=1e-12)


def test_heads_find_the_rows_of_their_state_and_then_the_position_before():
    network, inputs = built(ExactFilter("transformer", 2), ROWS), ROWS.batch(5, STREAM).inputs
    trace = network.record(inputs, ["layers.*.attention"])
    states, length = ROWS.states, ROWS.length
    find = np.zeros((states, length, length))
    for state in range(states):
        find[state, :, [state, states + state]] = 0.5
    for found in trace["layers.0.attention"].numpy():
        np.testing.assert_allclose(found, find, atol=1e-12)
    before = trace["layers.1.attention"].numpy()[:, 0, 2 * states + 1 :]
    np.testing.assert_allclose(
        before, np.eye(length)[None, 2 * states : -1].repeat(5, 0), atol=1e-12
    )


def test_without_the_head_that_looks_back_two_layers_are_one():
    task = GIVEN
    batch = task.batch(30, STREAM)
    cut = built(ExactFilter("transformer", 2), task).edit({"layers.1.attention": torch.zeros_like})
    believed = predict(cut, task, batch)
    rung = task.ladder(batch)["window-1"]
    np.testing.assert_allclose(believed.log_probs, rung.log_probs, atol=1e-12)


# ---------------------------------------------------------------- forms


@pytest.mark.parametrize("task", [GIVEN, ROWS], ids=str)
def test_the_recurrent_form_is_the_same_function(task):
    network, inputs = built(ExactFilter(), task), task.batch(5, STREAM).inputs
    stream, whole = network.stream(inputs[:, : task.prefix]), network(inputs)
    for position in range(task.prefix, task.length):
        torch.testing.assert_close(
            stream(inputs[:, position]), whole[:, position], rtol=1e-9, atol=1e-9
        )


def test_attention_has_no_recurrent_form():
    with pytest.raises(InvalidInput, match='style = "recurrent"'):
        built(STYLES[1], GIVEN).stream(np.zeros((1, 0), np.int64))


@style
def test_gradients_by_the_inputs_are_those_of_differences(spec):
    network = built(spec, ROWS)
    x = torch.from_numpy(ROWS.batch(1, STREAM).inputs).double()
    last = [ROWS.length - 1]

    def outputs(change):
        return network.run(x, edits={"embed": lambda value: _moved(value, change)})[0][:, last]

    direction = torch.linspace(-1, 1, x.numel(), dtype=torch.float64).view_as(x).clone()
    # The least trace of a symbol in the header would be one; there the function jumps.
    direction[:, : ROWS.prefix, -ROWS.symbols :] = 0
    difference = (outputs(1e-5 * direction) - outputs(-1e-5 * direction)).sum() / 2e-5
    trace = network.record(x, ["embed"], gradients=lambda out: out[:, last].sum())
    slope = (trace.gradients["embed"][..., : x.shape[2]] * direction).sum()
    torch.testing.assert_close(slope, difference, rtol=1e-6, atol=1e-6)
    assert trace.gradients["embed"].abs().max() < 1e6


def _moved(value, change):
    value[..., : change.shape[-1]] += change
    return value


@style
def test_an_impossible_sequence_leaves_finite_outputs(spec):
    """Symbol 2 is emitted by no state; the belief starts anew after it."""
    emission = ((0.5, 0.5, 0.0), (0.25, 0.75, 0.0))
    task = HMM(2, 3, 4, transition=((0.5, 0.5), (0.25, 0.75)), emission=emission)
    outputs = built(spec, task)(np.array([[0, 2, 1, 1], [1, 1, 1, 1]])).exp()
    torch.testing.assert_close(outputs[0, 2:], outputs[1, :2])


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"style": "attention"}, "style is one of recurrent, transformer"),
        ({"window": 3}, "a recurrent filter remembers everything; got window 3"),
        ({"style": "transformer", "window": 0}, "window is a whole number of at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, words):
    with pytest.raises(InvalidInput, match=words):
        ExactFilter(**settings)


@style
@pytest.mark.parametrize(
    ("task", "words"),
    [
        (HMM(2, 2, 3, "tokens"), 'got header "tokens"'),
        (HMM(2, 2, 3, pool=3), 'got header "hidden"'),
        (AssociativeRecall(2, 3, 3, 1, 0), "for the task hmm; got AssociativeRecall"),
    ],
)
def test_a_task_whose_chain_it_cannot_know_is_refused(spec, task, words):
    for use in (lambda task: spec.build(task, STREAM), spec.parameters, spec.operations):
        with pytest.raises(InvalidInput, match=words):
            use(task)
