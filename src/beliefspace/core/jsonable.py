"""Results as JSON that every reader accepts: JSON has no infinity and no NaN.

A number that is not finite is written as the string "inf", "-inf" or "nan", which ``float`` reads
back. Anything that has no plain form is an error that says where in the object it sits.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import TypeAlias

import numpy as np

from beliefspace.core.errors import InvalidInput

Plain: TypeAlias = "dict[str, Plain] | list[Plain] | str | int | float | bool | None"


def to_json(obj: object, indent: int | None = None) -> str:
    """Write an object as one JSON text, keys in their own order.

    Args:
        obj: anything that :func:`jsonable` takes.
        indent: spaces a level; None writes one line.

    Raises:
        InvalidInput: as :func:`jsonable`.
    """
    return json.dumps(jsonable(obj), indent=indent, allow_nan=False)


def jsonable(obj: object) -> Plain:
    """Return the same data in dicts, lists, strings, finite numbers, booleans and None.

    Args:
        obj: dataclasses, mappings (keys become strings), lists, tuples, numpy scalars and arrays,
            paths and plain values, nested at will.

    Raises:
        InvalidInput: a value or key of another type, or two keys that become the same string.
    """
    return _plain(obj, "object")


def _plain(obj: object, where: str) -> Plain:
    if isinstance(obj, np.generic | np.ndarray):
        obj = obj.tolist()
    if obj is None or isinstance(obj, bool | int | str):
        return obj
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else str(obj)
    if isinstance(obj, PurePath):
        return str(obj)
    if isinstance(obj, list | tuple):
        return [_plain(value, f"{where}[{index}]") for index, value in enumerate(obj)]
    if isinstance(obj, Mapping):
        return _plain_items(obj.items(), where)
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        names = (field.name for field in dataclasses.fields(obj))
        return _plain_items(((name, getattr(obj, name)) for name in names), where)
    raise InvalidInput(
        f"{where} is a {type(obj).__name__}; expected a dataclass, mapping, list, tuple, "
        "array, path, string, number, boolean or None"
    )


def _plain_items(items: Iterable[tuple[object, object]], where: str) -> dict[str, Plain]:
    plain: dict[str, Plain] = {}
    for key, value in items:
        if isinstance(key, bool) or not isinstance(key, str | int | float | np.number):
            raise InvalidInput(f"{where} has the key {key!r}; expected a string or a number")
        name = str(key)
        if name in plain:
            raise InvalidInput(f"{where} has two keys that are written {name!r}")
        plain[name] = _plain(value, f"{where}.{name}")
    return plain
