"""Recipes from names, a TOML file and flags: all build the same frozen dataclass.

The classes of task, model and optimizer are chosen first, by name; then their settings are flags
(``--task.values``), with the file's values, or the classes' own, as defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from beliefspace.cli.arguments import parse
from beliefspace.cli.docstrings import fields_documented
from beliefspace.cli.names import find
from beliefspace.core import registry
from beliefspace.core.config import from_dict, merge, read_toml
from beliefspace.core.errors import CorruptFile, InvalidInput
from beliefspace.windtunnel.recipe import Recipe

__all__ = ["CHOSEN", "Named", "chosen", "part", "read_recipe", "value_of", "with_parts"]

CHOSEN = {"task": "tasks", "model": "models", "optimizer": "optimizers"}
"""Parts of a recipe whose class is chosen by name -> the group that it is looked for in."""

_DEFAULT_MODEL = "transformer"


@dataclass(frozen=True)
class Named:
    """The parts of a recipe that are chosen, by registered name; None leaves it to the file."""

    task: str | None
    model: str | None
    optimizer: str | None


def value_of(flag: str, arguments: Sequence[str]) -> str | None:
    """Return the value of a flag that decides which flags there are, or None.

    Args:
        flag: with its dashes.
        arguments: all of them.
    """
    found = None
    for index, word in enumerate(arguments):
        if word == flag and index + 1 < len(arguments):
            found = arguments[index + 1]
        elif word.startswith(f"{flag}="):
            found = word.partition("=")[2]
    return found


def part(group: str, kind: str) -> tuple[type, Any]:
    """Return a registered class, and its default instance or tyro's mark for "must be given".

    Args:
        group: of the class.
        kind: its registered name.
    """
    import tyro

    cls = registry.resolve(group, kind)
    needed = [
        one
        for one in dataclasses.fields(cls)
        if one.init
        and one.default is dataclasses.MISSING
        and one.default_factory is dataclasses.MISSING
    ]
    return cls, tyro.MISSING if needed else cls()


def chosen(group: str, flag: str, arguments: Sequence[str]) -> str | None:
    """Return the registered name that a flag chooses, or None where it is not given.

    Args:
        group: where it is looked for.
        flag: with its dashes.
        arguments: all of them.
    """
    text = value_of(flag, arguments)
    return None if text is None else find(group, text)


def with_parts(
    options: type,
    command: str,
    description: str,
    arguments: Sequence[str],
    parts: Mapping[str, tuple[Any, Any, str]],
) -> tuple[Any, dict[str, Any]]:
    """Read a command's options together with the settings of some parts.

    Args:
        options: the command's own dataclass.
        command: its name, for messages.
        description: for the help.
        arguments: what stands after the command.
        parts: name -> (type, default, documentation) of each part.

    Returns:
        The options, and what each part came to, by name.
    """
    import tyro

    own = make_dataclass(
        "Recipe",
        [
            (name, Annotated[kind, tyro.conf.arg(help=text)], field(default=default))
            for name, (kind, default, text) in parts.items()
        ],
        frozen=True,
    )
    both = make_dataclass(
        "Options",
        [
            ("options", Annotated[options, tyro.conf.arg(name="")]),
            ("recipe", Annotated[own, tyro.conf.arg(name="")]),
        ],
        frozen=True,
    )
    made: Any = parse(both, arguments, command, description)
    return made.options, {name: getattr(made.recipe, name) for name in parts}


def read_recipe(
    options: type, named: Named, file: str | None, arguments: Sequence[str], description: str
) -> tuple[Any, Recipe]:
    """Read the options of ``train`` and the recipe that they describe.

    Args:
        options: the command's own dataclass.
        named: what the command line chooses by name.
        file: a TOML file with any part of a recipe, or None.
        arguments: what stands after the command and its task.
        description: for the help.

    Returns:
        The options and the recipe.

    Raises:
        InvalidInput: the file, or a flag, does not fit; a task is named nowhere.
    """
    given = _file_settings(file, named)
    hints = get_type_hints(Recipe)
    documented = fields_documented(Recipe)
    parts = {}
    for one in dataclasses.fields(Recipe):
        kind, default = hints[one.name], given.get(one.name)
        if default is not None:
            kind = type(default) if one.name in CHOSEN else kind
        elif one.name in CHOSEN:
            kind, default = part(CHOSEN[one.name], getattr(named, one.name) or _default(one.name))
        else:
            default = _class_default(one)
        parts[one.name] = (kind, default, documented.get(one.name, ""))
    made, settings = with_parts(options, "train", description, arguments, parts)
    return made, Recipe(**settings)


def _default(name: str) -> str:
    if name == "task":
        raise InvalidInput(
            "say which task first: beliefspace train TASK ... "
            f"(one of {', '.join(registry.names('tasks'))}, or a file that registers one)"
        )
    if name == "model":
        return _DEFAULT_MODEL
    field_of = {one.name: one for one in dataclasses.fields(Recipe)}
    return registry.name_of(_class_default(field_of[name]))[1]


def _class_default(one: dataclasses.Field[Any]) -> Any:
    if one.default_factory is not dataclasses.MISSING:
        return one.default_factory()
    return one.default


def _file_settings(file: str | None, named: Named) -> dict[str, Any]:
    """Return the parts of a recipe that a file gives, checked; a part chosen anew is left out."""
    if file is None:
        return {}
    try:
        text = Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvalidInput(f"there is no file {file}") from None
    except IsADirectoryError:
        raise InvalidInput(f"{file} is a directory; expected a TOML file") from None
    except UnicodeDecodeError as error:
        raise CorruptFile(f"{file} is not text: {error}") from None
    table = read_toml(text, file)
    for name in CHOSEN:
        kind = getattr(named, name)
        if kind is not None and isinstance(table.get(name), Mapping):
            changed = merge(table, {name: {"kind": kind}})
            same = table[name].get("kind") in (None, kind)
            table = changed if same else {k: v for k, v in table.items() if k != name}
    # Any part may be absent here, so that a file need not be a whole recipe.
    partial = make_dataclass(
        "Recipe",
        [(name, hint, field(default=None)) for name, hint in get_type_hints(Recipe).items()],
        frozen=True,
    )
    return dict(vars(from_dict(partial, table, where=file)))
