"""Exact recall: both styles against a look-up by hand, and attention on the pair that matches."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.calibration import score
from beliefspace.windtunnel.models.exact_recall import LEAST_SHARPNESS, ExactRecall
from beliefspace.windtunnel.predictions import predict
from beliefspace.windtunnel.tasks.bijection import Bijection
from beliefspace.windtunnel.tasks.hmm import HMM
from beliefspace.windtunnel.tasks.recall import FIRST_KEY, SEP, STORE, AssociativeRecall

torch = pytest.importorskip("torch")

from beliefspace.windtunnel.model_conformance import check_model  # noqa: E402

STREAM = Stream(0, "initial")
BOTH = [ExactRecall(), ExactRecall("recurrent")]
RECALL = AssociativeRecall(5, 8, 6, 3, 4)
PAIRS = [
    Bijection(5, 7, *rest) for rest in itertools.product("AB", ["repeated"], ["bijection", "map"])
]
TASKS = [RECALL, *AssociativeRecall.tiny(), *PAIRS, Bijection(5), Bijection(5, format="A")]

style = pytest.mark.parametrize("spec", BOTH, ids=lambda spec: spec.style)


@style
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_it_is_bayes_to_its_confidence(spec, task):
    batch = task.batch(64, STREAM)
    believed = predict(spec.build(task, STREAM), task, batch)
    assert batch.predictive.kl_bits(believed).max() < 1e-10
    assert abs(believed.entropy_bits() - batch.predictive.entropy_bits()).max() < 1e-9
    if isinstance(task, AssociativeRecall):
        assert (believed.log_probs.argmax(axis=-1) == batch.outcomes).all()


@style
def test_the_whole_recall_task_is_recalled(spec):
    """64 pairs of 256 keys: the released size."""
    task = AssociativeRecall()
    result = score(spec.build(task, STREAM), task, 4)
    assert result.accuracy.mean == 1
    assert result.kl_bits.worst < 1e-9


@style
@pytest.mark.parametrize("task", [RECALL, *PAIRS], ids=str)
def test_answers_are_those_of_a_dictionary(spec, task):
    """At every scored position, on tokens alone; nothing is asked of the task's own predictive."""
    batch = task.batch(20, STREAM)
    mass = spec.build(task, STREAM).double()(batch.inputs).softmax(dim=-1).numpy()
    first = task.outputs.support[0]
    eliminates = getattr(task, "mapping", "map") == "bijection"
    for row, tokens in enumerate(batch.inputs.tolist()):
        table, step = {}, 4 if task is RECALL else 2
        for position, token in enumerate(tokens):
            pair = tokens[position - 3 : position + 1] if task is RECALL else []
            if pair[::2] == [STORE, SEP]:
                table[pair[1]] = pair[3] - first
            elif task is not RECALL and position % step == 1:
                table[tokens[position - 1]] = token - first
            if not batch.scored[row, position]:
                continue
            free = set(range(task.values)) - (set(table.values()) if eliminates else set())
            answers = {table[token]} if token in table else free
            expected = [1 / len(answers) if v in answers else 0.0 for v in range(task.values)]
            np.testing.assert_allclose(mass[row, position], expected, atol=1e-12)


@style
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_it_keeps_every_rule_of_a_model(spec, task):
    check_model(spec, task)


def test_attention_falls_on_the_value_stored_with_the_key():
    network, batch = ExactRecall().build(RECALL, STREAM).double(), RECALL.batch(20, STREAM)
    trace = network.record(batch.inputs, ["layers.*.attention"])
    before, look_up = trace["layers.0.attention"][:, 0], trace["layers.1.attention"][:, 0]
    # The first layer looks two positions back, where the key stands.
    assert before.diagonal(-2, dim1=1, dim2=2).min() > 1 - 1e-12
    latent, rows = batch.latent, np.arange(20)
    for query in range(RECALL.queries):
        column = np.flatnonzero(batch.scored[0])[query]
        stored_at = 4 * latent.queries[:, query] + 3
        assert look_up[rows, column, stored_at].min() > 1 - 1e-12
    # Where no key was seen yet that it could match, it rests.
    assert look_up[:, : 4 * RECALL.pairs].sum(dim=-1).max() < 1e-12


def test_attention_is_shared_by_all_pairs_with_the_key_and_elimination_looks_at_every_value():
    task = Bijection(3, 8, "B", "repeated")
    network, inputs = ExactRecall().build(task, STREAM).double(), task.batch(10, STREAM).inputs
    attention = network.record(inputs, ["layers.1.attention"])["layers.1.attention"].numpy()
    for row, tokens in enumerate(inputs):
        for position in range(2, task.length, 2):
            matching = np.flatnonzero(tokens[: position - 1 : 2] == tokens[position]) * 2 + 1
            matching = matching[matching < position]
            expected = np.zeros(task.length)
            expected[matching] = 1 / max(1, len(matching))
            np.testing.assert_allclose(attention[row, 0, position], expected, atol=1e-12)
            every = np.arange(task.length)
            shown = (every % 2 == 1) & (every < position)
            np.testing.assert_allclose(attention[row, 1, position], shown / shown.sum(), atol=1e-12)


def test_without_its_first_layer_it_recalls_nothing():
    network = ExactRecall().build(RECALL, STREAM)
    cut = network.edit({"layers.0.attention_out": torch.zeros_like})
    result = score(cut, RECALL, 64)
    assert result.kl_bits.mean == pytest.approx(math.log2(RECALL.values))


def test_without_its_elimination_head_it_recalls_and_rules_nothing_out():
    task = Bijection(5, 7, "B", "repeated")
    batch = task.batch(64, STREAM)

    def cut(heads):
        heads[:, 1] = 0
        return heads

    network = ExactRecall().build(task, STREAM).edit({"layers.1.head_outputs": cut})
    mass = network(batch.inputs).softmax(dim=-1).numpy()[batch.scored]
    certain = batch.predictive.entropy_bits() == 0
    seen = mass.max(axis=1) > 0.99
    assert (mass.argmax(axis=1) == batch.outcomes)[seen].all()
    assert (certain[seen]).all()
    np.testing.assert_allclose(mass[~seen], 1 / task.values, atol=1e-6)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_the_least_sharpness_is_sharp_enough(task):
    batch = task.batch(64, STREAM)
    believed = predict(ExactRecall(sharpness=LEAST_SHARPNESS).build(task, STREAM), task, batch)
    assert batch.predictive.kl_bits(believed).max() < 1e-10


def test_the_recurrent_state_is_the_table_that_was_drawn():
    network, batch = ExactRecall("recurrent").build(RECALL, STREAM), RECALL.batch(20, STREAM)
    state = network.record(batch.inputs, ["layers.0.state"])["layers.0.state"]
    assert state.shape == (20, RECALL.length, RECALL.keys, RECALL.values)
    drawn = batch.latent.table[:, :, None] == np.arange(RECALL.values)
    np.testing.assert_array_equal(state[:, -1].numpy(), drawn)


def test_the_recurrent_table_takes_the_newer_value_of_a_key():
    """No task stores a key twice with two values; the delta rule would replace the first."""
    key, first = FIRST_KEY, RECALL.outputs.support[0]
    tokens = [STORE, key, SEP, first + 1, STORE, key, SEP, first + 4, key]
    logits = ExactRecall("recurrent").build(RECALL, STREAM)(np.array([tokens]))
    assert logits[0, -1].argmax() == 4


def test_a_value_changed_in_the_table_is_what_is_answered():
    network, batch = ExactRecall("recurrent").build(RECALL, STREAM), RECALL.batch(20, STREAM)
    turned = network.edit({"layers.0.state": lambda table: table.roll(1, dims=-1)})
    answers = turned(batch.inputs).argmax(dim=-1).numpy()[batch.scored]
    np.testing.assert_array_equal(answers, (batch.outcomes + 1) % RECALL.values)


def test_a_stream_of_tokens_may_be_longer_than_the_task():
    network = ExactRecall("recurrent").build(RECALL, STREAM).double()
    tokens = np.concatenate([RECALL.batch(4, STREAM, step).inputs for step in range(3)], axis=1)
    stream, whole = network.stream(tokens[:, :0]), network(tokens)
    for position in range(tokens.shape[1]):
        torch.testing.assert_close(stream(tokens[:, position]), whole[:, position])


def test_attention_has_no_recurrent_form():
    with pytest.raises(InvalidInput, match='style = "recurrent"'):
        ExactRecall().build(RECALL, STREAM).stream(np.zeros((1, 0), np.int64))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"style": "recurent"}, "nearest: recurrent"),
        ({"confidence": 0.0}, "confidence is a finite number greater than 0"),
        ({"sharpness": math.inf}, "sharpness is a number from 50 to 1000"),
        ({"sharpness": 5.0}, "sharpness is a number from 50 to 1000; got 5.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, words):
    with pytest.raises(InvalidInput, match=words):
        ExactRecall(**settings)


@style
def test_a_task_without_pairs_is_refused(spec):
    for use in (lambda task: spec.build(task, STREAM), spec.parameters, spec.operations):
        with pytest.raises(InvalidInput, match="recall and bijection; got HMM"):
            use(HMM(2, 2, 3))
