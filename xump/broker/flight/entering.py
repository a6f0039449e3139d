"""Lets in what was committed: a step in the broker's loop, then others have their turn, then the next step.

A step is bounded in rows and, by the average of what was staged, in bytes. While other clients call, steps are smaller, with
pauses between them: a million rows enter in 0.6 seconds instead of 0.15. While the queue has no room it stands in line
with publishers, so the call that makes room lets the next row in. It may be the store that has no room, so it is asked, too, a
few times a second.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from xump._aio_wait import soon
from xump._arguments import COUNT_MAX
from xump.broker.queues import is_stored
from xump.errors import Closed, QueueNotFound, StoreFull, XumpError
from xump_ext.memory.slab import prepare_memory

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump_ext.engine.publishers import Publisher

logger = logging.getLogger("xump")

ROWS_MAX = 1000
BYTES_MAX = 1 << 20
"""So much a step lets in."""

BUSY_ROWS_MAX = 500
"""So many rows while other clients call."""

PAUSE_SECONDS = 0.0001
"""So long other threads have the interpreter between two steps, while other clients call. The loop by itself gives it up too
briefly: each time a thread of Flight wants it, 5 ms would pass before it gets it by force."""

MEMORY_BYTES = 16 << 20
"""So much memory at most is ready before it is needed, for the rows that still enter: see `prepare_memory`."""

ENTRY_BYTES = 64
"""Bytes that a row that has entered takes beside those that were counted when it was staged: a place in the index, and the head
of its content."""

LOOK_SECONDS = 0.5
"""How often a thread that waits for what enters looks whether its client is still there."""

ROOM_SECONDS_MIN, ROOM_SECONDS_MAX = 0.01, 0.25
"""So long it waits for room in the store before it looks again: each time twice as long."""

LONGER = "rows are still entering"
"""The error if it takes longer than somebody waits."""


class Target:
    """A queue that lets in."""

    def __init__(self, rows: int, row_bytes: int) -> None:
        self.rows = rows
        """So many a step."""
        self.row_bytes = row_bytes
        """About so many bytes of memory each of them takes."""
        self.tell_at = COUNT_MAX
        """When so many have entered, those that wait are told."""
        self.entered = 0
        """So many have entered since it began."""
        self.stuck = False
        """Whether it waits for room, or cannot go on."""
        self.why = ""
        """Why it cannot."""
        self.pause = ROOM_SECONDS_MIN
        """How long it waits before it looks again for room."""
        self.timer: asyncio.TimerHandle | None = None
        """The timer for that."""
        self.publisher: Publisher | None = None
        """The streams that stand in line for room in the queue."""

    def count_line(self) -> None:
        """Count the row that stood in line, if it has entered."""
        if self.publisher is not None and not self.publisher.waits:
            if self.publisher.error is None:
                self.entered += self.publisher.id
            self.publisher = None


class Entering:
    """The queues of an engine that let in what they have adopted."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop, busy: Callable[[], bool]) -> None:
        self._engine = engine
        self._loop = loop
        self._busy = busy               # whether other clients call
        self._targets: dict[str, Target] = {}
        self._changed = threading.Condition()
        self._ended = False

    def begin(self, name: str, rows: int, size: int) -> int:
        """Begin, or go on, with a queue that has adopted `rows` rows of `size` bytes: any thread may say so. Returns a mark for
        `wait`."""
        step = max(1, min(ROWS_MAX, BYTES_MAX * rows // size if size else ROWS_MAX))
        row_bytes = size // max(rows, 1) + ENTRY_BYTES
        with self._changed:
            target = self._targets.get(name)
            if target is None:
                target = self._targets[name] = Target(step, row_bytes)
            else:
                target.rows, target.row_bytes = min(step, target.rows), max(row_bytes, target.row_bytes)
            left = self._engine.queues[name].entering
            target.count_line()                 # after that: a mark that is one too high is reached when all is there
            mark = left + target.entered
        self._loop.call_soon_threadsafe(self._step, name)
        return mark

    def wait(self, name: str, mark: int, seconds: float, check_open: Callable[[], None]) -> str | None:
        """Wait until all has entered that was adopted before `mark` was given, or there is no room, or `seconds` have passed.
        Returns None if it has entered; else why not."""
        deadline = time.monotonic() + seconds
        while True:
            with self._changed:
                target = self._targets.get(name)
                if target is None or target.entered >= mark:
                    return None
                if target.stuck:
                    return target.why
                if self._ended or time.monotonic() >= deadline:
                    return LONGER
                left = mark - target.entered
            prepare_memory(min(left * target.row_bytes, MEMORY_BYTES))
            with self._changed:
                if target.entered < mark and not target.stuck and self._targets.get(name) is target:
                    # Told when all is there, or half of what was made ready is used.
                    target.tell_at = min(target.tell_at, mark, target.entered + MEMORY_BYTES // (2 * target.row_bytes) + 1)
                    self._changed.wait(min(LOOK_SECONDS, max(deadline - time.monotonic(), 0)))
            check_open()

    def close(self) -> None:
        """Stop. The rows that are left enter after the next start."""
        with self._changed:
            self._ended = True
            for target in self._targets.values():
                if target.timer is not None:
                    target.timer.cancel()
                self._leave_line(target)
            self._changed.notify_all()

    def _step(self, name: str) -> None:
        target = self._targets.get(name)
        if target is None or self._ended or target.timer is not None:
            return
        with self._changed:
            target.count_line()
        if target.publisher is not None:
            return
        busy = self._busy()
        rows = min(target.rows, BUSY_ROWS_MAX) if busy else target.rows
        try:
            with self._engine.not_waiting():
                entered = self._engine.enter(name, rows)
            left = self._engine.queues[name].entering
        except StoreFull as error:
            if self._engine.pressed:
                self._relieved(name)
            else:
                self._pause(name, target, str(error))
            return
        except (QueueNotFound, Closed):
            self._done(name)
            return
        except XumpError as error:
            if target.why != str(error):
                logger.error("queue %r does not let in what it has adopted: %s", name, error)
            self._pause(name, target, str(error))
            return
        with self._changed:
            target.entered += entered
            target.stuck = False
            target.why = ""
            if target.entered >= target.tell_at:
                target.tell_at = COUNT_MAX
                self._changed.notify_all()
        if not left:
            self._done(name)
        elif entered < rows:
            self._stand_in_line(name, target, f"queue {name!r} has no room: {left} rows enter as soon as it has")
        else:
            target.pause = ROOM_SECONDS_MIN
            if busy:
                time.sleep(PAUSE_SECONDS)
            self._loop.call_soon(self._step, name)

    def _done(self, name: str) -> None:
        with self._changed:
            self._targets.pop(name, None)
            self._changed.notify_all()

    def _relieved(self, name: str) -> None:
        """Go on when the store has caught up."""
        self._engine.when_relieved(lambda error: self._again_soon(name, error))

    def _again_soon(self, name: str, error: BaseException | None) -> None:
        if error is not None:
            logger.error("queue %r does not let in what it has adopted: %s", name, error)
            return
        soon(self._loop, self._step, name)

    def _stand_in_line(self, name: str, target: Target, why: str) -> None:
        self._is_stuck(target, why)
        target.pause = ROOM_SECONDS_MIN
        with self._engine.not_waiting():
            target.publisher = self._engine._enter_later([], lambda: self._again_soon(name, None), name)
        if is_stored(self._engine.queues[name]):
            self._look_for_store(target, target.publisher)

    def _look_for_store(self, target: Target, publisher: Publisher) -> None:
        """It may be its store that has no room, which tells nobody when it has."""
        if self._ended or not publisher.waits:
            return
        with self._engine.not_waiting(), suppress(Closed):
            self._engine.tick()
        self._loop.call_later(target.pause, self._look_for_store, target, publisher)
        target.pause = min(2 * target.pause, ROOM_SECONDS_MAX)

    def _leave_line(self, target: Target) -> None:
        with suppress(Closed):
            if target.publisher is not None:
                self._engine._publish_no_more(target.publisher)

    def _is_stuck(self, target: Target, why: str) -> None:
        with self._changed:
            target.stuck, target.why = True, why
            self._changed.notify_all()

    def _pause(self, name: str, target: Target, why: str) -> None:
        self._is_stuck(target, why)
        target.timer = self._loop.call_later(target.pause, self._again, name)
        target.pause = min(2 * target.pause, ROOM_SECONDS_MAX)

    def _again(self, name: str) -> None:
        target = self._targets.get(name)
        if target is not None:
            target.timer = None
            self._step(name)
