"""``list`` and ``describe``: everything that has a registered name."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import textwrap
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any

import tyro

from beliefspace.cli.arguments import WIDTH, parse
from beliefspace.cli.console import Answer, Table
from beliefspace.cli.docstrings import body, fields_documented, summary
from beliefspace.cli.names import find
from beliefspace.core import registry
from beliefspace.core.errors import InvalidInput, UnknownName, unknown_name

__all__ = ["describe", "description", "list_names"]


@dataclass(frozen=True)
class ListOptions:
    """What is listed.

    Args:
        json: one JSON object.
    """

    group: Annotated[
        str | None,
        tyro.conf.Positional,
        tyro.conf.arg(metavar="GROUP", help=f"one of {', '.join(registry.GROUPS)}"),
    ] = None
    json: bool = False


@dataclass(frozen=True)
class DescribeOptions:
    """What is described.

    Args:
        json: one JSON object.
    """

    name: Annotated[
        str,
        tyro.conf.Positional,
        tyro.conf.arg(
            metavar="NAME", help="a registered name, GROUP/NAME, or a .py file that registers one"
        ),
    ]
    json: bool = False


def list_names(arguments: Sequence[str]) -> Answer:
    """List what is registered, group by group."""
    options = parse(ListOptions, arguments, "list", str(list_names.__doc__))
    if options.group is not None and options.group not in registry.GROUPS:
        raise unknown_name("group", options.group, registry.GROUPS)
    groups = registry.GROUPS if options.group is None else [options.group]
    found = [entry for group in groups for entry in _entries(group)]
    rows = tuple((entry["group"], entry["name"], entry["summary"]) for entry in found)
    table = Table(("group", "name", "what it is"), rows)
    part = table if rows else "nothing is registered there"
    return Answer((part,), {"entries": found}, options.json)


def describe(arguments: Sequence[str]) -> Answer:
    """Describe one registered thing: settings, shapes, source; of a task also a drawn example."""
    options = parse(DescribeOptions, arguments, "describe", str(describe.__doc__))
    group, name = _located(options.name)
    thing, data = registry.resolve(group, name), description(group, name)
    parts: list[str | Table] = [f"{name} ({group.removesuffix('s')})", "", data["text"], ""]
    if isinstance(thing, type):
        rows = [(f["name"], f["type"], f["default"], f["meaning"]) for f in data["fields"]]
        parts += [Table(("setting", "type", "default", "meaning"), tuple(rows)), ""]
    else:
        parts += [f"{thing.__name__}{inspect.signature(thing)}", ""]
    parts += _task_parts(data) if group == "tasks" else []
    return Answer((*parts, f"source: {data['source']}"), data, options.json)


def description(group: str, name: str) -> dict[str, Any]:
    """Return what there is to say about one registered thing, as plain values.

    Args:
        group: one of the registry's groups.
        name: the short name in it.

    Returns:
        ``group``, ``name``, ``summary``, ``text``, ``source`` and ``fields``; of a task also
        ``task`` and ``example`` (see :mod:`beliefspace.cli.examples`).
    """
    thing = registry.resolve(group, name)
    data: dict[str, Any] = {
        "group": group,
        "name": name,
        "summary": summary(thing),
        "text": body(thing),
        "source": _source(thing),
        "fields": _fields(thing) if isinstance(thing, type) else [],
    }
    if group == "tasks":
        from beliefspace.cli.examples import example, facts

        data |= {"task": facts(thing), "example": example(thing)}
    return data


def _entries(group: str) -> list[dict[str, str]]:
    """Return what a group holds; what other packages add is named without being loaded."""
    points = importlib.metadata.entry_points(group=f"beliefspace.{group}")
    elsewhere = {point.name: point.value for point in points}
    entries = []
    for name in registry.names(group):
        text = f"from {elsewhere[name]}" if name in elsewhere else ""
        text = text or summary(registry.resolve(group, name))
        entries.append({"group": group, "name": name, "summary": text})
    return entries


def _located(text: str) -> tuple[str, str]:
    """Return group and name of what an argument stands for."""
    group, _, name = text.partition("/")
    if group in registry.GROUPS and name:
        return group, find(group, name)
    if text.endswith(".py"):
        registered = registry.load_file(text)
        if len(registered) != 1:
            names = ", ".join(f"{group}/{name}" for group, name in registered) or "nothing"
            raise InvalidInput(
                f"{text} registers {names}; expected a file that registers one thing"
            )
        return registered[0]
    known = {group: registry.names(group) for group in registry.GROUPS}
    places = [group for group, names in known.items() if text in names]
    if not places:
        raise unknown_name("name", text, {name for names in known.values() for name in names})
    if len(places) > 1:
        choices = ", ".join(f"{group}/{text}" for group in places)
        raise UnknownName(f"{text!r} is in {len(places)} groups; say which: {choices}")
    return places[0], text


def _fields(cls: type) -> list[dict[str, str]]:
    meanings, hints = fields_documented(cls), typing.get_type_hints(cls)
    return [
        {
            "name": one.name,
            "type": _shown(hints[one.name]),
            "default": _default(one),
            "meaning": meanings.get(one.name, ""),
        }
        for one in dataclasses.fields(cls)
        if one.init
    ]


def _shown(hint: Any) -> str:
    """Return a type as a person would say it."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return " | ".join(map(str, arguments))
    if arguments and typing.get_origin(hint) is tuple:
        return ", ".join("..." if one is ... else _shown(one) for one in arguments)
    if arguments:
        return " | ".join("none" if one is NoneType else _shown(one) for one in arguments)
    return str(getattr(hint, "__name__", hint))


def _default(one: dataclasses.Field[Any]) -> str:
    if one.default_factory is not dataclasses.MISSING:
        return str(one.default_factory())
    if one.default is dataclasses.MISSING:
        return "(must be given)"
    return "none" if one.default is None else str(one.default)


def _source(thing: Any) -> str:
    file = Path(inspect.getsourcefile(thing) or "?")
    return f"{file}:{inspect.getsourcelines(thing)[1]} ({thing.__module__})"


def _task_parts(data: dict[str, Any]) -> list[str | Table]:
    lines = [f"{name:<18}{value}" for name, value in data["task"].items()]
    drawn = data["example"]
    rows = tuple(tuple(row[name] for name in drawn["columns"]) for row in drawn["rows"])
    head = f"one drawn sequence of {drawn['task']}, with the exact answer at each scored position"
    cut = [f"... of {drawn['length']} positions"] if drawn["length"] > len(rows) else []
    table = Table(tuple(drawn["columns"]), rows)
    return ["\n".join(lines), "", "\n".join(textwrap.wrap(head, WIDTH)), "", table, *cut, ""]
