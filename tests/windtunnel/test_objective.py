"""What training minimises for normal outcomes; categorical ones are in ``test_training``."""

from __future__ import annotations

import numpy as np
import pytest
from tests.windtunnel.toys import NormalMean

from beliefspace.core.streams import Stream
from beliefspace.windtunnel.models.transformer import Transformer

torch = pytest.importorskip("torch")
from beliefspace.windtunnel.objective import loss_nats  # noqa: E402

TASK = NormalMean()


@pytest.fixture
def drawn():
    """A network with outputs far from constant, a batch, and its outputs at every position."""
    network = Transformer(width=16, depth=1).build(TASK, Stream(0, "initial"))
    batch = TASK.batch(200, Stream(0, "train"))
    outputs = network(batch.inputs).detach().numpy().astype(np.float64).reshape(-1, 2)
    assert outputs.std(axis=0).min() > 0.1
    return network, batch, outputs[:, 0], np.exp(outputs[:, 1])


def minus_log_density(outcome, mean, variance):
    return 0.5 * np.log(2 * np.pi * variance) + (outcome - mean) ** 2 / (2 * variance)


def test_sampled_targets_cost_minus_the_log_density_of_the_outcome(drawn):
    network, batch, mean, variance = drawn
    expected = minus_log_density(batch.outcomes, mean, variance).mean()
    found = float(loss_nats(network, TASK, batch, "sampled").detach())
    assert found == pytest.approx(expected, rel=1e-5)


def test_posterior_targets_cost_its_expectation_over_the_exact_predictive(drawn):
    network, batch, mean, variance = drawn
    nodes, weights = np.polynomial.hermite_e.hermegauss(10)
    outcomes = batch.predictive.mean[:, None] + nodes * np.sqrt(batch.predictive.variance)[:, None]
    each = minus_log_density(outcomes, mean[:, None], variance[:, None])
    expected = (each @ weights / weights.sum()).mean()
    found = float(loss_nats(network, TASK, batch, "posterior").detach())
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("targets", ["sampled", "posterior"])
def test_the_loss_reaches_every_parameter(drawn, targets):
    network, batch, *_ = drawn
    loss_nats(network, TASK, batch, targets).backward()
    assert all(bool(parameter.grad.any()) for parameter in network.parameters())
