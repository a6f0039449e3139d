"""Queues that last as long as somebody says so: each has a lease, and is deleted with its messages when that ends.

How long a lease is stands in the map of its queue, so it outlives the broker; the time is counted anew when the broker starts.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from xump.broker.purging import is_large, purge_in_thread
from xump.errors import QueueNotFound

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue

logger = logging.getLogger("xump")

LEASE = "flight.lease"
"""The name in the map of a queue under which stands how many seconds its lease is."""

SECONDS_MAX = 366 * 86_400


class Leases:
    """The leases in an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._ends: dict[tuple[str, int], float] = {}       # name and incarnation of a queue: when its lease ends, monotonic

    def start(self) -> None:
        """Begin to count for the queues of a store that was opened again."""
        for queue in list(self._engine.queues.values()):
            if LEASE in queue.meta:
                self._begin(queue, float(queue.meta[LEASE]))

    def renew(self, queue: Queue, seconds: object) -> None:
        """The queue lasts so many seconds from now on, unless it is renewed. Raises ValueError."""
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not (
                math.isfinite(seconds) and 1 <= seconds <= SECONDS_MAX):
            raise ValueError(f"seconds={seconds!r}: expected 1 to {SECONDS_MAX}")
        kept = str(float(seconds)).encode()
        if queue.meta.get(LEASE) != kept:
            queue.meta[LEASE] = kept
        self._begin(queue, float(seconds))

    def _begin(self, queue: Queue, seconds: float) -> None:
        with self._lock:
            self._ends[queue.name, queue.incarnation] = time.monotonic() + seconds

    def look_after(self, now: float) -> None:
        """Delete the queues whose leases have ended, and forget those that are gone."""
        with self._lock:
            for name, incarnation in list(self._ends):
                queue = self._engine.queues.get(name)
                if queue is None or queue.incarnation != incarnation:
                    del self._ends[name, incarnation]
            ended = [key for key, end in self._ends.items() if now >= end]
            for key in ended:
                del self._ends[key]
        for name, incarnation in ended:
            with suppress(QueueNotFound):               # it was deleted by hand
                queue = self._engine.queues[name]
                if queue.incarnation != incarnation:    # and made again
                    continue
                logger.warning("queue %r is deleted, with %d messages: its lease has ended", name, queue.ready + queue.delayed)
                if is_large(queue):
                    purge_in_thread(queue)
                self._engine.delete_queue(name)
