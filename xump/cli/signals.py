"""Commands that run until a signal ends them."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop`, once, when SIGTERM or SIGINT comes.

    A handler in Python would not do. It runs in the main thread between two steps of the interpreter: there it may find a lock
    taken that `stop` needs, by that very thread; and a signal that comes just before C code waits would be seen when that has
    waited. The C handler writes to a socket at once, and a thread reads it.
    """
    wakes, woken = socket.socketpair()
    wakes.setblocking(False)
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    fd_before = signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)

    def wait() -> None:
        if woken.recv(1):
            stop()

    thread = threading.Thread(target=wait, name="xump-signals")
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(fd_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        wakes.close()                   # the thread reads its end
        thread.join()
        woken.close()
