"""Engines that run units; the local one gives each a process of its own on this machine.

Separate single-threaded processes side by side get more done than one process with several threads,
and one that dies takes no other with it. Processes are started afresh (spawn): a fork after a
numerical library started its threads can hang.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, ClassVar

from beliefspace.core.errors import BeliefspaceError, Interrupted, InvalidInput
from beliefspace.core.interrupts import stop_requests
from beliefspace.core.registry import register
from beliefspace.runs.units import Unit

Observer = Callable[[str, Mapping[str, Any]], None]

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_MEMORY_VARIABLES = {
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
    "MALLOC_TOP_PAD_": "67108864",
}
"""Without these glibc gives large blocks back at once, and memory is slow to touch when it is new:
wide models train up to 1.5 times as fast with them (benchmarks/README.md); the results are the
same."""


class UnitFailed(BeliefspaceError):
    """A unit ended with an error.

    ``__notes__`` holds its traceback where it was not a clear one, and what else failed.
    """


@dataclass(frozen=True)
class _Failure:
    """What a unit's process says last, when something went wrong; it may die without a word."""

    message: str
    exit_status: int
    details: str = ""
    died: bool = False


class Engine:
    """Base of the settings of an engine."""

    group: ClassVar[str] = "engines"

    def run(self, units: Sequence[Unit], observe: Observer | None = None) -> None:
        """Run every unit to its end.

        Args:
            units: with different names and directories.
            observe: called with a unit's name and what it reports.

        Raises:
            Interrupted: on Ctrl-C, after every unit has kept what it did.
            UnitFailed: after the others have ended, if one failed.
        """
        raise NotImplementedError


@register("engines", "local")
@dataclass(frozen=True)
class Local(Engine):
    """Processes on this machine, set to keep large blocks of memory instead of returning them.

    Args:
        workers: units at once; by default as many as cores over threads.
        threads: of each.
    """

    workers: int | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        if self.threads < 1 or (self.workers is not None and self.workers < 1):
            raise InvalidInput(
                "an engine needs 1 worker and 1 thread or more; "
                f"got {self.workers} and {self.threads}"
            )

    def run(self, units: Sequence[Unit], observe: Observer | None = None) -> None:
        """Run the units, ``workers`` at once; see :meth:`Engine.run`."""
        _check_distinct(units)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        most = self.workers or max(1, (cores or 1) // self.threads)
        waiting = list(units)
        running: dict[str, _Worker] = {}
        failures: list[_Failure] = []
        with stop_requests() as stop, _variables(self.threads), _ended(running):
            while running or (waiting and not stop.is_set()):
                while waiting and len(running) < most and not stop.is_set():
                    unit = waiting.pop(0)
                    running[unit.name] = _Worker(unit)
                for name in _ready(running):
                    message = running[name].receive()
                    if isinstance(message, Mapping):
                        if observe is not None:
                            observe(name, message)
                        continue
                    running.pop(name).close()
                    if message is None:
                        continue
                    if message.exit_status == Interrupted.exit_status:
                        stop.set()
                    # One that does not wait for SIGTERM just dies of it; that is no failure.
                    elif not (message.died and stop.is_set()):
                        failures.append(message)
                if stop.is_set():
                    for worker in running.values():
                        worker.stop()
        if failures:
            raise _error(failures)
        if stop.is_set():
            raise Interrupted("stopped; what was saved is kept, and the same command goes on")


class _Worker:
    """One unit in its own process, and the pipe on which it reports."""

    def __init__(self, unit: Unit) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe(duplex=False)
        self._name = unit.name
        self._told_to_stop = False
        self._process: BaseProcess = context.Process(
            target=_work, args=(unit, theirs), name=unit.name, daemon=True
        )
        script = contextlib.nullcontext() if "__main__" in unit.needs else _no_script()
        with script, _interrupts_held():
            self._process.start()
        theirs.close()

    def receive(self) -> Mapping[str, Any] | _Failure | None:
        """Return a report, or at the end None or what went wrong."""
        try:
            message: Mapping[str, Any] | _Failure | None = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode or 0
            end = (
                f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
            )
            return _Failure(f"{self._name}: its process {end}", 1, died=True)
        return message

    def stop(self) -> None:
        """Ask the unit, once, to keep what it did and end."""
        if not self._told_to_stop:
            self._process.terminate()
            self._told_to_stop = True

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def close(self) -> None:
        """Wait for the process to end; what it still reports is lost."""
        self.connection.close()
        self._process.join()


def _work(unit: Unit, connection: Connection) -> None:
    """Run a unit; its last message is None or what went wrong."""
    # A Ctrl-C reaches the whole terminal group; the parent alone decides and sends SIGTERM.
    os.setpgrp()
    _let_go_of_interrupts()
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def send(message: object) -> None:
        # When nobody listens any more, the unit still has to keep what it did.
        with contextlib.suppress(BrokenPipeError):
            connection.send(message)

    outcome: _Failure | None = None
    try:
        unit.work()(unit.config, unit.out, send)
    except BeliefspaceError as error:
        outcome = _Failure(f"{unit.name}: {error}", error.exit_status)
    except BaseException as error:
        reason = f"{unit.name}: {type(error).__name__}: {error}"
        outcome = _Failure(reason, 1, traceback.format_exc())
    send(outcome)
    connection.close()


def _end_with_parent() -> None:
    """Stop this process, as on SIGTERM, when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def _error(failures: Sequence[_Failure]) -> UnitFailed:
    """Return the error for what failed: the first, and how many more."""
    first, *others = failures
    more = f" ({len(others)} more failed)" if others else ""
    error = UnitFailed(first.message + more)
    error.exit_status = first.exit_status
    for note in (first.details, *(other.message for other in others)):
        if note:
            error.add_note(note)
    return error


def _ready(running: Mapping[str, _Worker]) -> list[str]:
    """Return the workers that have something to say, waiting a moment for the first."""
    by_connection = {worker.connection: name for name, worker in running.items()}
    return [by_connection[ready] for ready in wait(list(by_connection), timeout=0.2)]  # type: ignore[index]


def _check_distinct(units: Sequence[Unit]) -> None:
    names = [unit.name for unit in units]
    places = [unit.out.resolve() for unit in units]
    if len(set(names)) < len(names) or len(set(places)) < len(places):
        raise InvalidInput(f"units need different names and directories; got {', '.join(names)}")


@contextlib.contextmanager
def _ended(running: Mapping[str, _Worker]) -> Iterator[None]:
    """Leave no process behind, also when the observer raises."""
    try:
        yield
    except KeyboardInterrupt:
        # The second request: what was not saved until now is lost.
        for worker in running.values():
            worker.kill()
        raise
    finally:
        for worker in running.values():
            worker.stop()
        for worker in running.values():
            worker.close()


@contextlib.contextmanager
def _no_script() -> Iterator[None]:
    """Keep a process started meanwhile from running the user's script again.

    By default every new process does, and a script that is not guarded by ``if __name__ ==
    "__main__"`` would start units of its own.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back, here and in a process started meanwhile: it is still being imported."""
    # Starts with the first process, and would let go of Ctrl-C in between.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _let_go_of_interrupts() -> None:
    """Drop a Ctrl-C that came while this process started; the next one counts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def _variables(threads: int) -> Iterator[None]:
    """Set, for the processes started meanwhile, what is read when a process starts.

    Numerical libraries are told how many threads to use, and glibc to keep large blocks of memory
    where the user has not said otherwise.
    """
    wanted = dict.fromkeys(_THREAD_VARIABLES, str(threads))
    wanted |= {name: os.environ.get(name, value) for name, value in _MEMORY_VARIABLES.items()}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
