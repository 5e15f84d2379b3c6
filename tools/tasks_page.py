"""Write docs/tasks.md: every built-in task, as the registry knows it.

Texts come from docstrings, settings and examples from where ``beliefspace describe`` has them, and
each ladder is measured anew, so the page cannot say anything else than the code.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from beliefspace.cli.catalog import description
from beliefspace.cli.console import Table
from beliefspace.cli.docstrings import body
from beliefspace.cli.examples import figures, typical
from beliefspace.core import registry
from beliefspace.windtunnel import ladder as ladder_module
from beliefspace.windtunnel.calibration import evaluation_batch, measure
from beliefspace.windtunnel.tasks.base import Task

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tasks.md"
CONTENTS = ("name", "primitives", "outcomes", "prior")
SEQUENCES, SEED = 256, 0
DECIMALS = 12  # of bits; those beyond are round-off

INTRODUCTION = """\
<!-- Written by `make docs`. Edit the docstrings of the tasks, not this page. -->

# Tasks

Every task draws sequences and says, at each scored position, what exactly an ideal observer would
believe there. `beliefspace describe NAME` prints most of what follows, `beliefspace train NAME`
trains on it, and `--task.SETTING VALUE` changes a setting.
"""

LADDERS = f"""\
Each task also has a ladder: predictors that know less than Bayes, beside whose errors that of a
model means something. They are measured at the settings named first, on {SEQUENCES} sequences (the
evaluation set of seed {SEED}), and the nearest to Bayes stands first. KL is KL(Bayes to the
predictor), entropy error is the absolute difference of the two entropies, and both are averages
over sequences and scored positions; worst KL is the average over sequences at the worst position.
"""

EXAMPLES = """\
Each task has a drawn sequence below: what a model is shown, what was drawn where it is asked, and
the exact answer with its entropy in bits (for real outcomes its mean and standard deviation, and
its differential entropy).
"""


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or only look; return 1 where it is found to be out of date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if it differs")
    options = parser.parse_args(arguments)
    text = page()
    if not options.check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE.relative_to(ROOT)} is out of date; `make docs` writes it anew")
        return 1
    return 0


def built_in() -> list[str]:
    """Return the names of the tasks that come with the package."""
    home = f"{registry.GROUPS['tasks']}."
    return [
        name
        for name in registry.names("tasks")
        if registry.resolve("tasks", name).__module__.startswith(home)
    ]


def page() -> str:
    """Return the page."""
    described = [description("tasks", name) for name in built_in()]
    contents = [
        (f"[{one['name']}](#{one['name']})", *(one["task"][fact] for fact in CONTENTS[1:]))
        for one in described
    ]
    parts = [INTRODUCTION, table(CONTENTS, contents), "## How to read this page", EXAMPLES]
    parts += [LADDERS, markdown(ladder_module.__doc__ or ""), *map(section, described)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def section(data: dict[str, Any]) -> str:
    """Return what the page says of one task.

    Args:
        data: what :func:`beliefspace.cli.catalog.description` says of it.
    """
    cls = registry.resolve("tasks", data["name"])
    module, example = inspect.getmodule(cls), data["example"]
    path = f"src/{cls.__module__.replace('.', '/')}.py"
    drawn = Table(
        tuple(example["columns"]),
        tuple(tuple(row[column] for column in example["columns"]) for row in example["rows"]),
    )
    cut = f"\n... of {example['length']} positions" * (example["length"] > len(drawn.rows))
    settings = [
        (f"`{one['name']}`", one["type"], one["default"], one["meaning"]) for one in data["fields"]
    ]
    return "\n\n".join(
        [
            f"## {data['name']}",
            markdown(data["text"]),
            "\n".join(f"- {name}: {escaped(fact)}" for name, fact in data["task"].items()),
            f"Source: [{path}](../{path})",
            f"### Details of {data['name']}",
            markdown(inspect.getdoc(module) or ""),
            f"### Settings of {data['name']}",
            table(("setting", "type", "default", "meaning"), settings),
            f"### Example of {data['name']}",
            f"One drawn sequence of {escaped(example['task'])}:",
            fenced("\n".join(drawn.lines()) + cut),
            f"### Ladder of {data['name']}",
            ladder(cls),
        ]
    )


def ladder(cls: type[Task]) -> str:
    """Return a task's ladder as measured, and what its own predictors are.

    Args:
        cls: the task's class.
    """
    task = typical(cls)
    batch = evaluation_batch(task, SEQUENCES, SEED)
    found = {
        name: measure(predictor, batch, SEED)
        for name, predictor in ladder_module.ladder(task, batch).items()
    }
    # The ladder is worst first; equal ones, but for round-off, stand the other way round here.
    ranked = sorted(reversed(found.items()), key=lambda one: round(one[1].kl_bits.mean, DECIMALS))
    rungs = [
        (name, *map(two_figures, (of.kl_bits.mean, of.entropy_error_bits.mean, of.kl_bits.worst)))
        for name, of in ranked
    ]
    bayes = two_figures(float(batch.predictive.entropy_bits().mean()))
    own = markdown(body(cls.ladder)) if cls.ladder is not Task.ladder else "None of its own."
    return "\n\n".join(
        [
            own,
            table(("predictor", "KL, bits", "entropy error, bits", "worst KL"), rungs),
            f"The entropy of the exact answer is {bayes} bits on average.",
        ]
    )


def two_figures(bits: float) -> str:
    """Return a number as every machine would print it.

    Args:
        bits: the number; where it is 0 but for round-off, it is 0.
    """
    return figures(bits, 2) if round(bits, DECIMALS) else "0"


def markdown(docstring: str) -> str:
    """Return a docstring as Markdown: what is indented in it stands between fences.

    Args:
        docstring: its text, without common indentation.
    """
    runs = re.split(r"((?:^\n*(?: {4}.*(?:\n|\Z)))+)", docstring, flags=re.MULTILINE)
    parts = []
    for prose, indented in zip(runs[::2], [*runs[1::2], ""], strict=True):
        parts.append(re.sub(r"::$", ":", escaped(prose.strip())))
        if indented:
            parts.append(fenced(textwrap.dedent(indented).strip("\n")))
    return "\n\n".join(part for part in parts if part)


def escaped(text: str) -> str:
    """Return a text in which signs mean what they say, and cross-references are plain code.

    Args:
        text: with code between backticks, which is left alone.
    """
    text = re.sub(r":\w+:`[~.]*([^`]+)`", r"`\1`", text)
    sign = r"\*|<(?=[\w/!?])"
    return re.sub(rf"(`+[^`]+`+)|({sign})", lambda found: found[1] or f"\\{found[2]}", text)


def fenced(text: str) -> str:
    """Return a text that keeps its columns."""
    return f"```text\n{text}\n```"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table.

    Args:
        headers: one a column.
        rows: their cells as text.
    """
    cells = [[escaped(cell).replace("|", r"\|") for cell in row] for row in rows]
    lines = [headers, ["---"] * len(headers), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
