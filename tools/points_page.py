"""Write docs/points.md: every point of every built-in architecture, as the registry knows it.

Shapes in numbers are those that a run recorded; so a point that is listed but not there fails.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from beliefspace.cli.docstrings import summary
from beliefspace.cli.examples import settings_in_words
from beliefspace.core import registry
from beliefspace.core.errors import InvalidInput
from beliefspace.core.streams import Stream
from beliefspace.windtunnel.models.base import ModelSpec
from beliefspace.windtunnel.networks.base import Network
from beliefspace.windtunnel.tasks.base import Task
from beliefspace.windtunnel.tasks.bijection import Bijection

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "points.md"
SEQUENCES = 3
BLOCK = re.compile(r"^layers\.\d+\.")

INTRODUCTION = f"""\
<!-- Written by `make docs`. Edit the points of the networks, not this page. -->

# Points

A point is a place in a model whose value can be read and edited. `model.points()` lists those of a
model, `model.record(inputs, names)` reads them, `model.edit({{name: function}})` gives a model in
which they are changed; names may be globs, such as `layers.*.keys`. Reading changes nothing, and a
point that an architecture lacks is absent.

For each architecture there is a table of the points of a small instance, on {SEQUENCES} sequences
of a small task that is named with it; and one more for every choice that gives other points. Where
all blocks have the same, they stand once, as `layers.i.NAME`. *Shape* names the axes and gives
their sizes there.
"""


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or only look; return 1 where it is found to be out of date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, say whether it is up")
    text = page()
    if not parser.parse_args(arguments).check:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
    if not same:
        print(f"{PAGE.relative_to(ROOT)} is out of date; write it anew: make docs")
    return 0 if same else 1


def page() -> str:
    """Return the text of the page."""
    names = [name for name in registry.names("models") if _is_built_in(name)]
    return "\n".join([INTRODUCTION, *(_section(name) for name in names)])


def _is_built_in(name: str) -> bool:
    return str(registry.resolve("models", name).__module__).startswith("beliefspace.")


def _section(name: str) -> str:
    cls = registry.resolve("models", name)
    tables: dict[str, str] = {}
    for spec in cls.tiny():
        task = _task(spec)
        table = _table(spec.build(task, Stream(0, "points")), task)
        # Instances with the same points share the table of the first.
        tables.setdefault(table, _settings(spec, task))
    parts = [f"## {name}", summary(cls)]
    for table, settings in tables.items():
        parts += [settings, table]
    return "\n\n".join(parts) + "\n"


def _settings(spec: ModelSpec, task: Task) -> str:
    where = f"{registry.name_of(task)[1]} ({settings_in_words(task)})"
    return f"Settings: {settings_in_words(spec) or 'none'}; on {where}."


def _task(spec: ModelSpec) -> Task:
    """Return a small bijection, or the first tiny task that the model can be built for."""
    tasks = (resolved for n in registry.names("tasks") for resolved in _tiny(n))
    for task in (Bijection(4), *tasks):
        try:
            spec.build(task, Stream(0, "points"))
        except InvalidInput:
            continue
        return task
    raise InvalidInput(f"no registered task suits {spec}")


def _tiny(name: str) -> tuple[Task, ...]:
    cls: type[Task] = registry.resolve("tasks", name)
    return cls.tiny()


def _table(network: Network, task: Task) -> str:
    inputs = task.batch(SEQUENCES, Stream(0, "points")).inputs
    points = network.points()
    _, trace = network.run(inputs, [point.name for point in points])
    rows = []
    for point in points:
        sizes = " x ".join(str(size) for size in trace.values[point.name].shape)
        meaning = point.meaning.replace("|", "∣")
        rows.append((point.name, f"{point.shape}: {sizes} | {meaning}"))
    lines = [f"| `{name}` | {rest} |" for name, rest in _once_where_alike(rows)]
    return "\n".join(["| point | shape | meaning |", "| --- | --- | --- |", *lines])


def _once_where_alike(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return rows with those of several blocks as one block's, if all blocks have the same."""
    blocks: dict[str, list[tuple[str, str]]] = {}
    for name, rest in rows:
        if found := BLOCK.match(name):
            blocks.setdefault(found[0], []).append((name.removeprefix(found[0]), rest))
    first, *others = blocks.values()
    if not others or any(block != first for block in others):
        return rows
    once = dict.fromkeys((BLOCK.sub("layers.i.", name), rest) for name, rest in rows)
    return list(once)


if __name__ == "__main__":
    sys.exit(main())
