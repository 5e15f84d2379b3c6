"""Finished training runs, found under directories."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beliefspace.core.errors import BeliefspaceError, InvalidInput
from beliefspace.core.store import Run
from beliefspace.studies.results import read_result
from beliefspace.windtunnel.recipe import Recipe, recipe_of


@dataclass(frozen=True)
class FinishedRun:
    """What a verdict needs of a run: where it is, its resolved recipe and its result."""

    path: Path
    recipe: Recipe
    result: dict[str, Any]


@dataclass(frozen=True)
class Collection:
    """What was found.

    Attributes:
        runs: finished training runs, by path.
        unfinished: training runs of another status.
        unreadable: one line for each run that could not be read.
    """

    runs: tuple[FinishedRun, ...]
    unfinished: tuple[Path, ...]
    unreadable: tuple[str, ...]


def collect(paths: Iterable[str | Path]) -> Collection:
    """Find the finished training runs at and under some directories.

    Runs of another kind are passed over. One that cannot be read is reported and stops nothing.

    Args:
        paths: runs, or directories that hold runs at any depth; a run found twice counts once.

    Raises:
        InvalidInput: a directory does not exist.
    """
    runs, unfinished, unreadable = [], [], []
    for path in _run_directories(paths):
        try:
            run = Run.open(path)
            if run.kind != "train":
                continue
            if run.status != "finished":
                unfinished.append(path)
                continue
            runs.append(FinishedRun(path, recipe_of(run), read_result(run).content))
        except (BeliefspaceError, OSError) as error:
            reason = str(error)
            unreadable.append(reason if str(path) in reason else f"{path}: {reason}")
    return Collection(tuple(runs), tuple(unfinished), tuple(unreadable))


def _run_directories(paths: Iterable[str | Path]) -> list[Path]:
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            problem = "is not a directory" if path.exists() else "does not exist"
            raise InvalidInput(f"{path} {problem}; expected a run, or a directory that holds runs")
        for directory in _walk(path):
            found.setdefault(directory.resolve(), directory)
    return sorted(found.values())


def _walk(top: Path) -> Iterator[Path]:
    for directory, inner, names in os.walk(top):
        if "run.json" in names:
            inner.clear()
            yield Path(directory)
        # A run that is just being made stands in a hidden directory.
        inner[:] = [name for name in inner if not name.startswith(".")]
