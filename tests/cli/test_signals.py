"""Commands that a signal ends."""

import signal
import threading

import pytest

from tests.patience import PATIENCE
from xump.cli.signals import on_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_waits_for_what_the_main_thread_has_locked(number):
    """A handler in Python would run in the main thread, and wait there for its own lock for ever."""
    lock, stopped = threading.Lock(), threading.Event()

    def stop():
        with lock:
            stopped.set()

    before = signal.getsignal(number)
    with on_signals(stop):
        with lock:
            signal.raise_signal(number)
            assert not stopped.is_set()
        assert stopped.wait(PATIENCE)
    assert signal.getsignal(number) is before
