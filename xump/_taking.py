"""Taking deliveries from an engine: at once, by iteration, or as Arrow columns. `Taking` is a part of the class `xump.Engine`.

A call that waits holds no lock and does not poll: the call that offers a delivery wakes it.
"""

from __future__ import annotations

import threading
import warnings
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from xump._arguments import COUNT_MAX, check_count, check_timeout, checked_destination
from xump._graph import Graph
from xump.errors import Closed, QueueNotFound, SelectorNotFound
from xump_ext.arrow.batch import DeliveryBatch, take_batch
from xump_ext.engine.delivery import Delivery
from xump_ext.engine.taking import DeliveryIterator
from xump_ext.infinite import INFINITE

if TYPE_CHECKING:
    from xump.conditions import Where
    from xump.queue import Queue, State
    from xump.selector import Selector
    from xump.types import BrowseStart, Destinations, FilterSource
    from xump_ext.arrow.export import ArrowBatch

    Awaited: TypeAlias = str | tuple[str | tuple[str, object], ...] | Queue | None

WARNINGS_MAX = 100


class Taking(Graph):
    """The part of `xump.Engine` that hands deliveries to your program."""

    _warned_of_acks = False
    _warned_of_nacks = False
    _found_nothing = 0
    """How many calls found nothing to take."""

    def take(self, n: int, destination: Destinations = None, *, timeout: float | None = 0.0) -> list[Delivery]:
        """Take up to `n` deliveries, in the order in which they were offered.

        Args:
            n: The largest number of deliveries to take.
            destination: The destination (consumer name) to take from; several, as a list, tuple or set; None: all destinations.
            timeout: How many seconds to wait for the first delivery, if there is none; None: for ever.

        Returns:
            The deliveries that there are, at most `n`; an empty list if there is none after `timeout`.

        Raises:
            Closed: The engine is closed, or is closed while the call waits.
            TypeError, ValueError: An argument is wrong.

        A destination is any text: one that no selector delivers to has no deliveries. Answer each delivery with `ack()`,
        `nack()` or `reject()`, or use it as a context manager.

        Cost: O(n); taking from one destination costs the same, however many there are.

        >>> from xump import Engine, always, deliver
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     selector = engine.create_selector("jobs", when=always, do=deliver("worker"), credit=10)
        ...     ids = engine.publish_many("jobs", [("resize",), ("rotate",)])
        ...     batch = engine.take(10, "worker")
        ...     engine.ack(batch)
        ...     [delivery.message.address for delivery in batch]
        ['resize', 'rotate']
        """
        # Usual arguments are checked without a call: two calls were a fifth of publishing, taking and acking a message.
        if (type(n) is int and 0 <= n <= COUNT_MAX and type(timeout) is float and timeout >= 0 and not self._looks_for_held
                and (destination is None or type(destination) is str)):
            wanted: str | tuple[str, ...] | None = destination
        else:
            check_count("n", n, 0, COUNT_MAX)
            wanted = self._checked_taking(destination, timeout)
        taken = self._take(n, wanted)
        if taken or n == 0:
            return taken
        if timeout != 0:
            taken = self._wait(partial(self._take, n, wanted), wanted, timeout)
        if not taken:
            self._notice_nothing(wanted)
        return taken

    def deliveries(self, destination: Destinations = None, *, timeout: float | None = 0.0) -> DeliveryIterator:
        """Iterate over the deliveries that there are, and over those that your acks release meanwhile.

        Args:
            destination: The destination (consumer name) to take from; None: all destinations, in the order in which deliveries
                were offered.
            timeout: The iteration ends when there has been no delivery for this many seconds; None: never.

        Returns:
            An iterator of `Delivery` objects. It does not yield messages again that were nacked after this call, unless they come
            back by time (`retry_delay`). For a worker that shall try again at once, take in a loop:
            `while True: for delivery in engine.take(10, "worker", timeout=None): ...`

        Raises:
            Closed: The engine is closed, or is closed while the iteration waits.
            TypeError, ValueError: An argument is wrong.

        Cost: O(1) a delivery.

        >>> from xump import Engine, always, deliver
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     selector = engine.create_selector("jobs", when=always, do=deliver("worker"))
        ...     ids = engine.publish_many("jobs", [("resize",), ("rotate",)])
        ...     for delivery in engine.deliveries("worker"):
        ...         with delivery as message:           # acks at the end of the block, nacks if the block raises
        ...             print(message.address)
        resize
        rotate
        """
        destination = self._checked_taking(destination, timeout)
        return DeliveryIterator(self, destination, timeout)

    def get(self, queue: str | Queue, *, timeout: float | None = 0.0) -> Delivery | None:
        """Take a message out of a queue by hand: no selector, destination or credit is needed.

        Args:
            queue: The queue, or its name. A held queue gives, too.
            timeout: How many seconds to wait for a message; 0: do not wait; None: for ever.

        Returns:
            A delivery of the first ready message, or None. Left out are messages that a selector has taken or offers, that are
            behind another one of their key (`group`), or that are still to be routed. Answer the delivery as any other. A nack
            puts the message back as it was.

        Raises:
            QueueNotFound: No queue has this name.
            StoreFailed: Its store has failed.
            Closed: The engine is closed.
            TypeError, ValueError: `timeout` is wrong.

        Inside your own `building()` block it does not wait.

        Cost: O(selectors of the queue, and sets of them that messages wait for), and the run that follows.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     number = jobs.publish("resize")
        ...     with engine.get("jobs") as message:
        ...         print(message.address)
        ...     engine.get("jobs")
        resize
        """
        if type(timeout) is not float or not timeout >= 0:      # the usual one is checked without a call, as in `take`
            check_timeout(timeout)
        self._check_open()
        handle = self._queue(queue, "queue")
        delivery = self._get(handle)
        if delivery is None and timeout != 0 and not self._is_building():
            delivery = self._wait(partial(self._get, handle), handle, timeout)
        return delivery

    def _is_building(self) -> bool:
        """Whether this thread is in a building block of its own, in which it would wait in vain."""
        return threading.get_ident() in self._builders

    def take_batch(self, n: int, destination: Destinations = None, *, timeout: float | None = 0.0) -> DeliveryBatch:
        """Take up to `n` deliveries as Arrow columns, which pyarrow, Polars and DuckDB read without a copy.

        Args:
            n: The largest number of rows.
            destination: The destination (consumer name) to take from; several, as a list, tuple or set; None: all destinations.
            timeout: How many seconds to wait for the first delivery, if there is none; None: for ever.

        Returns:
            A batch with the columns `address`, `body`, `headers` (a struct), `reply_to`, `message_id`, `correlation_id`,
            `expires`, `priority`, `id`, `queue`, `destination`, `delivery_count` and `timestamp`. Answer it with `batch.ack()`
            and `batch.nack(ids)`. `publish_batch` accepts such a batch.

        Raises:
            Closed: The engine is closed, or is closed while the call waits.
            TypeError, ValueError: An argument is wrong.

        Cost: O(n), a fraction of `take` a row.

        >>> from xump import Engine, always, deliver
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     selector = engine.create_selector("jobs", when=always, do=deliver("worker"), credit=10)
        ...     ids = engine.publish_many("jobs", [("resize",), ("rotate",)])
        ...     batch = engine.take_batch(10, "worker")
        ...     len(batch), batch.ack()
        (2, None)
        """
        check_count("n", n, 0, COUNT_MAX)
        destination = self._checked_taking(destination, timeout)
        batch = take_batch(self, n, destination)
        if len(batch) or n == 0:
            return batch
        if timeout != 0:
            batch = self._wait(partial(take_batch, self, n, destination), destination, timeout)
        if not len(batch):
            self._notice_nothing(destination)
        return batch

    def browse_batch(
        self,
        queue: str | Queue,
        start: BrowseStart = "head",
        *,
        state: State | None = None,
        where: FilterSource | Where | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> ArrowBatch:
        """Look at messages of a queue as Arrow columns, as `Queue.browse_batch` does. Nothing is consumed.

        Args:
            queue: The queue, or its name.
            start, state, where, limit, reverse: As for `Queue.browse`.

        Returns:
            A batch as `Queue.browse_batch` gives it.

        Raises:
            QueueNotFound: No queue has this name.
            InvalidFilter, StoreFailed, Closed, TypeError, ValueError: As `Queue.browse_batch`.

        Cost: O(1) a message looked at, a fraction of `Queue.browse`.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     number = engine.create_queue("jobs").publish("resize")
        ...     len(engine.browse_batch("jobs")), engine.queues["jobs"].ready
        (1, 1)
        """
        self._check_open()
        return self._queue(queue, "queue").browse_batch(start, state=state, where=where, limit=limit, reverse=reverse)

    def _checked_taking(self, destination: Destinations, timeout: object) -> str | tuple[str, ...] | None:
        # The usual arguments are checked without a call: this runs for every `take_batch`.
        wanted = destination if destination is None or type(destination) is str else checked_destination(destination)
        if type(timeout) is not float or not timeout >= 0:
            check_timeout(timeout)
        self._check_open()
        if self._looks_for_held:
            self._warn_of_held()
        return wanted

    def _warn_of_nacked(self, destination: Destinations) -> None:
        """Warn once if an iteration that never ends waits, while all that is offered to it was nacked since it began."""
        if not self._warned_of_nacks:
            self._warned_of_nacks = True
            warnings.warn(
                f"deliveries({destination!r}, timeout=None) waits, though there are messages for it: they were nacked since it "
                "began, and an iteration does not give such a message again. Give the queue a retry_delay, or take in a loop: "
                f"while True: for delivery in engine.take(10, {destination!r}, timeout=None): ...", stacklevel=3)

    def _warn_of_held(self) -> None:
        """Warn once if queues of a reopened store have selectors and are still held, so that they deliver nothing."""
        try:
            held = [queue.name for queue in (*self._reopened, *self._awaiting.queues)
                    if self._queues.get(queue.name) is queue and queue.held]
            held = [name for name in held if any(selector.source == name for selector in list(self._selectors.values()))]
        except (SelectorNotFound, QueueNotFound, Closed):       # by another thread, meanwhile; the next call looks again
            return
        self._looks_for_held = bool(self._reopened or self._awaiting.queues) and not held
        if held:
            self._warned_of_held = True
            warnings.warn(f"held since their store was opened: {', '.join(map(repr, held))}. These queues deliver nothing until "
                          "you end a `with engine.building():` block, or call release() on them; those of a broker, until that "
                          "has started", stacklevel=4)

    def _notice_nothing(self, wanted: str | tuple[str, ...] | None, level: int = 3) -> None:
        """Called when there was nothing to take. Warn once of a destination to which no selector ever delivered, and once of acks
        that seem to be forgotten. For these it looks at all selectors: in the 1st, 2nd, 4th, 8th ... such call only."""
        if isinstance(wanted, tuple):
            for one in wanted:
                self._notice_nothing(one, level + 1)
            return
        destination = wanted
        self._found_nothing += 1
        known = self._destinations
        if destination is not None and known is not None and destination not in known:
            if destination not in self._warned_of and len(self._warned_of) < WARNINGS_MAX:
                self._warned_of.add(destination)
                names = ", ".join(map(repr, sorted(known)))
                there = f"the destinations are {names}" if names else "no selector delivers to your program"
                warnings.warn(f"no selector delivers to {destination!r}; {there}", stacklevel=level)
        elif self._found_nothing & (self._found_nothing - 1) == 0 and not self._warned_of_acks:
            for selector in list(self._selectors.values()):
                try:
                    forgotten = self._forgotten_acks(selector, destination)
                except (SelectorNotFound, QueueNotFound, Closed):       # by another thread, meanwhile
                    continue
                if forgotten:
                    self._warned_of_acks = True
                    warnings.warn(forgotten, stacklevel=level)
                    return

    def _forgotten_acks(self, selector: Selector, destination: str | None) -> str:
        """The warning, if the selector delivers to this destination, and messages wait only for answers to what your program has;
        else an empty text."""
        do, queue = selector.do, selector.source
        if do.verb != "deliver" or do.queue is not None or not selector.enabled or destination not in (None, do.destination):
            return ""
        if selector.credit is INFINITE or not selector.available == 0 < selector.outstanding or not queue.ready:
            return ""
        return (f"all credit of selector {selector.id} is used up: your program has {selector.outstanding} of its deliveries "
                f"from queue {queue.name!r}, and messages wait there: {queue.ready}. Ack each delivery, or give the selector "
                "more credit")
