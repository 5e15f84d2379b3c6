"""Configurations: frozen dataclasses to TOML and back, exactly, with strict types.

A field whose type is a registered base (one that names its group: ``group = "tasks"``) is a table
with a key ``kind``, the registered name; any other dataclass is a plain table. None is written by
absence.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import tomli_w

from beliefspace.core import registry
from beliefspace.core.errors import InvalidInput, UnknownName
from beliefspace.core.strict import (
    WrongTable,
    WrongValue,
    fields_of,
    group_of,
    innermost,
    structure,
)

__all__ = ["content_hash", "from_dict", "from_toml", "merge", "read_toml", "to_dict", "to_toml"]

Config = TypeVar("Config")


def to_dict(config: object) -> dict[str, Any]:
    """Return a configuration as nested dictionaries, lists and scalars, every field included.

    Args:
        config: a frozen dataclass of int, float, bool, str, ``X | None``, tuples, ``Literal`` and
            dataclasses.

    Returns:
        The dictionary in normal form: equal configurations give the same values of the same types.

    Raises:
        InvalidInput: a value is not of its field's type, or would read back as another one.
    """
    cls = type(config)
    if not dataclasses.is_dataclass(cls):
        raise InvalidInput(f"cannot write {config!r} as a config: expected a dataclass instance")
    again = from_dict(cls, _plain(config), where=cls.__name__)
    # A NaN differs from itself but not in how it reads.
    if again != config and repr(again) != repr(config):
        raise InvalidInput(f"cannot write {cls.__name__} as a config: {_changed(config, again)}")
    plain: dict[str, Any] = _plain(again)
    return plain


def from_dict(cls: type[Config], table: Mapping[str, Any], where: str = "config") -> Config:
    """Build a configuration from nested dictionaries, lists and scalars.

    Args:
        cls: the dataclass, or a registered base; then the table says which ``kind``.
        table: what :func:`to_dict` gave, or what a TOML file holds.
        where: what to call the source in a message, for example the file name.

    Returns:
        The dataclass instance.

    Raises:
        InvalidInput: an unknown key (with the nearest), a missing key, a wrong type or a value that
            the dataclass itself refuses.
    """
    try:
        built: Config = structure(cls, table)
        return built
    except Exception as error:
        path, leaf = innermost(error)
        if isinstance(leaf, WrongValue):
            raise InvalidInput(f"{where}: {path or 'the whole'} {leaf}") from None
        if isinstance(leaf, WrongTable):
            raise InvalidInput(f"{where}: {_table_name(path)} {leaf}") from None
        if isinstance(leaf, ValueError):
            kept = UnknownName if isinstance(leaf, UnknownName) else InvalidInput
            raise kept(f"{where}: {_table_name(path)}: {leaf}") from leaf
        raise leaf from None


def to_toml(config: object) -> str:
    """Return a configuration as TOML text that :func:`from_toml` reads back to an equal one.

    Args:
        config: as for :func:`to_dict`.

    Raises:
        InvalidInput: as for :func:`to_dict`, or a text that cannot be encoded.
    """
    text = tomli_w.dumps(to_dict(config))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"cannot write {type(config).__name__} as TOML: "
            f"it holds {error.object[error.start : error.end]!r}, which is not a character"
        ) from None
    return text


def from_toml(cls: type[Config], text: str, where: str = "config.toml") -> Config:
    """Build a configuration from TOML text.

    Args:
        cls: as for :func:`from_dict`.
        text: the TOML text.
        where: the file name, for messages.

    Raises:
        InvalidInput: the text is not TOML (with line and column), or as for :func:`from_dict`.
    """
    return from_dict(cls, read_toml(text, where), where)


def read_toml(text: str, where: str) -> dict[str, Any]:
    """Return TOML text as nested dictionaries, lists and scalars.

    Args:
        text: the TOML text.
        where: the file name, for the message.

    Raises:
        InvalidInput: the text is not TOML (with line and column), or more than can be read.
    """
    try:
        return tomllib.loads(text)
    # Besides its own error, which is a ValueError: too many digits, too deep.
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{where} is not valid TOML: {error}") from None


def merge(table: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dictionary with overrides applied, table by table; neither argument is changed.

    Args:
        table: the dictionary to start from.
        overrides: values that win. None removes a key; a table with another ``kind`` replaces the
            old one whole.
    """
    merged = dict(table)
    for key, value in overrides.items():
        old = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            same_kind = isinstance(old, Mapping) and value.get("kind") in (None, old.get("kind"))
            merged[key] = merge(old if isinstance(old, Mapping) and same_kind else {}, value)
        else:
            merged[key] = value
    return merged


def content_hash(config: object) -> str:
    """Return the SHA-256 (64 hexadecimal digits) of a configuration's content.

    Equal configurations have equal hashes, whatever the order of keys and wherever they came from
    (0.0 and -0.0 count as different).

    Args:
        config: as for :func:`to_dict`.
    """
    canonical = json.dumps(to_dict(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Return a value in plain form, unchecked: reading it back is what checks its type."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        cls = type(value)
        kind = {} if group_of(cls) is None else {"kind": registry.name_of(cls)[1]}
        entries = {name: getattr(value, name) for name in fields_of(cls)}
        return kind | {name: _plain(item) for name, item in entries.items() if item is not None}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def _changed(config: object, again: object) -> str:
    for name in fields_of(type(config)):
        before, after = getattr(config, name), getattr(again, name)
        if before != after and repr(before) != repr(after):
            hint = "; give the field the default None" if before is None else ""
            return f"{name} = {before!r} would read back as {after!r}{hint}"
    return "it would read back as another value"


def _table_name(path: str) -> str:
    return f"table [{path}]" if path else "the top level"
