"""The command line as a person meets it: its own process, its exit status, its two outputs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., "subprocess.CompletedProcess[str]"]

SMALL = [
    *("--task.values", "4", "--model.width", "16", "--model.depth", "1"),
    *("--schedule.budget", "20 steps", "--evaluation.sequences", "64", "--evaluation.looks", "2"),
]
"""Flags of a run that takes no time."""


def run_command(*arguments: str, cwd: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "dumb", **changes}
    return subprocess.run(
        [sys.executable, "-m", "beliefspace.cli.main", *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.fixture
def beliefspace(tmp_path) -> Command:
    """Run a command in an empty directory."""
    return lambda *arguments, **changes: run_command(*arguments, cwd=tmp_path, **changes)


@pytest.fixture
def refused(beliefspace, tmp_path) -> Callable[..., str]:
    """Run a command that must fail: the status, one line, no traceback, nothing new left behind.

    Returns the line.
    """

    def check(status: int, *arguments: str, **changes: str) -> str:
        before = everything(tmp_path)
        done = beliefspace(*arguments, **changes)
        assert done.returncode == status, done.stderr
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert line.startswith("beliefspace: ")
        assert everything(tmp_path) == before
        return line.removeprefix("beliefspace: ")

    return check


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> subprocess.CompletedProcess[str]:
    """A run trained by the command line; its directory is ``cwd / "run"`` of the arguments."""
    where = tmp_path_factory.mktemp("trained")
    done = run_command("train", "bijection", *SMALL, "--out", "run", "--json", cwd=where)
    assert done.returncode == 0, done.stderr
    done.args = [where / "run"]
    return done


@pytest.fixture(scope="session")
def trained_path(trained) -> Path:
    return trained.args[0]


def everything(directory: Path) -> dict[str, bytes | None]:
    """Return the content of all files under a directory; None for a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
        # The lock is what an attempt may leave: it is empty while nobody holds it.
        if path.name not in ("lock", "__pycache__") and path.parent.name != "__pycache__"
    }
