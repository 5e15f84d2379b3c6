"""Optimizers, as settings; the arithmetic is in :mod:`beliefspace.windtunnel.optimization`.

Both are used with a rate that rises over the warm-up and falls to zero at the last step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from beliefspace.core.checks import check_finite, check_whole
from beliefspace.core.errors import InvalidInput
from beliefspace.core.registry import register


class OptimizerSpec:
    """Base of the settings of an optimizer."""

    group: ClassVar[str] = "optimizers"


@register("optimizers", "adamw")
@dataclass(frozen=True)
class AdamW(OptimizerSpec):
    """Adam with decoupled weight decay (arXiv 1711.05101).

    Args:
        learning_rate: the highest rate.
        betas: decay of the first and second moment.
        weight_decay: per unit of learning rate.
        epsilon: added to the root of the second moment.
    """

    learning_rate: float = 3e-3
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        check_finite("learning_rate", self.learning_rate, above=0)
        check_finite("weight_decay", self.weight_decay)
        check_finite("epsilon", self.epsilon)
        for beta in self.betas:
            _check_decay("betas", beta)


@register("optimizers", "muon")
@dataclass(frozen=True)
class Muon(OptimizerSpec):
    """Orthogonalised momentum (Muon) for matrices inside the layers, AdamW for everything else.

    Args:
        learning_rate: the highest rate, of an update whose singular values are about 1 (scaled by
            the root of rows over columns where a matrix has more rows).
        momentum: decay of the (Nesterov) momentum.
        iterations: Newton-Schulz steps of the orthogonalisation.
        rest: AdamW for embeddings, read-out, norms and biases.
    """

    learning_rate: float = 0.02
    momentum: float = 0.95
    iterations: int = 5
    rest: AdamW = field(default_factory=AdamW)

    def __post_init__(self) -> None:
        check_finite("learning_rate", self.learning_rate, above=0)
        _check_decay("momentum", self.momentum)
        check_whole("iterations", self.iterations, 1, most=100)


def _check_decay(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise InvalidInput(f"{name} is at least 0 and less than 1; got {value!r}")
