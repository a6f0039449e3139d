"""A transaction: publishes and acks that happen together when the block ends, or not at all."""

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


class Transaction:
    """Made by `Engine.transaction()`. Nothing happens before the block ends; an exception inside: nothing at all."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._operations: list[tuple[Any, ...]] = []
        self._state = "new"
        self.ids: list[int] = []
        """The ids of what was published, in order, after the commit; 0 for what was dead-lettered."""

    def publish(
        self,
        queue: Any,
        address: str = "",
        body: bytes = b"",
        headers: Any = None,
        *,
        reply_to: str | None = None,
        message_id: str | None = None,
    ) -> None:
        """As `Engine.publish`, at the commit. The message is checked now, whether there is the queue, and room in it, then."""
        self._check_open()
        if not isinstance(queue, (str, QueueHandle)):
            raise TypeError(f"a queue is named by a str or given as a Queue, got {type(queue).__name__}")
        message = Message(address, body, headers, reply_to=reply_to, message_id=message_id)
        self._operations.append(("publish", queue, message))

    def ack(self, deliveries: Delivery | Iterable[Delivery]) -> None:
        """As `Engine.ack` of one or of many, at the commit, which raises `StaleDelivery` for one that is stale then, or acked
        twice. Raises TypeError for what is no delivery."""
        self._check_open()
        if isinstance(deliveries, DeliveryBatch):
            raise TypeError("a DeliveryBatch is acked by itself, outside of a transaction: batch.ack()")
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
            raise TransactionError(f"the transaction is {self._state}; a transaction is used once")
        self._state = "open"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._state = "rolled back"
        if kind is None:
            self._engine._commit(self)
