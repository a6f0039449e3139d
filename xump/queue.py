"""A queue: a named FIFO list of messages. Its properties are in `QueueHandle`; here are its verbs."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from xump import filters
from xump.conditions import Where
from xump_ext.engine.handles import QueueHandle
from xump_ext.match.filter import Filter
from xump_ext.message.message import Message

if TYPE_CHECKING:
    from xump.conditions import FilterSource
    from xump.engine import Engine
    from xump.store_types import Store

State = Literal["ready", "outstanding", "history"]
Start = str | int | datetime.datetime

STATES = ("ready", "outstanding", "history")
ID_MAX = 2**64 - 2
TIME_MIN, TIME_MAX = -(2**63) + 1, 2**63 - 2


class Queue(QueueHandle):
    """A queue of an engine. Equal to its name; made by `Engine.create_queue`."""

    if TYPE_CHECKING:       # what the core holds without knowing it

        @property
        def engine(self) -> Engine: ...

        @property
        def store(self) -> Store: ...

    def publish(
        self,
        address: str = "",
        body: bytes = b"",
        headers: Any = None,
        *,
        reply_to: str | None = None,
        message_id: str | None = None,
    ) -> int:
        """`Engine.publish` into this queue."""
        return self.engine.publish(self, address, body, headers, reply_to=reply_to, message_id=message_id)

    def hold(self) -> None:
        """Stop routing here: messages enter and stay ready. Idempotent."""
        self.engine._hold(self, True)

    def release(self) -> None:
        """Go on routing what was held, oldest first. Idempotent."""
        self.engine._hold(self, False)

    def browse(
        self,
        start: Start = "head",
        *,
        state: State | None = None,
        where: FilterSource | Where | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Message]:
        """Messages, with their ids, without consuming them: oldest first, from `start` on.

        `start` is "head", "current" (the frontier), an id, or an aware datetime. `reverse=True` goes down from `start`,
        inclusive; "head" then means the newest. `state` is "ready", "outstanding" or "history"; `where` a filter as in
        `xump.where`; at most `limit` messages are given. Reads pages of 256: what changes meanwhile may be seen or not.
        Costs O(1) a message looked at; finding a time costs as the pages of the queue.
        """
        if state is not None and state not in STATES:
            raise ValueError(f"unknown state {state!r}; allowed are {', '.join(map(repr, STATES))}")
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
            raise TypeError(f"limit must be a number of messages or None, got {type(limit).__name__}")
        if limit is not None and limit < 0:
            raise ValueError(f"limit must not be negative, got {limit}")
        if not isinstance(reverse, bool):
            raise TypeError(f"reverse must be a bool, got {type(reverse).__name__}")
        compiled, call = None, None
        if where is not None:
            tree = where.tree if isinstance(where, Where) else filters.compile(where)[1]
            if tree[0] == "call":
                call = tree[1]
            else:
                compiled = Filter(tree)
        at = self._position(start, reverse)
        return self._pages(at, state, compiled, call, limit, reverse)

    def _position(self, start: Start, reverse: bool) -> Any:
        if start == "head":
            return ID_MAX if reverse else 1
        if start == "current":
            return self.frontier
        return position(start)

    def _pages(
        self, at: Any, state: Any, compiled: Filter | None, call: Any, limit: int | None, reverse: bool
    ) -> Iterator[Message]:
        left = limit
        while at is not None and left != 0:
            page, at = self.engine._page(self, at, reverse, state, compiled)
            for message in page:
                if call is not None and not _selects(call, message):
                    continue
                yield message
                if left is not None:
                    left -= 1
                    if left == 0:
                        return

    def fetch(self, id: int) -> Message | None:
        """The message of that id, or None if it is gone. O(1)."""
        return self.engine._fetch(self, _checked_id(id))

    def delete(self, id: int) -> bool:
        """Delete a message in whatever state, an outstanding one after taking it back; whether there was one."""
        return self.engine._delete_message(self, _checked_id(id))

    def purge(self) -> int:
        """Delete all ready messages; returns how many. Costs a walk over the queue."""
        return self.engine._purge(self)


def position(start: object, words: str = "'head', 'current'") -> Any:
    """An id, or a time as the core takes it. Raises TypeError and ValueError, which says what words were allowed, too."""
    if isinstance(start, datetime.datetime):
        if start.tzinfo is None:
            raise ValueError(f"start {start!r} has no time zone; give an aware datetime, as datetime.now(timezone.utc)")
        since_epoch = start - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        nanoseconds = (since_epoch.days * 86_400 + since_epoch.seconds) * 10**9 + since_epoch.microseconds * 1000
        return ("time", min(max(nanoseconds, TIME_MIN), TIME_MAX))
    if isinstance(start, bool) or not isinstance(start, int):
        if isinstance(start, str):
            raise ValueError(f"unknown start {start!r}; allowed are {words}, an id, or an aware datetime")
        raise TypeError(f"start must be a str, an id, or an aware datetime, got {type(start).__name__}")
    if not 0 <= start <= ID_MAX:
        raise ValueError(f"start must be an id from 0 to {ID_MAX}, got {start}")
    return start


def _selects(call: Any, message: Message) -> bool:
    """As in a selector: a callable that raises selects nothing."""
    try:
        return bool(call(message))
    except Exception:
        return False


def _checked_id(id: object) -> int:
    if isinstance(id, bool) or not isinstance(id, int):
        raise TypeError(f"id must be an int, got {type(id).__name__}")
    return id
