"""Call-backs of a store: what your program wants to be told when its changes are durable, or when the store has caught up.

A call-back waits for a **ticket**, the number of the group that has the changes, and for the records of the store that wait
behind fences. The thread that writes that group finds it due; the thread of the store calls it, without any lock. The rest is
called when the store is closed. Each is called once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xump.durability.committer import Committer

Told = Callable[[BaseException | None], object]
"""A function of your program: it is called with None, or with the error for which its changes may not be durable."""

logger = logging.getLogger("xump")


class Patience(threading.local):
    """Whether the calls of a thread wait for disks; an engine has one."""

    waits = True
    """Whether they do."""


class Waiting:
    """A call-back, and what it waits for."""

    __slots__ = ("fence", "ticket", "told")

    def __init__(self, ticket: int, fence: int, told: Told) -> None:
        self.ticket = ticket
        """The number of the group that has the changes."""
        self.fence = fence
        """The number of the last record that has to pass its fence; 0: none has."""
        self.told = told
        """The function."""


class CallBacks:
    """The call-backs of one store."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._lock = threading.Lock()
        self._waiting: list[Waiting] = []
        self._relief: list[Told] = []
        self._due: deque[tuple[Told, BaseException | None]] = deque()
        self._ended = False
        self.pressed = False
        """Whether the store has to catch up, or makes room."""

    @property
    def hurry(self) -> bool:
        """Whether somebody waits for the next group."""
        return bool(self._waiting)

    def add(self, ticket: int, fence: int, told: Told) -> bool:
        """Have `told` called when the changes of this ticket are durable. False: they are; then it was called here, at once."""
        waiting = Waiting(ticket, fence, told)
        with self._lock:
            if not self._is_over(waiting):
                self._waiting.append(waiting)
                return True
        tell_here(told, self._committer.outcome())
        return False

    def add_relief(self, told: Told) -> None:
        """Have `told` called when the store has caught up; at once, if it has."""
        with self._lock:
            if self.pressed:
                self._relief.append(told)
                return
        tell_here(told, self._committer.outcome())

    def press(self) -> None:
        """The store has to catch up. One that has failed, or is closed, never will."""
        with self._lock:
            self.pressed = not self._ended and self._committer.error is None

    def relieve(self) -> None:
        """The store has caught up."""
        with self._lock:
            self._end_pressure(self._committer.outcome())

    def _end_pressure(self, error: BaseException | None) -> None:
        self.pressed = False
        self._due.extend((told, error) for told in self._relief)
        self._relief.clear()

    def _is_over(self, waiting: Waiting) -> bool:
        committer = self._committer
        if self._ended or committer.error is not None:
            return True
        if waiting.fence and not committer.is_fenced(waiting.fence):
            waiting.ticket = max(waiting.ticket, committer.last_sealed)     # its records went into that group, or an earlier one
            waiting.fence = 0
        return not waiting.fence and committer.is_safe(waiting.ticket)

    def look(self) -> bool:
        """Find what is due, after a group was written, or the store has failed. Whether there is anything to be called."""
        with self._lock:
            if self._waiting:
                over: list[Waiting] = []
                left: list[Waiting] = []
                for waiting in self._waiting:
                    (over if self._is_over(waiting) else left).append(waiting)
                if over:
                    outcome = self._committer.outcome()
                    self._waiting = left
                    self._due.extend((waiting.told, outcome) for waiting in over)
            if self.pressed and self._committer.error is not None:
                self._end_pressure(self._committer.outcome())
        return bool(self._due)

    def call(self) -> None:
        """Call what is due. Only the store's thread does so, and after its end whoever closes the store."""
        while self._due:
            told, error = self._due.popleft()
            try:
                told(error)
            except BaseException as raised:
                logger.error("a call-back of store %r raised", self._committer.name, exc_info=raised)

    def end(self) -> None:
        """The store is closed: all that still waits is called now."""
        with self._lock:
            self._ended = True
            outcome = self._committer.outcome()
            self._due.extend((waiting.told, outcome) for waiting in self._waiting)
            self._waiting.clear()
            self._end_pressure(outcome)
        self.call()


class Joint:
    """One call-back for several stores: it is called when all of them have called this, or with the first error."""

    def __init__(self, told: Told, stores: int) -> None:
        self._told = told
        self._left = stores
        self._lock = threading.Lock()

    def __call__(self, error: BaseException | None) -> None:
        with self._lock:
            if self._left == 0:
                return
            self._left = 0 if error is not None else self._left - 1
            if self._left:
                return
        self._told(error)


def tell_here(told: Told, error: BaseException | None) -> None:
    """Call it in the thread of the caller. Its exceptions are logged, as in a store's thread."""
    try:
        told(error)
    except Exception as raised:
        logger.error("a call-back raised", exc_info=raised)


def when_durable(committers: list[Committer], told: Told) -> None:
    """Have `told` called when all that was gathered for these stores is as durable as each of them promises."""
    if len(committers) == 1:
        committers[0].when(*committers[0].everything, told)
        return
    waiting = [(committer, *committer.everything) for committer in committers]
    if not waiting:
        tell_here(told, None)
        return
    joint = Joint(told, len(waiting))
    for committer, ticket, fence in waiting:
        committer.when(ticket, fence, joint)


def when_relieved(committers: list[Committer], told: Told) -> None:
    """Have `told` called when none of these stores has to catch up."""
    pressed = [committer for committer in committers if committer.pressed]
    if not pressed:
        tell_here(told, None)
        return
    joint = Joint(told, len(pressed))
    for committer in pressed:
        committer.when_relieved(joint)
