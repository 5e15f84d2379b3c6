"""Reading plain tables into frozen dataclasses: cattrs with a strict hook for each kind of type.

A hook never converts: "5" is no integer, True is none either. What does not fit is raised as
:class:`WrongValue` or :class:`WrongTable`; :func:`innermost` says where in the whole it happened.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import cattrs
from cattrs.errors import AttributeValidationNote, BaseValidationError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn

from beliefspace.core import registry
from beliefspace.core.errors import InvalidInput, nearest

__all__ = ["WrongTable", "WrongValue", "fields_of", "group_of", "innermost", "structure"]

Value: TypeAlias = Any  # what a TOML file or a field can hold
Annotation: TypeAlias = Any  # a type as typing spells it: int, tuple[int, ...], Literal["a"]
Hook: TypeAlias = Callable[[Value, Annotation], Value]

SCALARS = {int: "an integer", float: "a number", bool: "true or false", str: "text"}
"""What a scalar type is called in a message."""

_ABSENT = object()
"""Stands for the missing value of a field of type ``X | None`` that has no default."""


class WrongValue(Exception):
    """A value that does not fit its field; the message is the end of a line that starts with it."""


class _Unsupported(Exception):
    """A type that a config cannot hold; the message says why."""


class WrongTable(Exception):
    """A table that does not fit its dataclass; the message follows the name of the table."""


def structure(cls: Annotation, table: Mapping[str, Any]) -> Value:
    """Build a dataclass, strictly.

    Args:
        cls: the dataclass, or a registered base.
        table: nested mappings, lists and scalars.

    Raises:
        Exception: whatever :func:`innermost` explains.
    """
    return _converter.structure(table, cls)


def innermost(error: BaseException) -> tuple[str, BaseException]:
    """Follow the notes that cattrs leaves, from the whole down to the first thing that failed."""
    path = ""
    while True:
        for note in reversed(getattr(error, "__notes__", [])):
            if isinstance(note, AttributeValidationNote):
                path += f".{note.name}" if path else note.name
            elif isinstance(note, IterableValidationNote):
                path += f"[{note.index}]"
        if not isinstance(error, BaseValidationError):
            return path, error
        error = error.exceptions[0]


def fields_of(cls: Annotation) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of a dataclass that its constructor takes, by name."""
    return {field.name: field for field in dataclasses.fields(cls) if field.init}


def group_of(cls: Annotation) -> str | None:
    """Return the group that a class or its base names, or None for any other type."""
    group = getattr(cls, "group", None) if isinstance(cls, type) else None
    # A field called "group" with a default is a class attribute too.
    if not isinstance(group, str) or "group" in getattr(cls, "__dataclass_fields__", {}):
        return None
    return group


def _is_table(cls: Annotation) -> bool:
    return dataclasses.is_dataclass(cls) or group_of(cls) is not None


def _origin(annotation: Annotation) -> Value:
    return get_origin(annotation)


def _members(union: Annotation) -> list[Annotation]:
    """Return the types in a union without None, int before float: an integer is also a number."""
    kept = [member for member in get_args(union) if member is not NoneType]
    return sorted(kept, key=lambda member: member is float)


def _expected(annotation: Annotation) -> str:
    """Return how a message calls a type."""
    origin, arguments = _origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _expected(arguments[0])
    if origin is Literal:
        return ("one of " if len(arguments) > 1 else "") + ", ".join(map(repr, arguments))
    if origin in (Union, UnionType):
        return " or ".join(_expected(member) for member in _members(annotation))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return f"a list, each {_expected(arguments[0])}"
    if origin is tuple:
        each = ", ".join(map(_expected, arguments))
        return f"a list of {len(arguments)}: {each}"
    return SCALARS.get(annotation, f"a table ({getattr(annotation, '__name__', annotation)})")


def _wrong(value: Value, annotation: Annotation) -> WrongValue:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    close: list[str] = []
    if isinstance(value, str) and _origin(annotation) is Literal:
        close = nearest(value, [item for item in get_args(annotation) if isinstance(item, str)])
    hint = f"; nearest: {', '.join(map(repr, close))}" if close else ""
    given = f"{shown} ({type(value).__name__})"
    return WrongValue(f"= {given}: expected {_expected(annotation)}{hint}")


def _hook_for(annotation: Annotation, converter: cattrs.Converter) -> Hook:
    # The one class that cattrs would convert before any of our hooks is asked.
    if annotation is bytes:
        return _unsupported(annotation)
    hook: Hook = converter.get_structure_hook(annotation)
    return hook


def _scalar_hook(expected: type) -> Hook:
    def read(value: Value, _: Annotation) -> Value:
        fits = type(value) is expected or (expected is float and type(value) is int)
        if not fits:
            raise _wrong(value, expected)
        return expected(value)

    return read


def _literal_hook(annotation: Annotation) -> Hook:
    def read(value: Value, _: Annotation) -> Value:
        for choice in get_args(annotation):
            if type(value) is type(choice) and value == choice:
                return choice
        raise _wrong(value, annotation)

    return read


def _tuple_hook(annotation: Annotation, converter: cattrs.Converter) -> Hook:
    arguments = get_args(annotation)
    repeated = len(arguments) == 2 and arguments[1] is Ellipsis
    hooks = [(item, _hook_for(item, converter)) for item in arguments if item is not ...]

    def read(value: Value, _: Annotation) -> Value:
        if not isinstance(value, list | tuple):
            raise _wrong(value, annotation)
        each = hooks * len(value) if repeated else hooks
        if len(value) != len(each):
            raise _wrong(value, annotation)
        items = []
        for index, (item, (item_type, hook)) in enumerate(zip(value, each, strict=True)):
            try:
                items.append(hook(item, item_type))
            except Exception as error:
                error.add_note(IterableValidationNote(f"[{index}]", index, item_type))
                raise
        return tuple(items)

    return read


def _union_hook(annotation: Annotation, converter: cattrs.Converter) -> Hook:
    members = _members(annotation)
    tables = [member for member in members if _is_table(member)]
    if len(tables) > 1:
        raise _Unsupported(f"{annotation} cannot be told apart; use a registered base class")
    hooks = {member: _hook_for(member, converter) for member in members}

    def read(value: Value, _: Annotation) -> Value:
        if value is _ABSENT:
            return None
        # With one candidate its own message, which may come from deep within, is the better one.
        candidates = tables if tables and isinstance(value, Mapping) else members
        if len(candidates) == 1:
            return hooks[candidates[0]](value, candidates[0])
        for member in candidates:
            try:
                return hooks[member](value, member)
            except (WrongValue, BaseValidationError):
                continue
        raise _wrong(value, annotation)

    return read


def _annotated_hook(annotation: Annotation, converter: cattrs.Converter) -> Hook:
    bare = get_args(annotation)[0]
    hook = _hook_for(bare, converter)
    return lambda value, _: hook(value, bare)


@functools.cache
def _table_hook(cls: Annotation, converter: cattrs.Converter) -> Hook:
    """Return the hook of a plain dataclass; the cattrs function notes the field that fails."""
    fields = fields_of(cls)
    hints = get_type_hints(cls, include_extras=True)
    missing = dataclasses.MISSING
    needed = [
        name
        for name, field in fields.items()
        if field.default is missing and field.default_factory is missing
    ]
    absent = {name: _ABSENT for name in needed if NoneType in get_args(hints[name])}
    for name in fields:
        try:
            _hook_for(hints[name], converter)
        except _Unsupported as error:
            raise InvalidInput(f"{cls.__name__}.{name} cannot be in a config: {error}") from None
    build = make_dict_structure_fn(cls, converter)

    def read(value: Value, _: Annotation) -> Value:
        if not isinstance(value, Mapping):
            raise _wrong(value, cls)
        for key in value:
            if key not in fields:
                close = nearest(str(key), fields)
                hint = f"; nearest: {', '.join(close)}" if close else ""
                raise WrongTable(
                    f"has the unknown key {key!r}{hint}; known: {', '.join(fields) or 'none'}"
                )
        lacking = [name for name in needed if name not in value and name not in absent]
        if lacking:
            each = ", ".join(f"{name} ({_expected(hints[name])})" for name in lacking)
            raise WrongTable(f"lacks {each}")
        return build(absent | dict(value), cls)

    return read


def _kind_hook(cls: Annotation, converter: cattrs.Converter) -> Hook:
    """Return the hook of a registered class or base: the key ``kind`` says which class it is."""
    group = str(group_of(cls))

    def read(value: Value, _: Annotation) -> Value:
        if not isinstance(value, Mapping):
            raise _wrong(value, cls)
        fields = dict(value)
        kind = fields.pop("kind", None)
        found = cls if kind is None else _class_of_kind(cls, group, kind)
        if kind is None and not _registered(cls):
            raise WrongTable(f"lacks kind (one of {', '.join(registry.names(group))})")
        return _table_hook(found, converter)(fields, found)

    return read


def _class_of_kind(cls: Annotation, group: str, kind: Value) -> Annotation:
    if not isinstance(kind, str):
        raise WrongTable(f"has kind = {kind!r}: expected text, the name of one of the {group}")
    found = registry.resolve(group, kind)
    if not (isinstance(found, type) and issubclass(found, cls)):
        raise WrongTable(f"has kind = {kind!r}, which is not a {cls.__name__}")
    return found


def _registered(cls: Annotation) -> bool:
    try:
        registry.name_of(cls)
    except InvalidInput:
        return False
    return True


def _unsupported(annotation: Annotation) -> Hook:
    raise _Unsupported(
        f"{annotation} is none of int, float, bool, str, X | None, tuple[...], Literal, dataclass"
    )


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True)
    # Hooks registered later win; the first one catches what no other takes.
    converter.register_structure_hook_factory(lambda _: True, _unsupported)
    factories: list[tuple[Callable[[Any], bool], Any]] = [
        (dataclasses.is_dataclass, _table_hook),
        (lambda cls: group_of(cls) is not None, _kind_hook),
        (lambda cls: _origin(cls) is tuple, _tuple_hook),
        (lambda cls: _origin(cls) is Literal, _literal_hook),
        (lambda cls: _origin(cls) in (Union, UnionType), _union_hook),
        (lambda cls: _origin(cls) is Annotated, _annotated_hook),
    ]
    for fits, factory in factories:
        converter.register_structure_hook_factory(fits, factory)
    for scalar in SCALARS:
        converter.register_structure_hook(scalar, _scalar_hook(scalar))
    return converter


_converter = _make_converter()
