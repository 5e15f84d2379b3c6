"""Runners, what they can show, and what was recorded: the one door to a model's inside.

A runner names its points. ``run`` gives the outputs and a trace of the points asked for; ``edit``
gives a new runner in which a point's value is changed on its way. Reading changes nothing; with
nothing asked, nothing is recorded.

The vocabulary of points: ``embed``, then per layer ``layers.i.`` + ``opening_out``,
``residual_in``, ``queries``, ``keys``, ``values``, ``queries_rotary``, ``keys_rotary``, ``scores``,
``attention``, ``head_outputs``, ``attention_out``, ``step_size``, ``input_gate``, ``output_gate``,
``state``, ``mixer_out``, ``residual_mid``, ``mlp_out``, ``router``, ``residual_out``, then
``final_norm`` and ``logits``. ``mixer_out`` is the output of a layer's mixer of positions, of
whatever kind; ``opening_out`` is that of a feed-forward before the first mixer. A point that an
architecture lacks is absent. Wherever names are taken, globs are too (``layers.*.keys``).

Symbols:
    n     sequences in a batch
    T     positions of a sequence
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Int64

from beliefspace.core.errors import InvalidInput, unknown_name

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "EditedRunner",
    "Point",
    "Runner",
    "RunnerMethods",
    "Trace",
    "points",
    "resolve_edits",
    "resolve_names",
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


@dataclass(frozen=True, repr=False)
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

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        shapes = [f"  {name} {list(value.shape)}" for name, value in self.values.items()]
        return "\n".join([f"Trace of {len(self)} points", *shapes])

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
        inputs: Any,
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
        inputs: Any,
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

    def __call__(self, inputs: Any) -> Any:
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
        inputs: Any,
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
