"""A thread that gives hints for those who commit: one hint for all that ask meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

LISTEN_SECONDS = 0.5
"""How long a thread waits before it looks after its connection, or whether it should end."""
IDLE_SECONDS = 10.0
"""A thread that nobody has asked for so long ends, and its connection with it."""
REOPEN_SECONDS = 1.0
"""The pause after a failure."""


class Hints(Protocol):
    """A connection on which hints are given."""

    def give(self) -> None:
        """Give one hint."""

    def look_after(self) -> None:
        """Answer what the other side asks, so that the connection lives on while there is no hint to give."""


class Sender:
    """Gives hints in a thread of its own, which lives while there are some to give.

    A hint that cannot be given is told of and forgotten: there is no other attempt until somebody asks again. So a database or
    broker that is gone is tried at most once a second, and only as long as commits go on.

    Args:
        name: Of the thread.
        connect: Opens a connection.
        failed: Told of each exception, of opening or of giving.
    """

    def __init__(self, name: str, connect: Callable[[], AbstractContextManager[Hints]],
                 failed: Callable[[Exception], None]) -> None:
        self._name, self._connect, self._failed = name, connect, failed
        self._lock, self._asked = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        """Ask for a hint. Does not wait."""
        self._asked.set()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while self._was_asked():
            try:
                with self._connect() as hints:
                    hints.give()
                    self._go_on(hints)
            except Exception as error:
                self._failed(error)
                time.sleep(REOPEN_SECONDS)

    def _was_asked(self) -> bool:
        """Whether somebody has asked since the last hint; if not, this thread ends."""
        with self._lock:
            if not self._asked.is_set():
                self._thread = None
                return False
            self._asked.clear()
            return True

    def _go_on(self, hints: Hints) -> None:
        ends = time.monotonic() + IDLE_SECONDS
        while time.monotonic() < ends:
            if self._asked.wait(LISTEN_SECONDS):
                self._asked.clear()
                hints.give()
                ends = time.monotonic() + IDLE_SECONDS
            else:
                hints.look_after()
