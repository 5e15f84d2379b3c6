"""The bag of values: exact where nothing has to be recalled, and plainly wrong where it has."""

from __future__ import annotations

import numpy as np
import pytest

from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.calibration import score
from beliefspace.windtunnel.models.bag_of_values import BagOfValues
from beliefspace.windtunnel.predictions import predict
from beliefspace.windtunnel.tasks.bijection import Bijection
from beliefspace.windtunnel.tasks.hmm import HMM

torch = pytest.importorskip("torch")

from beliefspace.windtunnel.model_conformance import check_model  # noqa: E402

STREAM = Stream(0, "initial")
TASKS = Bijection.tiny()


def by_loop(task, inputs, penalty):
    """Logits, token by token."""
    logits = np.zeros((*inputs.shape, task.values))
    for row, tokens in enumerate(inputs.tolist()):
        seen = set()
        for position, token in enumerate(tokens):
            if position % 2:
                seen.add(token - task.outputs.support[0])
            for value in seen:
                logits[row, position, value] = -penalty
    return logits


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_logits_are_those_of_a_loop(task):
    inputs = task.batch(20, STREAM).inputs
    network = BagOfValues(7.5).build(task, STREAM).double()
    np.testing.assert_array_equal(network(inputs).numpy(), by_loop(task, inputs, 7.5))


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_it_keeps_every_rule_of_a_model(task):
    check_model(BagOfValues(), task)


def test_without_repeated_keys_entropies_are_exact_to_the_penalty():
    task = Bijection(20, 19)
    errors = {
        penalty: score(BagOfValues(penalty).build(task, STREAM), task, 64).entropy_error_bits.mean
        for penalty in (10.0, 20.0)
    }
    # 2512.22471's task; the numbers are those of a closed form over positions.
    assert errors == pytest.approx({10.0: 1.2e-3, 20.0: 1.1e-7}, rel=0.05)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_it_is_the_rung_of_the_ladder_with_its_penalty(task):
    batch = task.batch(20, STREAM)
    believed = predict(BagOfValues(10.0).build(task, STREAM), task, batch)
    rung = task.ladder(batch)["bag-of-values c=10"]
    np.testing.assert_allclose(believed.log_probs, rung.log_probs, atol=1e-6)


def test_a_key_that_comes_again_is_answered_with_what_is_left():
    task = Bijection(6, 4, keys="repeated")  # too few pairs to be certain by elimination
    batch = task.batch(200, STREAM)
    mass = np.exp(predict(BagOfValues().build(task, STREAM), task, batch).log_probs)
    certain = np.isneginf(batch.predictive.log_probs).sum(axis=1) == task.values - 1
    outcome = mass[np.arange(len(mass)), batch.outcomes]
    assert certain.any()
    assert outcome[certain].max() < 1e-7


def test_the_state_holds_the_counts_and_answers_for_them():
    task = Bijection(4, 6, keys="repeated")
    network = BagOfValues().build(task, STREAM)
    inputs = task.batch(6, STREAM).inputs
    counts = network.record(inputs, ["layers.0.state"])["layers.0.state"]
    shown = (inputs[:, 1::2, None] == np.arange(4, 8)).sum(axis=1)
    np.testing.assert_array_equal(counts[:, -1].numpy(), shown)
    forgets = network.edit({"layers.0.state": torch.zeros_like})
    assert not forgets(inputs).any()


def test_settings_and_tasks_that_make_no_sense_are_refused():
    with pytest.raises(InvalidInput, match="penalty is a finite number greater than 0; got 0"):
        BagOfValues(0)
    for use in (lambda spec, task: spec.build(task, STREAM), BagOfValues.parameters):
        with pytest.raises(InvalidInput, match="for the task bijection; got HMM"):
            use(BagOfValues(), HMM(2, 2, 3))
