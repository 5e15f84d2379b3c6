"""Ctrl-C as a request: work stops where it can be taken up again."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """Turn the first Ctrl-C or SIGTERM into a flag for the work to look at; a second one acts.

    Outside the main thread, where signals do not arrive, the flag is never set.

    Raises:
        KeyboardInterrupt: on the second one.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request(*_: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
