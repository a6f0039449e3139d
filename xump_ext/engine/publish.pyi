"""Publishing: a part of the engine's class, after `EngineEnqueue`."""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, Literal, overload

from xump_ext.engine.enqueue import EngineEnqueue
from xump_ext.engine.handles import QueueHandle
from xump_ext.message.message import Message, _Body, _HeaderValue
from xump_ext.outcome import Outcome

class EnginePublish(EngineEnqueue):
    """A part of the engine's class: messages come in."""

    def publish(
        self,
        queue: str | QueueHandle,
        address: str | Message = "",
        body: _Body = b"",
        headers: Mapping[str, _HeaderValue] | None = None,
        *,
        reply_to: str | None = None,
        message_id: str | None = None,
        correlation_id: str | None = None,
        delay: float | None = None,
        at: datetime.datetime | int | None = None,
        ttl: float | None = None,
        expires: datetime.datetime | int | None = None,
        priority: int = 0,
        timeout: float | None = 0.0,
    ) -> int:
        """Publish a message into a queue, and run the graph until nothing more happens.

        Args:
            queue: The queue that the message enters: its name, or a `Queue`.
            address: The text that the message is routed by (a routing key), at most 65,534 bytes of UTF-8; or a whole
                `Message`: then pass only `delay`, `at`, `ttl` and `timeout` with it.
            body: Up to 64 MiB of bytes.
            headers: Values by name: bool, int (64 bits, signed), float, str or bytes; together at most 1 MiB.
            reply_to: The address for answers.
            message_id: Your own name for the message.
            correlation_id: The `message_id` of the message that this one answers, or what else joins the two.
            delay: After how many seconds the message is due: until then it is in the queue, but not ready.
            at: When the message is due, instead of `delay`: an aware datetime, or POSIX nanoseconds.
            ttl: How many seconds the message may wait from when it is due; then it expires.
            expires: When the message expires, instead of `ttl`: an aware datetime, or POSIX nanoseconds.
            priority: 0 to 255; queues with a priority take higher ones first.
            timeout: How many seconds to wait for room, if the queue is full; None: for ever. Before the call that makes
                room returns, it lets in the publishers that wait, first come, first served. Inside your own `building()` block it
                does not wait.

        Returns:
            The id that the queue issued: 1, 2, 3 and so on, also if the message went on at once. 0 if the message went to a dead
            letter queue instead, or through a transit queue, which issues none.

        Raises:
            QueueNotFound: No queue has this name, and no dead letter queue of the engine takes the message.
            QueueFull: The queue is full, also after `timeout`, and neither an overflow selector nor a dead letter queue takes the
                message.
            StoreFull, StoreFailed: The store cannot write it.
            Closed: The engine is closed.
            TypeError, ValueError: An argument is wrong.

        If it raises, nothing has changed.

        Cost: O(length of the address) the first time an address is seen, one look-up later; and the run that follows.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     engine.publish("jobs", "resize", b"cat.png", {"width": 80})
        1
        """
    @overload
    def publish_many(
        self,
        queue: str | QueueHandle,
        messages: Iterable[Message | tuple[Any, ...]],
        *,
        correlation_id: str | None = None,
        delay: float | None = None,
        at: datetime.datetime | int | None = None,
        ttl: float | None = None,
        expires: datetime.datetime | int | None = None,
        priority: int = 0,
        outcomes: Literal[False] = False,
    ) -> range:
        """Publish many messages with one call and one run: all of them enter the queue, or none does; or each for itself.

        Args:
            queue: The queue that the messages enter: its name, or a `Queue`.
            messages: An iterable of `Message` objects, or of tuples in the order of the arguments of `Message`: `(address, body,
                headers, reply_to, message_id)`, of which you may leave out the last ones.
            correlation_id, delay, at, ttl, expires, priority: As for `publish`, of all messages. If you publish `Message`
                objects, set these in each of them: do not pass `correlation_id`, `expires` or `priority` here, nor `ttl` if one
                of them has `expires`.
            outcomes: False: all messages enter, or the call raises and none does. True: each message enters if there is room for
                it, and the call returns an `Outcome` for each.

        Returns:
            The range of the ids that the queue issued. With `outcomes`: a list with an `Outcome` for each message, which says
            what became of it in this call: its id, how many queues took it, how many refused it, and more.

        Raises:
            QueueNotFound: No queue has this name, and no dead letter queue of the engine takes the messages.
            QueueFull: The queue has no room for all messages.
            StoreFull, StoreFailed: The store cannot write them.
            Closed: The engine is closed.
            TypeError, ValueError: A message is wrong.

        If it raises, nothing has changed.

        Cost: O(messages), each as with `publish` without the call; and the run that follows.

        >>> from xump import Engine
        >>> with Engine() as engine:
        ...     jobs = engine.create_queue("jobs")
        ...     engine.publish_many("jobs", [("resize", b"cat.png"), ("rotate", b"dog.png")])
        range(1, 3)
        """
    @overload
    def publish_many(
        self,
        queue: str | QueueHandle,
        messages: Iterable[Message | tuple[Any, ...]],
        *,
        correlation_id: str | None = None,
        delay: float | None = None,
        at: datetime.datetime | int | None = None,
        ttl: float | None = None,
        expires: datetime.datetime | int | None = None,
        priority: int = 0,
        outcomes: Literal[True],
    ) -> list[Outcome]: ...
