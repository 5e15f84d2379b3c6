"""Callables and torch modules become the same beliefs; outputs that do not fit are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.windtunnel.toys import NormalMean

from beliefspace.core.distributions import Normal
from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.calibration import evaluation_hash
from beliefspace.windtunnel.predictions import predict
from beliefspace.windtunnel.tasks.bijection import Bijection

STREAM = Stream(5, "predictions")
TASK = Bijection(4)
BATCH = TASK.batch(10, STREAM)


def table(width, rows=8):
    """A fixed row of logits for each token."""
    return np.random.default_rng(width).normal(size=(rows, width))


def looking_up(width):
    return lambda inputs: table(width)[inputs]


def softmax(logits):
    weights = [[math.exp(x) for x in row] for row in logits]
    return np.array([[w / sum(row) for w in row] for row in weights])


# ---------------------------------------------------------------- callables


def test_softmax_at_scored_positions_in_row_major_order():
    believed = predict(looking_up(4), TASK, BATCH)
    scored = [table(4)[token] for row in BATCH.inputs for token in row[0::2]]
    np.testing.assert_allclose(np.exp(believed.log_probs), softmax(scored), rtol=1e-12)
    assert believed.support == (4, 5, 6, 7)
    assert believed.log_probs.dtype == np.float64


def test_whole_vocabulary():
    believed = predict(looking_up(8), TASK, BATCH)
    scored = [table(8)[token] for row in BATCH.inputs for token in row[0::2]]
    np.testing.assert_allclose(np.exp(believed.log_probs), softmax(scored), rtol=1e-12)
    assert believed.support == tuple(range(8))


def test_what_happens_at_other_positions_does_not_matter():
    def other(inputs):
        out = table(4)[inputs]
        out[:, 1::2] += 100 * np.arange(4)
        return out

    np.testing.assert_array_equal(
        predict(other, TASK, BATCH).log_probs, predict(looking_up(4), TASK, BATCH).log_probs
    )


def test_logits_are_defined_up_to_a_constant_and_may_be_probabilities():
    plain = predict(looking_up(4), TASK, BATCH).log_probs
    shifted = predict(lambda x: table(4)[x] + 700.0, TASK, BATCH).log_probs
    np.testing.assert_allclose(shifted, plain, atol=1e-12)
    logged = predict(lambda x: np.log(softmax(table(4)))[x], TASK, BATCH).log_probs
    np.testing.assert_allclose(logged, plain, atol=1e-12)


def test_minus_infinity_rules_out_exactly():
    def sure(inputs):
        out = np.zeros((*inputs.shape, 4))
        out[..., 1:3] = -np.inf
        return out

    log_probs = predict(sure, TASK, BATCH).log_probs
    assert np.isneginf(log_probs[:, 1:3]).all()
    np.testing.assert_allclose(log_probs[:, [0, 3]], -math.log(2), rtol=1e-15)


def test_single_precision_is_enough():
    believed = predict(lambda x: table(4)[x].astype(np.float32), TASK, BATCH)
    assert believed.log_probs.dtype == np.float64
    np.testing.assert_allclose(np.exp(believed.log_probs).sum(axis=1), 1, rtol=1e-14)


def test_many_sequences_keep_their_order():
    task = Bijection(5, format="A")
    batch = task.batch(1100, STREAM)
    logits = np.random.default_rng(0).normal(size=(5, 5))
    believed = predict(lambda x: logits[x], task, batch)
    expected = softmax(logits)[batch.inputs[:, 0::2].ravel()]
    np.testing.assert_allclose(np.exp(believed.log_probs), expected, rtol=1e-12)


def test_normal_outputs_are_mean_and_log_variance():
    task = NormalMean(3)
    batch = task.batch(400, STREAM)

    def running(inputs):
        assert inputs.dtype == np.float32
        assert inputs.shape[1:] == (3, 1)
        return np.concatenate([inputs, np.full_like(inputs, math.log(3))], axis=-1)

    believed = predict(running, task, batch)
    assert isinstance(believed, Normal)
    np.testing.assert_allclose(believed.mean, batch.inputs.ravel(), rtol=1e-6)
    np.testing.assert_allclose(believed.variance, 3, rtol=1e-6)


def test_a_predictor_that_writes_on_its_inputs_does_not_change_the_batch():
    batch = TASK.batch(10, STREAM)
    before = evaluation_hash(batch)

    def careless(inputs):
        out = table(4)[inputs]
        inputs[:] = 0
        return out

    try:
        believed = predict(careless, TASK, batch)
    except (InvalidInput, ValueError):
        pass  # Refusing by a read-only array would do.
    else:
        np.testing.assert_array_equal(
            believed.log_probs, predict(looking_up(4), TASK, BATCH).log_probs
        )
    assert evaluation_hash(batch) == before


# ---------------------------------------------------------------- refusals


def _nan(inputs):
    out = np.zeros((*inputs.shape, 4))
    out[-1, 0, 2] = np.nan
    return out


def _infinite(inputs):
    out = np.zeros((*inputs.shape, 4))
    out[0, 0, 0] = np.inf
    return out


def _nothing_possible(inputs):
    out = np.zeros((*inputs.shape, 4))
    out[0, 0] = -np.inf
    return out


BAD = {
    "nan": _nan,
    "infinite": _infinite,
    "nothing possible": _nothing_possible,
    "other width": lambda x: np.zeros((*x.shape, 5)),
    "one output": lambda x: np.zeros((*x.shape, 1)),
    "no outputs": lambda x: np.zeros((*x.shape, 0)),
    "no position axis": lambda x: np.zeros((len(x), 4)),
    "scored positions only": lambda x: np.zeros((len(x), 4, 4)),
    "too few sequences": lambda x: np.zeros((len(x) - 1, x.shape[1], 4)),
    "too many axes": lambda x: np.zeros((*x.shape, 4, 1)),
    "axes in the other order": lambda x: np.zeros((len(x), 4, x.shape[1])),
    "nothing": lambda x: None,
    "words": lambda x: np.full((*x.shape, 4), "a"),
    "a pair": lambda x: (np.zeros((*x.shape, 4)), 0.5),
    "ragged": lambda x: [[0.0], [0.0, 1.0]],
    "complex": lambda x: np.zeros((*x.shape, 4), dtype=complex),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_outputs_that_do_not_fit_are_refused(bad):
    with pytest.raises(InvalidInput):
        predict(bad, TASK, BATCH)


@pytest.mark.parametrize(
    "nothing", [3, None, "model", np.zeros((10, 7, 4))], ids=lambda it: type(it).__name__
)
def test_what_cannot_be_called_is_refused(nothing):
    with pytest.raises(InvalidInput):
        predict(nothing, TASK, BATCH)


def test_a_refusal_says_what_came_and_what_was_expected():
    with pytest.raises(InvalidInput, match=r"5.*4.*8"):
        predict(BAD["other width"], TASK, BATCH)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1])
def test_normal_outputs_are_finite(value, place):
    task = NormalMean(3)

    def bad(inputs):
        out = np.zeros((*inputs.shape[:2], 2))
        out[0, 0, place] = value
        return out

    with pytest.raises(InvalidInput):
        predict(bad, task, task.batch(4, STREAM))


def test_normal_outputs_are_two():
    task = NormalMean(3)
    with pytest.raises(InvalidInput):
        predict(lambda x: np.zeros((*x.shape[:2], 1)), task, task.batch(4, STREAM))


def test_the_predictors_own_error_comes_through():
    def broken(inputs):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        predict(broken, TASK, BATCH)


# ---------------------------------------------------------------- torch

torch = pytest.importorskip("torch")


class LookUp(torch.nn.Module):
    """The same rows as :func:`looking_up`, with a dropout that must be off."""

    def __init__(self, width, dtype=torch.float64):
        super().__init__()
        self.rows = torch.nn.Parameter(torch.tensor(table(width), dtype=dtype))
        self.dropout = torch.nn.Dropout(0.5)
        self.frozen = torch.nn.Dropout(0.5)
        self.seen = []

    def forward(self, inputs):
        self.seen.append((self.training, torch.is_grad_enabled(), inputs.dtype, inputs.device))
        return self.frozen(self.dropout(self.rows[inputs]))


@pytest.mark.parametrize("width", [4, 8])
def test_module_and_callable_agree(width):
    believed = predict(LookUp(width), TASK, BATCH)
    plain = predict(looking_up(width), TASK, BATCH)
    np.testing.assert_allclose(believed.log_probs, plain.log_probs, rtol=1e-14)
    assert believed.support == plain.support


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_lower_precision_modules(dtype):
    """Rounding of the logits is the model's; the softmax is in double."""
    believed = predict(LookUp(4, dtype), TASK, BATCH)
    rounded = torch.tensor(table(4)).to(dtype).double().numpy()
    expected = softmax(rounded[BATCH.inputs[:, 0::2].ravel()])
    np.testing.assert_allclose(np.exp(believed.log_probs), expected, rtol=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_mode_of_every_part_is_restored(training):
    module = LookUp(4).train(training)
    module.frozen.eval()
    predict(module, TASK, BATCH)
    assert module.training is module.dropout.training is training
    assert module.frozen.training is False
    assert {(t, g) for t, g, *_ in module.seen} == {(False, False)}
    assert {kind for _, _, kind, _ in module.seen} == {torch.int64}
    assert torch.is_grad_enabled()
    assert module.rows.grad is None


def test_mode_is_restored_after_an_error():
    class Broken(LookUp):
        def forward(self, inputs):
            raise RuntimeError("mine")

    module = Broken(4).train()
    with pytest.raises(RuntimeError, match="mine"):
        predict(module, TASK, BATCH)
    assert module.training
    assert module.dropout.training
    assert torch.is_grad_enabled()


def test_mode_is_restored_after_a_refusal():
    module = LookUp(5).train()
    with pytest.raises(InvalidInput):
        predict(module, TASK, BATCH)
    assert module.training


def test_module_without_parameters():
    class Flat(torch.nn.Module):
        def forward(self, inputs):
            return torch.zeros(*inputs.shape, 4)

    believed = predict(Flat(), TASK, BATCH)
    np.testing.assert_allclose(believed.log_probs, -math.log(4), rtol=1e-15)


def test_module_on_real_inputs():
    task = NormalMean(3)
    batch = task.batch(6, STREAM)
    linear = torch.nn.Linear(1, 2)
    believed = predict(linear, task, batch)
    weight, bias = linear.weight.detach().double().numpy(), linear.bias.detach().double().numpy()
    outputs = batch.inputs.reshape(-1, 1).astype(np.float64) @ weight.T + bias
    np.testing.assert_allclose(believed.mean, outputs[:, 0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(believed.variance, np.exp(outputs[:, 1]), rtol=1e-4)


def test_callable_that_returns_a_tensor():
    rows = torch.tensor(table(4), requires_grad=True)
    believed = predict(lambda x: rows[torch.as_tensor(x)], TASK, BATCH)
    np.testing.assert_allclose(
        believed.log_probs, predict(looking_up(4), TASK, BATCH).log_probs, rtol=1e-14
    )
