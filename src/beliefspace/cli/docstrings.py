"""Docstrings in Google style, taken apart for people who ask on the command line."""

from __future__ import annotations

import inspect
import re

__all__ = ["body", "fields_documented", "summary"]

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Symbols):$")
_ENTRY = re.compile(r"^ {4}([a-z_]\w*): (.*)$")


def summary(thing: object) -> str:
    """Return the first paragraph of a class's or function's docstring, in one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def body(thing: object) -> str:
    """Return a docstring up to its first section (Args, Returns, ...)."""
    lines = (inspect.getdoc(thing) or "").splitlines()
    ends = [index for index, line in enumerate(lines) if _SECTION.match(line)]
    return "\n".join(lines[: ends[0]] if ends else lines).strip()


def fields_documented(cls: type) -> dict[str, str]:
    """Return what the docstrings of a class and its bases say of each field, as one line each."""
    found: dict[str, str] = {}
    for one in reversed(cls.__mro__):
        found |= _fields(inspect.cleandoc(one.__doc__ or ""))
    return found


def _fields(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    inside, current = False, None
    for line in text.splitlines():
        if section := _SECTION.match(line):
            inside, current = section[1] in ("Args", "Attributes"), None
        elif inside and (entry := _ENTRY.match(line)):
            current = entry[1]
            found[current] = entry[2].strip()
        elif inside and current and line.strip():
            found[current] += f" {line.strip()}"
    return found
