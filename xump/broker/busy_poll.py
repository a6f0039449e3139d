"""Busy polling: after something came, the loop looks for more for some microseconds before it sleeps.

To wake a process that sleeps costs its client 4 microseconds a message in a virtual machine, and the message waits 25 or more.
Clients that wait for each answer, or send many small messages, get a fifth more done if the broker is awake
(`benchmarks.broker_clients`). The schedulers of Erlang, and so RabbitMQ, do the same (`+sbwt`), and so do sockets of Linux
(`SO_BUSY_POLL`). It costs processor time only while messages come: up to so much after each.
"""

from __future__ import annotations

import asyncio
import os
from time import monotonic

SERVED = 50
"""Microseconds of `xump serve`: much more keeps the threads of stores waiting for the interpreter."""
MOST = 1_000
"""Microseconds at most."""


class BusyPoll:
    """Keeps a loop awake for so many microseconds after something was heard; 0: not at all."""

    __slots__ = ("_again", "_loop", "_seconds", "_until")

    def __init__(self, loop: asyncio.AbstractEventLoop, microseconds: int) -> None:
        self._loop = loop
        self._seconds = microseconds / 1e6
        self._until = 0.0
        self._again = False

    def heard(self) -> None:
        """Something has come."""
        if self._seconds:
            self._until = monotonic() + self._seconds       # the loop's own clock may stand still in between
            if not self._again:
                self._again = True
                self._loop.call_soon(self._look)

    def _look(self) -> None:
        """The loop has just looked, without sleeping, since this call was due."""
        if monotonic() < self._until:
            self._loop.call_soon(self._look)
        else:
            self._again = False


def served() -> int:
    """How long a process of its own polls: a single processor is better left to those who send."""
    return SERVED if len(os.sched_getaffinity(0)) > 1 else 0
