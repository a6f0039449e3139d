"""Consumers of a queue: selectors of the engine, which know whose turn it is and how much each may have."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from xump import always, deliver
from xump.broker.tables import Table

if TYPE_CHECKING:
    from xump.broker.channel import Channel
    from xump.broker.queues import BrokerQueue
    from xump.selector import Selector
    from xump.window import Window

AHEAD = 64
"""So many messages the engine offers to a consumer ahead of what is written: the others wait for any."""
RANK_MAX = 32_767
"""Higher priorities count as this one."""

_numbers = itertools.count(1)


class Consumer:
    """A basic.consume."""

    __slots__ = ("arguments", "channel", "destination", "exclusive", "no_ack", "prefetch", "priority", "queue", "selector", "tag")

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
        self.destination = f"amq.consumer/{next(_numbers)}"
        """Under which the engine offers it messages."""
        self.selector: Selector | None = None
        """The selector that takes messages for it; None: it has not begun, or has ended."""

    def begin(self, window: Window | None, credit_max: int, enabled: bool) -> None:
        """From now on the engine offers it messages, if it is enabled."""
        credit = credit_max if self.no_ack or not self.prefetch else min(self.prefetch, credit_max)
        self.selector = self.queue.handle.engine.create_selector(
            self.queue.handle, when=always, do=deliver(self.destination), credit=credit, ahead=AHEAD, enabled=enabled,
            rank=max(-RANK_MAX - 1, min(self.priority, RANK_MAX)), window=None if self.no_ack else window)

    def end(self, recall: bool) -> None:
        """It gets nothing more. `recall`: what it has not settled returns to the queue."""
        selector, self.selector = self.selector, None
        if selector is not None:
            selector.delete(recall=recall)


class Consumers:
    """The consumers of one queue, in the order in which they came."""

    def __init__(self, single_active: bool) -> None:
        self.single_active = single_active
        """Whether only one of them gets messages, as long as it is there."""
        self._line: list[Consumer] = []
        self._active: Consumer | None = None

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(list(self._line))

    def __contains__(self, consumer: object) -> bool:
        return consumer in self._line

    def add(self, consumer: Consumer) -> None:
        """One more."""
        self._line.append(consumer)
        if self.single_active and self._active is None:
            self._active = consumer

    def remove(self, consumer: Consumer) -> None:
        """It has gone. Of a queue with a single active consumer the next one is it now: the oldest of the highest priority."""
        self._line.remove(consumer)
        if self._active is not consumer:
            return
        self._active = max(self._line, key=lambda one: one.priority, default=None)
        if self._active is not None and self._active.selector is not None:
            self._active.selector.enable()

    def is_active(self, consumer: Consumer) -> bool:
        """Whether it may get messages."""
        return not self.single_active or self._active is consumer
