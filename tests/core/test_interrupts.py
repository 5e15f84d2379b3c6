"""A first Ctrl-C asks, a second one acts, and afterwards signals are handled as before."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from beliefspace.core.interrupts import stop_requests


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_asks_and_the_second_acts(number):
    before = signal.getsignal(number)
    with stop_requests() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_in_another_thread_there_is_a_flag_that_nothing_sets():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work():
        with stop_requests() as stop:
            seen.append((stop.is_set(), signal.getsignal(signal.SIGINT) is before))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(False, True)]
