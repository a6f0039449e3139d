"""A transaction: publishes and acks that happen together when the block ends, or not at all."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from xump.errors import TransactionError
from xump_ext.message import Message

if TYPE_CHECKING:
    from xump.engine import Engine
    from xump_ext.delivery import Delivery


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
        """As `Engine.publish`, at the commit. The message is checked now, the queue and its room then."""
        self._check_open()
        message = Message(address, body, headers, reply_to=reply_to, message_id=message_id)
        self._operations.append(("publish", queue, message))

    def ack(self, delivery: Delivery) -> None:
        """As `Delivery.ack`, at the commit, which raises `StaleDelivery` for one that is stale then, or acked twice."""
        self._check_open()
        self._operations.append(("ack", delivery))

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
