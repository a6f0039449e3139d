"""Deliveries: messages in your program's hands."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, NoReturn, Self, final

from xump.queue import Queue
from xump.selector import Selector
from xump_ext.message.message import Message, _HeaderValue

def nack_terms(delivery: object, requeue: bool, delay: float | None) -> tuple[str, object, Any]:
    """The operation of a transaction that a nack is: (verb, delivery, argument). Raises for arguments that are wrong."""

def reject_terms(delivery: object, reason: str) -> tuple[str, object, str | None]:
    """The operation of a transaction that a reject is. Raises for a reason that is no text, or too long."""

@final
class Delivery:
    """A message that was handed to your program under a destination (consumer name).

    Answer it once, with `ack`, `nack` or `reject`. As a context manager it gives the message, and acks it when the block ends or
    nacks it when the block raises. A delivery is stale once it was answered, or once the engine has taken the message back,
    because its selector was deleted for example. If the selector has `INFINITE` credit, the delivery is settled already, and
    answering it does nothing.

    >>> from xump import Engine, always, deliver
    >>> with Engine() as engine:
    ...     jobs = engine.create_queue("jobs")
    ...     worker = engine.create_selector("jobs", when=always, do=deliver("worker"))
    ...     number = jobs.publish("resize", b"cat.png")
    ...     [delivery] = engine.take(1, "worker")
    ...     with delivery as message:
    ...         print(message.address, message.body)
    resize b'cat.png'
    """

    def __new__(cls) -> Self: ...
    @property
    def message(self) -> Message:
        """The message that was delivered."""
    @property
    def destination(self) -> str:
        """The destination (consumer name) under which it was delivered."""
    @property
    def queue(self) -> Queue:
        """The queue that it was taken from."""
    @property
    def selector(self) -> Selector:
        """The selector that took the message and delivered it."""
    @property
    def id(self) -> int:
        """The id of the message in its queue."""
    @property
    def address(self) -> str:
        """The address of the message, by which it was routed."""
    @property
    def body(self) -> bytes:
        """The body of the message, as bytes."""
    @property
    def headers(self) -> Mapping[str, _HeaderValue]:
        """The headers of the message, a read-only mapping."""
    @property
    def delivery_count(self) -> int:
        """How often your program has taken this message, this time included."""
    @property
    def redelivered(self) -> bool:
        """Whether it may have been handled before: your program took it, or it came back with a reopened store."""
    @property
    def group(self) -> str | None:
        """The key by which its queue orders the message, or None."""
    def extend(self, seconds: float) -> None:
        """Give your program more time to answer: so many seconds, from now on.

        Args:
            seconds: Instead of what was left of the selector's `ack_timeout`.

        Raises:
            StaleDelivery: It was answered before, or its time was over.
            ValueError: Its selector has no `ack_timeout`, so it can be answered at any time; or `seconds` is wrong.
            Closed: The engine is closed.

        Cost: O(1).
        """
    def reply(self, body: bytes | bytearray | memoryview = b"", headers: Mapping[str, _HeaderValue] | None = None) -> int:
        """Publish a reply to the queue that the message names in `reply_to`. It acknowledges nothing.

        Args:
            body: Up to 64 MiB of bytes.
            headers: Values by name.

        Returns:
            The id of the reply in that queue, as `Engine.publish` does. The reply's `correlation_id` is the `message_id` of this
            message, or, if that has none, its `correlation_id`.

        Raises:
            ValueError: The message has no `reply_to`.
            QueueNotFound, QueueFull, StoreFull, StoreFailed, Closed, TypeError: As `Engine.publish`.
        """
    def ack(self) -> None:
        """Acknowledge this message: it is settled in its queue, and in every queue that it was moved through.

        Raises:
            StaleDelivery: It was answered before, or the engine has taken it back.
            StoreFailed: The store of the message has failed: the message is settled in memory, and the store still has it.
            Closed: The engine is closed.

        If it raises another error, nothing has changed.

        Cost: O(queues that it was moved through), and the run that follows.
        """
    def nack(self, *, requeue: bool = True, delay: float | None = None) -> None:
        """Return the message to its old place in its queue, to be taken again.

        Args:
            requeue: False: do not return the message; dead-letter it as `reject` does.
            delay: After how many seconds it may be taken again; until then it is delayed in its queue. None: as the `retry_delay`
                of its queue says, or of the nearest queue upstream where the message is still outstanding; at once if none has
                one.

        Raises:
            StaleDelivery: It was answered before, or the engine has taken it back.
            StoreFull: With `requeue=False`, and a store has no room for the dead letter.
            StoreFailed: The store of the message has failed: what was decided counts in memory only.
            Closed: The engine is closed.
            TypeError, ValueError: `requeue` is not a bool, or `delay` is wrong, or is given with `requeue=False`.

        If it raises another error, nothing has changed. A message that your program has taken as often as its
        `delivery_limit` allows is dead-lettered; as long as a store has no room for that, it returns.

        Cost: O(log messages that returned before), and the run that follows.
        """
    def reject(self, reason: str = "rejected") -> None:
        """Never deliver this message again: it goes to the dead letter queue, or is dropped and counted if there is none.

        Args:
            reason: A text for the header `xump_detail` of the dead letter; the default adds no such header.

        Raises:
            StaleDelivery: It was answered before, or the engine has taken it back.
            StoreFull: A store has no room for the dead letter.
            StoreFailed: The store of the message has failed: the message is settled in memory, and the store still has it.
            Closed: The engine is closed.
            TypeError, ValueError: `reason` is not a str, or is too long.

        If it raises another error, nothing has changed.

        Cost: O(queues that it was moved through), and the run that follows.
        """
    def __reduce__(self) -> NoReturn: ...
    def __enter__(self) -> Message: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
