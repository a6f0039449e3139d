"""Queues: named lists of messages, first in, first out.

`QueueHandle` in the core has their properties and `publish`, this file their other calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from xump import filters
from xump._arguments import COUNT_MAX, ID_MAX, check_bool, check_count, check_int, start_of
from xump._meta import Meta
from xump.actions import Field
from xump.conditions import Where
from xump.types import State
from xump_ext.arrow.browse import browse_batch
from xump_ext.engine.handles import QueueHandle
from xump_ext.match.filter import Filter
from xump_ext.memory.own_methods import own_methods
from xump_ext.message.message import Message

if TYPE_CHECKING:
    from xump.types import BrowseStart, FilterSource
    from xump_ext.arrow.export import ArrowBatch
    from xump_ext.engine.stores import EngineStores

__all__ = ["Queue", "State"]

STATES: tuple[str, ...] = get_args(State)


class Queue(QueueHandle):
    """A queue of an engine: a named list of messages, first in, first out. Created by `Engine.create_queue`.

    A queue is equal to its name, so either can stand for the other, as a key of `Engine.queues` too. Properties and counts cost
    O(1). Once the queue is deleted, its counts and its other calls raise `QueueNotFound`. Only `publish`
    still works, if another queue has that name now: the message enters that one.

    >>> from xump import Engine
    >>> with Engine() as engine:
    ...     jobs = engine.create_queue("jobs")
    ...     number = jobs.publish("resize", b"cat.png")
    ...     jobs.ready, [message.address for message in jobs.browse()]
    (1, ['resize'])
    """

    @property
    def group(self) -> Field | None:
        """The field whose value orders messages: those with the same one go one after the other. None: there is none."""
        name = self._properties()["group"]
        return None if name is None else Field(name)

    @property
    def oldest(self) -> int | None:
        """When the oldest ready message entered, in POSIX nanoseconds; None if none is ready. Cost: as `Engine.get`."""
        return self.engine._oldest(self)

    @property
    def meta(self) -> Meta:
        """Names and values of your own, which belong to the queue and end with it: a mapping of str to bytes, which you may
        change. At most 64 KiB; as durable as the queue."""
        return Meta(self)

    def _core(self) -> EngineStores:
        return self.engine

    def hold(self) -> None:
        """Stop routing in this queue: messages enter and stay ready. Holding a held queue does nothing.

        Raises:
            QueueNotFound: The queue was deleted.

        Messages that were taken before stay taken. Cost: O(1).

        >>> from xump import Engine, always, deliver
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     selector = engine.create_selector("jobs", when=always, do=deliver("worker"))
        ...     jobs.hold()
        ...     number = jobs.publish("resize")
        ...     held = len(engine.take(1))
        ...     jobs.release()
        ...     held, len(engine.take(1))
        (0, 1)
        """
        self.engine._hold(self, True)

    def release(self) -> None:
        """End `hold()`, and route the messages that are ready, oldest first. Releasing a queue that is not held does nothing.

        Raises:
            QueueNotFound: The queue was deleted.

        Cost: that of the run which follows.
        """
        self.engine._hold(self, False)

    def browse(
        self,
        start: BrowseStart = "head",
        *,
        state: State | None = None,
        where: FilterSource | Where | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Iterator[Message]:
        """Iterate over messages without consuming them, oldest first.

        Args:
            start: Where to start: `"head"` (the oldest message; the newest if `reverse`), `"current"` (the first that has not
                been routed yet), the id of a message, or an aware datetime (the first message of that time or later; the last
                if `reverse`). There need not be a message of that id.
            state: Only messages that are `"ready"` (not taken), `"delayed"` (not due yet), `"outstanding"` (unacknowledged) or in
                the `"history"` (processed and kept); None: all.
            where: Only messages that this filter selects, as in `xump.where`. Messages on which a function raises are left out.
            limit: At most so many messages; None: any number.
            reverse: Whether to go down from `start`, the newest message first.

        Returns:
            An iterator of messages, with the ids that they have in this queue.

        Raises:
            InvalidFilter: The filter cannot be read.
            QueueNotFound: The queue was deleted; raised by the iteration.
            TypeError, ValueError: An argument is wrong.

        The iterator reads pages of 256 messages. It may or may not see what changes meanwhile.

        Cost: O(1) a message looked at; to find a time, O(log messages).

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     news = engine.create_queue("news")
        ...     ids = engine.publish_many("news", [(f"news.{n}", b"", {"n": n}) for n in range(10)])
        ...     [message.id for message in news.browse(where="n >= 7")]
        ...     [message.id for message in news.browse(reverse=True, limit=2)]
        [8, 9, 10]
        [10, 9]
        """
        _check_browsing(state, limit, reverse)
        compiled, call = _compiled(where)
        return self._pages(self._position(start, reverse), state, compiled, call, limit, reverse)

    def _browse_detailed(
        self, start: BrowseStart, state: State | None, where: str | None, limit: int | None, reverse: bool
    ) -> Iterator[tuple[Message, State, int | None]]:
        """As `browse`: (message, state, until when it is delayed in POSIX nanoseconds, or None). For the command line."""
        compiled, call = _compiled(where)
        return self._pages(self._position(start, reverse), state, compiled, call, limit, reverse, True)

    def browse_batch(
        self,
        start: BrowseStart = "head",
        *,
        state: State | None = None,
        where: FilterSource | Where | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> ArrowBatch:
        """Look at messages as Arrow columns, which pyarrow, Polars and DuckDB read without a copy. Nothing is consumed.

        Args:
            start, state, where, limit, reverse: As for `browse`.

        Returns:
            A batch with the columns of `Engine.take_batch`, and `state` (as in `browse`), `at` (when a delayed message is due,
            else null) and `redelivered` (whether it came back once after it had been handed out). `delivery_count` says how often
            a message has been taken; `destination` is null unless a selector has stamped one on it. `len()` is the number of
            rows. `publish_batch` accepts such a batch, delays included.

        Raises:
            InvalidFilter: The filter cannot be read.
            QueueNotFound: The queue was deleted.
            StoreFailed: A body cannot be read from the store.
            TypeError, ValueError: An argument is wrong.

        It reads pages of 256 messages. It may or may not see what other threads change meanwhile. The batch holds all that it
        has selected: give a `limit`, and the next `start`, for a queue that is larger than memory.

        Cost: O(1) a message looked at, a fraction of `browse`.

        >>> import pyarrow
        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     news = engine.create_queue("news")
        ...     ids = engine.publish_many("news", [(f"news.{n}", b"", {"n": n}) for n in range(10)])
        ...     pyarrow.record_batch(news.browse_batch(where="n >= 8")).select(["id", "state", "address"]).to_pylist()
        [{'id': 9, 'state': 'ready', 'address': 'news.8'}, {'id': 10, 'state': 'ready', 'address': 'news.9'}]
        """
        _check_browsing(state, limit, reverse)
        compiled, call = _compiled(where)
        passes = None if call is None else partial(_selects, call)
        return browse_batch(self.engine, self, self._position(start, reverse), state, compiled, passes, limit, reverse)

    def _position(self, start: object, reverse: bool) -> Any:
        if start == "head":
            return ID_MAX if reverse else 1
        if start == "current":
            return self.frontier
        return start_of(start)

    def _pages(
        self, at: Any, state: State | None, compiled: Filter | None, call: Callable[[Message], object] | None, limit: int | None,
        reverse: bool, detailed: bool = False,
    ) -> Iterator[Any]:
        """The messages; `detailed`: (message, state, until when it is delayed in POSIX nanoseconds, or None)."""
        left = limit
        while at is not None and left != 0:
            page, at = self.engine._page(self, at, reverse, state, compiled, detailed)
            for found in page:
                if call is not None and not _selects(call, found[0] if detailed else found):
                    continue
                yield found
                if left is not None:
                    left -= 1
                    if left == 0:
                        return

    def fetch(self, id: int) -> Message | None:
        """Read the message of an id, whatever its state.

        Args:
            id: The id that this queue issued.

        Returns:
            The message; None if it is gone, or never was.

        Raises:
            QueueNotFound: The queue was deleted.
            TypeError: `id` is not an int.

        Cost: O(1); in a durable store perhaps a read of the disk.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     jobs.fetch(jobs.publish("resize")).address, jobs.fetch(2)
        ('resize', None)
        """
        check_int("id", id, "an int")
        return self.engine._fetch(self, id)

    def delete(self, id: int) -> bool:
        """Delete a message, whatever its state. An outstanding (unacknowledged) message is taken back first.

        Args:
            id: The id that this queue issued.

        Returns:
            Whether there was such a message.

        Raises:
            QueueNotFound: The queue was deleted.
            StoreFailed: The store cannot write.
            TypeError: `id` is not an int.

        A delivery of the message becomes stale. If the message came by a MOVE, it is acked in the queue that it came from.

        Cost: O(queues that the message has been moved through), and the run that follows.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     number = jobs.publish("resize")
        ...     jobs.delete(number), jobs.delete(number)
        (True, False)
        """
        check_int("id", id, "an int")
        return self.engine._delete_message(self, id)

    def purge(self, *, upto: int | None = None) -> int:
        """Delete all ready messages, delayed ones too: those that no selector has taken.

        Args:
            upto: Only those with ids up to this one: what a reader by id has read. None: all.

        Returns:
            How many there were.

        Raises:
            QueueNotFound: The queue was deleted.
            StoreFailed: The store cannot write.
            TypeError, ValueError: `upto` is neither an id nor 0.

        Messages that came by a MOVE are acked in the queues that they came from.

        Cost: O(messages in the queue up to that id), and the run that follows.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     ids = engine.publish_many("jobs", [("resize",), ("rotate",), ("crop",)])
        ...     jobs.purge(upto=1), jobs.purge(), jobs.ready
        (1, 2, 0)
        """
        if upto is not None:
            check_count("upto", upto, 0, ID_MAX, "an id or None")
        return self.engine._purge(self, ID_MAX if upto is None else upto, COUNT_MAX, 0)[0]


def _check_browsing(state: object, limit: object, reverse: object) -> None:
    """Raises TypeError or ValueError unless these are arguments of `browse`."""
    if state is not None and (not isinstance(state, str) or state not in STATES):
        raise ValueError(f"unknown state {state!r}; allowed are {', '.join(map(repr, STATES))}")
    if limit is not None:
        check_count("limit", limit, 0, COUNT_MAX, "a number of messages or None")
    check_bool("reverse", reverse)


def _compiled(where: FilterSource | Where | None) -> tuple[Filter | None, Callable[[Message], object] | None]:
    """A filter, compiled, or its Python function."""
    if where is None:
        return None, None
    tree = where.tree if isinstance(where, Where) else filters.compile(where)[1]
    return (None, tree[1]) if tree[0] == "call" else (Filter(tree), None)


def _selects(call: Callable[[Message], object], message: Message) -> bool:
    """Whether a function selects the message; as in a selector, it does not if it raises."""
    try:
        return bool(call(message))
    except Exception:
        return False


own_methods(Queue)
