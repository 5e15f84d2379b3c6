"""What training minimises, at the scored positions of a batch.

Symbols:
    q        the model's predictive
    p        the exact posterior predictive
    y        the sampled outcome

``sampled`` is -log q(y), the usual next-outcome loss; ``posterior`` is its expectation over y given
the inputs, -sum p log q. The two have the same expected gradient and are smallest where q = p;
there the noise of ``posterior`` vanishes and that of ``sampled`` does not. (Far from there
``posterior`` need not be the quieter one: outcomes of one sequence can balance each other.)
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch.nn import functional as F

from beliefspace.core.distributions import Categorical
from beliefspace.windtunnel.networks.base import Network
from beliefspace.windtunnel.tasks.base import Batch, CategoricalOutputs, Task


def loss_nats(
    network: Network, task: Task, batch: Batch, targets: Literal["sampled", "posterior"]
) -> torch.Tensor:
    """Return the mean loss over the scored positions, in nats.

    Args:
        network: the model; only the columns that some row scores are computed to the end.
        task: the task that drew the batch.
        batch: the sequences.
        targets: which of the two losses.
    """
    device = next(network.parameters()).device
    columns = np.flatnonzero(batch.scored.any(axis=0))
    inputs = torch.from_numpy(batch.inputs).to(device)
    outputs = network(inputs, columns=torch.from_numpy(columns).to(device))
    scored = batch.scored[:, columns]
    rows = outputs.flatten(0, 1)
    if not scored.all():
        rows = outputs[torch.from_numpy(scored).to(device)]
    if isinstance(task.outputs, CategoricalOutputs):
        return _categorical(rows, batch, targets)
    return _normal(rows, batch, targets)


def _categorical(rows: torch.Tensor, batch: Batch, targets: str) -> torch.Tensor:
    if targets == "sampled":
        return F.cross_entropy(rows, torch.from_numpy(batch.outcomes).to(rows.device))
    exact = batch.predictive
    assert isinstance(exact, Categorical)
    probabilities = torch.from_numpy(np.exp(exact.log_probs)).to(rows)
    return F.cross_entropy(rows, probabilities)


def _normal(rows: torch.Tensor, batch: Batch, targets: str) -> torch.Tensor:
    mean, log_variance = rows.unbind(-1)
    if targets == "sampled":
        squares = (torch.from_numpy(batch.outcomes).to(rows) - mean) ** 2
    else:
        exact = batch.predictive
        assert not isinstance(exact, Categorical)
        squares = torch.from_numpy(exact.variance).to(rows)
        squares = squares + (torch.from_numpy(exact.mean).to(rows) - mean) ** 2
    spread = math.log(2 * math.pi) + log_variance + squares * torch.exp(-log_variance)
    loss: torch.Tensor = 0.5 * spread.mean()
    return loss
