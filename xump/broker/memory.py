"""The bound on memory: who publishes while messages take too much of it is not read any more, until there is less."""

from __future__ import annotations

import logging
import os
import select
from pathlib import Path
from typing import TYPE_CHECKING

from xump_ext.memory.slab import keep_memory, memory_bytes, release_memory

if TYPE_CHECKING:
    from xump.broker.broker import Broker
    from xump.broker.connection import Connection

logger = logging.getLogger("xump")

SHARE = 0.4
"""Of the machine's memory, or of what its control group lets the process have, as in RabbitMQ."""
RELEASED = 0.8
"""Below this part of the bound publishers go on: at the bound itself they would stop and go all the time."""
UNCOMMITTED_SHARE = 0.25
"""Of the bound, what transactions may have that are not committed. A client that is made to wait could not commit."""
KEPT_SHARE, KEPT_BYTES_MAX = 1 / 16, 256 << 20
"""Of the bound, and at most, what stays ready for new messages when others have gone: the system clears what it gives out."""
KEPT_SECONDS = 10.0
"""Memory that was not needed for so long goes back to the system."""
LOOK_SECONDS = 0.05
"""How often it is looked at while publishers wait."""
GONE = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
"""Without POLLRDHUP, which only Linux has, a client that closes in good order is noticed when it is read again."""
GROUP_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
REASON = "low on memory"
"""The words that clients are told, which are RabbitMQ's."""


def bytes_max(given: int | None) -> int:
    """The bound: what was given, or a share of the memory that there is."""
    if given is not None:
        return given
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in GROUP_FILES:
        try:
            there = min(there, int(Path(file).read_text()))
        except (OSError, ValueError):       # no such file, or `max`
            continue
    return int(there * SHARE)


class Memory:
    """Watches how much memory messages take. Counted is what the engines of the process have, not the process as a whole."""

    def __init__(self, broker: Broker, given: int | None) -> None:
        self._broker = broker
        self.bytes_max = bytes_max(given)
        """How many bytes are too many."""
        self.is_high = False
        """Whether publishers wait."""
        self.uncommitted = 0
        """Bytes of transactions that are not committed, which are in no engine yet."""
        self.promised = 0
        """Bytes of the bodies that clients have begun to send, those of clients left out that are not read."""
        self._swept = 0.0
        self.waiting: dict[Connection, None] = {}
        """Clients that have published meanwhile, and are not read until there is less."""

    def look(self) -> bool:
        """Whether there is too much now. In the broker's loop only; any thread may call `is_too_much`."""
        if self.is_high or self._taken() <= self.bytes_max:
            return self.is_high
        self.is_high = True
        logger.warning(
            "publishers wait: messages take %d bytes of memory, and the bound is %d (Limits.memory_bytes)", self._taken(),
            self.bytes_max)
        self._broker.loop.call_later(LOOK_SECONDS, self._look_again)
        return True

    def _taken(self) -> int:
        return memory_bytes() + self.promised

    def hold(self, count: int) -> bool:
        """Count bytes of a transaction. Whether it may have them; if not, nothing was counted."""
        if self.uncommitted + count > UNCOMMITTED_SHARE * self.bytes_max:
            return False
        self.uncommitted += count
        return True

    def release(self, count: int) -> None:
        """The transaction has ended."""
        self.uncommitted -= count

    def keep(self, now: float) -> None:
        """From now on keep memory that messages have left, for a while. The broker begins, perhaps not for the first time."""
        self._swept = now
        self.is_high = False        # whoever was to look again was in the loop that ended
        self.waiting.clear()
        keep_memory(int(min(KEPT_SHARE * self.bytes_max, KEPT_BYTES_MAX)))

    def look_for_gone(self) -> None:
        """Clients that are not read, and have closed their end or vanished: others wait for what they have."""
        if not self.waiting:
            return
        poll, by_number = select.poll(), {}
        for connection in self.waiting:
            number = connection.transport.get_extra_info("socket").fileno()
            by_number[number] = connection
            poll.register(number, GONE)
        for number, _event in poll.poll(0):
            connection = by_number[number]
            del self.waiting[connection]
            connection.read_the_rest()

    def sweep(self, now: float) -> None:
        """Now and then: give back what was not needed."""
        self.look_for_gone()
        if now - self._swept >= KEPT_SECONDS:
            self._swept = now
            release_memory()

    def keep_none(self) -> None:
        """The broker ends: give all back."""
        keep_memory(0)
        release_memory()        # what was not needed since the last time
        release_memory()        # and the rest

    def is_too_much(self, more: int = 0) -> bool:
        """Whether nothing more should be published now, or no `more` bytes."""
        return self.is_high or self._taken() + more > self.bytes_max

    def said(self) -> str:
        """The words for those that cannot be made to wait."""
        return (f"the broker's messages take {self._taken()} bytes of memory, and its bound is {self.bytes_max} "
                "(Limits.memory_bytes): try again when some were consumed")

    def _look_again(self) -> None:
        if self._taken() > RELEASED * self.bytes_max:
            self._broker.loop.call_later(LOOK_SECONDS, self._look_again)
            return
        self.is_high = False
        logger.warning("publishers go on: messages take %d bytes of memory", self._taken())
        while self.waiting and not self.look():         # what one has begun to send may be too much for the next
            connection = next(iter(self.waiting))
            del self.waiting[connection]
            connection.unblock()
