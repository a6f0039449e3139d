"""A message on its way into a virtual host, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from xump.broker.envelope import annex, headers_of, split, with_header
from xump.broker.errors import precondition
from xump.broker.exchanges import Exchange
from xump.broker.tables import INTEGERS, Typed
from xump.queue import Queue
from xump_ext.message.message import Message

DELAY = "x-delay"
DELAY_MAX = 10**12
"""Milliseconds: 31 years. RabbitMQ's plug-in does not delay what is above 2**32."""
DIGITS_MAX = 20
"""Of a number of 64 bits, with its sign."""


class Entering(NamedTuple):
    """A message that is to enter a queue: the arguments of `Transaction.publish`."""

    queue: Queue
    """The queue."""
    content: Message
    """The message."""
    delay: float | None
    """After how many seconds it may be taken; None: at once."""
    ttl: float | None
    """After how many seconds it expires; None: never."""


@dataclass
class Incoming:
    """A message that is to be routed."""

    exchange: Exchange
    """Where it was published."""
    keys: tuple[str, ...]
    """The routing key, and those in CC and BCC."""
    annex: tuple[int, bytes]
    """The bytes that travel with its body."""
    properties: bytes
    """Property flags and list."""
    body: bytes
    """The body."""
    priority: int = 0
    """Its priority."""
    expiration_ms: int | None = None
    """After how many milliseconds it expires; None: never."""
    _contents: dict[tuple[bool, bool], Message] = field(default_factory=dict)       # delayed or not, with its id or not

    @cached_property
    def delay_ms(self) -> int:
        """After how many milliseconds exchanges that delay let it through, as its header `x-delay` says; 0: at once. Raises
        `ProtocolError` 406 if that is too long."""
        given = headers_of(self.properties).get(DELAY)
        if given is None or not (given.kind in INTEGERS or (given.kind == "S" and given.value.isdigit())):
            return 0
        digits = str(given.value) if given.kind in INTEGERS else given.value.decode().lstrip("0")
        if len(digits) > DIGITS_MAX or int(digits or 0) > DELAY_MAX:        # Python makes no int of thousands of digits
            raise precondition(f"{DELAY} of {digits[:2 * DIGITS_MAX]} ms: at most {DELAY_MAX} are possible")
        return max(int(digits or 0), 0)

    @cached_property
    def message_id(self) -> str | None:
        """Its id, by which a queue with `dedup` knows a copy."""
        given = split(self.properties).get("message_id")
        return None if given is None else given[1:].decode(errors="backslashreplace")

    @property
    def content(self) -> Message:
        """As it enters an exchange, whose engine routes it by all of its keys."""
        return self._content(False, False)

    def entering(self, queue: Queue, delayed: bool) -> Entering:
        """As it enters a queue, `delayed` by an exchange or not. Queues share its content."""
        key = delayed, queue.dedup is not None
        content = self._contents.get(key)
        if content is None:
            content = self._contents[key] = self._content(*key)
        return Entering(queue, content, self.delay_ms / 1000 if delayed else None,
                        None if self.expiration_ms is None else self.expiration_ms / 1000)

    def _content(self, delayed: bool, named: bool) -> Message:
        """One that was delayed says so as with RabbitMQ's plug-in: its delay is negative."""
        travels = self.annex
        if delayed:
            properties = with_header(self.properties, DELAY, Typed("l", -self.delay_ms))
            travels = annex(self.exchange.name.encode(), properties, tuple(key.encode() for key in self.keys[1:]))
        name = self.message_id if named else None
        return Message(self.keys[0], self.body, message_id=name, priority=self.priority, annex=travels)


@dataclass(slots=True)
class Outcome:
    """The outcome of a message."""

    queues: int = 0
    """How many queues it was for."""
    refused: bool = False
    """Whether a queue had no room for it."""
    full_store: bool = False
    """Whether a store had no room for it."""
    durable: bool = False
    """Whether it lies in a durable store."""
