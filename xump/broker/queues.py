"""Queues as clients see them: a queue of the engine, and what only AMQP knows of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from xump.broker.consumers import Consumers
from xump.broker.queue_arguments import number, queue_type, string
from xump.broker.tables import Table, Typed

if TYPE_CHECKING:
    from xump.broker.connection import Connection
    from xump.queue import Queue


REPLY_TO = "amq.rabbitmq.reply-to"
"""Of direct reply-to: the name that a client consumes by, and that its messages have as `reply-to`."""


def is_for_replies(name: str) -> bool:
    """Whether it is the name of direct reply-to, or of a consumer's own queue for replies. Clients publish to such a queue, and
    may ask whether it is there; for everything else there is none of that name."""
    return name.startswith(REPLY_TO)


def is_stored(handle: Queue) -> bool:
    """Whether the queue keeps its messages on disk."""
    return bool(getattr(handle.store.backend, "durable", False))


class BrokerQueue:
    """A queue of a virtual host."""

    def __init__(
        self, vhost: str, handle: Queue, durable: bool, owner: Connection | None, auto_delete: bool, arguments: Table
    ) -> None:
        self.name = handle.name
        """Its name."""
        self.what = f"queue '{self.name}' in vhost '{vhost}'"
        """Its name in texts of errors."""
        self.handle = handle
        """The queue of the engine."""
        self.durable = durable
        """Whether it was declared durable."""
        self.stored = is_stored(handle)
        """Whether its messages are on disk."""
        self.owner = owner
        """The connection that has it exclusively; None: it is for all."""
        self.auto_delete = auto_delete
        """Whether it goes with its last consumer."""
        self.arguments = arguments
        """The arguments of queue.declare."""
        self.consumers = Consumers(arguments.get("x-single-active-consumer", Typed("t", False)).value)
        """Its consumers."""
        self.expiry: asyncio.TimerHandle | None = None
        """The timer that deletes it when it is not used."""
        self.expires_ms = number(arguments, "x-expires")
        """After how many milliseconds without use it goes; None: never."""
        self.ttl_ms = number(arguments, "x-message-ttl")
        """After how many milliseconds its messages expire; None: never."""
        self.dead_letter_exchange = string(arguments, "x-dead-letter-exchange")
        """Where its dead letters go; None: they are dropped."""
        self.dead_letter_key = string(arguments, "x-dead-letter-routing-key")
        """The routing key of its dead letters; None: their own."""
        self.overflow = string(arguments, "x-overflow")
        """How it treats messages when it is full."""
        self.is_quorum = queue_type(arguments) == "quorum"
        """Whether it was declared as a quorum queue: then what comes again says how often it came."""
        self.limit = number(arguments, "x-max-length")
        """How many messages may be ready or delayed; None: any number."""
        self.limit_bytes = number(arguments, "x-max-length-bytes")
        """How many bytes their bodies may have; None: any number."""

    def has_room(self, body_bytes: int) -> bool:
        """Whether bodies of so many bytes more are no more than `x-max-length-bytes` allows, if the queue refuses what is more.
        The engine asks only whether there is room at all."""
        return self.limit_bytes is None or self.overflow != "reject-publish" or (
            self.handle._body_bytes + body_bytes <= self.limit_bytes)

    @property
    def exclusive_consumer(self) -> bool:
        """Whether a consumer has the queue for itself."""
        return any(consumer.exclusive for consumer in self.consumers)
