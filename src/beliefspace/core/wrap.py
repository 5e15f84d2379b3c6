"""A user's own torch module as a runner: points are places in its submodules.

::

    runner = wrap(
        model,
        points={
            "embed": "embedding",                              # what a submodule returns
            "layers.0.residual_in": ("blocks.0", "input"),     # what it is given
            "layers.0.state": At("blocks.0.rnn", index=0),     # one item of a tuple
            "layers.0.keys": At("blocks.0.qkv", slice=slice(64, 128)),   # part of the last axis
        },
        outputs=lambda result: result.logits,
    )

Hooks are in place only while a run needs them, and are removed even when it fails.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from beliefspace.core.errors import InvalidInput, unknown_name
from beliefspace.core.taps import Tap, observe
from beliefspace.core.trace import NO_EDITS, Edit, Loss, Point, RunnerMethods, Trace

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

__all__ = ["At", "WrappedModule", "wrap"]

Side = Literal["input", "output"]
Key: TypeAlias = int | str


@dataclass(frozen=True)
class At:
    """A place in a torch module.

    Args:
        path: of the submodule, as in ``named_modules()``; "" is the module itself.
        side: "output", what it returns, or "input", what it is given.
        index: which item, where there are several: position in a tuple or key of a mapping; a tuple
            of those goes deeper. For an input, the position of the argument or its keyword; by
            default the first.
        slice: which part of the last axis, for example of a fused matrix's output.
    """

    path: str
    side: Side = "output"
    index: Key | tuple[Key, ...] | None = None
    slice: slice | None = None

    def __post_init__(self) -> None:
        if self.side not in ("input", "output"):
            raise InvalidInput(f'a side is "input" or "output"; got {self.side!r} at {self.path!r}')

    @property
    def keys(self) -> tuple[Key, ...]:
        """The way to the tensor, outermost first."""
        if self.index is None:
            return ()
        return self.index if isinstance(self.index, tuple) else (self.index,)

    def __str__(self) -> str:
        item = "".join(f"[{key!r}]" for key in self.keys)
        return f"{self.side} of {self.path or 'the module'}{item}"


def wrap(
    module: Module,
    points: Mapping[str, str | tuple[str, Side] | At],
    inputs: Callable[[Any], Any] | None = None,
    outputs: Callable[[Any], Any] | None = None,
) -> WrappedModule:
    """Make a runner of a torch module.

    Args:
        module: it is not changed.
        points: name, best one of the vocabulary in :mod:`beliefspace.core.trace` -> a submodule's
            path (its output), a pair of path and side, or :class:`At`.
        inputs: from what ``run`` is given to the module's argument, or to a tuple of arguments or a
            dict of keyword arguments. By default arrays become tensors on the module's device.
        outputs: from what the module returns to logits ``[n, T, m]``. By default it is returned as
            it is.

    Raises:
        UnknownName: there is no submodule at a path.
        InvalidInput: a place is of none of the three forms.
    """
    places = {name: _place(name, given) for name, given in points.items()}
    known = {path for path, _ in module.named_modules(remove_duplicate=False)}
    for place in places.values():
        if place.path not in known:
            raise unknown_name("submodule", place.path, known - {""})
    return WrappedModule(module, places, inputs, outputs)


class WrappedModule(RunnerMethods):
    """A runner over a torch module; made by :func:`wrap`."""

    def __init__(
        self,
        module: Module,
        places: Mapping[str, At],
        inputs: Callable[[Any], Any] | None,
        outputs: Callable[[Any], Any] | None,
    ) -> None:
        self._module = module
        self._places = places
        self._inputs = inputs
        self._outputs = outputs

    def __call__(self, inputs: Any) -> Any:
        """Return the outputs alone."""
        return self.run(inputs)[0]

    def points(self) -> tuple[Point, ...]:
        """Return the points, in the order given to :func:`wrap`."""
        return tuple(
            Point(name, str(place), "as the module has it") for name, place in self._places.items()
        )

    def run(
        self,
        inputs: Any,
        names: Iterable[str] = (),
        edits: Mapping[str, Edit] = NO_EDITS,
        *,
        gradients: Loss | None = None,
        weights: bool = False,
    ) -> tuple[Any, Trace]:
        """Run the module in evaluation mode; see :meth:`Runner.run`.

        Raises:
            UnknownName: a name or glob matches no point.
            BeliefspaceError: the run did not pass a point asked for, or passed it twice.
            InvalidInput: at a point stands no tensor, or an edit changed its shape.
        """
        seen = observe(
            self._module,
            lambda tap: self._forward(inputs, tap),
            self._places,
            names,
            edits,
            gradients,
        )
        sequences, length = _extent(inputs)
        trace = Trace(
            seen.values,
            np.arange(length),
            np.full(sequences, length),
            weights=_weights(self._module) if weights else None,
            gradients=seen.gradients,
        )
        return seen.outputs, trace

    def _forward(self, inputs: Any, tap: Tap) -> Any:
        given = self._tensors(inputs) if self._inputs is None else self._inputs(inputs)
        with _hooked(self._module, self._places, tap):
            if isinstance(given, dict):
                result = self._module(**given)
            else:
                result = self._module(*given if isinstance(given, tuple) else (given,))
        return result if self._outputs is None else self._outputs(result)

    def _tensors(self, inputs: Any) -> Any:
        held = next(self._module.parameters(), None)
        device = None if held is None else held.device
        return importlib.import_module("torch").as_tensor(inputs, device=device)


def _place(name: str, given: object) -> At:
    match given:
        case At():
            return given
        case str():
            return At(given)
        case (str() as path, "input" | "output" as side):
            return At(path, side)
    raise InvalidInput(
        f'the place of {name!r} is a path, a pair (path, "input" or "output") or At(...); '
        f"got {given!r}"
    )


@contextmanager
def _hooked(module: Module, places: Mapping[str, At], tap: Tap) -> Iterator[None]:
    """Put hooks at the places that the tap wants, for as long as the context lasts."""
    parts = dict(module.named_modules(remove_duplicate=False))
    with ExitStack() as stack:
        for name, place in places.items():
            if tap.active and tap.wants(name):
                stack.callback(_hook(parts[place.path], name, place, tap).remove)
        yield


def _hook(part: Module, name: str, place: At, tap: Tap) -> Any:
    """Register one hook and return its handle."""

    def on_output(_part: Module, _given: Any, output: Any) -> Any:
        return _through(tap, name, place, output, place.keys)

    def on_input(
        _part: Module, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[Any, Any]:
        first, *rest = place.keys or (0 if arguments else next(iter(named), 0),)
        held: Any = named if isinstance(first, str) else arguments
        held = _through(tap, name, place, held, (first, *rest))
        return (arguments, held) if isinstance(first, str) else (held, named)

    if place.side == "output":
        return part.register_forward_hook(on_output)
    return part.register_forward_pre_hook(on_input, with_kwargs=True)


def _through(
    tap: Tap,
    name: str,
    place: At,
    value: Any,
    keys: tuple[Key, ...],
) -> Any:
    """Hand the tensor at ``keys`` inside ``value`` to the tap; return ``value`` with a new one."""
    tensor = hasattr(value, "requires_grad")
    if keys:
        try:
            inner = None if tensor else value[keys[0]]
        except (KeyError, IndexError, TypeError):
            inner = None
        if inner is None:
            raise InvalidInput(
                f"point {name!r} is the {place}, but there is no item {keys[0]!r} in a "
                f"{_described(value)}"
            )
        return _replaced(value, keys[0], _through(tap, name, place, inner, keys[1:]))
    if not tensor:
        raise InvalidInput(
            f"point {name!r} is the {place}, which is a {_described(value)}, not a tensor; "
            "say which item with At(path, index=...)"
        )
    if place.slice is None:
        return _passed(tap, name, value)
    whole = value.clone()
    whole[..., place.slice] = _passed(tap, name, value[..., place.slice])
    return whole


def _passed(tap: Tap, name: str, value: Tensor) -> Tensor:
    # A module may go on to change in place what it was given or what it returned. The first copy
    # keeps that from the record, the second from the gradients.
    return tap(name, value.clone()).clone()


def _replaced(container: Any, key: Key, new: Any) -> Any:
    """Return a copy of a tuple, list or mapping with one item changed."""
    if isinstance(container, tuple):
        items = list(container)
        items[int(key)] = new
        made = type(container)
        return made(*items) if hasattr(container, "_fields") else made(items)
    copy = container.copy()
    copy[key] = new
    return copy


def _described(value: object) -> str:
    kind = type(value).__name__
    if isinstance(value, tuple | list):
        return f"{kind} of {len(value)}"
    if isinstance(value, Mapping):
        return f"{kind} with {', '.join(map(str, value))}"
    return kind


def _extent(inputs: object) -> tuple[int, int]:
    """Return the numbers of sequences and positions, 0 where the inputs do not show them."""
    shape = tuple(getattr(inputs, "shape", ()))
    return (int(shape[0]), int(shape[1])) if len(shape) >= 2 else (0, 0)


def _weights(module: Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.named_parameters()}
