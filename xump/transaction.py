"""Transactions: publishes and answers that happen together when a block ends, or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from xump.errors import TransactionError
from xump.store_types import Store
from xump_ext.arrow.batch import DeliveryBatch
from xump_ext.engine.delivery import Delivery, nack_terms, reject_terms
from xump_ext.engine.handles import QueueHandle
from xump_ext.errors import iterator_of, no_pickle
from xump_ext.log.meta import checked_item
from xump_ext.message.message import Message, _check_alone
from xump_ext.message.times import times_or_none

if TYPE_CHECKING:
    from xump._meta import Changes
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.types import Body, Headers, Moment


NO_PRIORITY = 0


class Transaction:
    """Publishes and acks that happen together when the `with` block ends. Created by `Engine.transaction`; used once.

    If the block raises, nothing happens.
    """

    __slots__ = ("_engine", "_maps", "_operations", "_state", "_timeout", "ids")

    def __init__(self, engine: Engine, timeout: float | None = 0.0) -> None:
        self._engine = engine
        self._timeout = timeout     # how long its end waits for room; one that waits publishes into one queue, and acks nothing
        self._operations: list[tuple[Any, ...]] = []
        self._maps: list[tuple[str | Queue | Store, Changes]] = []
        self._state = "new"
        self.ids: list[int] = []
        """After the block: the ids of the published messages, in order; 0 for one that went to a dead letter queue instead."""

    def publish(
        self,
        queue: str | Queue,
        address: str | Message = "",
        body: Body = b"",
        headers: Headers | None = None,
        *,
        reply_to: str | None = None,
        message_id: str | None = None,
        correlation_id: str | None = None,
        delay: float | None = None,
        at: Moment | None = None,
        ttl: float | None = None,
        expires: Moment | None = None,
        priority: int = NO_PRIORITY,
    ) -> None:
        """Publish a message into a queue when the block ends.

        Args:
            queue: The queue, by its name or as a `Queue`.
            address: The text that the message is routed by (a routing key); or a `Message`, and beside it only `delay`, `at` and
                `ttl`.
            body: Up to 64 MiB of bytes.
            headers: Values by name: bool, int, float, str or bytes.
            reply_to: The address for answers.
            message_id: Your own name for the message.
            correlation_id, delay, at, ttl, expires, priority: As for `Engine.publish`; `delay` and `ttl` count from the end of
                the block.

        Raises:
            TypeError, ValueError: An argument is wrong.
            TransactionError: The block has ended.

        The message is checked now. Whether the queue exists and has room is checked when the block ends, which then raises
        `QueueNotFound`, `QueueFull` or `StoreFull`. Cost: O(1) now.
        """
        if self._state != "open":
            self._check_open()
        if not isinstance(queue, (str, QueueHandle)):
            raise TypeError(f"a queue is named by a str or given as a Queue, got {type(queue).__name__}")
        times = None
        if delay is not None or at is not None or ttl is not None:
            times = times_or_none(delay, at, ttl, expires)
        if isinstance(address, Message):
            _check_alone(body, headers, reply_to, message_id, correlation_id, expires, priority)
            message = address
            times_or_none(delay, at, ttl, message.expires)      # raises for a ttl beside a message that expires
        elif expires is None and reply_to is message_id is correlation_id is None and priority is NO_PRIORITY:
            message = Message(address, body, headers)       # what most have
        else:
            message = Message(address, body, headers, reply_to=reply_to, message_id=message_id, correlation_id=correlation_id,
                              expires=expires, priority=priority)
        self._operations.append(("publish", queue, message, times))

    def ack(self, deliveries: Delivery | Iterable[Delivery]) -> None:
        """Ack one or many deliveries when the block ends.

        Args:
            deliveries: A `Delivery`, or an iterable of them.

        Raises:
            TypeError: An item is not a `Delivery`.
            TransactionError: The block has ended.

        The end of the block raises `StaleDelivery` if a delivery is stale then, or is given twice; then nothing happens.
        Cost: O(deliveries) now.
        """
        if self._state != "open":
            self._check_open()
        if isinstance(deliveries, DeliveryBatch):
            raise TypeError("a transaction cannot ack a DeliveryBatch; ack it outside of the transaction: batch.ack()")
        if isinstance(deliveries, Delivery):
            self._operations.append(("ack", deliveries, None))
            return
        if type(deliveries) is not list:
            deliveries = iterator_of(deliveries, "deliveries must be a Delivery or an iterable of them")
        given = list(deliveries)
        for delivery in given:
            if not isinstance(delivery, Delivery):
                raise TypeError(f"expected a Delivery, got {type(delivery).__name__}")
        self._operations += [("ack", delivery, None) for delivery in given]

    def nack(self, delivery: Delivery, *, requeue: bool = True, delay: float | None = None) -> None:
        """Return a message to its queue when the block ends, as `Delivery.nack` does.

        Args:
            delivery: The delivery.
            requeue: False: dead-letter it, as `reject` does.
            delay: After how many seconds it may be taken again; None: as its queue's `retry_delay` says.

        Raises:
            TypeError, ValueError: An argument is wrong.
            TransactionError: The block has ended.

        The message counts in the limits of its queue for what the transaction publishes after that. Cost: O(1) now.
        """
        self._answer(delivery, nack_terms(delivery, requeue, delay))

    def reject(self, delivery: Delivery, reason: str = "rejected") -> None:
        """Dead-letter a message when the block ends, as `Delivery.reject` does.

        Args:
            delivery: The delivery.
            reason: A text for the header `xump_detail` of the dead letter; the default adds no such header.

        Raises:
            TypeError, ValueError: An argument is wrong.
            TransactionError: The block has ended. The end of the block raises it, too, if the dead letter queue is in another
                durable store than the rest.

        Cost: O(1) now.
        """
        self._answer(delivery, reject_terms(delivery, reason))

    def set_meta(self, owner: str | Queue | Store, name: str, value: bytes | None) -> None:
        """Set a name in the map of a queue or store when the block ends, as `Queue.meta` and `Store.meta` do.

        Args:
            owner: The queue, by its name or as a `Queue`; or a `Store`.
            name: The name.
            value: Its value; None: the name is deleted, if it is there.

        Raises:
            TypeError, ValueError: An argument is wrong. The end of the block raises ValueError if the map would be too large.
            TransactionError: The block has ended.

        Cost: O(1) now; at the end, O(names and values in the map).

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     with engine.transaction() as tx:
        ...         tx.publish("jobs", "resize", b"cat.png")
        ...         tx.set_meta("jobs", "position", b"17")
        ...     jobs.ready, jobs.meta["position"]
        (1, b'17')
        """
        self._check_open()
        if not isinstance(owner, (str, QueueHandle, Store)):
            raise TypeError(f"a map is of a queue, named by a str or given as a Queue, or of a Store; got {type(owner).__name__}")
        self._maps.append((owner, [checked_item(name, value)]))

    def _answer(self, delivery: object, operation: tuple[Any, ...]) -> None:
        self._check_open()
        if not isinstance(delivery, Delivery):
            raise TypeError(f"expected a Delivery, got {type(delivery).__name__}")
        self._operations.append(operation)

    def _check_open(self) -> None:
        if self._state != "open":
            raise TransactionError("call publish and ack inside the block: with engine.transaction() as tx"
                                   if self._state == "new" else f"the transaction has ended ({self._state}); start another one")

    def __reduce__(self) -> NoReturn:
        raise no_pickle(self)

    def __enter__(self) -> Transaction:
        if self._state != "new":
            raise TransactionError("the transaction has begun already" if self._state == "open" else
                                   f"the transaction has ended ({self._state}); start another one")
        self._state = "open"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._state != "open":
            self._check_open()
        self._state = "rolled back"
        if kind is not None:
            return
        if self._timeout == 0.0:
            self._engine._commit(self)
        else:
            self._engine._commit_waiting(self._timeout, self)
