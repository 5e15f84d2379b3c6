"""The optimizers' arithmetic: one step over named parameters, and a state that is saved exactly.

Symbols (Muon):
    G    gradient of a matrix                                  ``[r, c]``
    M    its running average, decay ``momentum``               ``[r, c]``
    U    the nearest semi-orthogonal matrix to the look-ahead  ``[r, c]``
         average, by Newton-Schulz steps of an odd quintic
Matrices of one shape (up to transposition) are handled as one batched product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from jaxtyping import Float

from beliefspace.core.errors import CorruptFile, InvalidInput
from beliefspace.windtunnel.optimizers import AdamW, Muon, OptimizerSpec

_QUINTIC = (3.4445, -4.7750, 2.0315)  # drives singular values in (0, 1] into about (0.7, 1.2)


class Optimization(Protocol):
    """What the training loop needs of an optimizer."""

    def step(self, rate: float) -> None:
        """Update the parameters from their gradients, at a fraction of the highest rate."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return everything that the next step depends on, besides parameters and gradients."""

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what :meth:`state` returned."""


def optimization(spec: OptimizerSpec, network: torch.nn.Module) -> Optimization:
    """Return the optimizer of a network's trainable parameters.

    Linear maps inside the layers (parameters named ``layers. ... .weight`` with two axes) are
    Muon's; the rest is AdamW's.
    """
    trainable = {name: p for name, p in network.named_parameters() if p.requires_grad}
    if not trainable:
        raise InvalidInput(
            f"{type(network).__name__} has no parameter to train: its weights are set by hand; "
            "build it and score it as it is"
        )
    if isinstance(spec, AdamW):
        return _Adam(spec, trainable)
    if isinstance(spec, Muon):
        hidden = {n: p for n, p in trainable.items() if _is_map(n, p)}
        if not hidden:
            raise InvalidInput(
                "muon needs linear maps named layers. ... .weight, and this model has none"
            )
        others = {name: p for name, p in trainable.items() if name not in hidden}
        return _Muon(spec, hidden, _Adam(spec.rest, others))
    raise InvalidInput(f"no arithmetic is known for the optimizer {type(spec).__name__}")


def _is_map(name: str, parameter: torch.nn.Parameter) -> bool:
    return name.startswith("layers.") and name.endswith(".weight") and parameter.ndim == 2


class _Adam:
    def __init__(self, spec: AdamW, parameters: Mapping[str, torch.nn.Parameter]) -> None:
        self._spec = spec
        self._parameters = parameters
        self._adam = torch.optim.AdamW(
            list(parameters.values()),
            lr=spec.learning_rate,
            betas=spec.betas,
            eps=spec.epsilon,
            weight_decay=spec.weight_decay,
            fused=True,
        )
        # What torch would make at the first step; so the state is whole before it, too.
        for p in parameters.values():
            self._adam.state[p] = {
                "step": torch.zeros((), device=p.device),
                "exp_avg": torch.zeros_like(p),
                "exp_avg_sq": torch.zeros_like(p),
            }

    def step(self, rate: float) -> None:
        self._adam.param_groups[0]["lr"] = self._spec.learning_rate * rate
        self._adam.step()

    def state(self) -> dict[str, torch.Tensor]:
        return {
            f"adamw/{name}/{key}": value
            for name, parameter in self._parameters.items()
            for key, value in self._adam.state[parameter].items()
        }

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        for name, parameter in self._parameters.items():
            for key, value in self._adam.state[parameter].items():
                value.copy_(_take(state, f"adamw/{name}/{key}"))


class _Muon:
    def __init__(self, spec: Muon, matrices: Mapping[str, torch.nn.Parameter], rest: _Adam) -> None:
        self._spec = spec
        self._rest = rest
        self._groups: dict[tuple[int, ...], dict[str, torch.nn.Parameter]] = {}
        for name, matrix in matrices.items():
            shape = tuple(sorted(matrix.shape))
            self._groups.setdefault(shape, {})[name] = matrix
        self._averages = {
            shape: next(iter(group.values())).new_zeros(len(group), *shape)
            for shape, group in self._groups.items()
        }

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for shape, group in self._groups.items():
            gradients = torch.stack([_wide(_gradient(p)) for p in group.values()])
            average = self._averages[shape]
            average.lerp_(gradients, 1 - self._spec.momentum)
            updates = _orthogonal(
                gradients.lerp_(average, self._spec.momentum), self._spec.iterations
            )
            for matrix, update in zip(group.values(), updates, strict=True):
                rows, columns = matrix.shape
                size = self._spec.learning_rate * rate * max(1.0, rows / columns) ** 0.5
                matrix.sub_(_like(update, matrix), alpha=size)
        self._rest.step(rate)

    def state(self) -> dict[str, torch.Tensor]:
        averages = {
            f"muon/{name}": average
            for shape, group in self._groups.items()
            for name, average in zip(group, self._averages[shape], strict=True)
        }
        return {**averages, **self._rest.state()}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        for shape, group in self._groups.items():
            for average, name in zip(self._averages[shape], group, strict=True):
                average.copy_(_take(state, f"muon/{name}"))
        self._rest.load(state)


def _orthogonal(
    matrices: Float[torch.Tensor, "g r c"], iterations: int
) -> Float[torch.Tensor, "g r c"]:
    """Push all singular values towards 1, keeping the singular vectors; r <= c."""
    a, b, c = _QUINTIC
    norms: torch.Tensor = torch.linalg.matrix_norm(matrices, keepdim=True)
    x = matrices / (norms + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _wide(matrix: torch.Tensor) -> torch.Tensor:
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT


def _like(update: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    return update if matrix.shape[0] <= matrix.shape[1] else update.mT


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _take(state: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    if name not in state:
        raise CorruptFile(f"the checkpoint lacks {name}: it is of another model or optimizer")
    return state[name]
