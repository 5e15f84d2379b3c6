"""Runners, what they can show, and what was recorded: the one door to a model's inside.

A runner names its points. ``run`` gives the outputs and a trace of the points asked for; ``edit``
gives a new runner in which a point's value is changed on its way. Reading changes nothing; with
nothing asked, nothing is recorded.

The vocabulary of points: ``embed``, then per layer ``layers.i.`` + ``residual_in``, ``queries``,
``keys``, ``values``, ``queries_rotary``, ``keys_rotary``, ``scores``, ``attention``,
``head_outputs``, ``attention_out``, ``residual_mid``, ``mlp_out``, ``router``, ``step_size``,
``input_gate``, ``output_gate``, ``state``, ``residual_out``, then ``final_norm`` and ``logits``. A
point that an architecture lacks is absent. Wherever names are taken, globs are too
(``layers.*.keys``).

Symbols:
    n     sequences in a batch
    T     positions of a sequence
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Int64

from beliefspace.core.errors import BeliefspaceError, InvalidInput, unknown_name

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

__all__ = [
    "NO_TAP",
    "EditedRunner",
    "Observation",
    "Point",
    "Recorder",
    "Runner",
    "RunnerMethods",
    "Tap",
    "Trace",
    "observe",
    "points",
    "resolve_edits",
    "resolve_names",
    "scoped",
]

Edit: TypeAlias = "Callable[[Tensor], Tensor]"
Loss: TypeAlias = "Callable[[Any], Tensor]"
NO_EDITS: Mapping[str, Edit] = MappingProxyType({})


@dataclass(frozen=True)
class Point:
    """A place in a model whose value can be read and edited.

    Attributes:
        name: as in the vocabulary above.
        meaning: what the value is, in words.
        shape: its axes in words, for example "batch heads time head_width".
    """

    name: str
    meaning: str
    shape: str


@dataclass(frozen=True)
class Trace:
    """The values recorded in one run.

    Attributes:
        values: the value at each recorded point (after its edit, if it had one), in order of
            computation.
        positions: position of each column of the inputs.
        lengths: number of positions of each sequence.
        head_map: query head -> the key-value heads it reads; None where the runner cannot tell.
        weights: the parameters by name, if asked for.
        gradients: the derivative of the given loss by each recorded value, if asked for.
    """

    values: Mapping[str, Tensor]
    positions: Int64[np.ndarray, " T"]
    lengths: Int64[np.ndarray, " n"]
    head_map: Mapping[int, tuple[int, ...]] | None = None
    weights: Mapping[str, Tensor] | None = None
    gradients: Mapping[str, Tensor] | None = None

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.values:
            raise unknown_name("recorded point", name, self.values)
        return self.values[name]

    def match(self, pattern: str) -> dict[str, Tensor]:
        """Return the recorded values whose names match a glob, in order of computation.

        Args:
            pattern: a name or glob, for example ``layers.*.keys``.

        Raises:
            UnknownName: nothing recorded matches.
        """
        found = resolve_names([pattern], self.values, "recorded point")
        return {name: self.values[name] for name in found}


@runtime_checkable
class Runner(Protocol):
    """What wind-tunnel models, language-model adapters and wrapped modules have in common."""

    def points(self) -> tuple[Point, ...]:
        """Return every point that there is, in order of computation."""

    def run(
        self,
        inputs: Any,  # noqa: ANN401 - each runner says what it takes
        names: Iterable[str] = (),
        edits: Mapping[str, Edit] = NO_EDITS,
        *,
        gradients: Loss | None = None,
        weights: bool = False,
    ) -> tuple[Any, Trace]:
        """Compute the outputs, and record the points asked for.

        Args:
            inputs: what the model takes.
            names: names or globs of the points to record.
            edits: name or glob -> function from the value there to the value that goes on.
            gradients: a function from the outputs to a scalar; its derivatives by the recorded
                values come with the trace.
            weights: whether the trace carries a copy of the parameters.

        Returns:
            The outputs (detached), and the trace.

        Raises:
            UnknownName: a name or glob matches no point.
            InvalidInput: an edit changed a value's shape or kind.
        """


def points(runner: Runner) -> tuple[Point, ...]:
    """Return every point of a runner, in order of computation.

    Raises:
        InvalidInput: ``runner`` is not a runner, but for example a plain callable.
    """
    if not isinstance(runner, Runner):
        raise InvalidInput(
            f"{type(runner).__name__} has no points; wrap a torch module with "
            'beliefspace.core.wrap.wrap(module, points={"embed": "path.to.submodule"})'
        )
    return runner.points()


class RunnerMethods:
    """The methods that every runner gets from its ``points`` and ``run``."""

    if TYPE_CHECKING:
        points: Callable[[], tuple[Point, ...]]
        run: Callable[..., tuple[Any, Trace]]

    def record(
        self,
        inputs: Any,  # noqa: ANN401
        names: Iterable[str],
        *,
        gradients: Loss | None = None,
        weights: bool = False,
    ) -> Trace:
        """Return the trace alone; arguments as in :meth:`Runner.run`."""
        return self.run(inputs, names, gradients=gradients, weights=weights)[1]

    def edit(self, edits: Mapping[str, Edit]) -> EditedRunner:
        """Return a runner in which points are changed; this one stays as it is.

        Args:
            edits: name or glob -> function from the value there to one of the same shape. The
                function gets a copy, and may change it in place.

        Raises:
            UnknownName: a name or glob matches no point.
        """
        return EditedRunner(self, {}).edit(edits)


class EditedRunner(RunnerMethods):
    """A runner with some points changed; edits added later act on what earlier ones give."""

    def __init__(self, runner: RunnerMethods, edits: Mapping[str, Edit]) -> None:
        self._runner = runner
        self._edits = edits

    def __call__(self, inputs: Any) -> Any:  # noqa: ANN401
        """Return the outputs alone."""
        return self.run(inputs)[0]

    def points(self) -> tuple[Point, ...]:
        """Return the points of the runner beneath."""
        return self._runner.points()

    def edit(self, edits: Mapping[str, Edit]) -> EditedRunner:
        """Return a runner with these edits after the ones there are."""
        return EditedRunner(self._runner, self._with(edits))

    def run(
        self,
        inputs: Any,  # noqa: ANN401
        names: Iterable[str] = (),
        edits: Mapping[str, Edit] = NO_EDITS,
        *,
        gradients: Loss | None = None,
        weights: bool = False,
    ) -> tuple[Any, Trace]:
        """Run with the edits in place; arguments as in :meth:`Runner.run`."""
        every = self._with(edits)
        return self._runner.run(inputs, names, every, gradients=gradients, weights=weights)

    def _with(self, edits: Mapping[str, Edit]) -> dict[str, Edit]:
        known = [point.name for point in self.points()]
        later = resolve_edits(edits, known)
        both = {name: (self._edits.get(name), later.get(name)) for name in known}
        return {
            name: _chain([edit for edit in pair if edit is not None])
            for name, pair in both.items()
            if any(pair)
        }


def resolve_names(patterns: Iterable[str], known: Iterable[str], kind: str = "point") -> list[str]:
    """Return the known names that match any of the names or globs, in the order known.

    Raises:
        UnknownName: one of them matches nothing.
        InvalidInput: ``patterns`` is one string, whose letters would be taken for names.
    """
    if isinstance(patterns, str):
        raise InvalidInput(f"names are given as a list; got the string {patterns!r}")
    names = list(known)
    matched: set[str] = set()
    for pattern in patterns:
        found = {name for name in names if name == pattern or fnmatchcase(name, pattern)}
        if not found:
            raise unknown_name(kind, pattern, names)
        matched |= found
    return [name for name in names if name in matched]


def resolve_edits(edits: Mapping[str, Edit], known: Iterable[str]) -> dict[str, Edit]:
    """Return one function per known name that is edited; several on one name act in order.

    Raises:
        UnknownName: a name or glob matches nothing.
        InvalidInput: an edit is not callable.
    """
    names = list(known)
    by_name: dict[str, list[Edit]] = {}
    for pattern, edit in edits.items():
        if not callable(edit):
            raise InvalidInput(
                f"the edit of {pattern!r} is a {type(edit).__name__}; "
                "expected a function from the value to a value of the same shape"
            )
        for name in resolve_names([pattern], names):
            by_name.setdefault(name, []).append(edit)
    return {name: _chain(by_name[name]) for name in names if name in by_name}


def _chain(edits: list[Edit]) -> Edit:
    return (
        edits[0] if len(edits) == 1 else lambda value: reduce(lambda v, edit: edit(v), edits, value)
    )


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
    with _evaluating(module), torch.set_grad_enabled(gradients is not None):
        outputs = forward(tap)
        recorder.finish()
        slopes = None if gradients is None else _gradients(gradients(outputs), recorder.values)
    # A network may pass its points in another order than it lists them.
    values = {name: recorder.values[name].detach() for name in wanted}
    return Observation(_detached(outputs), values, slopes)


def _torch() -> Any:  # noqa: ANN401
    # The core does not depend on torch: only someone who holds a torch module comes this way.
    return importlib.import_module("torch")


@contextmanager
def _evaluating(module: Module) -> Iterator[None]:
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


def _detached(outputs: Any) -> Any:  # noqa: ANN401
    return outputs.detach() if hasattr(outputs, "detach") else outputs
