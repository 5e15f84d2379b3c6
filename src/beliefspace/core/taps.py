"""How a run reads and edits: the tap that a model's arithmetic calls at each point.

A network calls ``tap(name, value)`` where a point lies and goes on with what it gets back. With
nothing asked that is :data:`NO_TAP`, which hands every value on.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from beliefspace.core.errors import BeliefspaceError, InvalidInput
from beliefspace.core.trace import NO_EDITS, Edit, Loss, resolve_edits, resolve_names

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

__all__ = [
    "NO_TAP",
    "Observation",
    "Recorder",
    "Tap",
    "evaluating",
    "observe",
    "scoped",
]


class Tap(Protocol):
    """What a network hands its values to: ``value = tap(name, value)`` at every point."""

    @property
    def active(self) -> bool:
        """Whether anything is recorded or edited at all."""

    def wants(self, name: str) -> bool:
        """Return whether the value of a point is asked for, so that it must be made."""

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """Take a point's value and return the one that goes on."""


class _NoTap:
    """Takes nothing and changes nothing."""

    active = False

    def wants(self, name: str) -> bool:
        return False

    def __call__(self, name: str, value: Tensor) -> Tensor:
        return value


NO_TAP: Tap = _NoTap()


class Recorder:
    """A tap that keeps the values of some points and edits those of others.

    Args:
        names: exact names of the points to record.
        edits: exact name -> edit.
        gradients: keep recorded values in the graph, so that a loss can be differentiated by them.
    """

    active = True

    def __init__(
        self,
        names: Iterable[str],
        edits: Mapping[str, Edit] = NO_EDITS,
        *,
        gradients: bool = False,
    ) -> None:
        self.values: dict[str, Tensor] = {}
        self._names = frozenset(names)
        self._edits = edits
        self._gradients = gradients
        self._seen: set[str] = set()

    def wants(self, name: str) -> bool:
        """Return whether a point is recorded or edited."""
        return name in self._names or name in self._edits

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """Edit and record a value; return the one that goes on."""
        if not self.wants(name):
            return value
        if name in self._seen:
            raise BeliefspaceError(
                f"point {name!r} came by twice in one run, so its value is ambiguous; "
                "name a part of the model that runs once"
            )
        self._seen.add(name)
        if name in self._edits:
            value = _edited(name, self._edits[name], value)
        if name in self._names:
            if self._gradients and not value.requires_grad:
                value = value.detach().clone().requires_grad_()
            self.values[name] = value
        return value

    def finish(self) -> None:
        """Check that every point asked for came by.

        Raises:
            BeliefspaceError: one did not; it is named.
        """
        missing = sorted((self._names | set(self._edits)) - self._seen)
        if missing:
            raise BeliefspaceError(
                f"point {missing[0]!r} was asked for, but the run did not pass it"
                + (f" (nor {', '.join(missing[1:])})" if missing[1:] else "")
            )


def _edited(name: str, edit: Edit, value: Tensor) -> Tensor:
    # The copy keeps an edit that works in place from reaching other points that share the memory.
    new = edit(value.clone())
    shape, dtype = getattr(new, "shape", None), getattr(new, "dtype", None)
    if shape != value.shape or dtype != value.dtype:
        got = type(new).__name__ if shape is None else f"{dtype} of shape {tuple(shape)}"
        raise InvalidInput(
            f"the edit of {name!r} must return a tensor of shape {tuple(value.shape)} and "
            f"{value.dtype}; got {got}"
        )
    return new


class _Scoped:
    """A tap for a part of a network, which then need not know where in the whole it stands."""

    active = True

    def __init__(self, tap: Tap, scope: str) -> None:
        self._tap = tap
        self._scope = scope

    def wants(self, name: str) -> bool:
        return self._tap.wants(f"{self._scope}.{name}")

    def __call__(self, name: str, value: Tensor) -> Tensor:
        return self._tap(f"{self._scope}.{name}", value)


def scoped(tap: Tap, scope: str) -> Tap:
    """Return a tap that puts ``scope.`` before each name; an inactive one comes back as it is."""
    return _Scoped(tap, scope) if tap.active else tap


@dataclass(frozen=True)
class Observation:
    """What :func:`observe` saw: outputs, recorded values, and gradients if asked for."""

    outputs: Any
    values: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor] | None


def observe(
    module: Module,
    forward: Callable[[Tap], Any],
    known: Iterable[str],
    names: Iterable[str] = (),
    edits: Mapping[str, Edit] = NO_EDITS,
    gradients: Loss | None = None,
) -> Observation:
    """Run a torch module in evaluation mode with a tap; the shared body of runners over torch.

    Args:
        module: the module, put back into the mode it was in afterwards.
        forward: computes the outputs, handing values to the tap it is given.
        known: the names of the module's points, in order of computation.
        names: names or globs to record.
        edits: name or glob -> edit.
        gradients: scalar loss of the outputs to differentiate by the recorded values, or None: then
            no graph is built.

    Raises:
        UnknownName: a name or glob matches no point.
        InvalidInput: an edit changed a shape, or the loss is no scalar that depends on the outputs.
        BeliefspaceError: a point asked for did not come by.
    """
    every = list(known)
    wanted = resolve_names(names, every)
    changed = resolve_edits(edits, every)
    recorder = Recorder(wanted, changed, gradients=gradients is not None)
    tap: Tap = recorder if wanted or changed else NO_TAP
    torch = _torch()
    with evaluating(module), torch.set_grad_enabled(gradients is not None):
        outputs = forward(tap)
        recorder.finish()
        slopes = None if gradients is None else _gradients(gradients(outputs), recorder.values)
    # A network may pass its points in another order than it lists them.
    values = {name: recorder.values[name].detach() for name in wanted}
    return Observation(_detached(outputs), values, slopes)


def _torch() -> Any:
    # The core does not depend on torch: only someone who holds a torch module comes this way.
    return importlib.import_module("torch")


@contextmanager
def evaluating(module: Module) -> Iterator[None]:
    """Switch to evaluation mode, and restore the mode of each part afterwards."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _gradients(loss: Tensor, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    if getattr(loss, "numel", lambda: 0)() != 1 or not loss.requires_grad:
        raise InvalidInput(
            "gradients takes a function from the outputs to a scalar tensor that depends on them; "
            f"it returned {loss!r}"
        )
    if not values:
        raise InvalidInput("gradients are taken by the recorded points; no names were given")
    slopes = _torch().autograd.grad(loss, list(values.values()), materialize_grads=True)
    return dict(zip(values, slopes, strict=True))


def _detached(outputs: Any) -> Any:
    return outputs.detach() if hasattr(outputs, "detach") else outputs
