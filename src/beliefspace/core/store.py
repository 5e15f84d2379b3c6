"""A run is a directory: made at once, never overwritten, written by one process at a time.

::

    run.json              schema, kind, created, status, version
    config.toml           the resolved configuration
    environment.json      see core/environment.py
    metrics.jsonl         one JSON object a line
    checkpoints/          step-00001234.safetensors, and step-00001234.json written after it
    result.json           what the run found
    report.html           the page made from it
    lock                  held by the process that writes; names it
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from beliefspace.core import checkpoints
from beliefspace.core.checkpoints import Checkpoint
from beliefspace.core.environment import version
from beliefspace.core.errors import (
    BeliefspaceError,
    CorruptFile,
    InvalidInput,
    RunBusy,
    RunExists,
    nearest,
)
from beliefspace.core.files import (
    SCHEMA,
    check_schema,
    read_bytes,
    read_json,
    remove_temporaries,
    temporary_beside,
    write_atomic,
    writing,
)
from beliefspace.core.jsonable import to_json

__all__ = ["STATUSES", "Checkpoint", "Run", "write_atomic"]

STATUSES = ("running", "interrupted", "finished", "failed")


@dataclass(frozen=True)
class Run:
    """A run's directory; make one with :meth:`create` or :meth:`open`.

    Args:
        path: the directory.
    """

    path: Path

    @classmethod
    def create(
        cls, path: str | Path, kind: str, config_toml: str, environment: Mapping[str, Any]
    ) -> Run:
        """Make the directory of a new run; it appears with all its first files or not at all.

        Args:
            path: must not exist, or be an empty directory; parents are made.
            kind: what kind of run it is ("train").
            config_toml: the resolved configuration.
            environment: what :func:`beliefspace.core.environment.environment` found.

        Returns:
            The run, with status "running".

        Raises:
            RunExists: the path is taken; nothing in it was changed.
            NoSpace: the disk is full; nothing is left behind.
        """
        target = _free(path)
        header = {
            "schema": SCHEMA,
            "kind": kind,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "status": "running",
            "version": version("beliefspace"),
        }
        temporary = temporary_beside(target)
        try:
            with writing(target, len(config_toml)), _usable(path):
                (temporary / "checkpoints").mkdir(parents=True)
            write_atomic(temporary / "config.toml", config_toml)
            write_atomic(temporary / "environment.json", to_json(environment, indent=2) + "\n")
            write_atomic(temporary / "run.json", to_json(header, indent=2) + "\n")
            _place(temporary, target, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return cls(Path(path))

    @staticmethod
    def check_free(path: str | Path) -> None:
        """Raise unless :meth:`create` could make a run there, so that work is not started in vain.

        Raises:
            RunExists: the path is taken.
            InvalidInput: there can be no such path.
        """
        _free(path)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open the directory of an existing run.

        Args:
            path: the directory.

        Raises:
            InvalidInput: there is no run there; runs beside it with a similar name are given.
            CorruptFile: ``run.json`` cannot be read, or is of a schema not read by this version.
        """
        run = cls(Path(path))
        if not (run.path / "run.json").is_file():
            raise _no_run(run.path)
        run.header()
        return run

    def header(self) -> dict[str, Any]:
        """Return the checked content of ``run.json``: schema, kind, created, status, version.

        Raises:
            CorruptFile: as :meth:`open`.
        """
        file = self.path / "run.json"
        header = read_json(file)
        check_schema(file, header)
        if not isinstance(header.get("kind"), str) or header.get("status") not in STATUSES:
            raise CorruptFile(
                f"{file} has kind {header.get('kind')!r} and status {header.get('status')!r}: "
                f"expected a kind, and a status of {', '.join(STATUSES)}"
            )
        return header

    @property
    def kind(self) -> str:
        """What kind of run it is."""
        return str(self.header()["kind"])

    @property
    def status(self) -> str:
        """One of :data:`STATUSES`; a killed process leaves "running"."""
        return str(self.header()["status"])

    @property
    def finished(self) -> bool:
        """Whether its status is "finished" and its result is there; otherwise it can go on."""
        return self.status == "finished" and (self.path / "result.json").exists()

    def set_status(self, status: str) -> None:
        """Record what became of the run.

        Args:
            status: one of :data:`STATUSES`.

        Raises:
            InvalidInput: it is none of them.
        """
        if status not in STATUSES:
            raise InvalidInput(f"status {status!r}: expected one of {', '.join(STATUSES)}")
        header = self.header() | {"status": status}
        write_atomic(self.path / "run.json", to_json(header, indent=2) + "\n")

    def config_toml(self) -> str:
        """Return the text of the resolved configuration.

        Raises:
            CorruptFile: it is missing or not text.
        """
        file = self.path / "config.toml"
        try:
            return read_bytes(file).decode()
        except UnicodeDecodeError as error:
            raise CorruptFile(f"{file} cannot be read: {error}") from None

    def environment(self) -> dict[str, Any]:
        """Return where the run took place.

        Raises:
            CorruptFile: it cannot be read.
        """
        return read_json(self.path / "environment.json")

    @contextlib.contextmanager
    def locked(self) -> Iterator[Run]:
        """Hold the run for this process; a killed process lets go by itself.

        Returns:
            A context manager that gives the run.

        Raises:
            RunBusy: another process, or this one elsewhere, holds it; the message names its id.
        """
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(descriptor, 100).decode(errors="replace").strip()
                raise RunBusy(
                    f"{self.path} is in use by process {holder or '(unknown)'}; "
                    "wait for it to end, or stop it"
                ) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} on {os.uname().nodename}\n".encode(), 0)
            self._remove_temporaries()
            try:
                yield self
            finally:
                os.ftruncate(descriptor, 0)
                # A forked child shares the descriptor; closing ours alone would not let go.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        """Add one line to the metrics.

        Args:
            row: names and values; give it a "step".

        Raises:
            NoSpace: the disk is full; the line was taken back.
        """
        line = (to_json(row) + "\n").encode()
        file = self.path / "metrics.jsonl"
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            end = _end_of_whole_lines(descriptor)
            try:
                with writing(file, len(line)):
                    os.lseek(descriptor, end, os.SEEK_SET)
                    written = os.write(descriptor, line)
                    if written < len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                end += written
            finally:
                # Takes back a part of a line, and one that a killed process left.
                os.ftruncate(descriptor, end)
        finally:
            os.close(descriptor)

    def metrics(self) -> list[dict[str, Any]]:
        """Return all rows of the metrics; a last line that was cut off is ignored.

        Raises:
            CorruptFile: another line is not a JSON object, or its step is no whole number.
        """
        return [row for _, row in self._metric_lines()]

    def truncate_metrics(self, after_step: int) -> None:
        """Drop the rows whose step is greater, as when a run goes on from an earlier checkpoint.

        Args:
            after_step: the last step to keep; rows without a step are kept.

        Raises:
            CorruptFile: as :meth:`metrics`.
        """
        lines = self._metric_lines()
        if not lines:
            return
        kept = [line + b"\n" for line, row in lines if row.get("step", after_step) <= after_step]
        write_atomic(self.path / "metrics.jsonl", b"".join(kept))

    def _metric_lines(self) -> list[tuple[bytes, dict[str, Any]]]:
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        # After the last line feed there is nothing, or a line that was cut off.
        *whole, _ = read_bytes(file).split(b"\n")
        lines = []
        for number, line in enumerate(whole, start=1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise CorruptFile(f"{file}, line {number} is not valid JSON: {error}") from None
            if not isinstance(row, dict):
                raise CorruptFile(f"{file}, line {number}: expected a JSON object")
            if type(row.get("step", 0)) is not int:
                raise CorruptFile(
                    f"{file}, line {number} has step {row['step']!r}: expected a whole number"
                )
            lines.append((line, row))
        return lines

    def save_checkpoint(
        self,
        step: int,
        tensors: Mapping[str, np.ndarray],
        meta: Mapping[str, Any],
        keep: int = 2,
    ) -> None:
        """Save the state after a step, then drop the oldest ones.

        Args:
            step: how many steps had been taken; an earlier checkpoint of the same step is replaced.
            tensors: arrays by name.
            meta: what JSON can hold; integers and floats come back exactly, tuples as lists.
            keep: how many checkpoints up to this step to keep, at least 1.

        Raises:
            InvalidInput: a negative step, a ``keep`` below 1, or an array that cannot be saved.
            NoSpace: the disk is full; earlier checkpoints are intact.
        """
        checkpoints.save(self.path / "checkpoints", step, tensors, meta, keep)

    def checkpoints(self) -> list[int]:
        """Return the steps that have a checkpoint, ascending, intact or not."""
        return checkpoints.steps(self.path / "checkpoints")

    def load_checkpoint(self, step: int | None = None) -> Checkpoint:
        """Load a checkpoint whose every byte is as it was written.

        Args:
            step: which one; None takes the newest that is intact.

        Returns:
            The checkpoint; ``skipped`` says which newer ones were not intact.

        Raises:
            InvalidInput: there is no checkpoint, or none of that step.
            CorruptFile: the one of that step, or every one, is damaged; the file is named.
        """
        return checkpoints.load(self.path / "checkpoints", step)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """Write what the run found.

        Args:
            result: what JSON can hold; numbers that are not finite become "inf", "-inf" or "nan".

        Raises:
            RunExists: the run is finished and has a result.
        """
        file = self.path / "result.json"
        if self.finished:
            raise RunExists(f"{file} is the result of a finished run; results are not overwritten")
        write_atomic(file, to_json(result, indent=2) + "\n")

    def result(self) -> dict[str, Any]:
        """Return what the run found.

        Raises:
            BeliefspaceError: the run has no result yet.
            CorruptFile: it cannot be read.
        """
        file = self.path / "result.json"
        if not file.exists():
            raise BeliefspaceError(
                f"{self.path} has no result; its status is {self.status}; "
                f"go on with: beliefspace resume {self.path}"
            )
        return read_json(file)

    def _remove_temporaries(self) -> None:
        for name in ("run.json", "metrics.jsonl", "result.json"):
            remove_temporaries(self.path, name)
        remove_temporaries(self.path / "checkpoints", "step-*")


def _end_of_whole_lines(descriptor: int) -> int:
    """Return where the last whole line of an open file ends, in bytes."""
    end = os.lseek(descriptor, 0, os.SEEK_END)
    block = 4096
    while end > 0:
        start = max(0, end - block)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _taken(path: str | Path) -> RunExists:
    if not (Path(path) / "run.json").exists():
        return RunExists(f"{path} is not empty; choose a new or empty directory for the run")
    return RunExists(
        f"{path} holds a run already; choose another directory, "
        f"or continue it with: beliefspace resume {path}"
    )


def _free(path: str | Path) -> Path:
    """Return where a path leads, if a run can be made there."""
    with _usable(path):
        target = Path(path).resolve()
        if target.exists() and not target.is_dir():
            raise RunExists(f"{path} is a file; choose a new or empty directory for the run")
        if target.is_dir() and any(target.iterdir()):
            raise _taken(path)
    return target


@contextlib.contextmanager
def _usable(path: str | Path) -> Iterator[None]:
    """Name the path that was given where the system refuses it, or what is made on the way."""
    try:
        yield
    # A link to itself is a RuntimeError.
    except (OSError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(f"cannot make a run at {path}: {reason}") from None


def _place(temporary: Path, target: Path, path: str | Path) -> None:
    # A rename replaces an empty directory and nothing else: of two creators one gets it.
    try:
        temporary.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise _taken(path) from None
        raise


def _no_run(path: Path) -> InvalidInput:
    parent = path.parent
    beside = sorted(file.parent.name for file in parent.glob("*/run.json"))
    close = nearest(path.name, beside)
    hint = f"; nearest in {parent}: {', '.join(close)}" if close else ""
    problem = "has no run.json, so it is not a run" if path.exists() else "does not exist"
    return InvalidInput(f"{path} {problem}{hint}")
