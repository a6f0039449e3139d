"""Taking deliveries from an engine: at once, by iteration, or as Arrow columns. `Taking` is a part of the class `xump.Engine`.

A call that waits holds no lock and does not poll: the call that offers a delivery wakes it.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from typing import TypeVar

from xump._arguments import COUNT_MAX, check_count, check_destination, check_timeout
from xump._graph import Graph
from xump_ext.arrow.batch import DeliveryBatch, take_batch
from xump_ext.engine.delivery import Delivery, DeliveryIterator

Taken = TypeVar("Taken")


class Taking(Graph):
    """The part of `xump.Engine` that hands deliveries to your program."""

    _warned_of_held = False

    def take(self, n: int, destination: str | None = None, *, timeout: float | None = 0.0) -> list[Delivery]:
        """Take up to `n` deliveries, in the order in which they were offered.

        Args:
            n: The largest number of deliveries to take.
            destination: The destination (consumer name) to take from; None: all destinations.
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
        check_count("n", n, 0, COUNT_MAX)
        self._check_taking(destination, timeout)
        taken = self._take(n, destination)
        if taken or timeout == 0 or n == 0:
            return taken
        return self._wait(lambda: self._take(n, destination) or None, destination, timeout) or []

    def deliveries(self, destination: str | None = None, *, timeout: float | None = 0.0) -> DeliveryIterator:
        """Iterate over the deliveries that there are, and over those that your acks release meanwhile.

        Args:
            destination: The destination (consumer name) to take from; None: all destinations, in the order in which deliveries
                were offered.
            timeout: The iteration ends when there has been no delivery for this many seconds; None: never.

        Returns:
            An iterator of `Delivery` objects. It does not yield messages again that were nacked after this call.

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
        self._check_taking(destination, timeout)
        return DeliveryIterator(self, destination, timeout)

    def take_batch(self, n: int, destination: str | None = None, *, timeout: float | None = 0.0) -> DeliveryBatch:
        """Take up to `n` deliveries as Arrow columns, which pyarrow, Polars and DuckDB read without a copy.

        Args:
            n: The largest number of rows.
            destination: The destination (consumer name) to take from; None: all destinations.
            timeout: How many seconds to wait for the first delivery, if there is none; None: for ever.

        Returns:
            A batch with the columns `address`, `body`, `headers` (a struct), `reply_to`, `message_id`, `id`, `queue`,
            `destination`, `delivery_count` and `timestamp`. Answer it with `batch.ack()` and `batch.nack(ids)`.

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
        self._check_taking(destination, timeout)
        batch = take_batch(self, n, destination)
        if len(batch) or timeout == 0 or n == 0:
            return batch
        return self._wait(lambda: take_batch(self, n, destination) or None, destination, timeout) or batch

    def _check_taking(self, destination: object, timeout: object) -> None:
        # The usual arguments are checked without a call: this runs for every `take`.
        if destination is not None and type(destination) is not str:
            check_destination(destination)
        if type(timeout) is not float or not timeout >= 0:
            check_timeout(timeout)
        self._check_open()
        if self._reopened:
            self._warn_of_held()

    def _warn_of_held(self) -> None:
        """Warn once if queues of a reopened store have selectors and are still held, so that they deliver nothing."""
        held = [queue.name for queue in self._reopened if self._queues.get(queue.name) is queue and queue.held]
        held = [name for name in held if any(selector.source == name for selector in list(self._selectors.values()))]
        if held and not self._warned_of_held:
            self._warned_of_held = True
            warnings.warn(f"held since their store was opened: {', '.join(map(repr, held))}. These queues deliver nothing until "
                          "you end a `with engine.building():` block, or call release() on them", stacklevel=4)

    def _wait(self, take: Callable[[], Taken | None], destination: str | None, timeout: float | None) -> Taken | None:
        """Call `take()` until it returns something other than None, at most for `timeout` seconds; else return None."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            woken = threading.Lock()
            woken.acquire()
            waiter = self._await(destination, woken.release)
            try:
                taken = take()
                if taken is not None:
                    return taken
                left = -1 if deadline is None else max(0.0, deadline - time.monotonic())
                if not woken.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
                    return take()
            finally:
                self._withdraw(waiter)
