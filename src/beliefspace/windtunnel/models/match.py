"""Models of one size: a width at which one has as many parameters as another.

Parameters are counted in closed form, so every width is tried and nothing is built.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from beliefspace.core import registry
from beliefspace.core.checks import check_finite
from beliefspace.core.errors import InvalidInput
from beliefspace.windtunnel.models.base import ModelSpec, Sized
from beliefspace.windtunnel.tasks.base import Task

TOLERANCE = 0.02
WIDEST = 100_000

Spec = TypeVar("Spec", bound=ModelSpec)


def resolved(
    spec: ModelSpec, task: Task, beside: Mapping[str, ModelSpec] = MappingProxyType({})
) -> ModelSpec:
    """Return a model with its width chosen, if it is to match another.

    Args:
        spec: any model.
        task: on which parameters are counted.
        beside: other models by name; one that ``match`` names comes before the registered default.

    Raises:
        InvalidInput: the other model is to match one itself, or no width fits.
        UnknownName: there is no model of that name.
    """
    if not isinstance(spec, Sized) or spec.match is None:
        return spec
    name = spec.match
    reference = beside[name] if name in beside else registry.resolve("models", name)()
    if isinstance(reference, Sized) and reference.match is not None:
        raise InvalidInput(
            f"{type(spec).__name__} is to match {name}, which is to match {reference.match}; "
            "expected a model with a width of its own"
        )
    return matched(dataclasses.replace(spec, match=None), reference, task)


def matched(spec: Spec, reference: ModelSpec, task: Task, tolerance: float = TOLERANCE) -> Spec:
    """Return a model with the width at which its parameter count is that of another.

    Of the widths that fit, the one that the highest power of two divides: heads divide it, and
    matrix products of it are fast. Among equals, the one nearest in count.

    Args:
        spec: a model with a setting ``width``; its other settings stay as they are.
        reference: the model whose count is to be met.
        task: on which parameters are counted.
        tolerance: the largest difference allowed, as a fraction of the reference's count.

    Raises:
        InvalidInput: the model has no width, or is itself to match another; or no width comes
            within the tolerance, and the nearest count is named.
    """
    check_finite("tolerance", tolerance)
    if isinstance(spec, Sized):
        spec.check_width_is_known()
    wanted = reference.parameters(task)
    counts = dict(_counts(spec, task, 2 * wanted))
    off = {width: abs(count - wanted) for width, count in counts.items()}
    fitting = [width for width in off if off[width] <= tolerance * wanted]
    if fitting:
        return _with_width(spec, min(fitting, key=lambda width: (-(width & -width), off[width])))
    nearest = min(off, key=lambda width: off[width], default=None)
    there = "none" if nearest is None else f"{counts[nearest]:,} at width {nearest}"
    raise InvalidInput(
        f"no width gives {type(spec).__name__} within {tolerance:.1%} of the {wanted:,} parameters "
        f"of {type(reference).__name__}; nearest: {there}"
    )


def _counts(spec: ModelSpec, task: Task, enough: int) -> Iterator[tuple[int, int]]:
    """Yield each width that the model accepts with its count, until the count is ``enough``."""
    if not any(setting.name == "width" for setting in dataclasses.fields(_dataclass(spec))):
        raise InvalidInput(
            f"{type(spec).__name__} has no setting width, so its parameters cannot be matched"
        )
    for width in range(1, WIDEST + 1):
        try:
            candidate = _with_width(spec, width)
        except InvalidInput:
            continue  # such as a width that the heads do not divide
        count = candidate.parameters(task)
        yield width, count
        if count >= enough:
            return


def _with_width(spec: Spec, width: int) -> Spec:
    changed: Spec = dataclasses.replace(_dataclass(spec), width=width)
    return changed


def _dataclass(spec: ModelSpec) -> Any:
    # Every registered specification is a dataclass, which its base class cannot say.
    return spec
