"""Staged queues: a queue adopts them whole, and lets their messages enter step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from xump._arguments import COUNT_MAX, check_count
from xump._meta import mapping_of
from xump._names import shown
from xump._telling import Telling
from xump_ext.engine import staging
from xump_ext.errors import iterator_of
from xump_ext.log.meta import checked_item

if TYPE_CHECKING:
    from xump.queue import Queue


class Staged(Telling):
    """The part of the engine that works on staged queues."""

    def adopt(
        self, target: str | Queue, queues: Iterable[tuple[str | Queue, int]], *, meta: Mapping[str, bytes | None] | None = None
    ) -> None:
        """Give the messages of staged queues to another queue: all of them in one step, however many there are.

        Args:
            target: The queue whose messages they are from here on. They enter it when you call `enter`.
            queues: The staged queues in the order in which their messages enter, each as `(queue, rows)`: `rows` is how many
                messages it has, so that none is missing. They are in the store of the target.
            meta: The changes of the target's `meta` in the same step, so that your program knows after a crash whether the step
                was done; a value of None deletes its name.

        Raises:
            QueueNotFound: There is no such queue.
            Conflict: A staged queue was adopted before.
            TransactionError: A staged queue is in another store than the target.
            StoreFull, StoreFailed: The store cannot write it.
            TypeError, ValueError: An argument is wrong: the target is staged or a transit queue; a queue is not staged, is given
                twice, or has another number of messages.

        If it raises, nothing has changed. In a durable store all of it is one atomic write; `sync()` waits until it is on disk.
        From here on nothing can be published into the staged queues. Each is deleted when its last message has entered, or with
        the target; one without messages is deleted at once. Several adoptions of a target enter one after the other.

        Cost: O(queues).

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     orders, part = engine.create_queue("orders"), engine.create_queue("part 1", staged=True)
        ...     ids = engine.publish_many(part, [("order.new",), ("order.paid",)])
        ...     engine.adopt("orders", [("part 1", 2)], meta={"imported": b"part 1"})
        ...     orders.ready, orders.entering, engine.enter("orders", 1000), orders.ready, "part 1" in engine.queues
        (0, 2, 2, 2, False)
        """
        given = [_part(part) for part in iterator_of(queues, "queues must be pairs of a staged queue and its number of messages")]
        changes = [checked_item(name, value) for name, value in ({} if meta is None else mapping_of(meta)).items()]
        staging.adopt(self, target, given, changes)

    def enter(self, target: str | Queue, n: int) -> int:
        """Let the next messages enter that a queue has adopted, as if they were published now.

        Args:
            target: The queue that has adopted them.
            n: How many at most: a step, between which other calls go on.

        Returns:
            How many have left the staged queues, duplicates included. Fewer than `n`: all have entered, or there is no room;
            `Queue.entering` tells.

        Raises:
            QueueNotFound: There is no such queue.
            StoreFailed, StoreCorrupt: The first message cannot be read from the store. If it is damaged, `Queue.delete` takes it
                away.
            TypeError, ValueError: `n` is not an int from 1 on.

        All that enters does so before it is routed, in one atomic write. Each message gets an id and a timestamp; `dedup`, `at`
        and `expires` are judged by now. It waits for room as one that a MOVE takes: a dead letter queue makes none, and a queue
        that drops its oldest drops nothing for it. Selectors that wait for room in the target come first.

        Cost: O(messages), each less than a publish, and the run that follows.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     jobs, part = engine.create_queue("jobs", limit=2), engine.create_queue("part", staged=True)
        ...     ids = engine.publish_many("part", [("resize",), ("rotate",), ("crop",)])
        ...     engine.adopt("jobs", [("part", 3)])
        ...     first = engine.enter("jobs", 10), jobs.entering
        ...     first, jobs.purge(), engine.enter("jobs", 10), jobs.entering
        ((2, 1), 2, 1, 0)
        """
        check_count("n", n, 1, COUNT_MAX, "an int")
        return staging.enter(self, target, n)


def _part(part: object) -> tuple[str | Queue, int]:
    if not isinstance(part, (tuple, list)) or len(part) != 2:
        raise TypeError(f"queues must be pairs of a staged queue and its number of messages, got {shown(part)}")
    queue, rows = part
    check_count("rows", rows, 0, COUNT_MAX, "an int")
    return queue, rows

