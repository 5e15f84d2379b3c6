"""Which runs are repetitions of one experiment, and what sets experiments apart.

What repetitions share is :func:`beliefspace.windtunnel.recipe.arm_settings`; here it is compared
and put into words.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["canonical", "flat", "setting_apart"]


def canonical(settings: object) -> str:
    """Return plain values as text that is equal for equal ones."""
    return json.dumps(settings, sort_keys=True, default=str)


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as dotted paths to values, lists as tuples."""
    paths: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            paths |= flat(value, f"{prefix}{name}.")
        else:
            paths[prefix + name] = tuple(value) if isinstance(value, list) else value
    return paths


def setting_apart(arms: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return, of each arm's :func:`flat` settings, those that set it apart from the others.

    A setting is compared between arms that choose the same kinds: the width of one kind of model
    says nothing beside the memory of another, and the kinds themselves are named. None stands for
    a setting that the arm leaves out.
    """
    every = sorted(set().union(*arms))
    apart = []
    for arm in arms:
        differing = {}
        for name in every:
            peers = [other for other in arms if _kinds(other, name) == _kinds(arm, name)]
            if len({repr(other.get(name)) for other in peers}) > 1:
                differing[name] = arm.get(name)
        apart.append(differing)
    return apart


def _kinds(arm: Mapping[str, Any], name: str) -> list[Any]:
    """Return the kinds of the tables that a setting stands in."""
    tables = itertools.accumulate(name.split(".")[:-1], "{}.{}".format)
    return [arm.get(f"{table}.kind") for table in tables if f"{table}.kind" != name]
