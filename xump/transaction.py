"""Transactions: publishes and acks that happen together when a block ends, or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from xump.errors import TransactionError
from xump_ext.arrow.batch import DeliveryBatch
from xump_ext.engine.delivery import Delivery
from xump_ext.engine.handles import QueueHandle
from xump_ext.message.message import Message

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump.queue import Queue
    from xump.types import Body, Headers


class Transaction:
    """Publishes and acks that happen together when the `with` block ends. Created by `Engine.transaction`; used once.

    If the block raises, nothing happens.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._operations: list[tuple[Any, ...]] = []
        self._state = "new"
        self.ids: list[int] = []
        """After the block: the ids of the published messages, in order; 0 for one that went to a dead letter queue instead."""

    def publish(
        self,
        queue: str | Queue,
        address: str = "",
        body: Body = b"",
        headers: Headers | None = None,
        *,
        reply_to: str | None = None,
        message_id: str | None = None,
    ) -> None:
        """Publish a message into a queue when the block ends.

        Args:
            queue: The queue, by its name or as a `Queue`.
            address: The text that the message is routed by (a routing key).
            body: Up to 64 MiB of bytes.
            headers: Values by name: bool, int, float, str or bytes.
            reply_to: The address for answers.
            message_id: Your own name for the message.

        Raises:
            TypeError, ValueError: An argument is wrong.
            TransactionError: The block has ended.

        The message is checked now. Whether the queue exists and has room is checked when the block ends, which then raises
        `QueueNotFound`, `QueueFull` or `StoreFull`. Cost: O(1) now.
        """
        self._check_open()
        if not isinstance(queue, (str, QueueHandle)):
            raise TypeError(f"a queue is named by a str or given as a Queue, got {type(queue).__name__}")
        message = Message(address, body, headers, reply_to=reply_to, message_id=message_id)
        self._operations.append(("publish", queue, message))

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
        self._check_open()
        if isinstance(deliveries, DeliveryBatch):
            raise TypeError("a transaction cannot ack a DeliveryBatch; ack it outside of the transaction: batch.ack()")
        given = [deliveries] if isinstance(deliveries, Delivery) else list(deliveries)
        for delivery in given:
            if not isinstance(delivery, Delivery):
                raise TypeError(f"expected a Delivery, got {type(delivery).__name__}")
        self._operations += [("ack", delivery) for delivery in given]

    def _check_open(self) -> None:
        if self._state != "open":
            raise TransactionError(f"the transaction is {self._state}; use it inside its with block, once")

    def __enter__(self) -> Transaction:
        if self._state != "new":
            raise TransactionError(f"the transaction is {self._state}, and can be used once: call engine.transaction() again")
        self._state = "open"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._state = "rolled back"
        if kind is None:
            self._engine._commit(self)
