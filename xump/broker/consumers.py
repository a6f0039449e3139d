"""Consumers of a queue: whose turn it is, and what is on its way to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xump.broker.tables import Table

if TYPE_CHECKING:
    from xump.broker.channel import Channel
    from xump.broker.queues import BrokerQueue


class Consumer:
    """A basic.consume."""

    __slots__ = ("arguments", "channel", "exclusive", "no_ack", "prefetch", "priority", "queue", "tag", "unacked")

    def __init__(
        self, channel: Channel, queue: BrokerQueue, tag: str, no_ack: bool, exclusive: bool, prefetch: int, priority: int,
        arguments: Table,
    ) -> None:
        self.channel = channel
        """Its channel."""
        self.queue = queue
        """The queue that it consumes from."""
        self.tag = tag
        """Its name in its channel."""
        self.no_ack = no_ack
        """Whether what it gets counts as settled when it is written."""
        self.exclusive = exclusive
        """Whether it has the queue for itself."""
        self.prefetch = prefetch
        """How many messages it may have unacknowledged; 0: any number."""
        self.priority = priority
        """Those with a higher one are served first."""
        self.arguments = arguments
        """The arguments of basic.consume."""
        self.unacked = 0
        """How many messages it has that are not settled."""

    @property
    def ready(self) -> bool:
        """Whether it may be sent a message now."""
        if not self.channel.may_deliver:
            return False
        if self.no_ack:
            return True
        return (not self.prefetch or self.unacked < self.prefetch) and self.channel.has_window


class Consumers:
    """The consumers of one queue: the highest priority first, then round robin."""

    def __init__(self, single_active: bool) -> None:
        self.single_active = single_active
        """Whether only the oldest gets messages."""
        self._line: list[Consumer] = []         # in the order in which they came
        self._turns: list[Consumer] = []        # served longest ago first

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(list(self._line))

    def add(self, consumer: Consumer) -> None:
        """One more."""
        self._line.append(consumer)
        self._turns.append(consumer)
        self._turns.sort(key=lambda one: -one.priority)

    def remove(self, consumer: Consumer) -> None:
        """It has gone."""
        self._line.remove(consumer)
        self._turns.remove(consumer)

    def next(self) -> Consumer | None:
        """Who gets the next message; None: nobody can take one."""
        if self.single_active:
            return self._line[0] if self._line and self._line[0].ready else None
        return next((consumer for consumer in self._turns if consumer.ready), None)

    def served(self, consumer: Consumer) -> None:
        """It got a message: behind the others of its priority."""
        if len(self._turns) > 1:
            self._turns.remove(consumer)
            behind = next((at for at, one in enumerate(self._turns) if one.priority < consumer.priority), len(self._turns))
            self._turns.insert(behind, consumer)
