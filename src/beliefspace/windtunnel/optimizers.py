"""Optimizers, as settings; the arithmetic is in :mod:`beliefspace.windtunnel.optimization`.

Both are used with a rate that rises over the warm-up and falls to zero at the last step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

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
        _require(self.learning_rate > 0, "learning_rate > 0", self.learning_rate)
        _require(all(0 <= beta < 1 for beta in self.betas), "betas in [0, 1)", self.betas)
        _require(self.weight_decay >= 0, "weight_decay >= 0", self.weight_decay)
        _require(self.epsilon >= 0, "epsilon >= 0", self.epsilon)


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
        _require(self.learning_rate > 0, "learning_rate > 0", self.learning_rate)
        _require(0 <= self.momentum < 1, "momentum in [0, 1)", self.momentum)
        _require(self.iterations >= 1, "iterations >= 1", self.iterations)


def _require(holds: bool, expected: str, given: object) -> None:
    if not holds:
        raise InvalidInput(f"an optimizer needs {expected}; got {given!r}")
