"""When a full store stands still: messages wait for room in it, and nothing is written to it any more.

Then its log is cleaned even if that gains little (decision 324): else two full stores whose messages go on in each other could
wait for each other for good. The thread of the store looks for that, and only while messages wait and cleaning may help.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xump.durability.committer import Committer

STILL_SECONDS = 0.1
"""A store to which nothing was written for so long stands still."""

logger = logging.getLogger("xump")


class Standstill:
    """Whether one store stands still. `watch` is called by the thread that has the turn, `look` by the store's own thread."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._watching = False      # messages wait for room, and cleaning may help if the store stands still
        self._told = False          # that no thread looks
        self._seconds = STILL_SECONDS
        self._seen = 0              # the last group that was written when the thread looked

    @property
    def seconds(self) -> float | None:
        """How long the thread waits before it looks; None: until something happens."""
        return self._seconds if self._watching else None

    def look(self, written: int) -> None:
        """Have the log cleaned if the last group has the same number as before. That takes a ninth of the time at most."""
        seen, self._seen = self._seen, written
        if seen == written:
            begun = time.perf_counter()
            self._committer.write_for_others(stands_still=True)
            self._seconds = max(STILL_SECONDS, 8 * (time.perf_counter() - begun))

    def watch(self, watching: bool) -> None:
        """Whether the thread is to look from now on. If there is none, it is started."""
        begins, self._watching = watching and not self._watching, watching
        if begins and not self._committer.in_own_thread():
            try:
                self._committer.hasten()
            except RuntimeError as error:       # the system gives no more threads
                self._watching = False          # the next write tries it again
                if not self._told:
                    logger.warning("store %r: messages wait for room, and no thread looks after it: %s",
                                   self._committer.name, error)
            self._told = not self._watching
